// SPDX-License-Identifier: Apache-2.0
// What DeMo's momentum holds, and what has arrived of it: descent along it, on one rank, in the limits of its code.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "round/demo.hpp"

namespace {

using namespace demo;

/// k = 0, 16, or all, as `now` says in a step.
struct any_k {
  static constexpr char const* name = "any_k";
  static constexpr std::size_t block_size = 256, block_bytes = 1 + block_size * sizeof(float);
  static inline int now = 0;
  static void encode(float const* values, std::byte* bytes) {
    std::fill_n(bytes, block_bytes, std::byte{});
    bytes[0] = static_cast<std::byte>(now);
    if (now == 1) acco::block_dct_top<16>::encode(values, bytes + 1);
    if (now == 2) std::memcpy(bytes + 1, values, block_bytes - 1);
  }
  static void decode(std::byte const* bytes, float* values) {
    std::fill_n(values, block_size, 0.0F);
    if (bytes[0] == std::byte{1}) acco::block_dct_top<16>::decode(bytes + 1, values);
    if (bytes[0] == std::byte{2}) std::memcpy(values, bytes + 1, block_bytes - 1);
  }
};

/// The parameters after each step of descent along what arrives, on one rank, where step s travels by k = ks[s].
std::vector<std::vector<float>> descent(double keep, std::vector<int> const& ks) {
  std::vector<std::vector<float>> found;
  const acco::coded<acco::with_error_feedback<any_k>, acco::full> wire{{{}, static_cast<float>(keep)}, {}};
  acco::optimizer training{acco::synchronous{.commit = wire}, acco::sgd{.learning_rate = 1, .momentum = 0},
                           acco::host_storage<float>{}, acco::solo_backend{}, count};
  training.initialize(std::vector<float>(count, 0.0F));
  for (std::size_t step = 0; step < ks.size(); ++step) {
    any_k::now = ks[step];
    const std::vector<float> g = gradient(0, step);
    std::copy(g.begin(), g.end(), training.gradients().begin());
    training.accumulated(1);
    found.emplace_back(training.parameters().begin(), training.parameters().end());
  }
  training.finish();
  return found;
}

}  // namespace

TEST_CASE("with no coefficients parameters stand still, and the momentum is the decayed sum of all gradients") {
  constexpr double keep = 0.875;
  const std::vector<std::vector<float>> found = descent(keep, {0, 0, 0, 0, 2});
  std::vector<double> sum(count, 0.0);
  for (std::size_t step = 0; step < 5; ++step) {
    const std::vector<float> g = gradient(0, step);
    for (std::size_t i = 0; i < count; ++i) sum[i] = keep * sum[i] + static_cast<double>(g[i]);
    if (step < 4) CHECK(found[step] == std::vector<float>(count, 0.0F));
  }
  double off = 0;  // what a step with all of them brings is what was left
  for (std::size_t i = 0; i < count; ++i) off = std::max(off, std::abs(static_cast<double>(found[4][i]) + sum[i]));
  CHECK(off < 1e-5);
}

TEST_CASE("what arrives, and what is left, is the decayed sum of all gradients") {
  for (const double keep : {1.0, 0.875}) {
    const std::vector<std::vector<float>> found = descent(keep, {1, 1, 1, 1, 1, 2});
    std::vector<double> arrived(count, 0.0), sum(count, 0.0), before(count, 0.0);
    for (std::size_t step = 0; step < found.size(); ++step) {
      const std::vector<float> g = gradient(0, step);
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] = keep * sum[i] + static_cast<double>(g[i]);
        arrived[i] = keep * arrived[i] + (before[i] - static_cast<double>(found[step][i]));
        before[i] = static_cast<double>(found[step][i]);
      }
    }
    double off = 0;
    for (std::size_t i = 0; i < count; ++i) off = std::max(off, std::abs(arrived[i] - sum[i]));
    CHECK(off < 1e-4);
  }
}
