// SPDX-License-Identifier: Apache-2.0
// What makes bench_wan_gpt of toy_gpt_gloo: diloco and streaming_diloco, whole or in four bits.
#include <acco/outer.hpp>

#include "on_gloo.hpp"

namespace toy_gpt {
namespace {

template <class Method, class Exchange>
acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage, acco::gloo_backend const& world,
                                acco::parameter_layout const& layout, acco::options const& options, Method method, Exchange) {
  acco::local_updates<Method, acco::synchronous<>, Exchange> level{.method = method, .steps = s.local_steps};
  if (s.schedule == "streaming_diloco") level.fragments = s.local_steps % 3 == 0 ? 3 : 2;
  return acco::optimizer{acco::at_pace(level, pace_of(s)), tuned(acco::adamw{}, s), storage, world, layout, options};
}

[[maybe_unused]] const bool here = [] {
  local_over_gloo = [](settings const& s, acco::host_storage<float> const& storage, acco::gloo_backend const& world,
                       acco::parameter_layout const& layout, acco::options const& options) {
    const auto by = [&](auto method) {
      if (s.exchange == "int4") return make(s, storage, world, layout, options, method, acco::block_int4<>{});
      if (s.exchange != "full") throw std::invalid_argument("--exchange full or int4");
      return make(s, storage, world, layout, options, method, acco::full{});
    };
    if (s.schedule == "diloco") return by(acco::diloco);
    if (s.schedule == "streaming_diloco") return by(acco::streaming_diloco);
    throw std::invalid_argument("--schedule diloco or streaming_diloco: " + s.schedule + " is made by toy_gpt_family");
  };
  family_backend = "gloo";
  return has_family = true;
}();

}  // namespace
}  // namespace toy_gpt
