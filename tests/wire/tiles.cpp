// SPDX-License-Identifier: Apache-2.0
// Codes of tiles get those of matrices, whatever lies beside them, however the ranks share them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"
#include "wire/published_demo.hpp"

namespace {

using acco::mean_over;
constexpr std::size_t steps = 3;
constexpr double rate = 0.01;
/// Tiles with edges, neighbours that fill no block, one tile, and a tensor of three dimensions, a matrix of 70 by 120.
acco::parameter_layout shapes() {
  acco::parameter_layout layout;
  const auto frozen = layout.add_group({.frozen = true});
  layout.add("matrix", {100, 130}).add("vector", {1000}).add("frozen", {3}, frozen).add("square", {64, 64});
  return layout.add("deep", {70, 4, 30});
}

/// A direction that stays, and noise.
double gradient(std::size_t rank, std::size_t step, std::size_t i) {
  return static_cast<float>(problem::unit(i * 31 + step * 7919 + rank * 104729) - 0.5 +
                            0.2 * std::cos(0.05 * static_cast<double>(i)));
}

using blocks = std::vector<std::vector<std::size_t>>;
/// By their definition; what is in no tile lies in each share as it is placed.
blocks blocks_of(acco::parameter_layout const& layout, acco::partition const& shares) {
  blocks all;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const of = layout[k];
    const std::size_t rows = of.shape[0], columns = of.size / rows;
    for (std::size_t row = 0; of.shape.size() > 1 && row < rows; row += 64) {
      for (std::size_t column = 0; column < columns; column += 64) {
        auto& tile = all.emplace_back(4096, published::nothing);
        for (std::size_t i = row; i < std::min(row + 64, rows); ++i)
          for (std::size_t j = column; j < std::min(column + 64, columns); ++j)
            tile[64 * (i - row) + j - column] = of.offset + i * columns + j;
      }
    }
    if (of.name != "vector") continue;
    std::map<std::pair<std::size_t, int>, std::vector<std::size_t>> in_shares;
    for (std::size_t i = of.offset; i < of.offset + of.size; ++i) {
      auto const owner = shares.owner_of(i);
      in_shares[{owner.offset / shares[0].share, owner.rank}].push_back(i);
    }
    for (auto const& [share, elements] : in_shares) {
      for (auto& each : published::blocks_of(elements, 4096)) all.push_back(each);
    }
  }
  return all;
}

struct outcome {
  std::vector<double> parameters, momentum;
  blocks of;
  std::size_t placed = 0, allocations = 0;
  std::uint64_t bytes = 0;
};
template <class Schedule, class Rule, class Gradient>
outcome trained(int ranks, Schedule const& schedule, Rule const& rule, acco::parameter_layout const& layout, std::size_t bucket,
                Gradient&& of) {
  using storage = acco::host_storage<double>;
  outcome found;
  const std::size_t count = layout.size();
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::round_engine<storage> training(std::make_unique<acco::schedule_of<Schedule, storage>>(schedule),
                                         std::make_unique<acco::rule_of<Rule, storage>>(rule), storage{},
                                         std::make_unique<acco::backend_of<acco::threads_backend, storage>>(world), layout,
                                         {.check_habits = acco::habit_checks::off, .bucket_elements = bucket});
    training.initialize(std::vector<double>(count, 1.0));
    std::size_t before = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += of(static_cast<std::size_t>(world.rank()), step, i);
      if (step + 1 == steps) before = counting::news();
      auto const report = training.accumulated(1, 0);
      if (report && world.rank() == 0) found.bytes = report->bytes_sent;
    }
    if (world.rank() == 0) found.allocations = counting::news() - before;
    training.finish(acco::unfinished::commit);
    if (world.rank() != 0) return;
    const acco::partition shares = training.shares();
    found.parameters.assign(training.parameters().begin(), training.parameters().end());
    found.momentum.resize(shares.size());
    found.placed = shares.placed().count;
    shares.for_elements(0, shares.size(), [&](std::size_t position, std::size_t first, std::size_t n) {
      std::copy_n(training.feedback().begin() + static_cast<std::ptrdiff_t>(position), n,
                  found.momentum.begin() + static_cast<std::ptrdiff_t>(first));
    });
    found.momentum.resize(layout.trainable_size());
    if (found.placed != 0) found.of = blocks_of(layout, shares);
  });
  return found;
}

constexpr acco::lion by_sign{.learning_rate = rate, .beta1 = 0, .beta2 = 0};
std::size_t apart(std::vector<double> const& a, std::vector<double> const& b, double within) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += std::abs(a[i] - b[i]) < within ? 0U : 1U;
  return n;
}

template <mean_over Over, class Parameters>
void compare(int ranks, std::size_t bucket) {
  CAPTURE(ranks);
  CAPTURE(bucket);
  const acco::parameter_layout layout = shapes();
  const acco::synchronous schedule{.commit = acco::demo_wire<Parameters, acco::block_dct2_top<24, 8, Over>>{}};
  const outcome found = trained(ranks, schedule, by_sign, layout, bucket, gradient);
  const auto all = static_cast<std::size_t>(ranks);
  using numbers = std::vector<double>;
  published::demo right{24,
                        rate,
                        0.999,
                        Over == mean_over::senders,
                        true,
                        true,
                        found.of,
                        std::vector<numbers>(all, numbers(layout.size())),
                        numbers(layout.size(), 1.0)};
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<numbers> gradients(all, numbers(layout.size()));
    for (std::size_t rank = 0; rank < all; ++rank)
      for (std::size_t i = 0; i < layout.size(); ++i) gradients[rank][i] = gradient(rank, step, i);
    right.step(gradients);
  }
  auto const still = layout["frozen"];
  right.delta[0].erase(right.delta[0].begin() + static_cast<std::ptrdiff_t>(still.offset),
                       right.delta[0].begin() + static_cast<std::ptrdiff_t>(still.offset + still.size));
  // where a sum is near 0, or a number between two codes, the last bit decides
  CHECK(apart(found.parameters, right.theta, 1e-5) <= 5);
  CHECK(apart(found.momentum, right.delta[0], 1e-4) <= 5);
  if (ranks == 1) CHECK(found.allocations == 0);  // others may be at their end already
}

/// All numbers of a tile, as they are.
struct all_of_tiles {
  static constexpr char const* name = "all of tiles";
  static constexpr std::size_t block_size = 4096, block_bytes = block_size * sizeof(float);
  static constexpr bool of_tiles = true, no_zero = true;
  static void encode(float const* values, std::byte* bytes) { std::memcpy(bytes, values, block_bytes); }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};

}  // namespace

TEST_CASE("tiles of matrices, against the released code's arithmetic: published, sharded, in several buckets") {
  for (const int ranks : {1, 2}) compare<mean_over::senders, acco::updated_by_all>(ranks, 0);
  for (const int ranks : {1, 3}) compare<mean_over::all, acco::full>(ranks, 0);
  compare<mean_over::all, acco::full>(2, 16000);
}

TEST_CASE("with all components nothing is left of the momentum, and every number arrives where it belongs") {
  const acco::synchronous schedule{.commit = acco::demo_wire<acco::full, all_of_tiles>{}};
  const acco::parameter_layout layout = shapes();
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const outcome found = trained(ranks, schedule, by_sign, layout, ranks == 2 ? 12000 : 0, gradient);
    CHECK(std::all_of(found.momentum.begin(), found.momentum.end(), [](double each) { return std::abs(each) < 1e-7; }));
    std::vector<double> theta(layout.size(), 1.0);
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < theta.size(); ++i) {
        double sum = 0;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) sum += gradient(rank, step, i);
        if (layout.at_offset(i).name != "frozen") theta[i] -= std::copysign(rate, sum);
      }
    }
    CHECK(apart(found.parameters, theta, 1e-12) == 0);
  }
}

TEST_CASE("a smooth matrix is eight components of each tile, and not of 4096 numbers in their flat order") {
  using code = acco::block_dct2_top<8>;
  const acco::synchronous schedule{.commit = acco::demo_wire<acco::updated_by_all, acco::loosely<code>>{}};
  const auto smooth = [](std::size_t, std::size_t step, std::size_t i) {
    const double row = static_cast<double>(i / 192) / 64, column = static_cast<double>(i % 192) / 64;
    return step == 0 ? std::cos(row) * std::cos(1.5 * column) : 0;
  };
  const auto left = [&](acco::parameter_layout const& layout) {
    double sum = 0, whole = 0;
    const outcome found = trained(1, schedule, acco::sgd{.learning_rate = 1, .momentum = 0}, layout, 0, smooth);
    for (std::size_t i = 0; i < layout.size(); ++i) {
      sum += std::pow(1 - found.parameters[i] - smooth(0, 0, i), 2);
      whole += std::pow(smooth(0, 0, i), 2);
    }
    return std::pair(std::sqrt(sum / whole), found);
  };
  const auto [of_tiles, tiled] = left(acco::parameter_layout().add("matrix", {128, 192}));
  const auto [of_flat, flat] = left(acco::parameter_layout(128 * 192));
  CHECK(of_tiles < 0.02);
  CHECK(of_flat > 0.1);
  CHECK(tiled.placed != 0);
  CHECK(flat.placed == 0);
  CHECK(tiled.bytes == flat.bytes);
}

TEST_CASE("every trainable element lies in one block, at one place, and a matrix that tiles would double stays as it lies") {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const std::size_t bucket : {0U, 10000U}) {
      CAPTURE(ranks);
      CAPTURE(bucket);
      acco::parameter_layout layout = shapes();
      layout.add("narrow", {31, 64}).add("long", {9000}).add("empty", {0, 64});
      const acco::placement placed(layout, ranks, bucket == 0 ? layout.size() : bucket, [](std::size_t) { return false; }, true);
      const acco::partition shares = placed.shares(ranks);
      const acco::tiling tiles(layout, shares);
      std::vector<int> times(shares.size(), 0);
      for (std::size_t k = 0; k < tiles.blocks.size(); ++k) {
        const std::size_t share = k / tiles.each, all = static_cast<std::size_t>(ranks);
        const std::size_t begin = shares[share / all].begin + share % all * shares[0].share;
        for (std::size_t i = 0; i < 4096; ++i) {
          if (tiles.blocks[k].has(i)) ++times[begin + tiles.blocks[k].at(i)];
        }
      }
      std::size_t elements = 0;
      shares.for_elements(0, shares.size(), [&](std::size_t position, std::size_t, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) elements += times[position + i] == 1 ? 1U : 0U;
      });
      CHECK(elements == layout.trainable_size());
      CHECK(std::count(times.begin(), times.end(), 1) == static_cast<std::ptrdiff_t>(elements));
    }
  }
  CHECK(acco::tiled_columns(acco::parameter_layout().add("narrow", {31, 64})[0]) == 0);
  CHECK(acco::tiled_columns(acco::parameter_layout().add("half", {32, 64})[0]) == 64);
}
