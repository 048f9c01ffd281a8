// SPDX-License-Identifier: Apache-2.0
// Gradients whose code is planned, bucket by bucket: against errors that are measured here anew, all choices that there
// are, and the codes themselves; through rounds that count and rounds that do not.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "code/gaussian.hpp"
#include "support/counting.hpp"
#include "support/worlds.hpp"

namespace {

using storage = acco::host_storage<float>;
using codes = acco::planned<acco::block_gauss4, acco::block_int8<>, acco::block_gauss2>;
using wire = acco::with_error_feedback<codes>;
constexpr std::array<char const*, 3> names{"block_gauss4", "block_int8", "block_gauss2"};
constexpr int ranks = 2;
constexpr std::size_t bucket_size = 512, parameters = 7 * bucket_size + 300, buckets = 8, steps = 22;  // the last is short
constexpr double budget = 0.35;
constexpr unsigned every = 4;

/// Buckets are of very different size, and others are loud in the second half of the training.
float gradient(int rank, std::size_t step, std::size_t i) {
  static const std::vector<float> noise = gaussian_numbers(parameters * 2);
  const std::size_t bucket = i / bucket_size, loud = step < 9 ? bucket : buckets - 1 - bucket;
  if (bucket == 6) return 0;
  return std::ldexp(noise[(i + 37 * step + 501 * static_cast<std::size_t>(rank)) % noise.size()], -static_cast<int>(loud));
}
enum class fate { counts, poisoned, empty, spike };
/// Where a plan is due one round is skipped, and one is empty; one has a norm beyond the limit.
fate fate_of(std::size_t round) {
  return round == 4 || round == 7 ? fate::poisoned : round == 5 ? fate::empty : round == 19 ? fate::spike : fate::counts;
}

using table = std::array<std::array<double, 3>, buckets>;

/// What each code loses of what a rank sends, in the shares of the ranks; whole sums in double.
template <class Code>
double lost(Code const& code, float const* values, std::size_t count, float* decoded) {
  double sum = 0;
  std::byte bytes[Code::block_bytes];
  for (std::size_t i = 0; i < count; i += Code::block_size) {
    float block[Code::block_size] = {}, out[Code::block_size];
    const std::size_t n = std::min(Code::block_size, count - i);
    std::copy_n(values + i, n, block);
    code.encode(block, bytes);
    code.decode(bytes, out);
    for (std::size_t k = 0; k < n; ++k) {
      sum += std::pow(static_cast<double>(block[k]) - static_cast<double>(out[k]), 2);
      decoded[i + k] = out[k];
    }
  }
  return sum;
}
double lost_by(std::size_t number, std::vector<float> const& sent, acco::bucket const& b, std::vector<float>& decoded) {
  double sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t at = b.begin + r * b.share;
    const auto of = [&](auto const& code) { return lost(code, sent.data() + at, b.share, decoded.data() + at); };
    sum += number == 0 ? of(acco::block_gauss4{}) : number == 1 ? of(acco::block_int8<>{}) : of(acco::block_gauss2{});
  }
  return sum;
}
std::size_t bytes_by(std::size_t number, acco::bucket const& b) {
  return ranks * (number == 0   ? acco::encoded_size<acco::block_gauss4>(b.share)
                  : number == 1 ? acco::encoded_size<acco::block_int8<>>(b.share)
                                : acco::encoded_size<acco::block_gauss2>(b.share));
}
struct plan {
  std::array<std::size_t, buckets> chosen{};
  [[nodiscard]] double error(table const& of) const {
    double sum = 0;
    for (std::size_t k = 0; k < buckets; ++k) sum += of[k][chosen[k]];
    return sum;
  }
  [[nodiscard]] std::size_t bytes(acco::partition const& shares) const {
    std::size_t sum = 0;
    for (std::size_t k = 0; k < buckets; ++k) sum += bytes_by(chosen[k], shares[k]);
    return sum;
  }
  friend bool operator==(plan const&, plan const&) = default;
};
plan uniform(std::size_t number) {
  plan p;
  p.chosen.fill(number);
  return p;
}
/// The fewest bytes within the budget.
std::size_t least_bytes(table const& of, double most, acco::partition const& shares) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (plan p;;) {
    if (p.error(of) <= most) least = std::min(least, p.bytes(shares));
    std::size_t k = 0;
    while (k < buckets && ++p.chosen[k] == 3) p.chosen[k++] = 0;
    if (k == buckets) return least;
  }
}

struct round {
  plan by;
  std::uint64_t bytes = 0;
  std::vector<float> sent, kept;  // with the feedback of before; behind the round
};
template <class World, class Wire>
std::vector<std::vector<round>> train(Wire const& commit, bool told = true) {
  using schedule_type = acco::synchronous<acco::coded<Wire>>;
  std::vector<std::vector<round>> found(ranks);
  World::run(ranks, [&](typename World::backend world) {
    acco::round_engine<storage> training(
        std::make_unique<acco::schedule_of<schedule_type, storage>>(schedule_type{{commit}}),
        std::make_unique<acco::rule_of<acco::sgd, storage>>(acco::sgd{.learning_rate = 1, .momentum = 0}), storage{},
        std::make_unique<acco::backend_of<typename World::backend, storage>>(world), acco::parameter_layout(parameters),
        {.on_non_finite = acco::non_finite::skip,
         .check_habits = acco::habit_checks::off,
         .norm_limit = 20,
         .on_norm_spike = acco::norm_spike::skip,
         .compare_every = 1,
         .bucket_elements = bucket_size});
    training.initialize(std::vector<float>(parameters, 0.0F));
    const int rank = world.rank();
    for (std::size_t r = 0; r < steps; ++r) {
      round now{{}, 0, std::vector<float>(training.shares().padded_size()), {}};
      const auto before = training.feedback();
      for (std::size_t i = 0; i < parameters; ++i) {
        if (fate_of(r) != fate::empty)
          training.gradients()[i] += gradient(rank, r, i) * (fate_of(r) == fate::spike && i / bucket_size == 3 ? 1000 : 1);
        now.sent[i] = training.gradients()[i] + before[i];
      }
      if (fate_of(r) == fate::poisoned && rank == 1) training.gradients()[700] = std::numeric_limits<float>::infinity();
      auto const report = training.accumulated(fate_of(r) == fate::empty ? 0 : 1, 0);
      REQUIRE(report);
      CHECK(report->skipped == (fate_of(r) == fate::poisoned || fate_of(r) == fate::spike));
      now.bytes = report->bytes_sent;
      now.kept.assign(training.feedback().begin(), training.feedback().end());
      CHECK(report->codes.size() == (told ? buckets : 0));
      for (std::size_t k = 0; told && k < buckets; ++k) {
        acco::planned_bucket const& of = report->codes[k];
        CHECK(of.begin == k * bucket_size);
        CHECK(of.count == std::min(bucket_size, parameters - of.begin));
        now.by.chosen[k] = static_cast<std::size_t>(std::find(names.begin(), names.end(), std::string(of.code)) - names.begin());
        CHECK(of.bytes == bytes_by(now.by.chosen[k], training.shares()[k]));
      }
      found[static_cast<std::size_t>(rank)].push_back(now);
    }
    training.set_parameters(std::vector<float>(parameters, 0.0F));
    training.gradients()[0] += 1;
    auto const report = training.accumulated(1, 0);
    REQUIRE(report);
    for (acco::planned_bucket const& of : report->codes) CHECK(std::string(of.code) == names[0]);
    training.finish(acco::unfinished::commit);
  });
  return found;
}

}  // namespace

TEST_CASE(
    "a plan is made of what all codes would have lost, keeps its budget, is nearly the smallest, and holds from the next round "
    "on") {
  const acco::partition shares(parameters, ranks, bucket_size);
  REQUIRE(shares.buckets() == buckets);
  auto const found = train<worlds::threads>(wire{{.budget = budget, .every = every}, {}});
  auto const coded = train<worlds::threads>(acco::with_error_feedback<acco::block_gauss4>{}, false);
  std::size_t updates = 0, plans = 0, without = 0;
  const plan first = uniform(0);
  plan expected = first;
  for (std::size_t r = 0; r < steps; ++r) {
    CAPTURE(r);
    const plan by = found[0][r].by;
    CHECK(by == found[1][r].by);
    CHECK(by == expected);
    table errors{};
    for (auto const& of : found) {
      std::vector<float> decoded(shares.padded_size());
      for (std::size_t k = 0; k < buckets; ++k) {
        for (std::size_t c = 0; c < 3; ++c) errors[k][c] += lost_by(c, of[r].sent, shares[k], decoded);
        (void)lost_by(by.chosen[k], of[r].sent, shares[k], decoded);  // by the code that is told
      }
      std::size_t wrong = 0;
      for (std::size_t i = 0; fate_of(r) == fate::counts && i < parameters; ++i)
        wrong += std::abs(of[r].kept[i] - (of[r].sent[i] - decoded[i])) > 1e-6F ? 1 : 0;
      CHECK(wrong == 0);
      const bool measured = updates % every == 0;
      const auto leaves = [&](plan const& p) { return acco::bytes_sent(acco::collective::all_to_all, ranks, p.bytes(shares)); };
      const std::uint64_t sum = acco::bytes_sent(acco::collective::all_reduce, ranks, buckets * 4 * sizeof(double));
      CHECK(of[r].bytes - leaves(by) - (measured ? sum : 0) == coded[0][r].bytes - leaves(first) + (r == 0 ? sum : 0));
    }
    if (fate_of(r) != fate::counts) continue;
    if (updates++ % every != 0) continue;
    ++plans;
    REQUIRE(r + 1 < steps);
    plan const& next = found[0][r + 1].by;
    const double most = budget * first.error(errors);
    CHECK(next.error(errors) <= most);
    const std::size_t least = least_bytes(errors, most, shares);
    CHECK(next.bytes(shares) >= least);
    CHECK(next.bytes(shares) < least + bytes_by(1, shares[0]) - bytes_by(2, shares[0]));
    CHECK(next.chosen[6] == 0);          // of nothing nothing is lost
    for (std::size_t c = 0; c < 3; ++c)  // the best of one code for all
      if (uniform(c).error(errors) <= next.error(errors)) CHECK(next.bytes(shares) < uniform(c).bytes(shares));
    without += next.bytes(shares) < first.bytes(shares) ? 1 : 0;
    expected = next;
  }
  CHECK(plans == 5);
  CHECK(without == plans);                          // fewer bytes than the first code, at 0.35 of its error
  CHECK_FALSE(expected == found[0][steps / 2].by);  // others are loud
}

TEST_CASE("whatever the order in which messages arrive, all ranks switch in the same round, to the same bits") {
  const wire of{{.budget = budget, .every = every}, {}};
  auto const expected = train<worlds::threads>(of);
  const auto same = [&](auto const& found) {
    for (std::size_t k = 0; k < ranks; ++k) {
      for (std::size_t r = 0; r < steps; ++r) {
        CHECK(found[k][r].by == expected[k][r].by);
        CHECK(found[k][r].bytes == expected[k][r].bytes);
        CHECK((found[k][r].kept == expected[k][r].kept));
      }
    }
  };
  same(train<worlds::mock_late>(of));
  same(train<worlds::mock_random>(of));
}

namespace {
/// Parameters in use, and bytes, behind every micro-batch; and how many buckets' codes were not the first.
struct history {
  std::vector<std::vector<float>> shown;
  std::vector<std::uint64_t> bytes;
  std::size_t others = 0;
  std::uint64_t digest = 0;
};
template <class Schedule>
history shown_by(Schedule const& schedule) {
  history found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> training = acco::optimizer{
        schedule, acco::adamw{}, storage{},
        world,    parameters,    acco::options{.check_habits = acco::habit_checks::off, .bucket_elements = bucket_size}};
    training.initialize(std::vector<float>(parameters, 0.0F));
    for (std::size_t r = 0; r < 10; ++r) {
      for (std::size_t i = 0; i < parameters; ++i) training.gradients()[i] += gradient(world.rank(), r, i);
      auto const report = training.accumulated(1);
      if (world.rank() != 0) continue;
      found.shown.emplace_back(training.parameters().begin(), training.parameters().end());
      if (!report) continue;
      found.bytes.push_back(report->bytes_sent);
      for (acco::planned_bucket const& of : report->codes) found.others += std::string(of.code) != names[0] ? 1 : 0;
    }
    training.finish();
    const std::uint64_t digest = training.world_digest();
    if (world.rank() == 0) found.digest = digest;
  });
  return found;
}
}  // namespace

TEST_CASE("of one code, or where no plan is made, a training is that of the first code, in every bit and byte") {
  const auto same = [](history const& a, history const& b) {
    CHECK((a.shown == b.shown));
    CHECK(a.bytes == b.bytes);
    CHECK(a.digest == b.digest);
  };
  same(shown_by(acco::synchronous{.commit = acco::planned<acco::block_int8<>>{}}),
       shown_by(acco::synchronous{.commit = acco::coded{acco::block_int8{}, acco::full{}}}));
  using ahead = acco::two_phase<acco::fixed_pace, acco::coded<codes>>;
  using usual = acco::two_phase<acco::fixed_pace, acco::coded<acco::block_gauss4>>;
  history const without = shown_by(ahead{.estimate = {{.every = 0}, {}}, .pace = {1}});
  same(without, shown_by(usual{.pace = {1}}));
  history const planned = shown_by(ahead{.estimate = {{.budget = 2, .every = 1}, {}}, .pace = {1}});  // estimates, too
  CHECK(planned.others > 0);
  CHECK_FALSE((planned.shown == without.shown));
}

namespace {
auto make(auto const& world, codes const& of, std::size_t bucket_elements = bucket_size) {
  return acco::optimizer{acco::synchronous{.commit = wire{of, {}}},
                         acco::sgd{},
                         storage{},
                         world,
                         parameters,
                         acco::options{.check_habits = acco::habit_checks::off, .bucket_elements = bucket_elements}};
}
}  // namespace

TEST_CASE("where no codes keep the budget each bucket loses the least, however far the budget is") {
  for (const double unreachable : {0.0, 1e-9, 1e-6, 1e-5}) {
    for (const std::size_t elements : {std::size_t{0}, 2 * bucket_size}) {  // one bucket, four
      auto alone = make(acco::solo_backend{}, {.budget = unreachable, .every = 1}, elements);
      alone.initialize(std::vector<float>(parameters, 0.0F));
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < parameters; ++i) alone.gradients()[i] += gradient(0, r, i);
        auto const report = alone.accumulated(1);
        REQUIRE(report);
        CHECK(report->codes.size() == (elements == 0 ? 1 : 4));
        CAPTURE(unreachable);
        for (acco::planned_bucket const& of : report->codes) CHECK(std::string(of.code) == names[r == 0 ? 0 : 1]);
      }
      alone.finish();
    }
  }
}

TEST_CASE("a round in which a plan is made allocates nothing; what makes no sense is refused; ranks are told of others") {
  auto alone = make(acco::solo_backend{}, {.budget = budget, .every = 1});
  alone.initialize(std::vector<float>(parameters, 0.0F));
  std::size_t before = 0;
  for (std::size_t r = 0; r < 12; ++r) {
    for (std::size_t i = 0; i < parameters; ++i) alone.gradients()[i] += gradient(0, r, i);
    (void)alone.accumulated(1);
    if (r == 0) before = counting::news();
  }
  CHECK(counting::news() == before);
  alone.finish();
  CHECK_THROWS_WITH_AS(make(acco::solo_backend{}, {.budget = -1}), doctest::Contains("planned::budget is -1"), acco::usage_error);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto differs = make(world, {.budget = world.rank() == 0 ? 1.0 : 2.0});
    CHECK_THROWS_WITH_AS(differs.initialize(std::vector<float>(parameters, 0.0F)), doctest::Contains("commit gradients.budget"),
                         acco::mismatch_error);
  });
}
