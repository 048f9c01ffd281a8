// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <thread>

#include <acco/mpi.hpp>

#include "backend.hpp"
#include "library.hpp"

namespace acco_c {

void initialize_mpi() {
  int initialized = 0, finalized = 0, level = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw acco::usage_error({}, acco::text("acco_mpi_initialize: MPI has been finalized"),
                            acco::text("MPI lives once a process: initialize and finalize it once"));
  }
  if (initialized == 0) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
}

void finalize_mpi(acco_status outcome) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) return;
  if (outcome == ACCO_OK) {
    MPI_Finalize();
    return;
  }
  std::fflush(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

std::shared_ptr<carrier> make_mpi(int const* fortran_communicator, acco_mpi_options const& options) {
  acco::mpi_options chosen;
  chosen.progress = options.progress == ACCO_MPI_POLL          ? acco::mpi_progress::poll
                    : options.progress == ACCO_MPI_NO_PROGRESS ? acco::mpi_progress::none
                                                               : acco::mpi_progress::helper_thread;
  chosen.piece_bytes = options.piece_bytes;
  chosen.deadline = options.deadline;
  MPI_Comm group = MPI_COMM_WORLD;
  if (fortran_communicator != nullptr) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized != 0 && finalized == 0) group = MPI_Comm_f2c(static_cast<MPI_Fint>(*fortran_communicator));
    if (group == MPI_COMM_NULL) {
      throw acco::usage_error({}, acco::text("acco_world_mpi_of: the communicator is MPI_COMM_NULL"),
                              acco::text("Pass MPI_Comm_c2f(communicator), in Fortran its handle"));
    }
  }
  return std::make_shared<carrier_of<acco::mpi_backend>>(acco::mpi_backend(group, chosen));
}

}  // namespace acco_c
