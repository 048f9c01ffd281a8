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

using any_schedule = std::variant<acco::synchronous, acco::delayed<chosen_pace>, acco::two_phase<chosen_pace>,
                                  acco::weight_prediction<chosen_pace>>;
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
inline any_schedule make_schedule(settings const& s) {
  const chosen_pace pace{s.first, s.second, s.elastic ? std::max(64U, s.first) : 0};
  if (s.schedule == "delayed") return acco::delayed{.pace = pace};
  if (s.schedule == "two_phase") return acco::two_phase{.pace = pace};
  if (s.schedule == "weight_prediction") return acco::weight_prediction{.pace = pace};
  return acco::synchronous{.pace = acco::fixed_pace{.first = s.first, .second = s.second}};
}

/// Trains one rank over `world`, in one of the storages of a variant.
template <class World, class AnyStorage>
void train_chosen(job& one, World const& world, summary& result, AnyStorage const& memory) {
  std::visit(
      [&](auto const& schedule, auto const& rule, auto const& storage) {
        train_rank(one.chosen, one.text, schedule, rule, storage, world, one.trace, one.sink, one.source, result, one.sample);
      },
      make_schedule(one.chosen), make_rule(one.chosen), memory);
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
