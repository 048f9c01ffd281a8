// SPDX-License-Identifier: Apache-2.0
// A training that was killed and goes on from a checkpoint is the training that was never killed, in every bit.
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "checkpoint/training.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
using training::history;
std::size_t spikes = 0, digests = 0;  // in the reports
std::size_t cuts = 0;                 // made while the training ran, by rank

/// What differs from one training to the next.
struct choice {
  std::uint64_t seed = 0;
  [[nodiscard]] std::size_t below(std::size_t limit, std::uint64_t what) const {
    return static_cast<std::size_t>(problem::unit(seed * 1000 + what) * static_cast<double>(limit));
  }
  [[nodiscard]] int ranks() const { return 1 + static_cast<int>(below(4, 1)); }
  [[nodiscard]] acco::parameter_layout layout() const {
    acco::parameter_layout layout;
    const auto slow = layout.add_group({.learning_rate_scale = 0.3, .weight_decay = 0.1});
    const auto still = layout.add_group({.frozen = true});
    layout.add("embedding", {3 + below(thorough() ? 400 : 60, 2), 7}, slow);
    if (below(2, 3) != 0) layout.add("still.weight", {5 + below(90, 4)}, still);
    layout.add("h.0.weight", {1 + below(thorough() ? 2000 : 300, 5)});
    if (below(2, 6) != 0) layout.add("h.0.\"quoted\"", {2, 2}, below(2, 7) != 0 ? still : slow);
    layout.add("h.0.bias", {1 + below(33, 8)}, slow);
    return layout;
  }
  [[nodiscard]] acco::options options() const {
    acco::options o;
    o.clip_norm = below(2, 9) != 0 ? 0.5 : 0;
    o.learning_rate = acco::warmup_cosine{.warmup = 20, .total = 300};
    o.on_non_finite = acco::non_finite::skip;
    o.average_decay = below(2, 10) != 0 ? 0.9 : 0;
    o.norms = below(2, 11) != 0 ? acco::norm_detail::tensors : acco::norm_detail::total;
    o.stable_addresses = below(2, 12) != 0;
    o.bucket_elements = below(2, 13) != 0 ? 64 * (1 + below(20, 14)) : 0;
    o.check_habits = below(2, 50) != 0 ? acco::habit_checks::on : acco::habit_checks::off;
    o.compare_every = below(3, 15) != 0 ? 1 + below(4, 16) : 0;
    o.digest_every = below(2, 17) != 0 ? 1 + below(3, 18) : 0;
    o.norm_limit = below(2, 19) != 0 ? 1.02 : 0;
    o.on_norm_spike = acco::norm_spike::skip;
    return o;
  }
};

/// However its optimizers are made: compiled once for each pair of element types.
template <class P, class G>
void compare_made(choice const& c, acco::function_view<acco::any_optimizer<P, G>(acco::threads_backend const&)> make) {
  const scratch folder;
  const acco::parameter_layout layout = c.layout();
  const auto ranks = static_cast<std::size_t>(c.ranks());
  training::plan plan{.micro_batches = 40 + c.below(50, 20), .restart_at = 0, .infinite_at = 6 + c.below(30, 21), .run = ""};
  const auto start = problem::converted<P>(problem::initial(layout.size()));

  std::vector<history> whole(ranks), saving(ranks), resumed(ranks);
  std::vector<std::size_t> went_on(ranks);
  acco::threads_backend::run(c.ranks(), [&](acco::threads_backend const& world) {
    auto t = make(world);
    t.initialize(start);
    training::train(t, world.rank(), plan, 0, whole[static_cast<std::size_t>(world.rank())]);
  });
  plan.run = folder.run();
  plan.restart_at = 1 + c.below(plan.micro_batches - 8, 22);
  acco::threads_backend::run(c.ranks(), [&](acco::threads_backend const& world) {
    auto t = make(world);
    t.initialize(start);
    training::train(t, world.rank(), plan, 0, saving[static_cast<std::size_t>(world.rank())]);
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
  });
  const std::size_t saved_at = plan.restart_at;
  plan.restart_at = 0;
  acco::threads_backend::run(c.ranks(), [&](acco::threads_backend const& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    auto t = make(world);
    auto const found = t.restore(plan.run);
    CHECK(found.exact);
    went_on[rank] = found.template position<std::size_t>() + 1;
    CHECK(went_on[rank] >= saved_at);
    resumed[rank].parameters.emplace_back(went_on[rank] - 1, training::hash(t.parameters()));
    training::train(t, world.rank(), plan, went_on[rank], resumed[rank]);
  });

  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(saving[rank].reports == whole[rank].reports);  // saving changes nothing
    CHECK(saving[rank].parameters == whole[rank].parameters);
    const auto since = [&](auto const& all, std::size_t first) {
      auto part = all;
      std::erase_if(part, [&](auto const& each) { return each.first < first; });
      return part;
    };
    CHECK(resumed[rank].reports == since(whole[rank].reports, went_on[rank]));
    // A save that was asked for too late for another commit is made by finish: committed weights are in use then, not a
    // prediction.
    const bool at_rest = went_on[rank] == plan.micro_batches;
    if (!at_rest) CHECK(resumed[rank].parameters == since(whole[rank].parameters, went_on[rank] - 1));
    cuts += at_rest ? 0U : 1U;
    CHECK(resumed[rank].digests == since(whole[rank].digests, went_on[rank]));
    CHECK(resumed[rank].end == whole[rank].end);
    CHECK(resumed[rank].end_parameters == whole[rank].end_parameters);
    CHECK(resumed[rank].skipped == whole[rank].skipped);
    CHECK(whole[rank].reports.size() > 5);
    for (auto const& [at, told] : resumed[rank].reports) {
      spikes += told.spike ? 1U : 0U;
      digests += told.digest ? 1U : 0U;
    }
  }
}

template <class Storage, class Schedule, class Rule>
void compare(choice const& c, Schedule const& schedule, Rule const& rule) {
  using made = acco::any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type>;
  compare_made<typename Storage::parameter_type, typename Storage::gradient_type>(
      c, [&](acco::threads_backend const& world) -> made {
        return acco::optimizer{schedule, rule, Storage{}, world, c.layout(), c.options()};
      });
}

template <class Storage, class Rule>
void with_schedule(choice const& c, Rule const& rule) {
  const acco::fixed_pace pace{2 + static_cast<unsigned>(c.below(4, 30))};
  const std::size_t which = c.below(13, 31);
  CAPTURE(which);
  if constexpr (std::is_same_v<Storage, acco::host_storage<float>> &&
                std::is_same_v<Rule, acco::adamw>) {  // engines of their own
    if (which == 7) return compare<Storage>(c, acco::delayed{.pace = pace, .predictor = acco::velocity{}}, rule);
    if (which == 8) return compare<Storage>(c, acco::delayed{.pace = pace, .compensation = acco::delay_compensation{}}, rule);
    if (which == 10) return compare<Storage>(c, acco::two_phase{.estimate = acco::own_corrected{}, .pace = pace}, rule);
  }
  // blocks have scales of fp32 in any
  if constexpr (std::is_same_v<Storage, acco::host_storage<float>> || everything) {
    if (which == 4) return compare<Storage>(c, acco::two_phase{.estimate = acco::block_int4{}, .pace = pace}, rule);
    if (which == 5)
      return compare<Storage>(c, acco::two_phase{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}, 3}, .pace = pace},
                              rule);
    if (which == 6)
      return compare<Storage>(c, acco::synchronous{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}}, .pace = pace},
                              rule);
  }
  switch (which) {
    case 0: return compare<Storage>(c, acco::synchronous{.pace = pace}, rule);
    case 1: return compare<Storage>(c, acco::delayed{.pace = pace}, rule);
    case 2: return compare<Storage>(c, acco::weight_prediction{.pace = pace}, rule);
    case 3: return compare<Storage>(c, acco::two_phase{.estimate = acco::bfloat16_wire{}, .pace = pace}, rule);
    case 9: return compare<Storage>(c, acco::two_phase{.estimate = acco::own_slice{}, .pace = pace}, rule);
    default: return compare<Storage>(c, acco::two_phase{.pace = pace}, rule);
  }
}

void one(std::uint64_t seed) {
  CAPTURE(seed);
  const choice c{seed};
  switch (c.below(6, 40)) {
    case 0: return with_schedule<acco::host_storage<acco::bfloat16>>(c, acco::adamw{.learning_rate = 1e-2});
    case 1: return with_schedule<acco::host_storage<double>>(c, acco::lion{.learning_rate = 1e-2});
    case 2: return with_schedule<acco::host_storage<acco::bfloat16, float>>(c, acco::sgd{.learning_rate = 1e-2, .momentum = 0.9});
    case 3: return with_schedule<acco::host_storage<float, acco::half>>(c, acco::adamw{.learning_rate = 1e-2});
    default: return with_schedule<acco::host_storage<float>>(c, acco::adamw{.learning_rate = 1e-2});
  }
}
}  // namespace

TEST_CASE("trainings of every kind, killed at a cut, go on as if they had not been") {
  for (std::uint64_t seed = 0; seed < (thorough() ? 200 : 24); ++seed) one(seed);
  CHECK(cuts > (thorough() ? 400 : 20));
  if (thorough()) CHECK(spikes > 5U);  // after the restore: where the cut was depends on the disk
  CHECK(digests > (thorough() ? 100U : 20U));
}

TEST_CASE("a tensor that may be left without a gradient has its own number of updates after a restore, too") {
  const auto train = [](acco::threads_backend const& world, std::string const& run, std::size_t from, std::size_t to,
                        acco::norm_detail norms = acco::norm_detail::total) {
    acco::parameter_layout layout;
    layout.add("dense", {40}).add("late", {30}, layout.add_group({.leave_without_gradient = true})).add("never", {9}, 1);
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{2}},
                      acco::adamw{.learning_rate = 1e-2},
                      acco::host_storage<float>{},
                      world,
                      layout,
                      acco::options{.norms = norms, .check_habits = acco::habit_checks::off}};
    t.initialize(std::vector<float>(79, 1.0F));
    std::size_t m = 0;
    if (from != 0) m = t.restore(run, acco::changes::allowed).template position<std::size_t>() + 1;
    CHECK(m <= from + 12);
    for (; m < to; ++m) {
      for (float& g : t.tensor("dense").gradients) g += 0.5F;
      for (float& g : t.tensor("late").gradients) g += m >= 20 && m / 4 % 2 == 0 ? 0.5F : 0.0F;
      t.accumulated(1);
      if (from == 0 && !run.empty() && m == 41) t.save(run, [&m] { return m; });
    }
    t.finish();
    if (from == 0 && !run.empty()) REQUIRE(t.saved()->complete());
    return std::vector<float>(t.parameters().begin(), t.parameters().end());
  };
  const scratch folder;
  std::vector<float> whole, resumed;
  const auto run = [&](auto&& body) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto const end = body(world);
      if (world.rank() == 0) resumed = end;
    });
  };
  run([&](auto const& world) { return train(world, "", 0, 100); });
  whole = resumed;
  run([&](auto const& world) { return train(world, folder.run(), 0, 60); });
  run([&](auto const& world) { return train(world, folder.run(), 42, 100, acco::norm_detail::tensors); });
  CHECK(resumed == whole);  // other regions are measured: the counts are tensors'
  run([&](auto const& world) { return train(world, folder.run(), 42, 100); });
  CHECK(resumed == whole);
}
