// SPDX-License-Identifier: Apache-2.0
// Local updates beside histories that another implementation has published: torchft 7eb7087, test_fixtures/
// torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_{0..5}.json. The numbers are Meta's,
// under the licence in torchft.LICENSE. Two workers, two fragments, six steps a round, gradients of 2, inner and outer
// SGD at 1 and 2. With a delay torchft's exchanges start early, and land where those without one do.
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

namespace {

struct history {
  unsigned delay;
  double keep_local;
  std::array<double, 16> first, second;  // of each fragment, after so many steps
};
constexpr std::array<double, 16> local{1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29};
constexpr history published[] = {{0,
                                  0,
                                  {1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59},
                                  {1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53}},
                                 {0,
                                  0.5,
                                  {1, -1, -3, -8, -10, -12, -14, -16, -18, -24.5, -26.5, -28.5, -30.5, -32.5, -34.5, -40.25},
                                  {1, -1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38}},
                                 {0, 1, local, local},
                                 {1,
                                  0,
                                  {1, -1, -3, -7, -9, -11, -13, -15, -17, -27, -29, -31, -33, -35, -37, -47},
                                  {1, -1, -3, -5, -7, -9, -19, -21, -23, -25, -27, -29, -39, -41, -43, -45}},
                                 {1,
                                  0.5,
                                  {1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5, -23.5, -25.5, -27.5, -29.5, -31.5, -35.75},
                                  {1, -1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35}},
                                 {1, 1, local, local}};

constexpr std::size_t count = 128;  // a half for each fragment
auto published_by(unsigned delay, double keep_local) {
  return acco::local_updates{
      .method =
          acco::restarting<acco::sgd>{
              .rule = {.learning_rate = 2}, .delay = delay, .keep_local = keep_local, .lands_at_boundary = delay != 0},
      .steps = 6,
      .fragments = 2};
}

}  // namespace

TEST_CASE("torchft's published histories of streaming DiLoCo, in every number") {
  for (history const& each : published) {
    CAPTURE(each.delay);
    CAPTURE(each.keep_local);
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{published_by(each.delay, each.keep_local), acco::sgd{.learning_rate = 1},
                               acco::host_storage<double>{}, world, count};
      training.initialize(std::vector<double>(count, 1));
      for (std::size_t step = 1; step < each.first.size(); ++step) {
        (void)training.step([](auto, auto gradients) {
          for (auto& g : gradients) g += 2;
          return 1;
        });
        CAPTURE(step);
        for (std::size_t i = 0; i < count; ++i)
          REQUIRE(training.parameters()[i] == (i < count / 2 ? each.first : each.second)[step]);
      }
      // a new round begins as the first one did
      training.finish();
      std::vector<double> const from(training.parameters().begin(), training.parameters().end());
      for (int step = 0; step < 3; ++step) {
        (void)training.step([](auto, auto gradients) {
          for (auto& g : gradients) g += 2;
          return 1;
        });
      }
      CHECK(training.parameters()[0] - from[0] == each.first[3] - each.first[0]);
      CHECK(training.parameters()[count - 1] - from[count - 1] == each.second[3] - each.second[0]);
      training.finish();
    });
  }
}

TEST_CASE("an exchange cannot start before the round") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    CHECK_THROWS_WITH_AS(
        (acco::optimizer{published_by(3, 0), acco::sgd{.learning_rate = 1}, acco::host_storage<double>{}, world, count}),
        doctest::Contains("lands_at_boundary starts an exchange 3 steps early, and the first one comes after 3"),
        acco::usage_error);
  });
}
