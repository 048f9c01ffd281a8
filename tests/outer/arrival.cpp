// SPDX-License-Identifier: Apache-2.0
// What workers have done arrives, whatever it travels in: a number that is small beside the largest of its block comes
// later, never not at all.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "any_recurrence.hpp"

namespace {

enum class code { full, bfloat16, int8, int4 };
constexpr std::array codes{code::full, code::bfloat16, code::int8, code::int4};
/// What it may lose of a number, as a share of the largest of the block.
double loss(code c) { return c == code::int4 ? 1 / 13.8 : c == code::int8 ? 1.0 / 252 : c == code::bfloat16 ? 0x1p-8 : 0; }

/// Any of them but `full`, chosen while the program runs: what it decodes to travels.
struct chosen {
  code of = code::int4;
  static constexpr char const* name = "chosen";
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);

  void encode(float const* values, std::byte* bytes) const {
    const auto with = [&]<class Encoding>(Encoding e) {
      std::array<std::byte, Encoding::block_bytes> there;
      std::array<float, block_size> decoded;
      e.encode(values, there.data());
      e.decode(there.data(), decoded.data());
      std::copy_n(reinterpret_cast<std::byte const*>(decoded.data()), block_bytes, bytes);
    };
    of == code::int4 ? with(acco::block_int4<>{}) : of == code::int8 ? with(acco::block_int8<>{}) : with(acco::bfloat16_wire{});
  }
  void decode(std::byte const* bytes, float* values) const {
    std::copy_n(bytes, block_bytes, reinterpret_cast<std::byte*>(values));
  }
};

constexpr std::size_t size = 100;
constexpr unsigned steps = 2, rounds = 24;
/// By how much a worker wants a number to go up in a step.
double wish(std::size_t i, int rank) { return i % 16 == 0 ? 1.0 : 0.01 * (1 + 2 * rank) * (1 + static_cast<double>(i % 7) / 7); }

struct ends {
  std::vector<double> anchor, in_use;
};
ends trained_by(acco::mock_backend const& world, acco::any_optimizer<double> training) {
  training.initialize(std::vector<double>(size, 0.0));
  for (unsigned t = 0; t < rounds * steps; ++t) {
    auto const g = training.gradients();
    for (std::size_t i = 0; i < size; ++i) g[i] -= wish(i, world.rank());
    (void)training.accumulated(1);
  }
  ends found{std::vector<double>(size), {training.parameters().begin(), training.parameters().end()}};
  training.gather_committed(found.anchor);
  training.finish();
  return found;
}
template <class Rule>
ends trained(any_recurrence<Rule> const& method, unsigned fragments, code changes, code anchor) {
  ends found;
  acco::mock_backend::run(2, [&](acco::mock_backend const& world) {
    const auto with = [&](auto exchange) -> acco::any_optimizer<double> {
      return acco::optimizer{acco::local_updates{.method = method, .steps = steps, .fragments = fragments, .exchange = exchange},
                             acco::sgd{.learning_rate = 1}, acco::host_storage<double>{}, world, size};
    };
    const auto beside = [&](auto of_changes) {
      return anchor == code::full ? with(acco::coded<decltype(of_changes), acco::full>{of_changes, {}})
                                  : with(acco::coded<decltype(of_changes), chosen>{of_changes, {anchor}});
    };
    const ends mine = trained_by(world, changes == code::full ? beside(acco::full{}) : beside(chosen{changes}));
    if (world.rank() == 0) found = mine;
  });
  return found;
}

/// Every code of changes beside every code of the anchor; `gain` is by how much more than a change the rule moves the
/// anchor in the end.
template <class Rule>
void check(any_recurrence<Rule> const& level, double gain = 1, unsigned fragments = 1) {
  const ends exact = trained(level, fragments, code::full, code::full);
  CAPTURE(std::string(Rule::name));
  CAPTURE(level.delay);
  CAPTURE(static_cast<int>(level.work));
  CAPTURE(level.keep_local);
  CAPTURE(fragments);
  CAPTURE(level.by_gap);
  CHECK(*std::min_element(exact.anchor.begin(), exact.anchor.end()) > 0.35);
  for (const code changes : codes) {
    for (const code anchor : codes) {
      CAPTURE(static_cast<int>(changes));
      CAPTURE(static_cast<int>(anchor));
      const ends found = trained(level, fragments, changes, anchor);
      const double largest = steps * std::max(gain, 1.0) / (1 - level.keep_local);  // of what is encoded, about
      const double most = 1e-4 + 2 * largest * (loss(changes) + loss(anchor));
      double off = 0;  // of what is allowed
      for (std::size_t i = 0; i < size; ++i) {
        // the gap is of the changes as they have travelled
        const double near = most + (level.by_gap ? 0.1 * exact.anchor[i] : 0);
        off = std::max(
            {off, std::abs(found.anchor[i] - exact.anchor[i]) / near, std::abs(found.in_use[i] - exact.in_use[i]) / near});
      }
      CHECK(off <= 1);
    }
  }
}

template <class Rule>
using level = any_recurrence<Rule>;
/// All that may become of the steps meanwhile.
template <class Rule>
void check_rule(Rule rule, double gain) {
  using meanwhile = acco::work_meanwhile;
  using acco::whole_round;
  check(level<Rule>{.rule = rule}, gain);
  check(level<Rule>{.rule = rule, .keep_local = 0.5}, gain);
  check(level<Rule>{.rule = rule, .weights = acco::worker_weights::samples}, gain);
  check(level<Rule>{.rule = rule, .delay = 1}, gain, 2);
  check(level<Rule>{.rule = rule, .delay = whole_round}, gain);
  check(level<Rule>{.rule = rule, .delay = 1, .work = meanwhile::restart}, gain);
  check(level<Rule>{.rule = rule, .delay = whole_round, .work = meanwhile::restart}, gain);
  check(level<Rule>{.rule = rule, .delay = whole_round, .work = meanwhile::eager}, gain);
}

}  // namespace

TEST_CASE("in every code of changes beside every code of the anchor what workers have done arrives: averaging") {
  check_rule(acco::averaging{}, 1);
  check(level<acco::averaging>{.delay = acco::whole_round, .work = acco::work_meanwhile::pull, .keep_local = 0.4});
}
TEST_CASE("in every code of changes beside every code of the anchor what workers have done arrives: heavy ball and Nesterov") {
  check_rule(acco::sgd{.learning_rate = 0.7, .momentum = 0.5}, 1.4);
  check_rule(acco::sgd{.learning_rate = 0.4, .momentum = 0.5, .nesterov = true}, 0.8);
}
TEST_CASE("in every code of changes beside every code of the anchor what workers have done arrives: clipped momentum, by gap") {
  check_rule(acco::clipped_momentum{}, 0.875);
  check(level<acco::clipped_momentum>{
      .rule = {}, .delay = acco::whole_round, .work = acco::work_meanwhile::restart, .by_gap = true});
}
