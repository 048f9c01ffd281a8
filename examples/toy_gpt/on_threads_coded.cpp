// SPDX-License-Identifier: Apache-2.0
// Rounds that travel in any code, chosen on the command line: one engine for all codes of a schedule.
#include <cstring>

#include <acco/encoding/auto_encoding.hpp>
#include <acco/encoding/bfloat16_wire.hpp>
#include <acco/encoding/block_dct_top.hpp>
#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_random.hpp>
#include <acco/encoding/block_sign.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/encoding/one_of.hpp>
#include <acco/encoding/power_sgd.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// Whole numbers, where an encoding is wanted.
struct whole_numbers {
  static constexpr char const* name = "whole_numbers";
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);
  static void encode(float const* values, std::byte* bytes) { std::memcpy(bytes, values, block_bytes); }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};

/// In the order of `codes`.
template <template <class...> class Of>
using of_codes = Of<whole_numbers, acco::bfloat16_wire, acco::block_int8<>, acco::block_int4<>, acco::block_gauss4,
                    acco::block_gauss3, acco::block_gauss2, acco::rotated_gauss3, acco::rotated_gauss2, acco::block_ternary,
                    acco::block_top<16>, acco::block_top<32>, acco::block_sign, acco::block_random<32>, acco::block_dct_top<16>,
                    acco::block_dct_top<16, acco::mean_over::senders>>;
using any_code = of_codes<acco::one_of>;
using planned_code = of_codes<acco::planned_encoding>;
static_assert(any_code::count == std::size(codes));
/// Whether the words are those of the codes: the letters of "rotated3" are in "rotated_gauss3". (top16 and top32 have one name.)
constexpr bool words_fit() {
  for (std::size_t k = 1; k < std::size(codes); ++k) {
    const std::string_view word = codes[k], name = planned_code::name_of(k);
    if (name.find(word.substr(0, word.find_first_of("0123456789"))) == name.npos) return false;
    if (word.back() <= '9' && name.back() <= '9' && word.back() != name.back()) return false;
    bool needs_feedback = false;
    planned_code::visit(k, [&]<class Code>(Code const&) { needs_feedback = acco::biased<Code>; });
    if (needs_feedback != is_biased(word)) return false;
  }
  return true;
}
static_assert(words_fit());

any_code code_of(std::string_view word) {
  if (!is_code(word)) throw std::invalid_argument(std::string(word) + " is no code");
  return {static_cast<std::size_t>(std::find(std::begin(codes), std::end(codes), word) - std::begin(codes))};
}

/// That of the word, or planned, beginning with 8 bits.
planned_code committed_code(std::string_view word, double budget) {
  const bool planned = is_planned(word);
  return {.budget = budget, .every = planned ? 50U : 0U, .first = code_of(planned ? "int8" : word).which};
}

}  // namespace

acco::any_optimizer<float> make_coded(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                      acco::parameter_layout const& layout, acco::options const& given) {
  if (is_published(s.commit)) return make_over_replicas(s, storage, world, layout, given);
  acco::options options = given;
  if (is_planned(wire_of(s.commit).gradients)) options.bucket_elements = 16384;  // each with a code of its own
  const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
  const auto with = [&](auto schedule) -> acco::any_optimizer<float> {
    return acco::optimizer{schedule, adamw, storage, world, layout, options};
  };
  const words_of_wire words = wire_of(s.commit), of_estimate = wire_of(s.estimate);
  const acco::signum signum{.learning_rate = s.rate(), .momentum = 0, .weight_decay = 0.1};
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  if (is_vote(words.gradients)) {  // signSGD with majority vote
    const acco::coded<acco::without_feedback<acco::sign_vote>, any_code> votes{{}, code_of(words.parameters)};
    return acco::optimizer{acco::synchronous{.commit = votes, .pace = fixed}, signum, storage, world, layout, options};
  }
  if (const unsigned rank = rank_of_power(words.gradients); rank != 0) {
    if (s.rule != "adamw") throw std::invalid_argument(s.label() + " is made with adamw");
    const acco::coded<acco::power_sgd, any_code> power{{.rank = rank, .exact_steps = 10}, code_of(words.parameters)};
    if (s.schedule == "delayed") return with(acco::delayed{.commit = power, .pace = pace_of(s)});
    return with(acco::synchronous{.commit = power, .pace = fixed});
  }
  acco::coded<acco::with_error_feedback<planned_code>, any_code> commit{{committed_code(words.gradients, s.budget)},
                                                                        code_of(words.parameters)};
  commit.gradients.keep = static_cast<float>(s.feedback);  // 0: nothing is fed back, for the price of the room
  if (s.rule == "signum") {                                // what is fed back is the momentum: DeMo, where the code is dct16
    if (s.schedule == "delayed")
      return acco::optimizer{acco::delayed{.commit = commit, .pace = fixed}, signum, storage, world, layout, options};
    if (s.schedule == "two_phase") {  // the estimate is of the momentum, too
      const acco::coded<acco::with_feedback_ahead<any_code>, any_code> estimate{code_of(of_estimate.gradients),
                                                                                code_of(of_estimate.parameters)};
      return acco::optimizer{
          acco::two_phase{.estimate = estimate, .commit = commit, .pace = fixed}, signum, storage, world, layout, options};
    }
    return acco::optimizer{acco::synchronous{.commit = commit, .pace = fixed}, signum, storage, world, layout, options};
  }
  const chosen_pace pace = pace_of(s);
  if (s.schedule == "synchronous") {
    return with(acco::synchronous{.commit = commit, .pace = fixed});
  }
  if (s.schedule == "delayed") return with(acco::delayed{.commit = commit, .pace = pace});
  if (s.schedule == "weight_prediction") return with(acco::weight_prediction{.commit = commit, .pace = pace});
  if (s.schedule != "two_phase") throw std::invalid_argument(s.label() + " is not made");
  const auto two_phase = [&](auto gradients) {
    const acco::coded<decltype(gradients), any_code> estimate{gradients, code_of(of_estimate.parameters)};
    return with(acco::two_phase{.estimate = estimate, .commit = commit, .pace = split_of(s)});
  };
  return of_estimate.gradients == "own" ? two_phase(acco::own_slice{}) : two_phase(code_of(of_estimate.gradients));
}

}  // namespace toy_gpt
