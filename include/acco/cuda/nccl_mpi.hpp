// SPDX-License-Identifier: Apache-2.0
// nccl_backend for programs that mpirun or srun starts: MPI carries NCCL's identifier, and nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "acco/clock.hpp"
#include "acco/cuda/nccl.hpp"
#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A world of the ranks of `group`, each on its current GPU. Collective over it; blocks at most chosen.deadline.
[[nodiscard]] inline nccl_backend nccl_from_mpi(MPI_Comm group = MPI_COMM_WORLD, nccl_options const& chosen = {}) {
  rank_of mine;
  MPI_Comm_rank(group, &mine.rank);
  MPI_Comm_size(group, &mine.size);
  return nccl_backend::from_exchange(
      mine,
      [&](std::string const& brought) {
        auto room = std::make_unique<std::array<char, sizeof(ncclUniqueId)>>();
        std::array<char, sizeof(ncclUniqueId)>& id = *room;
        std::copy_n(brought.begin(), std::min(brought.size(), id.size()), id.begin());
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibcast(id.data(), static_cast<int>(id.size()), MPI_BYTE, 0, group, &request);
        const double from = steady_seconds();
        for (int done = 0; done == 0;) {
          MPI_Test(&request, &done, MPI_STATUS_IGNORE);
          if (done != 0) break;
          if (steady_seconds() - from > chosen.deadline) {
            (void)room.release();  // MPI writes there if rank 0 comes after all: a broadcast cannot be taken back
            throw deadline_error({mine.rank, -1, "start-up"},
                                 text("rank 0 did not bring NCCL's identifier within ", chosen.deadline, " s"),
                                 text("Check that it is alive, and that every rank calls nccl_from_mpi"), 0);
          }
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return std::vector<std::string>(1, std::string(id.data(), id.size()));
      },
      chosen);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
