// SPDX-License-Identifier: Apache-2.0
// Every call of the CUDA runtime fails once, and for ever from there on: a training either throws, and says which call it was, or
// ends as if nothing had been; nothing is left behind and nothing hangs. Over the stand-in only.
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/cuda/threads.hpp>

namespace {

constexpr std::size_t count = 1200;

struct ending {
  std::vector<std::string> errors;
  std::vector<float> parameters;  // of rank 0
};

/// What a trainer enqueues on its stream.
template <class Work>
void compute(Work work) {
  emulated::of(nullptr).enqueue(work);
}
void let_run_out() { emulated::of(nullptr).record()->wait(); }

template <class Schedule>
ending trained(Schedule schedule, int ranks) {
  ending found{std::vector<std::string>(static_cast<std::size_t>(ranks)), {}};
  const auto train = [&](auto const& world) {
    acco::parameter_layout layout;
    layout.add("a", {count / 2});
    layout.add("frozen", {16}, layout.add_group({.frozen = true}));
    layout.add("b", {count / 2});
    std::vector<float> out(layout.size());
    try {
      acco::options chosen{.clip_norm = 1, .deadline = ranks == 1 ? 20.0 : 2.0};
      acco::optimizer training{
          schedule, acco::adamw{.learning_rate = 0.01}, acco::cuda_storage<float>{.warn = nullptr}, world, layout, chosen};
      training.initialize(std::vector<float>(layout.size(), 0.5F));
      for (int m = 0; m < 5; ++m) {
        compute([p = training.parameters(), g = training.gradients(), m] {
          for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - static_cast<float>(i % 7) - static_cast<float>(m);
        });
        training.accumulated(1);
      }
      training.finish();
      training.gather_committed(out);
      if (world.rank() == 0) found.parameters = out;
    } catch (acco::error const& e) {
      found.errors[static_cast<std::size_t>(world.rank())] = e.what();
      throw;
    }
  };
  try {
    if (ranks == 1) {
      train(acco::solo_backend{});
    } else {
      acco::threads_backend::run(ranks, train);
    }
  } catch (acco::error const&) {
  }
  let_run_out();
  return found;
}

template <class Schedule>
void every_call_fails(Schedule schedule, int ranks, long stride) {
  auto& faults = emulated::faults();
  faults.arm(-1, false, cudaSuccess);
  (void)trained(schedule, ranks);  // what is made once a process is made now
  const long before = emulated::live_objects();
  faults.arm(-1, false, cudaSuccess);
  const ending right = trained(schedule, ranks);
  const long calls = faults.calls;
  REQUIRE(calls > 100);
  REQUIRE(right.parameters.size() == count + 16);
  for (const bool sticky : {false, true}) {
    long thrown = 0, tried = 0;
    for (long at = 0; at < calls; at += stride) {
      faults.arm(at, sticky, at % 2 == 0 ? cudaErrorLaunchFailure : cudaErrorMemoryAllocation);
      const ending found = trained(schedule, ranks);
      const std::string struck = faults.struck;
      faults.arm(-1, false, cudaSuccess);
      ++tried;
      INFO("call ", at, " of ", calls, ", ", struck, std::string(sticky ? ", and all after it" : ""));
      CHECK(emulated::live_objects() == before);
      bool any = false, named = false;
      for (std::string const& error : found.errors) {
        any = any || !error.empty();
        named =
            named || (error.find(sticky ? "cuda" : struck) != std::string::npos && error.find(" failed: ") != std::string::npos);
      }
      thrown += any ? 1 : 0;
      if (any) {
        CHECK_MESSAGE(named, found.errors[0]);
        if (ranks == 1) CHECK(found.parameters.empty());
      } else {
        CHECK(found.parameters == right.parameters);
      }
    }
    CHECK(thrown > tried / 2);
  }
}

}  // namespace

TEST_CASE("every call of the runtime fails: alone, exact") { every_call_fails(acco::two_phase{}, 1, 1); }
TEST_CASE("every call of the runtime fails: alone, encoded") {
  every_call_fails(
      acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}}, 1, 1);
}
TEST_CASE("every call of the runtime fails: a schedule that waits") { every_call_fails(acco::synchronous{}, 1, 1); }
TEST_CASE("every call of the runtime fails: ranks that share a GPU") { every_call_fails(acco::two_phase{}, 2, 61); }
