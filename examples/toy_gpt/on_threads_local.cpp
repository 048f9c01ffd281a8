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
  const auto with = [&](auto const& method, unsigned fragments = 1) -> acco::any_optimizer<float> {
    const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
    const acco::local_updates level{.method = method,
                                    .inner = inner,
                                    .ranks_a_group = s.group,
                                    .steps = s.local_steps,
                                    .fragments = fragments,
                                    .exchange = exchange};
    return acco::optimizer{level, adamw, storage, world, layout, options};
  };
  const std::pair<std::string_view, std::function<acco::any_optimizer<float>()>> table[] = {
      {"local_sgd", [&] { return with(acco::local_sgd); }},
      {"fedavg", [&] { return with(acco::fedavg); }},
      {"slowmo", [&] { return with(acco::slowmo); }},
      {"diloco", [&] { return with(acco::diloco); }},
      {"delayed_diloco", [&] { return with(acco::delayed_diloco); }},
      {"eager_diloco", [&] { return with(acco::eager_diloco); }},
      {"streaming_diloco", [&] { return with(acco::streaming_diloco, s.local_steps % 3 == 0 ? 3 : 2); }},
      {"co2", [&] { return with(acco::co2); }},
      {"overlap_local_sgd", [&] { return with(acco::overlap_local_sgd); }},
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
