// SPDX-License-Identifier: Apache-2.0
// What the answers of bench_demo have in common: the flags, and what makes an optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/schedule/named.hpp>

#include "shape.hpp"

namespace asked {

struct question {
  std::string what, data;
  double samples = 12800;
  std::vector<std::uint64_t> seeds{1, 2, 3};
  std::vector<double> rates{3e-4, 1e-3, 3e-3};  // of sign rules
  double loss = 2.9;                            // to which seconds are counted

  /// Of rules whose rates are larger.
  [[nodiscard]] std::vector<double> rates_times(double factor) const {
    std::vector<double> all = rates;
    for (double& rate : all) rate *= factor;
    return all;
  }
};

// Each answers one: trainings.cpp, models.cpp, momenta.cpp.
void models(question const&);
void basis(question const&);
void state(question const&);

constexpr toy_gpt::shape small{.context = 64, .layers = 2, .width = 64, .heads = 4};
constexpr acco::fixed_pace eight{.first = 8}, split{.first = 6, .second = 2};
using maker = std::function<acco::any_optimizer<float>(acco::threads_backend const&, acco::parameter_layout const&,
                                                       acco::options const&, double rate)>;

template <class Schedule, class Rule>
maker of(Schedule const& schedule, Rule const& rule) {
  return [=](acco::threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options,
             double rate) -> acco::any_optimizer<float> {
    Rule mine = rule;
    mine.learning_rate = rate;
    return acco::optimizer{schedule, mine, acco::host_storage<float>{}, world, layout, options};
  };
}

template <class Parameters, class Code = acco::block_dct_top<16>>
constexpr auto demo_of() {
  acco::demo_wire<Parameters, Code> wire;
  wire.gradients.policy.decay = 0.99;  // the trainings are short
  return wire;
}
inline constexpr auto published = demo_of<acco::updated_by_all>();
inline constexpr auto sharded = demo_of<acco::block_int4<>>();
/// An estimate of its momentum and the first part.
inline constexpr acco::coded ahead{.gradients = acco::with_feedback_ahead{sharded.gradients}, .parameters = acco::block_int4<>{}};

/// What rates of other rules are, over a sign rule's.
constexpr double of_adamw = 10.0 / 3, of_sgd = 100;
constexpr acco::lion signs(double weight_decay) { return {.beta1 = 0, .beta2 = 0, .weight_decay = weight_decay}; }
constexpr acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0.1};

}  // namespace asked
