// SPDX-License-Identifier: Apache-2.0
#include "on_threads.hpp"

namespace toy_gpt {

acco::any_optimizer<float> make_decorated(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                          acco::parameter_layout const& layout, acco::options const& options) {
  return acco::make<acco::decorated_schedules>(s.label(), pace_of(s), tuned(acco::adamw{}, s), storage, world, layout, options);
}

}  // namespace toy_gpt
