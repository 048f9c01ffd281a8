// SPDX-License-Identifier: Apache-2.0
// What codes do again and again: in a closed loop, and beside a loud number.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <acco/code/block_gauss.hpp>
#include <acco/code/block_integer.hpp>
#include <acco/code/block_sign.hpp>
#include <acco/code/block_stat2.hpp>
#include <acco/code/block_ternary.hpp>
#include <acco/code/rotated.hpp>

#include "code/gaussian.hpp"

namespace {

/// The loss a number after 400 steps of a rule with momentum on a bowl, whose parameters travel as differences in `e`.
template <class Encoding>
double loss_after_steps(Encoding const& e) {
  constexpr std::size_t n = 8 * Encoding::block_size;
  const std::vector<float> target = gaussian_numbers(n);
  std::vector<float> master(n, 0.0F), held(n, 0.0F), moment(n, 0.0F), change(n);
  double loss = 0;
  for (int step = 0; step < 400; ++step) {
    loss = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const float gradient = held[i] - target[i];
      loss += static_cast<double>(gradient) * static_cast<double>(gradient) / 2 / static_cast<double>(n);
      moment[i] = 0.9F * moment[i] + gradient;
      master[i] -= 0.05F * moment[i];
      change[i] = master[i] - held[i];
    }
    for (std::size_t i = 0; i < n; i += Encoding::block_size) {
      std::byte bytes[Encoding::block_bytes];
      float arrived[Encoding::block_size];
      e.encode(change.data() + i, bytes);
      e.decode(bytes, arrived);
      for (std::size_t k = 0; k < Encoding::block_size; ++k) held[i + k] += arrived[k];
    }
  }
  return loss;
}
template <class... Encodings>
void follow() {
  static_assert(!(acco::loose<Encodings> || ...));
  (CHECK(loss_after_steps(Encodings{}) < 1e-9), ...);
}
template <class... Encodings>
void fall_behind() {
  static_assert((acco::loose<Encodings> && ...));
  (CHECK_FALSE(loss_after_steps(Encodings{}) < 1), ...);
}

}  // namespace

TEST_CASE("codes that are not loose follow a rule with momentum to where it goes without them; loose ones diverge") {
  follow<acco::block_int4<>, acco::block_gauss4, acco::block_gauss3, acco::block_gauss2, acco::block_stat2,
         acco::rotated<acco::block_gauss2>, acco::rotated<acco::block_stat2>>();
  fall_behind<acco::block_ternary, acco::block_sign, acco::rotated<acco::block_ternary>>();
}

TEST_CASE("beside a loud number quiet ones are 0 in every step of a code that is biased, and move by one that is not") {
  std::vector<float> values(256, 0.01F), decoded(256);
  values[200] = 30;
  std::byte bytes[acco::block_int4<>::block_bytes];
  static_assert(acco::biased<acco::block_gauss4> && !acco::biased<acco::block_int4<>>);
  acco::block_gauss4::encode(values.data(), bytes);
  acco::block_gauss4::decode(bytes, decoded.data());
  CHECK(decoded[7] == 0);
  double sum = 0;
  for (std::uint64_t step = 1; step <= 4000; ++step) {
    acco::block_int4<>::encode(values.data(), bytes, acco::random_bits(acco::rounding_seed(step, 0, 1), 0));
    acco::block_int4<>::decode(bytes, decoded.data());
    sum += static_cast<double>(decoded[7]);
  }
  CHECK(sum / 4000 == doctest::Approx(0.01).epsilon(0.3));
}
