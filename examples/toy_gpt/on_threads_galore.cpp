// SPDX-License-Identifier: Apache-2.0
#include <acco/galore.hpp>

#include "on_threads.hpp"

namespace toy_gpt {

/// The matrices of the blocks are projected, as published; embeddings are trained as they are.
acco::any_optimizer<float> make_with_galore(settings const& s, acco::host_storage<float> const& storage,
                                            threads_link const& world, acco::parameter_layout const& layout,
                                            acco::options const& options) {
  const auto with = [&](auto schedule) -> acco::any_optimizer<float> {
    const acco::galore method{
        .inner = schedule,
        .rank = s.galore_rank,
        .every = s.galore_every,
        .scale = s.galore_scale,
        .projects = [](acco::parameter_layout::tensor const& tensor) { return tensor.name.starts_with('h'); }};
    const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
    return acco::optimizer{method, adamw, storage, world, layout, options};
  };
  if (s.schedule == "synchronous") return with(acco::synchronous{.pace = acco::fixed_pace{.first = s.first, .second = s.second}});
  if (s.estimate == "int4") return with(acco::two_phase{.estimate = acco::block_int4<>{}, .pace = split_of(s)});
  return with(acco::two_phase{.pace = split_of(s)});
}

}  // namespace toy_gpt
