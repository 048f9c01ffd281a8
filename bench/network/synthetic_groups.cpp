// SPDX-License-Identifier: Apache-2.0
// The synthetic load over a world of two levels: in full, and in a code of what a group has summed.
#include <acco/hierarchical.hpp>

#include "synthetic.hpp"

namespace synthetic {
namespace {

using sums_in_code = acco::coded<acco::between_groups<acco::without_feedback<acco::block_gauss4>>, acco::block_gauss3>;
using schedules = acco::type_list<acco::named<"synchronous", acco::synchronous<>>,
                                  acco::named<"synchronous+coded", acco::synchronous<sums_in_code>>>;

}  // namespace

acco::any_optimizer<float> make_groups(settings const& s, acco::gloo_backend const& world) {
  return acco::with_schedule<schedules>(s.schedule, [&](auto const& schedule) {
    return optimizer_with(schedule, s, acco::hierarchical_world(world, s.ranks_a_group, 60));
  });
}

}  // namespace synthetic
