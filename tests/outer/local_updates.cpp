// SPDX-License-Identifier: Apache-2.0
// Local updates against the recurrence: hundreds of settings, drawn, and named methods.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/function_view.hpp>
#include <acco/outer.hpp>

#include "any_recurrence.hpp"
#include "recurrence.hpp"
#include "support/thorough.hpp"

namespace {

namespace rc = recurrence;

/// A number from 0 to below 1 for each of these.
double drawn(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = (a * 0x9e3779b97f4a7c15ULL) ^ (b * 0xbf58476d1ce4e5b9ULL + 17) ^ (c * 0x94d049bb133111ebULL + 5);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return static_cast<double>((x ^ (x >> 31U)) >> 11U) * 0x1p-53;
}

/// Every rank has a quadratic of its own, and micro-batches of 1 to 3 samples.
struct problem {
  std::uint64_t seed;
  [[nodiscard]] double curvature(std::size_t i) const { return 0.2 + drawn(seed, i, 1); }
  [[nodiscard]] double target(int rank, std::size_t t, std::size_t i) const {
    return drawn(seed + 1 + static_cast<std::uint64_t>(rank), i, 2) - 0.5 + 0.1 * drawn(seed, i, 3 + t);
  }
  [[nodiscard]] double weight(int rank, std::size_t t) const {
    return 1 + std::floor(3 * drawn(seed, static_cast<std::uint64_t>(rank), 1000 + t));
  }
  /// Of one sample.
  [[nodiscard]] double gradient(int rank, std::size_t t, std::size_t i, double at) const {
    return curvature(i) * (at - target(rank, t, i));
  }
};

struct setting {
  rc::settings s;
  int ranks_a_group = 1;
  std::size_t size = 10, frozen_from = 0, frozen = 0;
  std::size_t micro_batches = 10;
  std::uint64_t seed = 1;
};

acco::parameter_layout layout_of(setting const& c) {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  if (c.frozen_from != 0) layout.add("first", {c.frozen_from});
  if (c.frozen != 0) layout.add("frozen", {c.frozen}, still);
  layout.add("rest", {c.size - c.frozen_from - c.frozen});
  return layout;
}
std::size_t bucket_elements(setting const& c) { return c.seed % 2 == 0 ? std::size_t{64} : std::size_t{0}; }
bool is_frozen(setting const& c, std::size_t i) { return i >= c.frozen_from && i < c.frozen_from + c.frozen; }

template <class Rule, class Inner, class Exchange = acco::full>
acco::local_updates<any_recurrence<Rule>, Inner, Exchange> level_of(setting const& c, Inner inner, Rule rule,
                                                                    Exchange exchange = {}) {
  return {.method = {.rule = rule,
                     .delay = c.s.delay,
                     .work = c.s.work == rc::form::eager     ? acco::work_meanwhile::eager
                             : c.s.work == rc::form::restart ? acco::work_meanwhile::restart
                             : c.s.work == rc::form::pull    ? acco::work_meanwhile::pull
                                                             : acco::work_meanwhile::keep,
                     .keep_local = c.s.keep_local,
                     .weights = c.s.by_samples ? acco::worker_weights::samples : acco::worker_weights::equal,
                     .by_gap = c.s.by_gap},
          .inner = inner,
          .ranks_a_group = c.ranks_a_group,
          .steps = c.s.steps,
          .exchange = exchange};
}

/// Where every worker stands after each micro-batch, and all at the end.
struct path {
  std::vector<std::vector<std::vector<double>>> shown;  // by micro-batch, by rank
  std::vector<double> end;
  double samples = 0;
  std::uint64_t steps = 0;
};

path trained_as(setting const& c, acco::function_view<acco::any_optimizer<double>(acco::mock_backend const&)> make) {
  const problem p{c.seed};
  const int ranks = static_cast<int>(c.s.workers) * c.ranks_a_group;
  path found;
  found.shown.assign(c.micro_batches, std::vector<std::vector<double>>(static_cast<std::size_t>(ranks)));
  acco::mock_world(ranks, {.delay = acco::complete_at_random{.seed = c.seed}}).run([&](acco::mock_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<double>(c.size, world.rank() == 0 ? 1.0 : 7.0));
    for (std::size_t t = 0; t < c.micro_batches; ++t) {
      auto const at = training.parameters();
      auto const g = training.gradients();
      const double weight = p.weight(world.rank(), t);
      for (std::size_t i = 0; i < at.size(); ++i) g[i] += weight * p.gradient(world.rank(), t, i, at[i]);
      (void)training.accumulated(weight);
      auto const now = training.parameters();
      found.shown[t][static_cast<std::size_t>(world.rank())].assign(now.begin(), now.end());
    }
    training.finish();
    if (world.rank() != 0) return;
    found.end.assign(training.parameters().begin(), training.parameters().end());
    found.samples = training.samples();
    found.steps = training.steps();
  });
  return found;
}

template <class Level>
path trained(setting const& c, Level const& level) {
  return trained_as(c, [&](acco::mock_backend const& world) -> acco::any_optimizer<double> {
    return acco::optimizer{level,
                           acco::sgd{.learning_rate = c.s.inner_rate, .momentum = c.s.inner_momentum},
                           acco::host_storage<double>{},
                           world,
                           layout_of(c),
                           acco::options{.bucket_elements = bucket_elements(c)}};
  });
}

path expected(setting const& c) {
  const problem p{c.seed};
  const auto gradient = [&](std::size_t worker, std::size_t t, rc::vector const& at) {
    rc::vector sum(at.size(), 0.0);
    double total = 0;
    for (int r = 0; r < c.ranks_a_group; ++r) {
      const int rank = static_cast<int>(worker) * c.ranks_a_group + r;
      const double weight = p.weight(rank, t);
      total += weight;
      for (std::size_t i = 0; i < at.size(); ++i) sum[i] += is_frozen(c, i) ? 0 : weight * p.gradient(rank, t, i, at[i]);
    }
    for (double& each : sum) each /= total;
    return std::pair(sum, total);
  };
  rc::training oracle(c.s, rc::vector(c.size, 1.0), gradient);
  path found;
  for (std::size_t t = 0; t < c.micro_batches; ++t) {
    oracle.micro_batch();
    found.shown.emplace_back();
    for (std::size_t m = 0; m < c.s.workers; ++m) {
      for (int r = 0; r < c.ranks_a_group; ++r) found.shown.back().push_back(oracle.of(m).shown);
    }
  }
  oracle.finish();
  found.end = oracle.anchor();
  found.samples = oracle.samples();
  found.steps = oracle.of(0).steps;
  return found;
}

double distance(std::vector<double> const& a, std::vector<double> const& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    most = d <= most ? most : d;
    if (!(d <= 1e300)) return 1e300;  // a NaN
  }
  return most;
}

void check_same(path const& found, path const& wanted) {
  REQUIRE(found.shown.size() == wanted.shown.size());
  for (std::size_t t = 0; t < wanted.shown.size(); ++t) {
    for (std::size_t rank = 0; rank < wanted.shown[t].size(); ++rank) {
      CAPTURE(t);
      CAPTURE(rank);
      REQUIRE(distance(found.shown[t][rank], wanted.shown[t][rank]) < 1e-11);
    }
  }
  CHECK(distance(found.end, wanted.end) < 1e-11);
  CHECK(found.samples == doctest::Approx(wanted.samples).epsilon(1e-14));
  CHECK(found.steps == wanted.steps);
}

setting draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto of = [&](auto const& list) { return list[random() % std::size(list)]; };
  setting c;
  c.seed = seed;
  c.s.workers = of(std::to_array<std::size_t>({1, 2, 3, 5, 8}));
  c.ranks_a_group = of(std::to_array({1, 1, 2}));
  c.size = of(std::to_array<std::size_t>({1, 7, 65, 129, 333}));
  if (c.size > 10 && random() % 2 == 0) {
    c.frozen_from = c.size / 3;
    c.frozen = c.size / 4;
  }
  c.s.steps = of(std::to_array({1U, 2U, 3U, 5U}));
  c.s.work = of(std::to_array({rc::form::blocking, rc::form::keep, rc::form::keep, rc::form::restart, rc::form::restart,
                               rc::form::eager, rc::form::pull}));
  c.s.outer = of(std::to_array({rc::rule::averaging, rc::rule::heavy_ball, rc::rule::nesterov, rc::rule::clipped}));
  if (c.s.work == rc::form::pull) c.s.outer = rc::rule::averaging;
  c.s.delay = c.s.work == rc::form::blocking ? 0 : c.s.steps;
  if ((c.s.work == rc::form::keep || c.s.work == rc::form::restart) && random() % 2 == 0)
    c.s.delay = 1 + static_cast<unsigned>(random() % c.s.steps);
  if (c.s.outer != rc::rule::averaging) {
    c.s.rate = of(std::to_array({0.4, 0.7, 1.0}));
    c.s.momentum = of(std::to_array({0.0, 0.2, 0.5}));
  }
  c.s.limit = of(std::to_array({0.05, 0.3, 100.0}));
  if (c.s.work == rc::form::blocking || c.s.work == rc::form::restart || c.s.work == rc::form::pull)
    c.s.keep_local = of(std::to_array({0.0, 0.25, 0.6, 1.0}));
  c.s.by_samples = c.s.work != rc::form::eager && random() % 2 == 0;
  c.s.by_gap = c.s.work == rc::form::restart && c.s.delay == c.s.steps && c.ranks_a_group == 1 &&
               c.s.outer != rc::rule::averaging && random() % 2 == 0;
  c.s.schedule = of(std::to_array({rc::inner::synchronous, rc::inner::synchronous, rc::inner::delayed, rc::inner::two_phase}));
  c.s.inner_rate = of(std::to_array({0.1, 0.4}));
  c.s.inner_momentum = of(std::to_array({0.0, 0.5}));
  c.micro_batches = c.s.steps * (2 + random() % 4) + random() % (c.s.steps + 1);
  if (c.s.schedule == rc::inner::two_phase) c.micro_batches *= 2;
  return c;
}

template <class Inner, class Exchange = acco::full>
path trained_by(setting const& c, Inner inner, Exchange exchange = {}) {
  switch (c.s.outer) {
    case rc::rule::averaging: return trained(c, level_of(c, inner, acco::averaging{}, exchange));
    case rc::rule::clipped:
      return trained(
          c, level_of(c, inner, acco::clipped_momentum{.learning_rate = c.s.rate, .momentum = c.s.momentum, .limit = c.s.limit},
                      exchange));
    case rc::rule::heavy_ball:
    case rc::rule::nesterov: break;
  }
  return trained(
      c, level_of(c, inner,
                  acco::sgd{.learning_rate = c.s.rate, .momentum = c.s.momentum, .nesterov = c.s.outer == rc::rule::nesterov},
                  exchange));
}

/// What is encoded by itself, as indices in the layout: ranks of the outer group own shares of the slice that they have
/// in their workers. What is behind the last element is npos.
constexpr std::size_t npos = ~std::size_t{0};
using segments = std::vector<std::vector<std::size_t>>;
segments segments_of(setting const& c) {
  constexpr std::size_t usual = acco::host_storage<double>::usual_share;
  std::vector<std::size_t> trainable;
  for (std::size_t i = 0; i < c.size; ++i) {
    if (!is_frozen(c, i)) trainable.push_back(i);
  }
  const auto partition = [](std::size_t size, std::size_t ranks, std::size_t bucket) {
    return acco::partition(size, static_cast<int>(ranks), bucket == 0 ? usual * ranks : bucket);
  };
  const auto groups = static_cast<std::size_t>(c.ranks_a_group);
  const acco::partition inner = partition(trainable.size(), groups, bucket_elements(c));
  const acco::partition outer = partition(inner.slice_size(), c.s.workers, 0);
  segments found;
  for (int r = 0; r < c.ranks_a_group; ++r) {
    std::vector<std::size_t> slice(outer.padded_size(), npos);
    inner.for_positions(r, [&](std::size_t offset, std::size_t first, std::size_t count) {
      for (std::size_t k = 0; k < count; ++k) slice[offset + k] = trainable[first + k];
    });
    for (std::size_t b = 0; b < outer.buckets(); ++b) {
      for (std::size_t m = 0; m < c.s.workers; ++m) {
        const auto begin = slice.begin() + static_cast<std::ptrdiff_t>(outer[b].begin + m * outer[b].share);
        found.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(outer[b].share));
      }
    }
  }
  return found;
}
/// Each segment's numbers become what is decoded of them.
template <class Encoding>
std::function<void(rc::vector&)> code_of(Encoding e, segments const& all) {
  return [e, all](rc::vector& values) {
    for (auto const& segment : all) {
      for (std::size_t at = 0; at < segment.size(); at += Encoding::block_size) {
        float block[Encoding::block_size] = {};
        const std::size_t n = std::min(Encoding::block_size, segment.size() - at);
        for (std::size_t k = 0; k < n; ++k) {
          if (segment[at + k] != npos) block[k] = static_cast<float>(values[segment[at + k]]);
        }
        std::byte bytes[Encoding::block_bytes];
        e.encode(block, bytes);
        e.decode(bytes, block);
        for (std::size_t k = 0; k < n; ++k) {
          if (segment[at + k] != npos) values[segment[at + k]] = static_cast<double>(block[k]);
        }
      }
    }
  };
}

}  // namespace

TEST_CASE("hundreds of settings are the recurrence, on every rank after every micro-batch") {
  const std::uint64_t settings = thorough() ? 400 : 60;
  for (std::uint64_t seed = 1; seed <= settings; ++seed) {
    const setting c = draw(seed);
    CAPTURE(seed);
    CAPTURE(c.s.workers);
    CAPTURE(c.ranks_a_group);
    CAPTURE(static_cast<int>(c.s.work));
    CAPTURE(static_cast<int>(c.s.outer));
    CAPTURE(c.s.steps);
    CAPTURE(c.s.delay);
    CAPTURE(c.s.keep_local);
    CAPTURE(c.s.by_gap);
    CAPTURE(static_cast<int>(c.s.schedule));
    const acco::two_phase halves{.pace = acco::fixed_pace{.first = 1, .second = 1}};
    check_same(c.s.schedule == rc::inner::delayed     ? trained_by(c, acco::delayed{})
               : c.s.schedule == rc::inner::two_phase ? trained_by(c, halves)
                                                      : trained_by(c, acco::synchronous{}),
               expected(c));
  }
}

TEST_CASE("settings with encoded exchanges are the recurrence with the encoder in its loop") {
  const acco::coded unlike{.gradients = acco::block_int8<128>{}, .parameters = acco::block_int4<128>{}};
  const acco::coded<acco::full, acco::block_int4<128>> anchors;
  const acco::coded sparse{
      .gradients = acco::with_feedback{acco::loosely<acco::block_top<8, 256, 2>>{}, acco::error_feedback{.decay = 0.9}},
      .parameters = acco::loosely<acco::block_top<16, 256, 2>>{}};
  const std::uint64_t settings = thorough() ? 240 : 60;
  for (std::uint64_t seed = 1; seed <= settings; ++seed) {
    setting c = draw(1000 + seed);
    c.s.schedule = rc::inner::synchronous;
    const segments cut = segments_of(c);
    CAPTURE(seed);
    CAPTURE(c.s.workers);
    CAPTURE(c.ranks_a_group);
    CAPTURE(static_cast<int>(c.s.work));
    CAPTURE(static_cast<int>(c.s.outer));
    CAPTURE(c.s.steps);
    CAPTURE(c.s.delay);
    c.s.code_anchor = code_of(acco::block_int4<128>{}, cut);
    const acco::synchronous<> inner;
    switch (seed % 4) {
      case 0:
        c.s.code_change = code_of(acco::block_int4<128>{}, cut);
        check_same(trained_by(c, inner, acco::block_int4<128>{}), expected(c));
        break;
      case 1:
        c.s.code_change = code_of(acco::block_int8<128>{}, cut);
        check_same(trained_by(c, inner, unlike), expected(c));
        break;
      case 2:
        c.s.code_change = code_of(acco::block_top<8, 256, 2>{}, cut);
        c.s.code_anchor = code_of(acco::block_top<16, 256, 2>{}, cut);
        c.s.feedback_decay = 0.9;
        check_same(trained_by(c, inner, sparse), expected(c));
        break;
      default: check_same(trained_by(c, inner, anchors), expected(c));
    }
  }
}
