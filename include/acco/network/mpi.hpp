// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of an MPI job (component `mpi`). Collectives are acco's own over MPI_Isend and MPI_Irecv
// (message_collectives.hpp): MPI's make progress only inside MPI calls, so nothing would be hidden; here a helper
// thread, or the trainer, keeps asking.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/network/message_backend.hpp"
#include "acco/network/mpi_options.hpp"
#include "acco/network/mpi_transport.hpp"  // mpi.h, without its C++ bindings
#include "acco/network/print_end.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A handle on this process as a rank of an MPI communicator; cheap to copy. Bit-identical with every other backend.
class ACCO_VISIBLE mpi_backend : public message_backend<mpi_transport> {
 public:
  static constexpr backend_traits traits = [] {
    backend_traits with_more = message_backend::traits;
    with_more.splits = true;
    with_more.driven = true;
    with_more.names_progress = true;
    return with_more;
  }();
  /// Another channel over the same communicator: each optimizer takes one. 64 at a time; from the 65th on it waits
  /// until all ranks have come, at most the backend's deadline.
  [[nodiscard]] mpi_backend duplicate() const { return mpi_backend(another_over(*this)); }

  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank, over a communicator of
  /// its own; errors name its ranks. Every rank of this handle calls it; blocks at most `deadline` seconds for any of
  /// them.
  [[nodiscard]] mpi_backend split(int color, int key = 0, double deadline = 600) const {
    (void)agree_on_split(*this, color, key, deadline);
    // all have come through the first: who came too late hears it here
    (void)agree_on_split(*this, color, key, deadline);
    mpi_transport const& whole = collectives().shared().transport();
    mpi_options chosen = whole.options();
    chosen.deadline = deadline;
    const mpi_transport::part members(whole, color, key);
    return mpi_backend(members.get(), chosen);
  }

  static constexpr std::size_t usual_piece = std::size_t{128} << 10U;  // docs/performance.md

  /// Duplicates `group`; collective over it. MPI must outlive the last copy of the handle.
  explicit mpi_backend(MPI_Comm group = MPI_COMM_WORLD, mpi_options const& chosen = {})
      : message_backend(std::make_shared<message_collectives<mpi_transport>>(
            message_window::checked_piece(chosen.piece_bytes), usual_piece,
            std::make_shared<connections<mpi_transport>>(group, chosen), chosen.deadline)) {
    if (chosen.checksums == checksums::always) collectives().shared().set_sum(required_message_sum(rank(), chosen.sum));
  }

  /// Initializes MPI, calls function(mpi_backend), finalizes. An exception is printed and ends the whole job with exit
  /// code 1, half a second later, so that the other ranks can say what they saw.
  template <class Function>
  static int run(int& count, char**& words, Function&& function, mpi_options const& chosen = {}) {
    int level = 0, rank = -1;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
      function(mpi_backend(MPI_COMM_WORLD, chosen));
      MPI_Finalize();
      return 0;
    } catch (...) {
      print_end(rank);
    }
    std::fflush(nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }

  [[nodiscard]] char const* progress_policy() const noexcept {
    switch (collectives().shared().transport().options().progress) {
      case mpi_progress::helper_thread: return "MPI: helper thread";
      case mpi_progress::poll: return "MPI: polled by the trainer";
      case mpi_progress::none: break;
    }
    return "MPI: none, the trainer waits";
  }

  [[nodiscard]] queue_driver driver() const noexcept {
    constexpr auto rest = [](void*) { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
    constexpr auto nothing = [](void*) {};
    switch (collectives().shared().transport().options().progress) {
      case mpi_progress::helper_thread: break;
      case mpi_progress::poll: return {rest, nothing, nullptr};
      case mpi_progress::none: return {rest, nullptr, nullptr};
    }
    return {};
  }

 private:
  explicit mpi_backend(message_backend other) : message_backend(std::move(other)) {}
};

}  // namespace ACCO_SIMD_NAMESPACE
