// SPDX-License-Identifier: Apache-2.0
#include <acco/schedule/predictor.hpp>

#include "on_threads.hpp"

namespace toy_gpt {

acco::any_optimizer<float> make_decorated(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                          acco::parameter_layout const& layout, acco::options const& options) {
  const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
  const auto with = [&](auto schedule) -> acco::any_optimizer<float> {
    return acco::optimizer{schedule, adamw, storage, world, layout, options};
  };
  const chosen_pace pace = pace_of(s);
  if (s.schedule == "extrapolation") return with(acco::delayed{.pace = pace, .predictor = acco::extrapolation{}});
  if (s.schedule == "two_phase") return with(acco::two_phase{.estimate = acco::own_corrected{}, .pace = split_of(s)});
  return with(acco::delayed{.pace = pace, .predictor = acco::velocity{}});
}

}  // namespace toy_gpt
