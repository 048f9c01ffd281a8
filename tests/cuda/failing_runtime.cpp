// SPDX-License-Identifier: Apache-2.0
// Every call of the CUDA runtime fails once, and for ever from there on: a training of one rank either throws, and says which
// call it was, or ends as if nothing had been; nothing is left behind and nothing hangs. Over the stand-in only.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/cuda/storage.hpp>

namespace {

constexpr std::size_t count = 1200;

struct ending {
  std::string error;  // empty: none
  std::vector<float> parameters;
};

template <class Schedule>
ending trained(Schedule schedule) {
  ending found;
  acco::parameter_layout layout;
  layout.add("a", {count / 2});
  layout.add("frozen", {16}, layout.add_group({.frozen = true}));
  layout.add("b", {count / 2});
  try {
    const acco::options chosen{.clip_norm = 1, .deadline = 20};
    acco::optimizer training{
        schedule, acco::adamw{.learning_rate = 0.01}, acco::cuda_storage<float>{.warn = nullptr}, acco::solo_backend{}, layout,
        chosen};
    training.initialize(std::vector<float>(layout.size(), 0.5F));
    for (int m = 0; m < 5; ++m) {
      emulated::of(nullptr).enqueue([p = training.parameters(), g = training.gradients(), m] {
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
  emulated::of(nullptr).record()->wait();  // the trainer's stream has run out
  return found;
}

template <class Schedule>
void every_call_fails(Schedule schedule) {
  auto& faults = emulated::faults();
  faults.arm(-1, false, cudaSuccess);
  (void)trained(schedule);  // what is made once a process is made now
  const long before = emulated::live_objects();
  faults.arm(-1, false, cudaSuccess);
  const ending right = trained(schedule);
  const long calls = faults.calls;
  REQUIRE(calls > 100);
  REQUIRE(right.parameters.size() == count + 16);
  for (const bool sticky : {false, true}) {
    long thrown = 0;
    for (long at = 0; at < calls; ++at) {
      faults.arm(at, sticky, at % 2 == 0 ? cudaErrorLaunchFailure : cudaErrorMemoryAllocation);
      const ending found = trained(schedule);
      const std::string struck = faults.struck;
      faults.arm(-1, false, cudaSuccess);
      INFO("call ", at, " of ", calls, ", ", struck, std::string(sticky ? ", and all after it" : ""));
      CHECK(emulated::live_objects() == before);
      if (found.error.empty()) {
        CHECK(found.parameters == right.parameters);
        continue;
      }
      ++thrown;
      CHECK(found.parameters.empty());
      CHECK_MESSAGE(found.error.find(sticky ? "cuda" : struck) != std::string::npos, found.error);
      CHECK(found.error.find(" failed: ") != std::string::npos);
    }
    CHECK(thrown > calls / 2);
  }
}

}  // namespace

TEST_CASE("every call of the runtime fails: exact") { every_call_fails(acco::two_phase{}); }
TEST_CASE("every call of the runtime fails: encoded") {
  every_call_fails(
      acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}});
}
TEST_CASE("every call of the runtime fails: a schedule that waits") { every_call_fails(acco::synchronous{}); }
