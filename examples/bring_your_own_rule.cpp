// SPDX-License-Identifier: Apache-2.0
// A rule of your own: RMSProp with momentum in 20 lines. It gets sharding, prediction,
// clipping, SIMD and every schedule for nothing.
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>

// [rule]
/// RMSProp (Hinton, lecture 6e): v <- a v + (1 - a) g^2;  b <- momentum b + g / (sqrt(v) + epsilon);  p <- p - lr b.
struct rmsprop {
  double learning_rate = 1e-2;
  double smoothing = 0.99;
  double momentum = 0.0;
  double epsilon = 1e-8;

  static constexpr char const* name = "rmsprop";
  static constexpr std::size_t slot_count = 2;  // v and b

  struct constants {
    double rate, smoothing, momentum, epsilon;
  };
  constants prepare(acco::update_step const& step, acco::update_group const& group) const {
    return {learning_rate * step.learning_rate_scale * group.learning_rate_scale, smoothing, momentum, epsilon};
  }
  template <class Real>  // float, double, or a SIMD pack of them: no branches on values, constants as Real(x)
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    using acco::square_root;
    slots[0] = Real(c.smoothing) * slots[0] + Real(1 - c.smoothing) * gradient * gradient;
    slots[1] = Real(c.momentum) * slots[1] + gradient / (square_root(slots[0]) + Real(c.epsilon));
    parameter -= Real(c.rate) * slots[1];
  }
};
static_assert(acco::update_rule<rmsprop>);
// [rule]

int main() {
  acco::threads_backend::run(3, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{}, rmsprop{.momentum = 0.5}, acco::host_storage<float>{}, world, 100};
    training.initialize(std::vector<float>(100, 1.0F));
    const auto before = training.state_digest();
    while (training.samples() < 1500) {
      for (std::size_t i = 0; i < 100; ++i) training.gradients()[i] += training.parameters()[i] - 0.25F;
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0)
      std::printf("rmsprop on 3 ranks: parameters[0] = %.3f\n", static_cast<double>(training.parameters()[0]));
    if (std::abs(training.parameters()[99] - 0.25F) > 0.05F || training.state_digest() == before)
      throw std::runtime_error("rmsprop did not learn");
  });
}
