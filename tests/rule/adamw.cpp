// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <vector>

#include <acco/acco.hpp>
#include <acco/rule/adamw.hpp>

#include "conformance/rule.hpp"

TEST_CASE("adamw equals the textbook in scalar, packed, predicted and committed form") {
  conformance::rule_suite(acco::adamw{.learning_rate = 0.03});
}

TEST_CASE("an epsilon that is 0 in the masters' type is refused, the rule's and a group's; one that is not is taken") {
  const auto make = [](auto storage, double epsilon, bool of_group) {
    acco::parameter_layout layout;
    layout.add("w", {4}, layout.add_group({.epsilon = of_group ? std::optional(epsilon) : std::nullopt}));
    const acco::adamw rule{.epsilon = of_group ? 1e-8 : epsilon};
    (void)acco::optimizer{acco::synchronous{}, rule, storage, acco::solo_backend{}, layout};
  };
  for (const bool of_group : {false, true}) {
    CHECK_THROWS_WITH_AS(make(acco::host_storage<float>{}, 1e-46, of_group), doctest::Contains("An epsilon"), acco::usage_error);
    CHECK_NOTHROW(make(acco::host_storage<float>{}, 1e-40, of_group));
    CHECK_NOTHROW(make(acco::host_storage<double>{}, 1e-100, of_group));
  }
}

TEST_CASE("a gradient whose square overflows in the masters' type is not finite; clipped, it is") {
  const auto trained = [](auto storage, double clip, acco::non_finite what) {
    acco::optimizer training{acco::synchronous{},
                             acco::adamw{.learning_rate = 1e-3},
                             storage,
                             acco::solo_backend{},
                             2,
                             acco::options{.clip_norm = clip, .on_non_finite = what}};
    training.initialize(std::vector<float>(2, 1.0F));
    for (int step = 0; step < 6; ++step) {
      for (float& g : training.gradients()) g += step == 2 ? 2e19F : 1.0F;
      training.accumulated(1);
    }
    training.finish();
    return training.steps();
  };
  using acco::non_finite;
  CHECK_THROWS_AS(trained(acco::host_storage<float>{}, 0, non_finite::raise), acco::non_finite_error);
  CHECK(trained(acco::host_storage<float>{}, 0, non_finite::skip) == 5);
  CHECK(trained(acco::host_storage<float>{}, 1, non_finite::raise) == 6);
  CHECK(trained(acco::host_storage<float, float, double>{}, 0, non_finite::raise) == 6);
}
