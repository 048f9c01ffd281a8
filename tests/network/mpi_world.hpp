// SPDX-License-Identifier: Apache-2.0
// Ranks are processes; every process runs every test, in the sub-groups that the test asks for.
#pragma once

#include <type_traits>
#include <vector>

#include <acco/collective/mpi.hpp>

#include "support/worlds.hpp"

namespace worlds {

struct mpi {
  static constexpr char const* name = "mpi";
  static constexpr int most_ranks = 4;
  static inline std::size_t piece_bytes = 8192;  // so small that rounds have several
  static inline acco::mpi_progress progress = acco::mpi_progress::helper_thread;

  template <class Function>
  static void run(int ranks, Function&& function) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm group = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &group);
    if (group == MPI_COMM_NULL) return;
    function(acco::mpi_backend(group, {.progress = progress, .piece_bytes = piece_bytes}));
    MPI_Comm_free(&group);
  }

  template <class T>
  static void share(std::vector<T>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if constexpr (std::is_trivially_copyable_v<T>) {
        MPI_Bcast(&by_rank[rank], sizeof(T), MPI_BYTE, static_cast<int>(rank), MPI_COMM_WORLD);
      } else {
        auto size = static_cast<int>(by_rank[rank].size());
        MPI_Bcast(&size, 1, MPI_INT, static_cast<int>(rank), MPI_COMM_WORLD);
        by_rank[rank].resize(static_cast<std::size_t>(size));
        MPI_Bcast(by_rank[rank].data(), size * static_cast<int>(sizeof(by_rank[rank][0])), MPI_BYTE, static_cast<int>(rank),
                  MPI_COMM_WORLD);
      }
    }
  }
};
using under_test = mpi;

}  // namespace worlds
