// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include <acco/mpi.hpp>

#include "train_over.hpp"

namespace toy_gpt {
namespace {

/// MPI lives as long as the runner.
struct mpi_session {
  mpi_session(int& count, char**& words) {
    int level = 0;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
  }
  mpi_session(mpi_session const&) = delete;
  mpi_session& operator=(mpi_session const&) = delete;
  ~mpi_session() { MPI_Finalize(); }
};

class mpi_runner : mpi_session, public process_runner<acco::mpi_backend> {
 public:
  mpi_runner(int& count, char**& words, acco::mpi_options const& options)
      : mpi_session(count, words), process_runner(acco::mpi_backend(MPI_COMM_WORLD, options)) {}
  void give_up() noexcept override {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the other ranks may want to say what they saw
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
};

const registered_place here("mpi", "cpu", [](settings const& s, int& count, char**& words) {
  acco::mpi_options options;
  options.progress = s.progress == "poll"   ? acco::mpi_progress::poll
                     : s.progress == "none" ? acco::mpi_progress::none
                                            : acco::mpi_progress::helper_thread;
  if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
  return std::make_unique<mpi_runner>(count, words, options);
});

}  // namespace
}  // namespace toy_gpt
