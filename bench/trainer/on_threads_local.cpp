// SPDX-License-Identifier: Apache-2.0
#include <acco/outer.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// All methods with exchanges of one kind: H = --local-steps, all else each method's own.
template <class Exchange>
acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                acco::parameter_layout const& layout, acco::options const& options, Exchange) {
  return acco::with_schedule<acco::local_methods<Exchange>>(s.schedule, [&](auto method) -> acco::any_optimizer<float> {
    method.steps = s.local_steps;
    method.ranks_a_group = s.group;
    if (s.schedule == "streaming_diloco") method.fragments = s.local_steps % 3 == 0 ? 3 : 2;
    return acco::optimizer{acco::at_pace(method, pace_of(s)), tuned(acco::adamw{}, s), storage, world, layout, options};
  });
}

}  // namespace

acco::any_optimizer<float> make_local(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                      acco::parameter_layout const& layout, acco::options const& options) {
  if (s.exchange == "int4") return make(s, storage, world, layout, options, acco::block_int4<>{});
  if (s.exchange == "int8") return make(s, storage, world, layout, options, acco::block_int8<>{});
  return make(s, storage, world, layout, options, acco::full{});
}

}  // namespace toy_gpt
