// SPDX-License-Identifier: Apache-2.0
// A tensor that no rank has a gradient of stays where it is, by whatever code gradients travel; a code that has no 0 is refused.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/encoding/block_random.hpp>
#include <acco/encoding/one_of.hpp>
#include <acco/outer.hpp>

namespace {

using codes =
    acco::one_of<acco::block_int8<>, acco::block_gauss3, acco::rotated_gauss2, acco::block_ternary, acco::block_top<16>,
                 acco::block_random<16>, acco::bfloat16_wire, acco::block_sign, acco::sign_vote, acco::block_dct_top<16>>;
constexpr std::size_t keep_zeros = 7;  // of them, the first ones

auto make(acco::threads_backend const& world, std::size_t which, acco::update_group const& group) {
  acco::parameter_layout layout;
  layout.add("w", {100}).add("embedding", {20}, layout.add_group(group));
  const acco::coded<acco::without_feedback<codes>, acco::full> wire{{{which}}, {}};
  return acco::optimizer{acco::synchronous{.commit = wire}, acco::signum{.learning_rate = 0.01, .momentum = 0},
                         acco::host_storage<float>{}, world, layout};
}

}  // namespace

TEST_CASE("what has no gradient on any rank is left alone by codes that keep zeros") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    for (std::size_t which = 0; which < keep_zeros; ++which) {
      CAPTURE(codes{which}.chosen_name());
      auto training = make(world, which, {.leave_without_gradient = true});
      training.initialize(std::vector<float>(120, 1.0F));
      for (int step = 0; step < 3; ++step) {
        for (std::size_t i = 0; i < 100; ++i) training.gradients()[i] += i % 2 == 0 ? 1.0F : -1.0F;
        training.accumulated(1);
      }
      training.finish();
      CHECK(std::count(training.parameters().begin() + 100, training.parameters().end(), 1.0F) == 20);
      CHECK(std::count(training.parameters().begin(), training.parameters().begin() + 100, 1.0F) < 100);
    }
  });
}

TEST_CASE("a code that has no 0 is refused beside such a group, and beside no other") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    for (std::size_t which = keep_zeros; which < codes::count; ++which) {
      const std::string name = codes{which}.chosen_name();
      CAPTURE(name);
      CHECK_THROWS_WITH_AS((void)make(world, which, {.leave_without_gradient = true}),
                           doctest::Contains(("gradients travel by " + name + ", which has no 0").c_str()), acco::usage_error);
      CHECK_NOTHROW((void)make(world, which, {}));
      CHECK_NOTHROW((void)make(world, which, {.frozen = true, .leave_without_gradient = true}));
    }
  });
  static_assert(acco::without_zero<acco::with_error_feedback<acco::block_sign>>);
  static_assert(acco::without_zero<acco::planned_encoding<acco::block_int8<>, acco::block_sign>>);
  static_assert(!acco::without_zero<acco::auto_encoding>);
}

TEST_CASE("nor may parameters or changes of workers travel by a code that has no 0 beside such a group") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    const auto refused = [&](auto schedule, char const* words) {
      const auto made = [&](acco::update_group const& group) {
        acco::parameter_layout layout;
        layout.add("w", {100}).add("embedding", {20}, layout.add_group(group));
        (void)acco::optimizer{schedule, acco::sgd{}, acco::host_storage<float>{}, world, layout};
      };
      CHECK_THROWS_WITH_AS(made({.leave_without_gradient = true}), doctest::Contains(words), acco::usage_error);
      CHECK_NOTHROW(made({}));
    };
    using signs = acco::loosely<acco::block_sign>;
    refused(acco::synchronous{.commit = acco::coded<acco::block_int8<>, signs>{}},
            "parameters travel by block_sign, which has no 0, and a group of tensors has leave_without_gradient");
    refused(acco::two_phase{.estimate = acco::coded<acco::own_slice, acco::block_dct_top<16>>{}},
            "parameters travel by block_dct_top, which has no 0");
    refused(acco::diloco{.exchange = acco::loosely<acco::block_dct_top<16>>{}},
            "changes of workers travel by block_dct_top, which has no 0");
    refused(acco::diloco{.exchange = acco::coded<acco::block_int4<>, signs>{}}, "anchors travel by block_sign, which has no 0");
  });
}
