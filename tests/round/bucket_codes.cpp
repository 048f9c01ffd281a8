// SPDX-License-Identifier: Apache-2.0
// Codes that are planned while the training runs: what travels by which, against the same plan made here.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/encoding/auto_encoding.hpp>
#include <acco/encoding/block_ternary.hpp>

#include "encoding/gaussian.hpp"
#include "support/counting.hpp"

namespace {

using codes = acco::planned_encoding<acco::block_int8<>, acco::block_gauss4, acco::block_gauss3, acco::block_ternary>;
using wire = acco::without_feedback<codes>;
constexpr std::size_t count = 2900, bucket_elements = 768;
constexpr int ranks = 3;

/// Buckets of several kinds: Gaussian numbers, some of which matter more than others; a few large numbers; equal ones; zeros; and
/// they change on the way.
std::vector<float> gradient(int rank, std::size_t step) {
  std::vector<float> g = gaussian_numbers(count + 10'000 * static_cast<std::size_t>(rank) + 100 * step);
  g.erase(g.begin(), g.end() - static_cast<std::ptrdiff_t>(count));
  const std::size_t turn = step < 3 ? 0 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    switch ((i / bucket_elements + turn) % 4) {
      case 0: g[i] *= 3; break;
      case 1: g[i] = i % 97 == 0 ? 8.0F : 0.01F * g[i]; break;
      case 2: g[i] = g[i] < 0 ? -0.5F : 0.5F; break;
      default: g[i] = 0; break;
    }
  }
  return g;
}

/// What arrives of one rank's bucket.
template <class Encoding>
std::vector<float> arrives(Encoding const& e, acco::bucket const& b, std::vector<float> const& padded) {
  std::vector<float> all(b.share * ranks), block(Encoding::block_size), decoded(Encoding::block_size);
  std::vector<std::byte> bytes(Encoding::block_bytes);
  for (std::size_t share = 0; share < all.size(); share += b.share) {
    for (std::size_t i = 0; i < b.share; i += block.size()) {
      const std::size_t n = std::min(block.size(), b.share - i);
      std::fill(block.begin(), block.end(), 0.0F);
      std::copy_n(padded.begin() + static_cast<std::ptrdiff_t>(b.begin + share + i), n, block.begin());
      e.encode(block.data(), bytes.data());
      e.decode(bytes.data(), decoded.data());
      std::copy_n(decoded.begin(), n, all.begin() + static_cast<std::ptrdiff_t>(share + i));
    }
  }
  return all;
}

struct plan {
  std::vector<std::uint8_t> chosen;
  std::vector<double> lost;  // of the chosen one, over the squares
  double bytes = 0;          // of a rank's whole gradient
};
/// The plan of these gradients: the smallest of all that keep the budget; where they are all 0, what was `before`.
plan planned(std::vector<std::vector<float>> const& gradients, double budget, std::vector<std::uint8_t> const& before) {
  const acco::partition shares(count, ranks, bucket_elements);
  const std::size_t buckets = shares.buckets();
  std::vector<double> error(buckets * codes::count, 0.0), size(buckets * codes::count), square(buckets, 0.0);
  for (std::size_t k = 0; k < buckets; ++k) {
    for (std::size_t c = 0; c < codes::count; ++c) {
      codes::visit(c, [&](auto const& e) {
        size[k * codes::count + c] =
            static_cast<double>(ranks * acco::encoded_size<std::remove_cvref_t<decltype(e)>>(shares[k].share));
        for (auto const& g : gradients) {
          const std::vector<float> found = arrives(e, shares[k], g);
          for (std::size_t i = 0; i < found.size(); ++i) {
            const double x = g[shares[k].begin + i], off = x - static_cast<double>(found[i]);
            error[k * codes::count + c] += off * off;
            if (c == 0) square[k] += x * x;
          }
        }
      });
    }
  }
  double all = 0;
  for (double const each : square) all += each;
  plan best{{}, {}, std::numeric_limits<double>::infinity()};
  std::vector<std::uint8_t> chosen(buckets, 0);
  for (std::size_t k = 0; k < buckets; ++k) {
    if (square[k] == 0) chosen[k] = before[k];
  }
  while (true) {
    plan one{chosen, {}, 0};
    double lost = 0;
    for (std::size_t k = 0; k < buckets; ++k) {
      lost += error[k * codes::count + chosen[k]];
      one.bytes += size[k * codes::count + chosen[k]];
      one.lost.push_back(square[k] > 0 ? error[k * codes::count + chosen[k]] / square[k] : 0);
    }
    if (lost <= budget * all && one.bytes < best.bytes) best = one;
    std::size_t k = 0;
    for (; k < buckets; ++k) {
      if (square[k] == 0) continue;
      if (++chosen[k] != codes::count) break;
      chosen[k] = 0;
    }
    if (k == buckets) return best;
  }
}

template <class Schedule, class Rule = acco::sgd>
auto make(acco::threads_backend const& world, Schedule const& schedule, std::size_t size = count,
          Rule const& rule = {.learning_rate = 0.125}) {
  acco::options chosen;
  chosen.bucket_elements = bucket_elements;
  chosen.on_non_finite = acco::non_finite::skip;
  return acco::optimizer{schedule, rule, acco::host_storage<float>{}, world, size, chosen};
}

}  // namespace

TEST_CASE("buckets travel by the codes that the plan gives them, from the commit after the measured one on") {
  const acco::partition shares(count, ranks, bucket_elements);
  REQUIRE(shares.buckets() == 4);
  constexpr double budget = 0.02;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto training =
        make(world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.budget = budget, .every = 2}}, {}}});
    auto whole = make(world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.every = 0}}, {}}});
    training.initialize(std::vector<float>(count, 1.0F));
    whole.initialize(std::vector<float>(count, 1.0F));
    std::vector<float> theta(count, 1.0F);
    std::vector<std::uint8_t> chosen(shares.buckets(), 0);
    plan next;
    std::size_t changes = 0;
    for (std::size_t step = 0; step < 6; ++step) {
      std::vector<std::vector<float>> gradients;
      for (int rank = 0; rank < ranks; ++rank) {
        gradients.push_back(gradient(rank, step));
        gradients.back().resize(shares.padded_size(), 0.0F);
      }
      if (step % 2 == 1) {
        changes += next.chosen != chosen ? 1 : 0;
        chosen = next.chosen;
      } else {
        next = planned(gradients, budget, chosen);
      }
      for (std::size_t k = 0; k < shares.buckets(); ++k) {
        std::vector<float> sum(shares[k].share * ranks, 0.0F);
        for (auto const& g : gradients) {
          codes::visit(chosen[k], [&](auto const& e) {
            const std::vector<float> found = arrives(e, shares[k], g);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += found[i];
          });
        }
        for (std::size_t i = 0; i < sum.size() && shares[k].begin + i < count; ++i)
          theta[shares[k].begin + i] -= 0.125F * (sum[i] / ranks);
      }
      auto const& mine = gradients[static_cast<std::size_t>(world.rank())];
      std::copy_n(mine.begin(), count, training.gradients().begin());
      std::copy_n(mine.begin(), count, whole.gradients().begin());
      const auto report = training.accumulated(1), all = whole.accumulated(1);
      REQUIRE(report.has_value());
      CAPTURE(step);
      double worst = 0;
      for (std::size_t i = 0; i < count; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(training.parameters()[i]) - static_cast<double>(theta[i])));
      CHECK(worst < 2e-6);
      const std::vector<acco::planned_bucket> told = training.encoding_plan();
      REQUIRE(told.size() == shares.buckets());
      double bytes = 0, of_whole = 0;
      for (std::size_t k = 0; k < told.size(); ++k) {
        CHECK(std::string(told[k].encoding) == codes::name_of(chosen[k]));
        CHECK(told[k].begin == shares[k].begin);
        if (step % 2 == 1) CHECK(told[k].lost == doctest::Approx(next.lost[k]).epsilon(1e-4));
        bytes += static_cast<double>(told[k].bytes);
        of_whole += static_cast<double>(whole.encoding_plan()[k].bytes);
      }
      if (step % 2 == 1) {
        CHECK(bytes == next.bytes);
        CHECK(static_cast<double>(all->bytes_sent - report->bytes_sent) == (of_whole - bytes) * (ranks - 1) / ranks);
      }
    }
    CHECK(changes == 2);  // from the first choice, and as the gradients change
    training.finish();
    whole.finish();
  });
}

TEST_CASE("what is not finite is not planned from; a new beginning plans anew; ranks agree; bad settings are refused") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto with = [&](codes const& each) {
      return make(world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{each}, {}}}, 500);
    };
    auto training = with({.budget = 0.5, .every = 5, .first = 1});
    training.initialize(std::vector<float>(500, 1.0F));
    const auto step = [&](float first) {
      const std::vector<float> g = gaussian_numbers(500);
      std::copy(g.begin(), g.end(), training.gradients().begin());
      training.gradients()[0] = first;
      training.accumulated(1);
      return std::string(training.encoding_plan()[0].encoding);
    };
    CHECK(step(std::numeric_limits<float>::infinity()) == "block_gauss4");  // as it began
    CHECK(step(1) == "block_gauss4");                                       // nothing was learnt from that; now something is
    CHECK(step(1) == "block_ternary");
    CHECK(training.encoding_plan()[0].lost > 0.1);
    training.finish();
    training.set_parameters(std::vector<float>(500, 2.0F));
    CHECK(training.encoding_plan()[0].lost == 0);
    CHECK(step(1) == "block_gauss4");
    CHECK(step(1) == "block_ternary");
    training.finish();

    auto differs = with({.budget = world.rank() == 0 ? 0.1 : 0.2});
    CHECK_THROWS_WITH_AS(differs.initialize(std::vector<float>(500, 1.0F)), doctest::Contains("budget 0.1"),
                         acco::mismatch_error);
    CHECK_THROWS_WITH_AS(with({.budget = -1}), doctest::Contains("planned_encoding::budget is -1"), acco::usage_error);
    CHECK_THROWS_WITH_AS(with({.first = 4}), doctest::Contains("planned_encoding::first is 4, and there are 4 encodings"),
                         acco::usage_error);
  });
}

TEST_CASE("nothing is planned from gradients that are all 0, and the code of a bucket in which they are stays") {
  constexpr std::size_t size = 2 * bucket_elements;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = make(
        world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.budget = 0.5, .every = 3, .first = 1}}, {}}},
        size);
    training.initialize(std::vector<float>(size, 1.0F));
    const std::vector<float> numbers = gaussian_numbers(size);
    const auto step = [&](bool first, bool second) {
      for (std::size_t i = 0; i < size; ++i) {
        if (i < bucket_elements ? first : second) training.gradients()[i] += numbers[i];
      }
      training.accumulated(1);
      std::vector<std::string> found;
      for (acco::planned_bucket const& each : training.encoding_plan()) found.emplace_back(each.encoding);
      return found;
    };
    const std::vector<std::string> as_begun{"block_gauss4", "block_gauss4"}, of_first{"block_ternary", "block_gauss4"};
    CHECK(step(false, false) == as_begun);  // measured: nothing
    CHECK(step(true, false) == as_begun);   // measured again, and nothing is known of the second
    CHECK(step(true, true) == of_first);
    CHECK(step(true, true) == of_first);  // now it is measured, too
    CHECK(step(true, true) == std::vector<std::string>(2, "block_ternary"));
    training.finish();
    auto wide =
        make(world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.budget = 0.5, .every = 2}}, {}}}, size);
    wide.initialize(std::vector<float>(size, 1.0F));
    const auto code_of = [&](bool any, std::size_t k) {
      for (std::size_t i = 0; i < size; ++i) {
        if (any || i >= bucket_elements) wide.gradients()[i] += numbers[i];
      }
      wide.accumulated(1);
      return std::string(wide.encoding_plan()[k].encoding);
    };
    CHECK(code_of(false, 1) == "block_int8");     // measured, without the first bucket
    CHECK(code_of(false, 1) == "block_ternary");  // planned
    CHECK(code_of(true, 0) == "block_int8");      // the first has kept its code; measured
    CHECK(code_of(false, 0) == "block_ternary");
    CHECK(code_of(false, 0) == "block_ternary");  // measured without it
    CHECK(code_of(false, 0) == "block_ternary");  // and kept
    wide.finish();
  });
}

TEST_CASE("planned codes under ACCO, with feedback, in several threads: all ranks stay the same") {
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const acco::coded<acco::with_error_feedback<codes>, acco::block_int4<>> commit{{{.budget = 0.03, .every = 3}, 1}, {}};
    auto training =
        make(world, acco::two_phase{.estimate = acco::block_int4<>{}, .commit = commit, .pace = acco::fixed_pace{1, 1}}, count,
             acco::adamw{});
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t m = 0; m < 40; ++m) {
      const std::vector<float> g = gradient(world.rank(), m / 8);
      for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += g[i];
      training.accumulated(1);
    }
    training.finish();
    std::size_t others = 0;
    for (acco::planned_bucket const& each : training.encoding_plan())
      others += std::string(each.encoding) != "block_int8" ? 1 : 0;
    CHECK(others > 0);
    std::vector<double> sums(training.parameters().begin(), training.parameters().end());
    const std::vector<double> mine = sums;
    training.sum_over_ranks(sums);
    std::size_t same = 0;
    for (std::size_t i = 0; i < count; ++i) same += sums[i] == 3 * mine[i] ? 1 : 0;
    CHECK(same == count);
  });
}

TEST_CASE("a plan is made without allocating") {
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    auto training = make(world, acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.every = 2}}, {}}});
    training.initialize(std::vector<float>(count, 1.0F));
    const std::vector<float> g = gradient(0, 0);
    std::size_t before = 0;
    for (std::size_t m = 0; m < 14; ++m) {
      if (m == 6) before = counting::news();
      std::copy(g.begin(), g.end(), training.gradients().begin());
      training.accumulated(1);
    }
    CHECK(counting::news() == before);
    CHECK(std::string(training.encoding_plan()[2].encoding) != "block_int8");
    training.finish();
  });
}
