// SPDX-License-Identifier: Apache-2.0
// A layout with a tensor that is left alone without a gradient refuses codes that cannot say 0.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer/level_construction.hpp>

namespace {

acco::parameter_layout layout_with(acco::update_group const& group) {
  acco::parameter_layout layout;
  layout.add("w", {100}).add("embedding", {20}, layout.add_group(group));
  return layout;
}
/// That all of `words` is said where the group leaves tensors without gradient, and nothing where it does not.
template <class Make>
void refuses(Make const& make, char const* words) {
  CHECK_THROWS_WITH_AS(make(layout_with({.leave_without_gradient = true})), doctest::Contains(words), acco::usage_error);
  CHECK_NOTHROW(make(layout_with({})));
  CHECK_NOTHROW(make(layout_with({.frozen = true, .leave_without_gradient = true})));
}
using signs = acco::loosely<acco::block_sign>;

}  // namespace

TEST_CASE("a code that has no 0 is refused beside a group that leaves tensors without gradient alone, and beside no other") {
  acco::solo_backend world;
  const auto with = [&](auto schedule) {
    return [=](acco::parameter_layout const& layout) {
      (void)acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world, layout};
    };
  };
  refuses(with(acco::synchronous{.commit = acco::coded<acco::with_error_feedback<acco::block_sign>, acco::full>{}}),
          "gradients travel by block_sign, which has no 0, and a group of tensors has leave_without_gradient");
  refuses(with(acco::synchronous{.commit = acco::coded<acco::full, signs>{}}), "parameters travel by block_sign, which has no 0");
  refuses(with(acco::two_phase{.estimate = acco::block_sign{}}), "gradients travel by block_sign, which has no 0");
  CHECK_NOTHROW(
      with(acco::two_phase{.estimate = acco::rotated<acco::block_gauss2>{}})(layout_with({.leave_without_gradient = true})));
}

TEST_CASE("nor do changes of workers, or their anchor, travel by such a code") {
  const auto with = [](auto exchange) {
    return [=](acco::parameter_layout const& layout) {
      (void)acco::checked_for_level({}, acco::exchange_wire(exchange), layout, 0);
    };
  };
  refuses(with(acco::coded<acco::block_sign, acco::full>{}), "changes of workers travel by block_sign, which has no 0");
  refuses(with(acco::coded<acco::full, signs>{}), "anchors travel by block_sign, which has no 0");
}

TEST_CASE("what such a code sends where no element lies is in no norm") {
  acco::parameter_layout layout;
  layout.add("a", {10, 10}).add("b", {7, 9});  // each whole in a rank's share: gaps of 28 and 65
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = acco::coded{acco::without_feedback<acco::block_sign>{}, acco::full{}}},
                             acco::muon{}, acco::host_storage<float>{}, world, layout};
    training.initialize(std::vector<float>(layout.size(), 1.0F));
    for (float& each : training.gradients()) each += 1;
    CHECK(training.accumulated(1)->gradient_norm == doctest::Approx(std::sqrt(163.0)));
    training.finish();
  });
}
