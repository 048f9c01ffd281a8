// SPDX-License-Identifier: Apache-2.0
// The synthetic load's schedules whose predictor, compensation or memory of the others' gradients becomes part of the
// rule: an engine each.
#include "synthetic.hpp"

namespace synthetic {
namespace {

template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
  return acco::with_schedule<acco::decorated_schedules>(s.schedule,
                                                        [&](auto const& schedule) { return optimizer_with(schedule, s, world); });
}

}  // namespace

acco::any_optimizer<float> make_decorated(settings const& s, acco::gloo_backend const& world) { return make(s, world); }
acco::any_optimizer<float> make_decorated(settings const& s, acco::solo_backend const& world) { return make(s, world); }

}  // namespace synthetic
