// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/muon.hpp>
#include <acco/rule/rules.hpp>

#include "muon_layout.hpp"
#include "on_threads.hpp"

namespace toy_gpt {

acco::any_optimizer<float> make_with_muon(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                          acco::parameter_layout const& layout, acco::options const& options) {
  const acco::rules both{acco::muon{.learning_rate = s.rate()}, tuned(acco::adamw{}, s)};
  return acco::make<with_muon>(s.schedule, pace_of(s), both, storage, world, for_muon(layout), options);
}

}  // namespace toy_gpt
