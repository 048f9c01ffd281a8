// SPDX-License-Identifier: Apache-2.0
// Rules with other numbers of slots than the library's own, under the suite that extending.md promises to people who
// write one: none, and three.
#include <array>
#include <cmath>
#include <cstddef>

#include <acco/rule/update_rule.hpp>

#include "support/reference.hpp"

namespace {

/// Gradient descent with decoupled decay.
struct descent {
  double learning_rate = 0.05, weight_decay = 0;
  [[maybe_unused]] static constexpr char const* name = "descent";
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double rate, keep;
  };
  [[nodiscard]] constants prepare(acco::update_step const& step, acco::update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    return {rate, 1 - rate * group.weight_decay.value_or(weight_decay)};
  }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 0>&, constants const& c) {
    p = Real(c.keep) * p - Real(c.rate) * g;
  }
};
static_assert(acco::update_rule<descent>);

/// AMSGrad (Reddi, Kale, Kumar, "On the Convergence of Adam and Beyond", algorithm 2) without bias correction, with
/// decoupled decay: its third slot is the largest v so far.
struct amsgrad {
  double learning_rate = 0.01, beta1 = 0.9, beta2 = 0.9, epsilon = 1e-2, weight_decay = 0;
  [[maybe_unused]] static constexpr char const* name = "amsgrad";
  static constexpr std::size_t slot_count = 3;
  struct constants {
    double rate, keep, beta1, beta2, epsilon;
  };
  [[nodiscard]] constants prepare(acco::update_step const& step, acco::update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    return {rate, 1 - rate * group.weight_decay.value_or(weight_decay), beta1, beta2, epsilon};
  }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 3>& s, constants const& c) {
    using acco::maximum;
    using acco::square_root;
    s[0] = Real(c.beta1) * s[0] + Real(1 - c.beta1) * g;
    s[1] = Real(c.beta2) * s[1] + Real(1 - c.beta2) * g * g;
    s[2] = maximum(s[2], s[1]);
    p = Real(c.keep) * p - Real(c.rate) * s[0] / (square_root(s[2]) + Real(c.epsilon));
  }
};
static_assert(acco::update_rule<amsgrad>);

}  // namespace

namespace reference {

inline void update(descent const&, double& p, double g, double*, double, hyper h) {
  p -= h.learning_rate * h.weight_decay * p;
  p -= h.learning_rate * g;
}
inline void update(amsgrad const& r, double& p, double g, double* s, double, hyper h) {
  s[0] = r.beta1 * s[0] + (1 - r.beta1) * g;
  s[1] = r.beta2 * s[1] + (1 - r.beta2) * g * g;
  s[2] = std::fmax(s[2], s[1]);
  p -= h.learning_rate * h.weight_decay * p;
  p -= h.learning_rate * s[0] / (std::sqrt(s[2]) + r.epsilon);
}

}  // namespace reference

#include "conformance/rule.hpp"

TEST_CASE("a rule without state") { conformance::rule_suite(descent{}); }
TEST_CASE("a rule with three numbers of state") { conformance::rule_suite(amsgrad{}); }
