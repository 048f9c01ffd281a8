// SPDX-License-Identifier: Apache-2.0
// Codes that are planned over two levels: measured on the sums of the groups, which are what is encoded.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/hierarchical.hpp>
#include <acco/encoding/auto_encoding.hpp>

#include "encoding/gaussian.hpp"
#include "support/counting.hpp"

namespace {

using codes = acco::planned_encoding<acco::block_int8<>, acco::block_gauss4, acco::block_gauss3, acco::block_gauss2>;
using wire = acco::with_error_feedback<codes>;
constexpr int m = 2, g = 2;
constexpr std::size_t count = 8192, bucket_elements = 1024;  // whole blocks on every rank

/// What a group's ranks bring cancels but for the group's sum, of which all but the first number of a block is small.
float of_group(int group, std::size_t i) {
  return static_cast<float>((i % 256 == 0 ? 8 : 0.01) * (1 + group) * (1 + static_cast<double>(i % 7)));
}
float gradient(int place, int group, std::size_t i) {
  static const std::vector<float> noise = gaussian_numbers(count);
  return place == 0 ? noise[i] + of_group(group, i) : -noise[i];
}

}  // namespace

TEST_CASE("planned codes over two levels: chosen by what the sums of the groups lose, and bytes by level") {
  const acco::partition shares(count, m * g, bucket_elements);
  REQUIRE(shares.padded_size() == count);
  // what each code loses of a bucket of all groups, and its squares
  const auto lost_of = [&](std::size_t choice, std::size_t k) {
    double lost = 0, squares = 0;
    codes::visit(choice, [&](auto const& e) {
      for (int group = 0; group < g; ++group) {
        for (std::size_t share = 0; share < m * g; ++share) {
          std::vector<float> sum(shares[k].share);
          for (std::size_t i = 0; i < sum.size(); ++i) {
            const std::size_t at = shares[k].begin + share * sum.size() + i;
            sum[i] = gradient(0, group, at) + gradient(1, group, at);
            squares += static_cast<double>(sum[i]) * static_cast<double>(sum[i]);
          }
          lost += acco::coding::squared_error(e, sum.data(), sum.size());
        }
      }
    });
    return lost / squares;
  };
  acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
    auto backend = acco::hierarchical_world(world, m, 20);
    acco::optimizer training{
        acco::synchronous{.commit = acco::coded<wire, acco::full>{{codes{.budget = 0.03, .every = 1}, 1}, {}}},
        acco::sgd{.learning_rate = 0.125},
        acco::host_storage<float>{},
        backend,
        count,
        acco::options{.bucket_elements = bucket_elements}};
    const std::size_t between_levels = training.memory().messages;
    training.initialize(std::vector<float>(count, 1.0F));
    std::size_t before = 0;
    for (std::size_t step = 0; step < 6; ++step) {
      if (step == 4) {
        std::vector<double> nothing(1);
        training.sum_over_ranks(nothing);  // all have looked at their plans
        before = counting::news();
      }
      for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(backend.place(), backend.group(), i);
      const std::uint64_t between = training.accumulated(1)->bytes_between;
      if (step >= 4) continue;
      const std::vector<acco::planned_bucket> told = training.encoding_plan();
      REQUIRE(told.size() == 8);
      std::size_t bytes = 0;
      for (std::size_t k = 0; k < told.size(); ++k) {
        std::size_t chosen = 0;
        while (std::string(told[k].encoding) != codes::name_of(chosen)) ++chosen;
        CHECK((chosen != 0) == (step != 0));
        if (step != 0) CHECK(told[k].lost == doctest::Approx(lost_of(chosen, k)).epsilon(1e-5));
        bytes += told[k].bytes;
      }
      // the gradients by these codes, the parameters uncoded, and few numbers: counts, squares, four of each bucket and its
      // square
      const std::uint64_t travels = bytes + count * sizeof(float) / m,
                          numbers = (15 + 1 + 8 * (codes::count + 1)) * sizeof(double);
      CHECK(between == travels * (g - 1) / g + numbers * (g - 1));
    }
    const std::size_t after = counting::news();
    training.finish();
    CHECK(after == before);
    CHECK(training.memory().messages == between_levels);
  });
}
