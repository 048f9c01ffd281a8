// SPDX-License-Identifier: Apache-2.0
// Commits whose ranks keep what codes have lost otherwise than in the gradients' type, or by EF21: some codes, chosen on the
// command line, and two schedules, for comparisons.
#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/encoding/one_of.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// In the order of `codes_with_feedback`.
using some_code = acco::one_of<acco::block_int8<>, acco::block_int4<>, acco::block_gauss3, acco::block_gauss2,
                               acco::block_ternary, acco::block_top<16>>;
static_assert(some_code::count == std::size(codes_with_feedback));

some_code code_of(std::string_view word) {
  return {static_cast<std::size_t>(std::find(std::begin(codes_with_feedback), std::end(codes_with_feedback), word) -
                                   std::begin(codes_with_feedback))};
}

}  // namespace

acco::any_optimizer<float> make_with_feedback(settings const& s, acco::host_storage<float> const& storage,
                                              threads_link const& world, acco::parameter_layout const& layout,
                                              acco::options const& options) {
  const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
  const words_of_wire words = wire_of(s.commit);
  const auto with = [&](auto gradients) -> acco::any_optimizer<float> {
    const acco::coded<decltype(gradients), some_code> commit{gradients, code_of(words.parameters)};
    const acco::fixed_pace fixed{.first = s.first, .second = s.second};
    if (s.schedule == "synchronous")
      return acco::optimizer{acco::synchronous{.commit = commit, .pace = fixed}, adamw, storage, world, layout, options};
    return acco::optimizer{acco::delayed{.commit = commit, .pace = pace_of(s)}, adamw, storage, world, layout, options};
  };
  const some_code code = code_of(words.gradients);
  const auto keep = static_cast<float>(s.feedback);
  if (s.kept_as == "ef21") return with(acco::with_ef21<some_code>(code));
  if (s.kept_as == "float32") return with(acco::with_error_feedback<some_code, float>(code, keep));
  if (s.kept_as == "bfloat16") return with(acco::with_error_feedback<some_code, acco::bfloat16>(code, keep));
  return with(acco::with_error_feedback<some_code, acco::int8_blocks>(code, keep));
}

}  // namespace toy_gpt
