// SPDX-License-Identifier: Apache-2.0
// From words on the command line to types: a table of schedules, over any rule, storage and backend.
#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <acco/collective/backend.hpp>
#include <acco/encoding/block_integer.hpp>
#include <acco/optimizer.hpp>
#include <acco/rule/adamw.hpp>
#include <acco/rule/lion.hpp>
#include <acco/rule/sgd.hpp>
#include <acco/rule/signum.hpp>
#include <acco/schedule/auto_pace.hpp>
#include <acco/schedule/delayed.hpp>
#include <acco/schedule/synchronous.hpp>
#include <acco/schedule/two_phase.hpp>
#include <acco/schedule/weight_prediction.hpp>
#include <acco/storage/host.hpp>

#include "host.hpp"
#include "runner.hpp"
#include "settings.hpp"

namespace toy_gpt {

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

inline chosen_pace pace_of(settings const& s) { return {s.first, s.second, s.elastic ? std::max(64U, s.first) : 0}; }
inline chosen_split split_of(settings const& s) {
  return {pace_of(s), {.micro_batches = s.auto_pace ? s.first + (s.second != 0 ? s.second : s.first) : 0}};
}

template <class Storage>
using training_of = acco::any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type>;

/// The optimizers that toy_gpt_family has beside the table below: on_threads.hpp.
template <class Storage, class World>
struct family_of {
  static training_of<Storage> make(settings const& s, Storage const&, World const&, acco::parameter_layout const&,
                                   acco::options const&) {
    throw std::invalid_argument(s.label() + " --rule " + s.rule + " is made on threads and in floats only");
  }
};

/// The optimizer that the settings name.
template <class Storage, class World>
training_of<Storage> make_training(settings const& s, Storage const& storage, World const& world,
                                   acco::parameter_layout const& layout, acco::options const& options) {
  const auto make = [&](auto schedule) -> training_of<Storage> {
    const auto with = [&](auto rule) { return acco::optimizer{schedule, rule, storage, world, layout, options}; };
    if (s.rule == "sgd") return with(acco::sgd{.learning_rate = s.rate(), .momentum = 0.9});
    if (s.rule == "lion") return with(acco::lion{.learning_rate = s.rate(), .weight_decay = 0.1});
    if (s.rule == "signum") return with(acco::signum{.learning_rate = s.rate(), .weight_decay = 0.1});
    return with(acco::adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1});
  };
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  const chosen_pace pace = pace_of(s);
  const chosen_split split = split_of(s);
  const acco::block_int8<> int8;
  const acco::block_int4<> int4;
  const acco::coded<acco::block_int8<>, acco::block_int4<>> coded;  // gradients in eight bits, parameters as differences in four

  const std::pair<std::string_view, std::function<training_of<Storage>()>> table[] = {
      {"synchronous", [&] { return make(acco::synchronous{.pace = fixed}); }},
      {"synchronous+coded", [&] { return make(acco::synchronous{.commit = coded, .pace = fixed}); }},
      {"delayed", [&] { return make(acco::delayed{.pace = pace}); }},
      {"delayed+coded", [&] { return make(acco::delayed{.commit = coded, .pace = pace}); }},
      {"weight_prediction", [&] { return make(acco::weight_prediction{.pace = pace}); }},
      {"weight_prediction+coded", [&] { return make(acco::weight_prediction{.commit = coded, .pace = pace}); }},
      {"two_phase", [&] { return make(acco::two_phase{.pace = split}); }},
      {"two_phase+own", [&] { return make(acco::two_phase{.estimate = acco::own_slice{}, .pace = split}); }},
      {"two_phase+int8", [&] { return make(acco::two_phase{.estimate = int8, .pace = split}); }},
      {"two_phase+int4", [&] { return make(acco::two_phase{.estimate = int4, .pace = split}); }},
      {"two_phase+coded", [&] { return make(acco::two_phase{.estimate = int4, .commit = coded, .pace = split}); }},
  };
  if (s.needs_family()) return family_of<Storage, World>::make(s, storage, world, layout, options);
  for (auto const& [label, entry] : table) {
    if (label == s.label()) return entry();
  }
  throw std::logic_error("no schedule is called " + s.label());
}

/// Trains one rank over `world` on the host.
template <class World>
void train_over(World const& world, job& one, summary& result) {
  const auto train = [&]<class Parameter>(acco::host_storage<Parameter> const& storage) {
    train_on_host<Parameter>(
        one, world.rank(),
        [&](auto const& layout, auto const& options) { return make_training(one.chosen, storage, world, layout, options); },
        result);
  };
  if (one.chosen.dtype == "bfloat16") {
    train(acco::host_storage<acco::bfloat16>{});
  } else {
    train(acco::host_storage<float>{});
  }
}

/// Ranks are processes, this is one of them; `World` is a network backend.
template <class World>
class process_runner : public runner {
 public:
  explicit process_runner(World world) : world_(std::move(world)) {}
  [[nodiscard]] int first_rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  void train(job& one) override { train_over(world_, one, one.result); }

 protected:
  World world_;
};

}  // namespace toy_gpt
