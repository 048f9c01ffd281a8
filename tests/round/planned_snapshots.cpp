// SPDX-License-Identifier: Apache-2.0
// Back to a snapshot in memory where codes are planned: by which code each bucket travels comes back, too, and what the next plan
// is made of.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/hierarchical.hpp>

#include "support/problem.hpp"

namespace {
/// All that a report tells that is not a time.
std::vector<std::uint64_t> told(acco::round_report const& r) {
  std::vector<std::uint64_t> all{r.round, r.committed, r.skipped, r.step, r.micro_batches, r.bytes_sent, r.digest.value_or(1)};
  for (const double number : {r.samples, r.weight, r.mean_loss, r.step_weight, r.step_loss, r.gradient_norm, r.clip_scale,
                              r.loss_scale, r.learning_rate_scale})
    all.push_back(std::bit_cast<std::uint64_t>(number));
  return all;
}
/// Gradients of which codes lose more as the training goes on: plans change. Goes back twice, behind a measurement and behind a
/// plan, and compares reports, plans and states with those of the first time.
template <class Backend>
void replays_plans(Backend backend, int rank) {
  using codes = acco::planned_encoding<acco::block_int8<>, acco::block_gauss4, acco::block_gauss3>;
  constexpr std::size_t count = 2048, steps = 17;
  const acco::coded<codes, acco::full> commit{{.budget = 0.02, .every = 4}, {}};
  acco::optimizer t{acco::synchronous{.commit = commit},
                    acco::sgd{.learning_rate = 1e-2},
                    acco::host_storage<float>{},
                    backend,
                    count,
                    acco::options{.snapshots = 3, .snapshot_every = 1, .bucket_elements = 1024}};
  t.initialize(std::vector<float>(count, 1.0F));
  using moment = std::vector<std::uint64_t>;  // report, state, and the plan of each bucket
  const auto step = [&](std::size_t s) {
    for (std::size_t i = 0; i < count; ++i) {
      const double noise = 2 * problem::unit(i + count * (s + 100 * static_cast<std::size_t>(rank))) - 1;
      const double size = (i < count / 2) == (s < 9) && i % 32 != 0 ? 0.02 : 1;
      t.gradients()[i] += static_cast<float>(noise * size) + 0.01F * t.parameters()[i];
    }
    moment found = told(*t.accumulated(1));
    found.push_back(t.world_digest());
    for (acco::planned_bucket const& each : t.encoding_plan()) {
      found.push_back(each.bytes);
      found.push_back(std::bit_cast<std::uint64_t>(each.lost));
    }
    return found;
  };
  std::map<std::size_t, moment> first;
  const auto train = [&](std::size_t s, std::size_t end) {
    for (; s < end; ++s) {
      const moment found = step(s);
      CAPTURE(s);
      if (first.count(s) == 0) first[s] = found;
      CHECK(found == first[s]);
    }
  };
  train(0, 9);  // the last one is measured, and there is no plan of it yet
  CHECK(t.rewind(0).step == 9);
  train(9, 12);
  CHECK(first[9].back() != first[8].back());  // another plan
  const acco::rewound back = t.rewind(2);
  CHECK(back.step == 10);
  train(back.micro_batches, steps);
  t.finish();
}
}  // namespace

TEST_CASE("a plan of codes goes back, too, and so does what it is to be made of; over two levels") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) { replays_plans(world, world.rank()); });
  acco::threads_backend::run(
      4, [](acco::threads_backend const& world) { replays_plans(acco::hierarchical_world(world, 2, 20), world.rank()); });
}
