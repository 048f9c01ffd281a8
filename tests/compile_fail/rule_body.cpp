// SPDX-License-Identifier: Apache-2.0
// A rule whose `apply` works with float and not with a SIMD pack: each mistake is one sentence, among few lines.
#include <algorithm>
#include <cmath>

#include <acco/acco.hpp>

struct rule {
  double rate = 1e-2;
  static constexpr std::size_t slot_count = 1;
  struct constants {
    double rate;
    float narrow;
  };
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const {
    return {rate, static_cast<float>(rate)};
  }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 1>& s, constants const& c) {
    using acco::absolute, acco::maximum, acco::sign, acco::square_root;
    s[0] = Real(c.narrow) * s[0] + Real(1) * absolute(g) - Real(2.0F) * sign(g);
    p -= Real(c.rate) * g / maximum(square_root(s[0]), Real(1e-8));
#if defined(STANDARD_SQUARE_ROOT)  // expect: acco: the update rule's `apply` makes a plain number of a Real
    p -= Real(std::sqrt(s[0]));
#endif
#if defined(STANDARD_POWER)  // expect: acco: the update rule's `apply` makes a plain number of a Real
    p -= Real(std::pow(s[0], 0.5));
#endif
#if defined(STANDARD_ABSOLUTE)  // expect: use acco::square_root, maximum, absolute and sign, or declare
    p -= Real(std::abs(g));
#endif
#if defined(STANDARD_FMA)  // expect: acco: the update rule's `apply` makes a plain number of a Real
    p = Real(std::fma(s[0], g, p));
#endif
#if defined(STANDARD_MAXIMUM)  // expect: acco: the update rule's `apply` compares Reals
    p -= std::max(s[0], g);
#endif
#if defined(CAST)  // expect: acco: the update rule's `apply` makes a plain number of a Real
    p -= Real(static_cast<float>(g));
#endif
#if defined(BRANCH)  // expect: acco: the update rule's `apply` compares Reals
    if (g > Real(0)) p = g;
#endif
#if defined(BRANCH_ON_PLAIN_NUMBER)  // expect: acco: the update rule's `apply` compares Reals
    p = 0 < g ? p : g;
#endif
#if defined(EQUALITY)  // expect: acco: the update rule's `apply` compares Reals
    p = g == Real(0) ? p : g;
#endif
#if defined(CONDITION)  // expect: acco: the update rule's `apply` makes a plain number of a Real
    if (g) p = g;
#endif
#if defined(DOUBLE_CONSTANT)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    p = p - c.rate * g;
#endif
#if defined(FLOAT_CONSTANT)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    p = p - g / c.narrow;
#endif
#if defined(INTEGER_CONSTANT)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    p = 1 - g;
#endif
#if defined(COMPOUND_ASSIGNMENT)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    p -= 1;
#endif
#if defined(INITIALISATION)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    const Real momentum = 0.9;
    p = momentum * g;
#endif
#if defined(FUNCTION_ARGUMENT)  // expect: acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)
    p = maximum(g, 1e-8);
#endif
  }
};

void use() { acco::optimizer fine{acco::two_phase{}, rule{}, acco::host_storage<float>{}, acco::solo_backend{}, 8}; }
