// SPDX-License-Identifier: Apache-2.0
// The same training over one level and over two.
#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/hierarchical.hpp>

#include "support/float_wire.hpp"
#include "support/train.hpp"
#include "support/worlds.hpp"

namespace {

/// Groups of `m` neighbours.
template <int m, class World>
struct grouped {
  using backend = acco::hierarchical<typename World::backend, typename World::backend>;
  template <class Function>
  static void run(int ranks, Function&& function) {
    World::run(ranks, [&](auto world) { function(acco::hierarchical_world(world, m, 20)); });
  }
};
const acco::sgd rule{.learning_rate = 0.5, .momentum = 0.5};
reference::setting usual(int ranks) {
  reference::setting s{.ranks = ranks, .first = 3, .second = 1, .micro_batches = {}};
  s.micro_batches.assign(static_cast<std::size_t>(ranks), 14);
  s.clip_norm = 1;
  return s;
}
/// The parameters after the same training over two worlds.
double apart(int ranks, auto one_world, auto const& one_schedule, auto other_world, auto const& other_schedule,
             std::size_t bucket = 300) {
  const acco::parameter_layout layout(700);
  const acco::options chosen{.check_habits = acco::habit_checks::off, .bucket_elements = bucket};
  using storage = acco::host_storage<float>;
  const auto one = library::train<storage>(one_world, one_schedule, rule, layout, usual(ranks), chosen);
  const auto other = library::train<storage>(other_world, other_schedule, rule, layout, usual(ranks), chosen);
  CHECK(other.ranks_agree);
  CHECK(other.steps == one.steps);
  return library::difference(other.parameters, one.parameters);
}
constexpr acco::fixed_pace pace{.first = 3, .second = 1};
constexpr worlds::threads flat;
template <int m>
constexpr grouped<m, worlds::threads> groups_of;

}  // namespace

TEST_CASE("exact rounds: the same training as over one level, to rounding, and to the bit where a level is alone") {
  const acco::two_phase exact{.pace = pace};
  CHECK(apart(4, flat, exact, groups_of<2>, exact) < 1e-6);
  CHECK(apart(6, flat, exact, groups_of<3>, exact, 0) < 1e-6);
  CHECK(apart(3, flat, exact, groups_of<1>, exact) == 0);
  CHECK(apart(3, flat, exact, groups_of<3>, exact) == 0);
}
TEST_CASE("encoded rounds that lose nothing: the same training, though the trainer adds to what an estimate carries") {
  // the mock's sum is made when the trainer waits, which has added by then; and what is in flight must not be touched
  const acco::two_phase exact{.pace = pace};
  const acco::two_phase coded{.estimate = float_wire{}, .commit = float_wire{}, .pace = pace};
  CHECK(apart(4, flat, exact, grouped<2, worlds::mock_late>{}, coded) < 1e-6);
}
TEST_CASE("estimates of own gradients are those over one level") {
  const acco::two_phase own{.estimate = acco::own_slice{}, .pace = pace};
  CHECK(apart(4, flat, own, groups_of<2>, own) < 1e-6);
  const acco::two_phase corrected{.estimate = acco::own_corrected{}, .pace = pace};
  CHECK(apart(4, groups_of<1>, corrected, groups_of<2>, corrected) < 1e-6);
}
