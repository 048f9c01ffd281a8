// SPDX-License-Identifier: Apache-2.0
// Ranks are processes; every process runs every test, in the sub-groups that the test asks for.
#pragma once

#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <acco/network/mpi.hpp>

#include "support/worlds.hpp"

namespace worlds {

struct mpi {
  static constexpr char const* name = "mpi";
  static constexpr int most_ranks = 4;
  static inline std::size_t piece_bytes = 8192;  // so small that rounds have several
  static bool messages_of_3(std::size_t bytes) { return bytes == 4 * 2 * piece_bytes; }
  static inline acco::mpi_progress progress = acco::mpi_progress::helper_thread;
  static inline acco::checksums checksums = acco::checksums::none;

  using backend = acco::mpi_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    static MPI_Comm groups[most_ranks + 1] = {};
    static bool made[most_ranks + 1] = {};
    MPI_Comm& group = groups[ranks];
    if (!std::exchange(made[ranks], true)) {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &group);
    }
    if (group == MPI_COMM_NULL) return;
    function(acco::mpi_backend(group, {.progress = progress, .piece_bytes = piece_bytes, .checksums = checksums}));
  }

  template <class T>
  static void share(std::vector<T>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if constexpr (std::is_trivially_copyable_v<T>) {
        tell(&by_rank[rank], sizeof(T), rank);
      } else {
        std::size_t size = by_rank[rank].size();
        tell(&size, sizeof size, rank);
        by_rank[rank].resize(size);
        tell(by_rank[rank].data(), size * sizeof(by_rank[rank][0]), rank);
      }
    }
  }

 private:
  /// A broadcast that sleeps: MPI's own spins, and here are more ranks than cores.
  static void tell(void* data, std::size_t bytes, std::size_t root) {
    MPI_Request handle = MPI_REQUEST_NULL;
    MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(root), MPI_COMM_WORLD, &handle);
    for (int done = 0; done == 0;) {
      MPI_Test(&handle, &done, MPI_STATUS_IGNORE);
      if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};
using under_test = mpi;

}  // namespace worlds
