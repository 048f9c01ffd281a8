// SPDX-License-Identifier: Apache-2.0
// MPI initialized without threads: the helper thread is refused with a sentence that says what to do, polling is not.
// Also: no MPI.
#include <cstdio>
#include <string>

#include <acco/acco.hpp>
#include <acco/network/mpi.hpp>

int main(int count, char** words) {
  const auto message = [](acco::mpi_options const& options) {
    try {
      const acco::mpi_backend backend(MPI_COMM_WORLD, options);
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string before = message({});
  int level = 0;
  MPI_Init_thread(&count, &words, MPI_THREAD_FUNNELED, &level);
  const std::string helper = message({});
  const std::string poll = message({.progress = acco::mpi_progress::poll});
  MPI_Finalize();
  std::printf("before: %s\nlevel %d\nhelper thread: %s\npoll: %s\n", before.c_str(), level, helper.c_str(), poll.c_str());
  if (before.find("mpi_backend was made before MPI was initialized. MPI lives once a process: make it after MPI_Init_thread") ==
      std::string::npos)
    return 1;
  if (level < MPI_THREAD_SERIALIZED && helper.find("MPI_THREAD_FUNNELED") == std::string::npos) return 2;
  if (level < MPI_THREAD_SERIALIZED && helper.find("Ask MPI_Init_thread for MPI_THREAD_MULTIPLE") == std::string::npos) return 3;
  return poll.empty() ? 0 : 4;
}
