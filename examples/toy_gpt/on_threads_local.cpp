// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <acco/outer.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// All methods with exchanges of one kind: H = --local-steps, all else each method's own.
template <class Exchange>
acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                acco::parameter_layout const& layout, acco::options const& options, Exchange exchange) {
  const acco::synchronous inner{.pace = acco::fixed_pace{.first = s.first, .second = s.second}};
  const auto with = [&](auto method) -> acco::any_optimizer<float> {
    const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
    return acco::optimizer{method, adamw, storage, world, layout, options};
  };
  const int g = s.group;
  const unsigned h = s.local_steps;
  const std::pair<std::string_view, std::function<acco::any_optimizer<float>()>> table[] = {
      {"local_sgd", [&] { return with(acco::local_sgd{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"fedavg", [&] { return with(acco::fedavg{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"slowmo", [&] { return with(acco::slowmo{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"diloco", [&] { return with(acco::diloco{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"delayed_diloco",
       [&] { return with(acco::delayed_diloco{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"eager_diloco",
       [&] { return with(acco::eager_diloco{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
      {"streaming_diloco",
       [&] {
         return with(acco::streaming_diloco{
             .inner = inner, .ranks_a_group = g, .steps = h, .fragments = h % 3 == 0 ? 3U : 2U, .exchange = exchange});
       }},
      {"co2", [&] { return with(acco::co2{.inner = inner, .steps = h, .exchange = exchange}); }},
      {"overlap_local_sgd",
       [&] { return with(acco::overlap_local_sgd{.inner = inner, .ranks_a_group = g, .steps = h, .exchange = exchange}); }},
  };
  for (auto const& [label, entry] : table) {
    if (label == s.schedule) return entry();
  }
  throw std::logic_error("no local update is called " + s.schedule);
}

}  // namespace

acco::any_optimizer<float> make_local(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                      acco::parameter_layout const& layout, acco::options const& options) {
  if (s.exchange == "int4") return make(s, storage, world, layout, options, acco::block_int4<>{});
  if (s.exchange == "int8") return make(s, storage, world, layout, options, acco::block_int8<>{});
  return make(s, storage, world, layout, options, acco::full{});
}

}  // namespace toy_gpt
