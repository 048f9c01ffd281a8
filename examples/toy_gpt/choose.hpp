// SPDX-License-Identifier: Apache-2.0
// From words on the command line to types: one instantiation of the training loop for every schedule, rule and storage.
#pragma once

#include <algorithm>
#include <variant>

#include <acco/acco.hpp>

#include "runner.hpp"
#include "settings.hpp"
#include "train.hpp"

namespace toy_gpt {

using any_rule = std::variant<acco::adamw, acco::sgd, acco::lion>;
/// fixed_pace or elastic_pace, chosen on the command line.
struct chosen_pace {
  unsigned first = 1, second = 0, at_most = 0;  // at_most 0: fixed

  static constexpr char const* name = "chosen_pace";
  [[nodiscard]] constexpr unsigned minimum(acco::step_part part) const noexcept {
    return acco::fixed_pace{first, second}.minimum(part);
  }
  [[nodiscard]] constexpr unsigned maximum(acco::step_part part) const noexcept { return at_most != 0 ? at_most : minimum(part); }
};
/// The same for two_phase, or auto_pace.
struct chosen_split {
  chosen_pace chosen;
  acco::auto_pace found;  // micro_batches 0: as chosen

  static constexpr char const* name = "chosen_split";
  [[nodiscard]] constexpr unsigned minimum(acco::step_part part) const noexcept {
    return found.micro_batches != 0 ? found.minimum(part) : chosen.minimum(part);
  }
  [[nodiscard]] constexpr unsigned maximum(acco::step_part part) const noexcept {
    return found.micro_batches != 0 ? found.maximum(part) : chosen.maximum(part);
  }
  constexpr void measured(acco::pace_seconds const& seconds) noexcept {
    if (found.micro_batches != 0) found.measured(seconds);
  }
};

using any_schedule = std::variant<acco::synchronous<>, acco::delayed<chosen_pace>, acco::two_phase<chosen_split>,
                                  acco::weight_prediction<chosen_pace>>;
/// Gradients in eight bits, parameters as differences in four.
using few_bits = acco::coded<acco::block_int8<>, acco::block_int4<>>;
using any_encoded_schedule =
    std::variant<acco::synchronous<few_bits>, acco::delayed<chosen_pace, few_bits>,
                 acco::two_phase<chosen_split, acco::block_int8<>>, acco::two_phase<chosen_split, acco::block_int4<>>,
                 acco::two_phase<chosen_split, acco::block_int4<>, few_bits>>;
using any_storage = std::variant<acco::host_storage<float>, acco::host_storage<acco::bfloat16>>;

inline any_rule make_rule(settings const& s) {
  if (s.rule == "sgd") return acco::sgd{.learning_rate = s.rate(), .momentum = 0.9};
  if (s.rule == "lion") return acco::lion{.learning_rate = s.rate(), .weight_decay = 0.1};
  return acco::adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
}
inline any_storage make_storage(settings const& s) {
  if (s.dtype == "bfloat16") return acco::host_storage<acco::bfloat16>{};
  return acco::host_storage<float>{};
}
inline chosen_pace make_pace(settings const& s) { return {s.first, s.second, s.elastic ? std::max(64U, s.first) : 0}; }
inline chosen_split make_split(settings const& s) {
  const unsigned whole = s.first + (s.second != 0 ? s.second : s.first);
  return {make_pace(s), {.micro_batches = s.auto_pace ? whole : 0}};
}
inline any_encoded_schedule make_encoded_schedule(settings const& s) {
  if (s.schedule == "delayed") return acco::delayed{.commit = few_bits{}, .pace = make_pace(s)};
  if (s.schedule == "synchronous")
    return acco::synchronous{.commit = few_bits{}, .pace = acco::fixed_pace{.first = s.first, .second = s.second}};
  if (s.commit == "coded") return acco::two_phase{.estimate = acco::block_int4{}, .commit = few_bits{}, .pace = make_split(s)};
  if (s.estimate == "int8") return acco::two_phase{.estimate = acco::block_int8{}, .pace = make_split(s)};
  return acco::two_phase{.estimate = acco::block_int4{}, .pace = make_split(s)};
}
inline any_schedule make_schedule(settings const& s) {
  const chosen_pace pace = make_pace(s);
  if (s.schedule == "delayed") return acco::delayed{.pace = pace};
  if (s.schedule == "two_phase") return acco::two_phase{.pace = make_split(s)};
  if (s.schedule == "weight_prediction") return acco::weight_prediction{.pace = pace};
  return acco::synchronous{.pace = acco::fixed_pace{.first = s.first, .second = s.second}};
}

/// Trains one rank over `world`, in one of the storages of a variant.
template <class World, class AnyStorage>
void train_chosen(job& one, World const& world, summary& result, AnyStorage const& memory) {
  const auto train = [&](auto const& schedule, auto const& rule, auto const& storage) {
    train_rank(one.chosen, one.text, schedule, rule, storage, world, one.trace, one.sink, one.source, result, one.sample);
  };
  if (one.chosen.encoded()) {  // with adamw only: every combination is compiled
    const any_rule chosen = make_rule(one.chosen);
    std::visit([&](auto const& schedule, auto const& storage) { train(schedule, std::get<acco::adamw>(chosen), storage); },
               make_encoded_schedule(one.chosen), memory);
  } else {
    std::visit(train, make_schedule(one.chosen), make_rule(one.chosen), memory);
  }
}

/// Ranks are processes, this is one of them; `World` is a network backend.
template <class World>
class process_runner : public runner {
 public:
  explicit process_runner(World world) : world_(std::move(world)) {}
  [[nodiscard]] int first_rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  void train(job& one) override { train_chosen(one, world_, one.result, make_storage(one.chosen)); }

 protected:
  World world_;
};

}  // namespace toy_gpt
