// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, joined by Gloo. Local updates are in bench_wan_gpt only.
#pragma once

#include <acco/gloo.hpp>

#include "train_over.hpp"

namespace toy_gpt {

/// Makes the optimizers of local updates, in that program.
inline acco::any_optimizer<float> (*local_over_gloo)(settings const&, acco::host_storage<float> const&, acco::gloo_backend const&,
                                                     acco::parameter_layout const&, acco::options const&) = nullptr;

template <>
struct family_of<acco::host_storage<float>, acco::gloo_backend> {
  static acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage,
                                         acco::gloo_backend const& world, acco::parameter_layout const& layout,
                                         acco::options const& options) {
    if (local_over_gloo == nullptr || !is_local(s.schedule))
      throw std::invalid_argument(s.label() + " --rule " + s.rule + " is not made over Gloo");
    return local_over_gloo(s, storage, world, layout, options);
  }
};

}  // namespace toy_gpt
