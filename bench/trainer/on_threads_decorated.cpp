// SPDX-License-Identifier: Apache-2.0
#include "on_threads.hpp"
#include "schedules.hpp"

namespace toy_gpt {

acco::any_optimizer<float> make_decorated(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                          acco::parameter_layout const& layout, acco::options const& options) {
  return acco::make<of_family>(s.label(), pace_of(s), tuned(acco::adamw{}, s), storage, world, layout, options);
}

}  // namespace toy_gpt
