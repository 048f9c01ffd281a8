// SPDX-License-Identifier: Apache-2.0
// Estimates from own gradients and the mean of the others' in the last step (SAPipe's option 3b).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "conformance/schedule.hpp"
#include "support/float_wire.hpp"

namespace {

using storage = acco::host_storage<double>;

constexpr auto corrected = [](unsigned first, unsigned second) {
  return acco::two_phase{.estimate = acco::own_corrected{}, .pace = acco::fixed_pace{.first = first, .second = second}};
};
constexpr auto own = [](unsigned first, unsigned second) {
  return acco::two_phase{.estimate = acco::own_slice{}, .pace = acco::fixed_pace{.first = first, .second = second}};
};

template <class Rule, class Schedule = acco::two_phase<acco::fixed_pace, acco::own_corrected>>
using under = acco::decorated_rule<Schedule, Rule>;
static_assert(under<acco::adamw>::slot_count == acco::adamw::slot_count + 1 &&
              under<acco::muon>::slot_count == acco::muon::slot_count + 1);
static_assert(acco::matrix_rule<under<acco::muon>> && !acco::has_apply<under<acco::muon>>);
struct estimates_and_extrapolates : acco::two_phase<acco::fixed_pace, acco::own_corrected> {
  acco::extrapolation predictor;
};
static_assert(acco::remembers_others<under<acco::lion, estimates_and_extrapolates>> &&
              acco::shows<under<acco::lion, estimates_and_extrapolates>>);

/// What rank 0 had in use behind every report, estimate and commit in turn.
struct run {
  std::vector<std::vector<double>> shown;
  std::vector<acco::round_report> reports;
  acco::memory_table memory;
};
/// gradient(rank, micro-batch, element, parameter) of a sample; a rank adds so many samples to a micro-batch.
using gradient = acco::function_view<double(int, std::size_t, std::size_t, double)>;
using weights = acco::function_view<double(int, std::size_t)>;
template <class Schedule, class Rule = acco::sgd>
run train(int ranks, std::size_t count, std::size_t micro_batches, Schedule const& schedule, gradient of, weights weight,
          acco::options const& options = {}, Rule const& rule = {.learning_rate = 0.25}) {
  run found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{schedule, rule, storage{}, world, count, options};
    t.initialize(std::vector<double>(count, 1.0));
    if (world.rank() == 0) found.memory = t.memory();
    for (std::size_t m = 0; m < micro_batches; ++m) {
      const double w = weight(world.rank(), m);
      for (std::size_t i = 0; i < count; ++i)
        t.gradients()[i] += w * options.loss_scale * of(world.rank(), m, i, t.parameters()[i]);
      auto const report = t.accumulated(w);
      if (!report || world.rank() != 0) continue;
      found.reports.push_back(*report);
      found.shown.emplace_back(t.parameters().begin(), t.parameters().end());
    }
    t.finish();
  });
  return found;
}
double distance(std::vector<double> const& a, std::vector<double> const& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return squares;
}

}  // namespace

TEST_CASE("own_corrected: predictions from own gradients and the others' last, commits from all") {
  conformance::short_suite<false>(reference::algorithm::own_corrected, corrected);
  const acco::adamw rule{.learning_rate = 0.02};
  auto s = conformance::setting(5, 9, 2, 1);
  conformance::compare<storage>(reference::algorithm::own_corrected, corrected, rule, conformance::mixed_layout(), s);
  s = conformance::setting(3, 12, 1, 2);
  for (auto const& counts :
       {std::vector<std::size_t>{12, 0, 0}, {4, 12, 0}, {1, 0, 12}}) {  // who has none; whose others have none
    s.micro_batches = counts;
    conformance::compare<storage>(reference::algorithm::own_corrected, corrected, rule, conformance::mixed_layout(), s);
  }
}
TEST_CASE("own_corrected: the same with parameters that travel encoded, and with commits that do") {
  conformance::short_suite<false>(
      reference::algorithm::own_corrected,
      [](unsigned first, unsigned second) {
        return acco::two_phase{.estimate = acco::coded{.gradients = acco::own_corrected{}, .parameters = float_wire{}},
                               .commit = float_wire{},
                               .pace = acco::fixed_pace{.first = first, .second = second}};
      },
      {.micro_batches = {}}, 2e-4);
}
TEST_CASE("own_corrected over backends that do not add, late ones, in other types, with addresses that stay") {
  const acco::adamw rule{.learning_rate = 0.02};
  constexpr auto kind = reference::algorithm::own_corrected;
  const auto s = conformance::setting(3, 12, 2, 1);
  const acco::options buckets{.bucket_elements = 200};
  conformance::compare<storage, worlds::plain>(kind, corrected, rule, conformance::mixed_layout(), s, 1e-12, buckets);
  conformance::compare<storage, worlds::mock_random>(kind, corrected, rule, conformance::mixed_layout(), s, 1e-12, buckets);
  conformance::compare<storage, worlds::mock_late>(kind, corrected, rule, conformance::mixed_layout(), s, 1e-12, buckets);
  conformance::compare<storage>(kind, corrected, rule, conformance::mixed_layout(false), s, 1e-12, {.stable_addresses = true});
  using acco::bfloat16;
  if constexpr (everything)  // the next has both roundings
    conformance::compare<acco::host_storage<float, bfloat16>>(kind, corrected, rule, conformance::mixed_layout(), s, 3e-2);
  conformance::compare<acco::host_storage<bfloat16, float, double>>(kind, corrected, rule, conformance::mixed_layout(), s, 3e-2);
}
TEST_CASE("on one rank it is own_slice, bit by bit, and costs a slot") {
  const auto s = conformance::setting(1, 16, 3, 1);
  const auto trained = [&](auto schedule) {
    return library::train<storage>(worlds::threads{}, schedule, acco::adamw{.learning_rate = 0.02}, conformance::mixed_layout(),
                                   s)
        .parameters;
  };
  CHECK(trained(corrected(3, 1)) == trained(own(3, 1)));
  const auto nothing = [](int, std::size_t, std::size_t, double) { return 0.0; };
  const auto one = [](int, std::size_t) { return 1.0; };
  const acco::memory_table with = train(2, 640, 0, corrected(1, 1), nothing, one).memory,
                           without = train(2, 640, 0, own(1, 1), nothing, one).memory;
  CHECK(with.slots - without.slots ==
        storage::allocation_size(320 * sizeof(double), acco::stagger::slots + acco::sgd::slot_count));
  CHECK(with.total() - without.total() == with.slots - without.slots);
}
TEST_CASE("where gradients stay what they are, its predictions are the commits, whatever everybody weighs") {
  const auto linear = [](int rank, std::size_t, std::size_t i, double) {
    return 0.3 * rank + 0.01 * static_cast<double>(i % 17) - 0.05;
  };
  const auto alike = [](int, std::size_t, std::size_t i, double) { return 0.01 * static_cast<double>(i % 17) - 0.05; };
  const auto by_rank = [](int rank, std::size_t) { return 1.0 + rank; };
  const auto late = [](int rank, std::size_t m) { return m < 2 && rank != 0 ? 0.0 : 1.0 + rank; };
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const run found = train(ranks, 601, 16, corrected(1, 1), linear, by_rank),
              slices = train(ranks, 601, 16, own(1, 1), linear, by_rank);
    REQUIRE(found.shown.size() == 15);
    CHECK(distance(found.shown[0], found.shown[1]) > 0.1);  // the first has no others yet
    CHECK(distance(found.shown[0], slices.shown[0]) < 1e-24);
    for (std::size_t k = 2; k + 1 < found.shown.size(); k += 2) {
      CHECK(distance(found.shown[k], found.shown[k + 1]) < 1e-20);
      CHECK(distance(slices.shown[k], slices.shown[k + 1]) > 0.1);
    }
    // Alike on all ranks they are own_slice's, the first too; and whoever was alone in the first step has 0 for the
    // others.
    const run same = train(ranks, 601, 16, corrected(1, 1), alike, by_rank),
              same_slices = train(ranks, 601, 16, own(1, 1), alike, by_rank);
    for (std::size_t k = 0; k < same.shown.size(); ++k) CHECK(distance(same.shown[k], same_slices.shown[k]) < 1e-20);
    const run alone = train(ranks, 601, 16, corrected(1, 1), alike, late);
    CHECK(distance(alone.shown[2], alone.shown[3]) > 1e-3);
    CHECK(distance(alone.shown[4], alone.shown[5]) < 1e-20);
  }
}
TEST_CASE("on a noisy quadratic its predictions lie nearer to the commits than own_slice's") {
  const auto noisy = [](int rank, std::size_t m, std::size_t i, double p) {
    return p + 4 * problem::unit((static_cast<std::uint64_t>(rank) * 4096 + m) * 1024 + i) - 2;
  };
  for (const bool even : {true, false}) {
    const auto weight = [&](int rank, std::size_t m) {
      return even ? 1.0 : static_cast<double>(1 + (static_cast<std::size_t>(rank) + m) % 3);
    };
    const auto error = [&](run const& found) {
      double sum = 0;
      for (std::size_t k = 20; k + 1 < found.shown.size(); k += 2) sum += distance(found.shown[k], found.shown[k + 1]);
      return sum;
    };
    const double slices = error(train(8, 601, 121, own(1, 1), noisy, weight)),
                 corrections = error(train(8, 601, 121, corrected(1, 1), noisy, weight));
    MESSAGE("squared distance of predictions: own_slice ", slices, ", own_corrected ", corrections);
    CHECK(corrections < slices / 2);
  }
}
TEST_CASE("a loss's scale changes no bit, a step that is skipped leaves the others' mean as it was") {
  const auto noise = [](int rank, std::size_t m, std::size_t i) {
    return 4 * problem::unit((static_cast<std::uint64_t>(rank) * 4096 + m) * 1024 + i) - 1;
  };
  constexpr std::size_t skips = 12, step = 4;  // the first micro-batch of the step that is skipped
  const auto poison = [](int rank, std::size_t m, std::size_t i) { return m == skips + 1 && rank == 1 && i == 300; };
  const auto weight = [](int rank, std::size_t m) { return static_cast<double>(1 + (static_cast<std::size_t>(rank) + m) % 3); };
  acco::options chosen{.clip_norm = 20, .on_non_finite = acco::non_finite::skip, .check_habits = acco::habit_checks::off};
  const auto curved = [&](int rank, std::size_t m, std::size_t i, double p) {
    return poison(rank, m, i) ? std::numeric_limits<double>::infinity() : p + noise(rank, m, i);
  };
  const run plain = train(3, 601, 48, corrected(2, 2), curved, weight, chosen);
  chosen.loss_scale = 64;
  const run scaled = train(3, 601, 48, corrected(2, 2), curved, weight, chosen);
  REQUIRE(plain.reports.size() == scaled.reports.size());
  std::size_t skipped = 0, clipped = 0;
  for (std::size_t k = 0; k < plain.reports.size(); ++k) {
    CHECK(plain.shown[k] == scaled.shown[k]);
    skipped += scaled.reports[k].skipped ? 1U : 0U;
    clipped += scaled.reports[k].clip_scale < 1 ? 1U : 0U;
  }
  CHECK(skipped >= 1);
  CHECK(clipped > 3);

  // Gradients that depend on no parameter: the training is the one that never had the step.
  chosen.loss_scale = 1;
  const auto flat = [&](int rank, std::size_t m, std::size_t i, double) {
    return poison(rank, m, i) ? std::numeric_limits<double>::infinity() : noise(rank, m, i);
  };
  const auto later = [](std::size_t m) { return m < skips ? m : m + step; };
  const run with = train(3, 601, 48, corrected(2, 2), flat, weight, chosen),
            without = train(
                3, 601, 44, corrected(2, 2),
                [&](int rank, std::size_t m, std::size_t i, double) { return noise(rank, later(m), i); },
                [&](int rank, std::size_t m) { return weight(rank, later(m)); }, chosen);
  REQUIRE(with.shown.size() == without.shown.size() + 2);
  for (std::size_t k = 0; k < without.shown.size(); ++k) CHECK(without.shown[k] == with.shown[k < skips / 2 ? k : k + 2]);
}
TEST_CASE("the others' mean is taken where they have a 64th of the samples") {
  const auto weighed = [](double mine, double all, bool apply, double scale = 1) {
    acco::round_numbers n;
    n.mine.weight = mine;
    n.all.weight = all;
    n.apply = apply;
    n.loss_scale = scale;
    acco::weigh_others{&n}();
    return n.others;
  };
  CHECK(weighed(63, 64, true).wanted);
  CHECK(weighed(63, 64, true, 4).first == 0.25);
  CHECK(weighed(63, 64, true, 4).second == -0.25);
  CHECK_FALSE(weighed(64, 65, true).wanted);
  CHECK_FALSE(weighed(63, 64, false).wanted);
  CHECK_FALSE(weighed(0, 0, true).wanted);
  CHECK_FALSE(weighed(5, 5, true).wanted);
  CHECK(weighed(5, 5, true).first == 0);
  CHECK(weighed(0, 2, true).first == 0.5);
}
