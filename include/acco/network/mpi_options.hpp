// SPDX-License-Identifier: Apache-2.0
// What a program may choose of MPI, and what it is told where the job's settings work against that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sched.h>

#include "acco/error.hpp"
#include "acco/network/message_sum.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Who makes MPI progress while the trainer computes.
enum class mpi_progress {
  helper_thread,  ///< the queue's thread asks MPI and sleeps in between,
                  ///< at most 1 ms; needs MPI_THREAD_SERIALIZED at least
  poll,           ///< the trainer, whenever it calls `training.poll()`: call it about every millisecond of computation
  none,           ///< nobody: communication happens when the trainer waits for it, and is not hidden
};

struct mpi_options {
  mpi_progress progress = mpi_progress::helper_thread;
  /// Of a rank's part that travels and is summed as one, the same on every rank, at most 1 GiB; 0: 128 KiB, less for
  /// more ranks.
  std::size_t piece_bytes = 0;
  double deadline = 600;  ///< seconds to wait for the other ranks when the communicator is duplicated
  /// The same on every rank; MPI tells no round trip: `long_links` is none.
  acco::checksums checksums = acco::checksums::long_links;
  message_sum sum = found_message_sum;  ///< likewise; null: there is none
  void (*warn)(char const* sentence) = [](char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
  };  ///< once per process
};

namespace mpi_advice {

/// Says a sentence once a process.
inline void say_once(std::atomic<bool>& said, mpi_options const& chosen, text const& sentence) {
  if (!said.exchange(true) && chosen.warn != nullptr) chosen.warn(sentence.c_str());
}

/// Of settings of MPI's own that work against the helper thread.
inline void on_environment(int rank, mpi_options const& chosen) {
  static std::atomic<bool> said = false;
  for (char const* name : {"MPICH_ASYNC_PROGRESS", "MPIR_CVAR_ASYNC_PROGRESS"}) {
    char const* value = std::getenv(name);
    if (value == nullptr || *value == '\0' || *value == '0') continue;
    say_once(said, chosen,
             text("acco: rank ", rank, ": ", name, "=", value,
                  " starts a thread that spins on a core which the computation needs. Set ", name,
                  "=0: mpi_progress::helper_thread makes progress and sleeps in between"));
  }
}

/// Of a helper thread that shares the computation's one core while others are free.
inline void on_cores(int rank, int size, mpi_options const& chosen) {
  static std::atomic<bool> said = false;
  if (chosen.progress != mpi_progress::helper_thread) return;
  int neighbours = size;  // ranks on this host, as the launchers tell
  for (char const* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    char const* value = std::getenv(name);
    if (value != nullptr && std::atoi(value) > 0) neighbours = std::atoi(value);
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const unsigned cores = std::thread::hardware_concurrency();
  if (CPU_COUNT(&allowed) != 1 || cores <= static_cast<unsigned>(neighbours)) return;  // none to spare
  say_once(said, chosen,
           text("acco: rank ", rank, ": this process may use 1 of ", cores,
                " cores, so the thread that makes MPI progress takes its time from the computation. Start with "
                "`mpirun --bind-to none` (Open MPI) or `mpiexec -bind-to none` (MPICH)"));
}

/// Of a trainer that does not poll often enough.
inline void on_polls(int rank, unsigned late, double seconds, mpi_options const& chosen) {
  static std::atomic<bool> said = false;
  say_once(said, chosen,
           text("acco: rank ", rank, ": messages waited more than ", 1000 * seconds, " ms for a poll ", late,
                " times, so communication is not hidden. Call training.poll() about every millisecond of computation, "
                "or choose mpi_progress::helper_thread"));
}

}  // namespace mpi_advice

}  // namespace ACCO_SIMD_NAMESPACE
