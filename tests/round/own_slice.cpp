// SPDX-License-Identifier: Apache-2.0
// Estimates without a reduce-scatter: every owner predicts its slice from its own rank's gradients (SAPipe's option
// 1b).
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "conformance/schedule.hpp"
#include "support/float_wire.hpp"

namespace {

constexpr auto pace = [](unsigned first, unsigned second) { return acco::fixed_pace{.first = first, .second = second}; };

}  // namespace

TEST_CASE("own_slice: predictions from own gradients, commits from all") {
  conformance::short_suite(reference::algorithm::own_slice, [](unsigned first, unsigned second) {
    return acco::two_phase{.estimate = acco::own_slice{}, .pace = pace(first, second)};
  });
}
TEST_CASE("own_slice: the same with parameters that travel encoded") {
  conformance::short_suite<false>(
      reference::algorithm::own_slice,
      [](unsigned first, unsigned second) {
        return acco::two_phase{.estimate = acco::coded{.gradients = acco::own_slice{}, .parameters = float_wire{}},
                               .pace = pace(first, second)};
      },
      {.micro_batches = {}}, 2e-6);
}
TEST_CASE("own_slice over backends that do not add, in other types, with addresses that stay") {
  const acco::adamw rule{.learning_rate = 0.02};
  const auto make = [](unsigned first, unsigned second) {
    return acco::two_phase{.estimate = acco::own_slice{}, .pace = pace(first, second)};
  };
  const auto s = conformance::setting(3, 10, 2, 1);
  using double_storage = acco::host_storage<double>;
  conformance::compare<double_storage, worlds::plain>(reference::algorithm::own_slice, make, rule, conformance::mixed_layout(),
                                                      s);
  conformance::compare<double_storage>(reference::algorithm::own_slice, make, rule, conformance::mixed_layout(false), s, 1e-12,
                                       {.stable_addresses = true});
  if constexpr (everything) {  // nor does an estimate of one's own meet a decorator, or wider gradients, otherwise
    conformance::compare<double_storage, worlds::decorated>(reference::algorithm::own_slice, make, rule,
                                                            conformance::mixed_layout(), s);
    conformance::compare<acco::host_storage<float, double>>(reference::algorithm::own_slice, make, rule,
                                                            conformance::mixed_layout(), s, 2e-5);
  }
  conformance::compare<acco::host_storage<float, acco::bfloat16>>(reference::algorithm::own_slice, make, rule,
                                                                  conformance::mixed_layout(), s, 3e-2);
}
TEST_CASE("on one rank it is two_phase with an estimate that keeps, bit by bit") {
  const auto s = conformance::setting(1, 12, 3, 1);
  const auto trained = [&](auto schedule) {
    return library::train<acco::host_storage<float>>(worlds::threads{}, schedule, acco::adamw{.learning_rate = 0.02},
                                                     conformance::mixed_layout(), s);
  };
  conformance::same_bits(trained(acco::two_phase{.estimate = acco::own_slice{}, .pace = pace(3, 1)}),
                         trained(acco::two_phase{.estimate = acco::coded<float_wire>{}, .pace = pace(3, 1)}));
}
TEST_CASE("an estimate sends parameters only") {
  acco::mock_world world(4, {});
  constexpr std::size_t count = 4 * 64 * 5;
  world.run([&](acco::mock_backend rank) {
    acco::optimizer t{acco::two_phase{.estimate = acco::own_slice{}, .pace = pace(1, 1)},
                      acco::sgd{},
                      acco::host_storage<float>{},
                      rank,
                      count,
                      acco::options{.check_habits = acco::habit_checks::off, .compare_every = 0}};
    t.initialize(std::vector<float>(count));
    std::vector<std::uint64_t> sent;
    for (int k = 0; k < 9; ++k) {
      t.gradients()[0] += 1;
      if (auto report = t.accumulated(1)) sent.push_back(report->bytes_sent);
    }
    t.finish();
    REQUIRE(sent.size() == 8);
    constexpr std::uint64_t pass = 3 * (count / 4) * sizeof(float);  // a ring's share of an array
    CHECK(sent[1] - sent[0] == pass);
    CHECK(sent[3] - sent[2] == pass);
    CHECK(sent[0] > pass);  // and the counts
    CHECK(sent[0] < 2 * pass);
  });
}
TEST_CASE("a gradient that is not finite is named by rank and tensor, though nothing has travelled") {
  for (const std::size_t bucket : {std::size_t{0}, std::size_t{128}}) {
    CAPTURE(bucket);
    acco::parameter_layout layout;
    layout.add("first", {200}).add("second", {400});
    for (const std::size_t element : {5U, 230U, 400U, 590U}) {
      for (const int at : {0, 2, 3}) {
        CAPTURE(element);
        CAPTURE(at);
        const std::string text = "rank 1 brought 1 gradients that are infinite or not a number, the first in tensor " +
                                 std::string(element < 200 ? "'first' at element " : "'second' at element ") +
                                 std::to_string(element < 200 ? element : element - 200);
        // of a first part its owner sees it in the estimate where it is the rank's own; everything else is seen in the
        // commit
        CHECK_THROWS_WITH_AS(
            acco::threads_backend::run(2,
                                       [&](acco::threads_backend const& world) {
                                         acco::optimizer t{
                                             acco::two_phase{.estimate = acco::own_slice{}, .pace = pace(1, 1)},
                                             acco::sgd{},
                                             acco::host_storage<float>{},
                                             world,
                                             layout,
                                             acco::options{.check_habits = acco::habit_checks::off, .bucket_elements = bucket}};
                                         t.initialize(std::vector<float>(600));
                                         for (int k = 0; k < 8; ++k) {
                                           if (world.rank() == 1 && k == at)
                                             t.gradients()[element] = std::numeric_limits<float>::quiet_NaN();
                                           t.accumulated(1);
                                         }
                                         t.finish();
                                       }),
            doctest::Contains(text.c_str()), acco::non_finite_error);
      }
    }
  }
}
