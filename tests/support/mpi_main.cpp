// SPDX-License-Identifier: Apache-2.0
// Every rank runs all tests; the job fails if any rank's do.
#define DOCTEST_CONFIG_IMPLEMENT
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>
#include <mpi.h>

int main(int count, char** words) {
  int level = 0;
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
  doctest::Context context(count, words);
  const int failed = context.run();
  int any = failed;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (std::getenv("ACCO_WAN_HOST_0") != nullptr) {  // tests/wan/hosts.cpp: MPICH's end waits for ever at times, over UCX's TCP
    std::fflush(nullptr);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // what says so to others leaves
    std::_Exit(any);
  }
  MPI_Finalize();
  return any;
}
