// SPDX-License-Identifier: Apache-2.0
// Codes that are chosen while a training runs, for each bucket of gradients, from what they lose of it.
#pragma once

#include <type_traits>

#include "acco/code/block_gauss.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/number/require.hpp"
#include "acco/type_list.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Gradients of each bucket (`options::bucket_elements`) travel by the one of `Codes` that a plan has chosen for it. In
/// the first round, and in those behind every `every`-th update, each rank measures what every code would lose of what
/// it sends of each of its buckets. From the sums over ranks all make the same plan, behind the decision, and the next
/// round travels by it: the fewest bytes with
///     sum over buckets and ranks of ||x - C(x)||^2  <=  budget * the same sum, were all buckets in the first of Codes
/// (L-GreCo, Alimohammadi et al., arXiv 2210.17357; choice_planner.hpp). Where no plan keeps that, every bucket loses
/// the least. Until there is a plan all travel in the first of `Codes`. A round that is skipped, empty or not finite
/// changes no plan, and a bucket of which nothing is lost, as its gradients are all 0, keeps its code. Where it could
/// not be measured, in the first round say, the next one is.
///
/// The plan is an array of the state, `plan` and a number that these codes have: two bytes an element of a rank's shard.
/// So digests and checkpoints have it, and among other ranks a bucket has the code that most of its elements had; a
/// training with other codes does not take it. `set_parameters` forgets it.
///
/// For gradients, of estimates or commits, also in `with_feedback`; alone, parameters travel in full. Host memory.
template <encoding... Codes>
struct planned {
  static_assert(sizeof...(Codes) > 0 && sizeof...(Codes) < 256, "acco: planned chooses among 1 to 255 codes");
  static_assert(!(feeds_back<Codes> || ...), "acco: planned chooses among codes themselves: put with_feedback around it");
  static_assert((std::is_empty_v<Codes> && ...), "acco: a code of planned has data members, which it would not keep");
  static_assert(!(unscaled<Codes> || ...),
                "acco: a code of planned says nothing of sizes, so what it loses means nothing: leave it out");
  static_assert(!(wants_tiles<Codes> || ...), "acco: a code of planned wants tiles, and buckets are planned: leave it out");
  static constexpr char const* name = "planned";
  static constexpr bool plans = true;
  static constexpr bool biased = (acco::biased<Codes> || ...), loose = (acco::loose<Codes> || ...);
  static constexpr bool no_zero = (without_zero<Codes> || ...);
  using codes = type_list<Codes...>;

  double budget = 1;     ///< times the squares that the first code would lose; 0 or more
  unsigned every = 100;  ///< updates from one plan to the next; 0: the first code stays

  void check() const { require_not_negative("planned::budget", budget); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    (visit(Codes::name, Codes::block_bytes), ...);
    visit("budget", budget);
    visit("every", every);
  }
};

/// From eight bits to two, at the error of four where no other budget is said. In commits they need a feedback:
/// `with_feedback{auto_encoding{.budget = 2}, error_feedback{}}`.
using auto_encoding = planned<block_gauss4, block_int8<>, block_gauss3, block_gauss2>;
static_assert(planned_wire<auto_encoding> && biased<auto_encoding> && !loose<auto_encoding> && gradient_wire<auto_encoding>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
