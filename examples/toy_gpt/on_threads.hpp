// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, joined by a link that may be simulated. Optimizers of bfloat16 are made in on_threads_bfloat16.cpp, and those
// of decorated rules in on_threads_decorated.cpp, so that two cores share the work of compiling.
#pragma once

#include <acco/collective/around/rate_limited.hpp>
#include <acco/collective/threads.hpp>

#include "choose.hpp"

namespace toy_gpt {

using threads_link = acco::decorated_backend<acco::threads_backend, acco::rate_limit>;
extern template acco::any_optimizer<acco::bfloat16> make_training(settings const&, acco::host_storage<acco::bfloat16> const&,
                                                                  threads_link const&, acco::parameter_layout const&,
                                                                  acco::options const&);

template <>
struct decorated_schedules<acco::host_storage<float>, threads_link> {
  static acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                         acco::parameter_layout const& layout, acco::options const& options);
};

}  // namespace toy_gpt
