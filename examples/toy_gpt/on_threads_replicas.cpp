// SPDX-License-Identifier: Apache-2.0
// DeMo as published: every rank gets all ranks' codes, and makes the update itself.
#include <acco/collective/replicas.hpp>
#include <acco/encoding/block_dct_top.hpp>
#include <acco/encoding/one_of.hpp>

#include "on_threads.hpp"

namespace toy_gpt {

acco::any_optimizer<float> make_over_replicas(settings const& s, acco::host_storage<float> const& storage,
                                              threads_link const& world, acco::parameter_layout const& layout,
                                              acco::options const& options) {
  using code = acco::one_of<acco::block_dct_top<16>, acco::block_dct_top<16, acco::mean_over::senders>>;
  const std::string_view word = wire_of(s.commit).gradients;
  const acco::coded<acco::with_error_feedback<code>, acco::full> commit{
      {{word == "senders16" ? 1U : 0U}, static_cast<float>(s.feedback)}, {}};
  const acco::signum signum{.learning_rate = s.rate(), .momentum = 0, .weight_decay = 0.1};
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  const acco::replicas replicas(world);
  if (s.schedule == "delayed")
    return acco::optimizer{acco::delayed{.commit = commit, .pace = fixed}, signum, storage, replicas, layout, options};
  return acco::optimizer{acco::synchronous{.commit = commit, .pace = fixed}, signum, storage, replicas, layout, options};
}

}  // namespace toy_gpt
