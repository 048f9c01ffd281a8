// SPDX-License-Identifier: Apache-2.0
// memory() is known before, equals what is allocated, follows the formula; and a steady-state round allocates nothing.
#include <barrier>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/observe/memory_table.hpp>

#include "support/counting.hpp"
#include "support/worlds.hpp"

namespace {

/// bytes per parameter by design.md's formula: full-size buffers + (sharded numbers) / N
template <class Storage, class Schedule>
void check(Schedule schedule, int ranks, double full, double sharded, acco::options options = {}) {
  constexpr std::size_t count =
      24000;  // divisible by the numbers of ranks used here; a byte of each is more than what is rounded
  if (options.check_habits == acco::habit_checks::in_debug_builds) options.check_habits = acco::habit_checks::off;
  CAPTURE(ranks);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    using P = typename Storage::parameter_type;
    counting::resource resource;
    {
      Storage storage;
      storage.memory = &resource;
      acco::optimizer training{schedule, acco::adamw{}, storage, world, count, options};
      const std::size_t promised = training.memory().total();
      CHECK(resource.calls == 0);  // nothing is allocated yet
      std::vector<P> start(count, P(1.0F));
      training.initialize(start);
      CHECK(resource.now == promised);
      for (int m = 0; m < 6; ++m) training.accumulated(1);
      training.finish();
      CHECK(resource.now == promised);
      CHECK(resource.most == promised);  // no transient
      std::vector<P> committed(count);
      training.gather_committed(committed);
      CHECK(resource.most == promised + training.memory().gathering);
      CHECK(training.memory().total() == promised);
      const double formula = static_cast<double>(count) * (full + sharded / ranks);
      CHECK(static_cast<double>(promised) >= formula);
      CHECK(static_cast<double>(promised) <= formula + 6000);  // alignment and stagger
    }
    CHECK(resource.now == 0);
  });
}

}  // namespace

TEST_CASE("memory() equals what is allocated, and the formula") {
  using acco::bfloat16;
  using bf16 = acco::host_storage<bfloat16>;
  for (const int ranks : {1, 2, 4}) {
    const auto checked = acco::habit_checks::on;  // a copy of both arrays, where spans move two of each
    check<bf16>(acco::synchronous{}, ranks, 2 + 2 + 2 * (2 + 2), 12 + 4, {.check_habits = checked});
    check<bf16>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 2 + 2 + 2 + 2, 12 + 4,
                {.stable_addresses = true, .check_habits = checked});
    check<acco::host_storage<bfloat16, float>>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 4 + 2 + 4 + 2 * (2 + 4),
                                               12 + 4, {.check_habits = checked});
    check<bf16>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 2 + 2, 12 + 4 + 4, {.average_decay = 0.5});
    check<bf16>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 2 + 2, 12 + 4);  // 12/N state, 4/N kept half
    check<bf16>(acco::synchronous{}, ranks, 2 + 2, 12 + 4);  // the reduced slice is fp32, not rounded back to bfloat16
    check<bf16>(acco::delayed{}, ranks, 2 + 2 + 2, 12 + 4);
    check<bf16>(acco::weight_prediction{}, ranks, 2 + 2 + 2, 12 + 4);
    check<bf16>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 2 + 2, 12 + 4, {.stable_addresses = true});
    check<acco::host_storage<float>>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 4 + 4 + 4, 12 + 4);
    check<acco::host_storage<bfloat16, float>>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 2 + 4 + 2 + 4, 12 + 4);
    check<acco::host_storage<double>>(acco::two_phase{.pace = acco::fixed_pace{1}}, ranks, 8 + 8 + 8, 24 + 8);
  }
}

TEST_CASE_TEMPLATE("after the first full step nothing is allocated, in any thread", Backend, acco::solo_backend,
                   acco::threads_backend) {
  const auto train = [](auto schedule, auto const& world, std::barrier<>& everyone, std::size_t bucket) {
    acco::optimizer training{schedule,
                             acco::adamw{},
                             acco::host_storage<float>{},
                             world,
                             1000,
                             acco::options{.clip_norm = 1,
                                           .learning_rate = acco::warmup_cosine{.warmup = 10, .total = 1000},
                                           .norms = acco::norm_detail::tensors,
                                           .norm_limit = 1e6,
                                           .compare_every = 3,
                                           .digest_every = 1,
                                           .bucket_elements = bucket}};
    training.initialize(std::vector<float>(1000, 1.0F));
    const auto step = [&] {
      for (float& g : training.gradients()) g += 1;
      training.accumulated(1, 2.0);
    };
    for (int m = 0; m < 8; ++m) step();
    everyone.arrive_and_wait();  // every rank has done its first steps
    const std::size_t before = counting::news();
    everyone.arrive_and_wait();
    for (int m = 0; m < 60; ++m) step();
    everyone.arrive_and_wait();
    const std::size_t after = counting::news();
    everyone.arrive_and_wait();  // nobody goes on to allocate before all have counted
    CHECK(before == after);
    training.finish();
  };
  const auto with = [&](auto schedule, std::size_t bucket = 0) {
    if constexpr (std::is_same_v<Backend, acco::solo_backend>) {
      std::barrier<> one(1);
      train(schedule, acco::solo_backend{}, one, bucket);
    } else {
      std::barrier<> three(3);
      acco::threads_backend::run(3, [&](acco::threads_backend const& world) { train(schedule, world, three, bucket); });
    }
  };
  with(acco::synchronous{});
  with(acco::delayed{});
  with(acco::two_phase{.pace = acco::fixed_pace{1}});
  with(acco::weight_prediction{});
  if constexpr (std::is_same_v<Backend, acco::threads_backend>)  // an engine of its own
    with(acco::two_phase{.estimate = acco::own_corrected{}, .pace = acco::fixed_pace{1}}, 192);
  // no rank may wait for another that is at the barrier
  with(acco::two_phase{.pace = acco::elastic_pace{.at_most = 1000}});
}
