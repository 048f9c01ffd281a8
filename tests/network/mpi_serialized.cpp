// SPDX-License-Identifier: Apache-2.0
// Two ranks under MPI_THREAD_SERIALIZED: several optimizers, each with a thread that asks MPI, never make two calls at
// once. And a rank that makes no backend: the other one gives up at its deadline.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <acco/acco.hpp>
#include <acco/network/mpi.hpp>

namespace {

std::atomic<int> inside = 0;
std::atomic<long> calls = 0, overlapping = 0;

/// Counts calls of MPI, and those that begin before another one has ended; they take a little longer, so that overlaps
/// show.
struct counted {
  counted() {
    calls.fetch_add(1);
    if (inside.fetch_add(1) != 0) overlapping.fetch_add(1);
    if (calls.load() % 16 == 0) std::this_thread::yield();
  }
  ~counted() { inside.fetch_sub(1); }
};

}  // namespace

extern "C" {
int MPI_Isend(void const* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* request) {
  const counted here;
  return PMPI_Isend(from, count, type, to, tag, over, request);
}
int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm over, MPI_Request* request) {
  const counted here;
  return PMPI_Irecv(to, count, type, from, tag, over, request);
}
int MPI_Comm_split(MPI_Comm whole, int color, int key, MPI_Comm* part) {
  const counted here;
  return PMPI_Comm_split(whole, color, key, part);
}
int MPI_Comm_free(MPI_Comm* which) {
  const counted here;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return PMPI_Comm_free(which);
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const counted here;
  return PMPI_Test(request, done, status);
}
}

int main(int count, char** words) {
  int level = 0;
  MPI_Init_thread(&count, &words, MPI_THREAD_SERIALIZED, &level);
  if (level != MPI_THREAD_SERIALIZED) std::printf("this MPI gave level %d for MPI_THREAD_SERIALIZED\n", level);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    const acco::mpi_backend first(MPI_COMM_WORLD, {.piece_bytes = 8192}), second(MPI_COMM_WORLD, {.piece_bytes = 8192});
    constexpr std::size_t size = 60000;
    const auto trainer = [](acco::mpi_backend const& over) {
      acco::optimizer training{acco::delayed{.pace = acco::fixed_pace{1}},
                               acco::sgd{},
                               acco::host_storage<float>{},
                               over,
                               size,
                               acco::options{.check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(size, 1.0F));
      return training;
    };
    auto a = trainer(first), b = trainer(second), c = trainer(second);
    for (int k = 0; k < 30; ++k) {
      a.accumulated(1);
      b.accumulated(1);
      c.accumulated(1);
    }
    const acco::mpi_backend alone = first.split(rank);  // while messages of the others are under way
    a.accumulated(1);
    a.finish();
    b.finish();
    c.finish();
  }
  std::printf("rank %d: %ld calls, %ld overlapping\n", rank, calls.load(), overlapping.load());
  if (level == MPI_THREAD_SERIALIZED && (overlapping.load() != 0 || calls.load() < 1000)) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  {  // who comes to a split when the others have given it up hears that, and does not wait for them
    const acco::mpi_backend world(MPI_COMM_WORLD, {});
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::string said = "nothing";
    try {
      (void)world.split(0, 0, 0.4);
    } catch (acco::error const& e) {
      said = e.what();
    }
    const bool right =
        said.find(rank == 0 ? "rank 1 did not come" : "rank 0 tells that rank 1 did not come") != std::string::npos &&
        (rank == 0 || said.find("That is this rank: look at what kept it") != std::string::npos);
    if (rank == 1) std::printf("late: %s%s\n", said.c_str(), right ? "" : " (WRONG)");
    std::fflush(nullptr);
    if (!right) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
  }
#if !defined(MPICH)  // which ends the job itself: "Message truncated"
  {                  // messages of other lengths than expected: the peer lives, and makes other calls
    const acco::mpi_backend world(MPI_COMM_WORLD, {});
    acco::host_queue queue;
    queue.place.rank = rank;
    queue.deadline = 60;
    std::vector<double> mine(rank == 0 ? 10 : 20), all(mine.size());
    std::string said = "nothing";
    try {
      world.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(all));
      queue.wait();
    } catch (acco::error const& e) {
      said = e.what();
    }
    const int differs = said.find("calls something else: it sent") != std::string::npos ? 1 : 0;
    const int lost = said == "nothing" || said.find("is lost") != std::string::npos ? 1 : 0;
    int found[2] = {differs, lost}, sums[2] = {};
    MPI_Allreduce(found, sums, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    std::printf("rank %d, other lengths: %s\n", rank, said.c_str());
    std::fflush(nullptr);
    if (sums[0] == 0 || sums[1] != 0) MPI_Abort(MPI_COMM_WORLD, 3);
  }
#endif
  if (rank == 0) {
    try {
      const acco::mpi_backend alone(MPI_COMM_WORLD, {.deadline = 0.3});
    } catch (acco::deadline_error const& e) {
      std::printf("%s\nno calls overlapped, and the deadline held\n", e.what());
      std::fflush(nullptr);
    }
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(2));  // and makes none
  }
  MPI_Abort(MPI_COMM_WORLD, 0);  // MPI_Finalize would wait for what rank 0 began
}
