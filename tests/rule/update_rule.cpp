// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <doctest/doctest.h>

#include <acco/number/real.hpp>
#include <acco/rule/adamw.hpp>
#include <acco/rule/update_rule.hpp>
#include <acco/storage/elementwise.hpp>

#include "support/update_arrays.hpp"

namespace {
struct poorest {  // satisfies the concept with nothing to spare
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double rate;
  };
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const { return {0.5}; }
  template <class Real>
  static void apply(Real& p, Real g, std::array<Real, 0>&, constants const& c) {
    p = p - Real(c.rate) * g;
  }
};
struct branching {  // cannot run on packs
  static constexpr std::size_t slot_count = 1;
  static constexpr bool scalar_only = true;
  struct constants {};
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const { return {}; }
  template <class Real>
  static void apply(Real& p, Real g, std::array<Real, 1>& s, constants const&) {
    if (g > 0) {
      p -= 1;
    } else {
      p += 2;
    }
    s[0] += acco::absolute(g);
  }
};
struct owning {  // constants must be trivially copyable
  static constexpr std::size_t slot_count = 0;
  [[nodiscard]] std::vector<double> prepare(acco::update_step const&, acco::update_group const&) const { return {}; }
  template <class Real>
  static void apply(Real&, Real, std::array<Real, 0>&, std::vector<double> const&) {}
};
}  // namespace

static_assert(acco::update_rule<poorest> && acco::update_rule<branching>);
static_assert(!acco::update_rule<owning> && !acco::has_prepare<owning> && acco::has_slot_count<owning>);
static_assert(!acco::update_rule<int>);

TEST_CASE("a rule without slots, and one that branches") {
  std::vector<float> p(37, 4.0F), g(37, 1.0F), out(37), slot(37, 0.0F);
  for (std::size_t i = 0; i < g.size(); i += 2) g[i] = -3;
  update_now<poorest, acco::update::commit>({0.5}, {0.5}, 2.0, acco::update_table<poorest, float, float>{p.data(), {}, g.data()},
                                            out.data(), 37);
  for (std::size_t i = 0; i < 37; ++i) CHECK(out[i] == (i % 2 == 0 ? 7.0F : 3.0F));
  update_now<branching, acco::update::commit>(
      {}, {}, 1.0, acco::update_table<branching, float, float>{p.data(), {slot.data()}, g.data()}, out.data(), 37);
  for (std::size_t i = 0; i < 37; ++i) {
    CHECK(out[i] == (i % 2 == 0 ? 9.0F : 2.0F));
    CHECK(slot[i] == (i % 2 == 0 ? 3.0F : 1.0F));
  }
}

TEST_CASE("the functions of real.hpp on scalars") {
  CHECK(acco::square_root(9.0F) == 3.0F);
  CHECK(acco::square_root(2.25) == 1.5);
  CHECK(acco::sign(-2.0) == -1.0);
  CHECK(acco::sign(0.0F) == 0.0F);
  CHECK(acco::maximum(2.0, 3.0) == 3.0);
  CHECK(acco::absolute(-2.5F) == 2.5F);
}
