// SPDX-License-Identifier: Apache-2.0
// The synthetic load's schedules whose predictor, compensation or memory of the others' gradients becomes part of the rule: an
// engine each.
#include "synthetic.hpp"

namespace synthetic {
namespace {

template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
  const auto with = [&](auto const& schedule) { return optimizer_with(schedule, s, world); };
  if (s.schedule == "extrapolation") return with(acco::delayed{.pace = s.whole(), .predictor = acco::extrapolation{}});
  if (s.schedule == "velocity") return with(acco::delayed{.pace = s.whole(), .predictor = acco::velocity{}});
  if (s.schedule == "delay_compensation")
    return with(acco::delayed{.pace = s.whole(), .compensation = acco::delay_compensation{}});
  return with(acco::two_phase{.estimate = acco::own_corrected{}, .pace = s.split()});
}

}  // namespace

acco::any_optimizer<float> make_decorated(settings const& s, acco::gloo_backend const& world) { return make(s, world); }
acco::any_optimizer<float> make_decorated(settings const& s, acco::solo_backend const& world) { return make(s, world); }

}  // namespace synthetic
