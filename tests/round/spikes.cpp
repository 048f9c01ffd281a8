// SPDX-License-Identifier: Apache-2.0
// Norms far beyond those of the last updates; and what is refused beside that.
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace {
using world_type = acco::threads_backend;

acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  layout.add("a", {50, 7});
  layout.add("still", {70}, layout.add_group({.frozen = true}));
  layout.add("b", {130});
  return layout;
}
/// The micro-batch `m` of a rank: its gradients, times `scale`, and what accumulated says.
template <class Training>
auto micro_batch(Training& t, int rank, std::size_t m, double scale = 1) {
  std::vector<double> sum(t.gradients().size(), 0.0);
  const double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), std::span<double>(sum));
  for (std::size_t i = 0; i < sum.size(); ++i) t.gradients()[i] += static_cast<float>(scale * sum[i]);
  return t.accumulated(1, loss);
}

/// A training in which one micro-batch of one rank has gradients 1000 times as large.
struct spiky {
  acco::options chosen;
  std::size_t at = 25;
  template <class Each>
  void run(int ranks, Each&& each) const {
    world_type::run(ranks, [&](world_type const& world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                        acco::sgd{.learning_rate = 1e-2},
                        acco::host_storage<float>{},
                        world,
                        layout_of(),
                        chosen};
      t.initialize(problem::converted<float>(problem::initial(layout_of().size())));
      each(t, world.rank());
    });
  }
  [[nodiscard]] double scale(int rank, std::size_t m) const { return m == at && rank == 1 ? 1000 : 1; }
};
}  // namespace

TEST_CASE("a norm far beyond the median of the last updates: an error that names both") {
  const spiky training{{.norm_limit = 5}, 40};
  training.run(2, [&](auto& t, int rank) {
    std::string said;
    try {
      for (std::size_t m = 0; m < 60; ++m) (void)micro_batch(t, rank, m, training.scale(rank, m));
    } catch (acco::spike_error const& e) {
      said = e.what();
    }
    CHECK(said.find("more than 5 times the median") != std::string::npos);
    CHECK(t.steps() >= acco::spike_watch::least);
    std::vector<float> committed(t.layout().size());
    t.gather_committed(committed);
    for (const float each : committed) CHECK(std::abs(each) < 10);  // nothing of the spike came into them
  });
}

TEST_CASE("it is left out, and counts as skipped, not as committed; before sixteen updates nothing is a spike") {
  spiky training{{.on_non_finite = acco::non_finite::skip, .norm_limit = 5, .on_norm_spike = acco::norm_spike::skip}, 45};
  training.run(2, [&](auto& t, int rank) {
    std::size_t spikes = 0, skipped = 0;
    for (std::size_t m = 0; m < 70; ++m) {
      if (auto const r = micro_batch(t, rank, m, training.scale(rank, m))) {
        spikes += r->spike ? 1U : 0U;
        skipped += r->skipped ? 1U : 0U;
      }
    }
    t.finish();
    CHECK(spikes == 1);
    CHECK(skipped == 1);
    CHECK(t.steps() == 34);
    CHECK(t.samples() == 2 * 68);  // two of each rank are not in it
  });
  training.at = 3;
  training.run(2, [&](auto& t, int rank) {
    for (std::size_t m = 0; m < 70; ++m) (void)micro_batch(t, rank, m, training.scale(rank, m));
    t.finish();
    CHECK(t.totals().skipped == 0);
    CHECK(t.steps() == 35);
  });
}

TEST_CASE("options that mean nothing are refused") {
  const auto refused = [](acco::options const& o) {
    try {
      o.check();
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refused({.norm_limit = 0.5}).find("norm_limit is 0.5") != std::string::npos);
  CHECK(refused({.norm_limit = std::numeric_limits<double>::quiet_NaN()}).find("norm_limit") != std::string::npos);
  CHECK(refused({.norm_limit = 5}).empty());
}

namespace {
/// A storage that can neither be copied from nor digested, as somebody's own may be.
struct plain_storage : acco::host_storage<float> {
  using host_storage::host_storage;
  static constexpr acco::storage_traits traits{};
  static void stage() = delete;
  void allocate_staging() const = delete;
  static void digest() = delete;
};
}  // namespace

TEST_CASE("a storage that can neither be copied from nor digested trains, and says so where digests are asked for") {
  world_type::run(2, [](world_type const& world) {
    const acco::parameter_layout layout = layout_of();
    const auto of = [&](acco::options chosen) {
      return acco::optimizer(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, plain_storage{}, world, layout,
                             std::move(chosen));
    };
    CHECK_THROWS_WITH_AS(of({.digest_every = 1}), doctest::Contains("this storage cannot be digested"), acco::usage_error);
    auto t = of({});
    t.initialize(problem::converted<float>(problem::initial(layout.size())));
    std::size_t reports = 0;
    for (std::size_t m = 0; m < 20; ++m) reports += micro_batch(t, world.rank(), m) ? 1 : 0;
    CHECK(reports == 19);
    CHECK(t.memory().staging == 0);
    t.finish();
  });
}
