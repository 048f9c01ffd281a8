// SPDX-License-Identifier: Apache-2.0
// Every call of the CUDA runtime fails once, and for ever from there on: a training either throws, and says which call
// it was, or ends as if nothing had been; nothing is left behind and nothing hangs. Ranks that share a GPU hear who
// failed. Over the stand-in only.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/cuda/storage.hpp>
#include <acco/cuda/threads.hpp>

#include "support/thorough.hpp"

namespace {

constexpr std::size_t count = 1200;

struct ending {
  std::string error;                  // empty: none
  std::string where = "acco: rank ";  // that it has to name
  std::vector<float> parameters;
};

template <class Schedule, class Backend>
ending trained(Schedule schedule, Backend const& world, cudaStream_t stream) {
  ending found;
  const std::string rank = found.where + std::to_string(world.rank());
  found.where = rank + ": ";
  acco::parameter_layout layout;
  layout.add("a", {count / 2});
  layout.add("frozen", {16}, layout.add_group({.frozen = true}));
  layout.add("b", {count / 2});
  try {
    const acco::options chosen{.clip_norm = 1, .deadline = 20};
    const acco::cuda_storage<float> storage{.computation = stream, .warn = nullptr};
    acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, storage, world, layout, chosen};
    found.where = rank + ", initialize: ";
    training.initialize(std::vector<float>(layout.size(), 0.5F));
    found.where = rank + ", round ";
    for (int m = 0; m < 5; ++m) {
      emulated::of(stream).enqueue([p = training.parameters(), g = training.gradients(), m] {
        for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - static_cast<float>(i % 7) - static_cast<float>(m);
      });
      training.accumulated(1);
    }
    training.finish();
    std::vector<float> out(layout.size());
    training.gather_committed(out);
    found.parameters = out;
  } catch (acco::error const& e) {
    found.error = e.what();
  }
  emulated::of(stream).record()->wait();  // the trainer's stream has run out
  return found;
}

bool holds(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

template <class Schedule>
void every_call_fails(Schedule schedule) {
  auto& faults = emulated::faults();
  faults.arm(-1, false, cudaSuccess);
  (void)trained(schedule, acco::solo_backend{}, nullptr);  // what is made once a process is made now
  const long before = emulated::live_objects();
  faults.arm(-1, false, cudaSuccess);
  const ending right = trained(schedule, acco::solo_backend{}, nullptr);
  const long calls = faults.calls;
  REQUIRE(calls > 100);
  REQUIRE(right.parameters.size() == count + 16);
  for (const bool sticky : {false, true}) {
    long thrown = 0, cases = 0;
    for (long at = 0; at < calls; at += thorough() ? 1 : 7) {
      faults.arm(at, sticky, at % 2 == 0 ? cudaErrorLaunchFailure : cudaErrorMemoryAllocation);
      const ending found = trained(schedule, acco::solo_backend{}, nullptr);
      const std::string struck = faults.struck;
      faults.arm(-1, false, cudaSuccess);
      INFO("call ", at, " of ", calls, ", ", struck, std::string(sticky ? ", and all after it" : ""));
      CHECK(emulated::live_objects() == before);
      ++cases;
      if (found.error.empty()) {
        CHECK(found.parameters == right.parameters);
        continue;
      }
      ++thrown;
      CHECK(found.parameters.empty());
      CHECK_MESSAGE(holds(found.error, sticky ? "cuda" : struck), found.error);
      CHECK(holds(found.error, " failed: "));
      CHECK_MESSAGE(found.error.starts_with(found.where), found.error);
    }
    CHECK(thrown > cases / 2);
  }
}

/// Each rank's ending.
template <class Schedule>
std::vector<ending> trained_together(Schedule schedule, int ranks) {
  std::vector<ending> found(static_cast<std::size_t>(ranks));
  try {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      emulated::current_device = world.rank();  // whose calls they are
      emulated::stream stream;
      ending& mine = found[static_cast<std::size_t>(world.rank())];
      mine = trained(schedule, world, &stream);
      if (!mine.error.empty()) throw std::runtime_error(mine.error);
    });
  } catch (std::runtime_error const&) {  // is among them
  }
  return found;
}

/// One of two or three ranks that share the GPU meets the failures.
template <class Schedule>
void every_call_of_a_rank_fails(Schedule schedule) {
  auto& faults = emulated::faults();
  faults.arm(-1, false, cudaSuccess);
  (void)trained_together(schedule, 2);
  const long before = emulated::live_objects();
  for (const int ranks : {2, 3}) {
    const std::vector<ending> right = trained_together(schedule, ranks);
    long thrown = 0, cases = 0;
    for (int failing = 0; failing < ranks; ++failing) {
      faults.arm(-1, false, cudaSuccess, failing);
      (void)trained_together(schedule, ranks);
      const long calls = faults.calls;
      REQUIRE(calls > 100);
      // Some of all calls: the threads' order differs from run to run, so all are met in time.
      const long step = (ranks == 2 ? 5 : 17) * (thorough() ? 1 : 9);
      for (long at = failing; at < calls; at += step) {
        const bool sticky = (at / step) % 2 == 0;
        faults.arm(at, sticky, cudaErrorLaunchFailure, failing);
        const std::vector<ending> found = trained_together(schedule, ranks);
        const std::string struck = faults.struck;
        faults.arm(-1, false, cudaSuccess);
        INFO("call ", at, " of ", calls, " of rank ", failing, " of ", ranks, ", ", struck,
             std::string(sticky ? ", and all after it" : ""));
        CHECK(emulated::live_objects() == before);
        ++cases;
        bool failed = false;
        for (int rank = 0; rank < ranks; ++rank) {
          ending const& mine = found[static_cast<std::size_t>(rank)];
          if (mine.error.empty()) {
            CHECK(mine.parameters == right[static_cast<std::size_t>(rank)].parameters);
            continue;
          }
          failed = true;
          CHECK_MESSAGE(mine.error.starts_with(mine.where), mine.error);
          CHECK_MESSAGE(!holds(mine.error, " within "), mine.error);
          if (rank == failing) {
            CHECK_MESSAGE(holds(mine.error, sticky ? "cuda" : struck), mine.error);
          } else {
            CHECK_MESSAGE(holds(mine.error, "rank " + std::to_string(failing)), mine.error);
          }
        }
        thrown += failed ? 1 : 0;
      }
    }
    CHECK(thrown > cases / 2);
  }
}

}  // namespace

TEST_CASE("every call of the runtime fails: exact") { every_call_fails(acco::two_phase{.pace = acco::fixed_pace{1}}); }
TEST_CASE("every call of the runtime fails: encoded") {
  every_call_fails(
      acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}});
}
TEST_CASE("every call of the runtime fails: a schedule that waits") { every_call_fails(acco::synchronous{}); }

TEST_CASE("every call of the runtime fails on one of several ranks: exact") {
  every_call_of_a_rank_fails(acco::two_phase{.pace = acco::fixed_pace{1}});
}
TEST_CASE("every call of the runtime fails on one of several ranks: encoded") {
  every_call_of_a_rank_fails(
      acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}});
}
TEST_CASE("every call of the runtime fails on one of several ranks: a schedule that waits") {
  every_call_of_a_rank_fails(acco::synchronous{});
}

TEST_CASE("the others hear at once of a rank whose works fail, while its trainer is elsewhere") {
  std::promise<void> heard;
  const auto runs = [&](acco::threads_backend const& world) {
    emulated::stream stream;
    acco::cuda_queue queue(&stream, {}, 0, acco::cuda_issue::thread);
    queue.place = {world.rank(), 3, "commit"};
    acco::pinned_buffer numbers(2 * sizeof(double));
    auto* const mine = numbers.as<double>();
    mine[0] = 1;
    if (world.rank() == 1) queue.issue([](cudaStream_t) { acco::check_cuda(cudaErrorLaunchFailure, "cudaLaunchKernelEx"); });
    world.all_reduce(queue, acco::partial<double const>({mine, 1}), acco::replicated<double>({mine + 1, 1}));
    if (world.rank() == 1) {
      heard.get_future().wait();
      CHECK_THROWS_AS(queue.wait(), acco::device_error);
    } else {
      CHECK_THROWS_WITH_AS(queue.wait(), doctest::Contains("because rank 1 failed: acco:"), acco::peer_error);
      heard.set_value();
    }
  };
  acco::threads_backend::run(2, runs);
}

TEST_CASE("a rank fails behind a long computation: its own words, and nobody's memory is let go before it has been read") {
  emulated::faults().arm(-1, false, cudaSuccess);
  acco::meeting_point point(2);
  static acco::cuda_managed_memory memory;
  std::array<std::string, 2> said;
  std::array<double, 2> freed{};
  std::atomic<double> read_until = 0;
  const auto rank = [&](std::size_t r) {
    emulated::stream trainer;
    acco::cuda_queue queue(&trainer, {}, 0, acco::cuda_issue::thread);
    queue.place = {static_cast<int>(r), 3, "commit"};
    queue.deadline = 0.3;
    {
      const acco::cuda_buffer mine(&memory, nullptr, 4096), out(&memory, nullptr, 8192);
      if (r == 1) trainer.enqueue([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
      queue.after_computation();
      const auto work = [&read_until, r, to = out.as<std::byte>()](cudaStream_t stream, acco::meeting_point const&, int,
                                                                   acco::threads_cuda::sources const& all) {
        emulated::of(stream).enqueue([&read_until, r, to, from = all[0]] {
          std::memcpy(to, from, 4096);
          if (r == 1) read_until = acco::steady_seconds();
        });
        if (r == 1) acco::check_cuda(cudaErrorLaunchFailure, "its second copy");
      };
      acco::threads_cuda::meet_and_read(queue, point, static_cast<int>(r), acco::collective::all_gather,
                                        std::span<std::byte const>(mine.as<std::byte>(), 4096), 0, work);
      try {
        queue.wait();
      } catch (acco::error const& e) {
        said[r] = e.what();
      }
      queue.run_out();
      freed[r] = acco::steady_seconds();
    }
  };
  std::thread one(rank, 0), other(rank, 1);
  one.join();
  other.join();
  CHECK_MESSAGE(said[1].find("its second copy failed") != std::string::npos, said[1]);
  CHECK_MESSAGE(said[1].find("rank 1") != std::string::npos, said[1]);
  CHECK_MESSAGE(said[0].find("debugger") == std::string::npos, said[0]);
  CHECK(read_until > 0);
  CHECK(freed[0] >= read_until);
}
