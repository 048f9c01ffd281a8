// SPDX-License-Identifier: Apache-2.0
// MASHA1 and MASHA2 (Beznosikov, Richtarik, Diskin, Ryabinin, Gasnikov, arXiv 2110.03313): extragradient for games, min
// over some parameters and max over others, whose coded messages are differences that vanish at a solution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// F is the mean of the ranks' F_i: the gradients, of a player that maximizes with the opposite sign. z are the
/// masters, w is the reference point, at first z. With `sgd` of rate gamma a step is
///
///   z~  = tau z + (1 - tau) w
///   z'  = z~ - gamma F(w)                          what `parameters()` show
///   g   = F(w) + mean over ranks of Q(F_i(z') - F_i(w))
///   z  <- z~ - gamma g
///   with probability 1 - tau: w <- z, and F_i(w) travels in full
///
/// Q is unbiased in MASHA1: `full`, or a code that rounds at random (block_int8, block_int4, scaled_random). In MASHA2
/// it is any code with_feedback. Another rule makes both updates from z~, as it makes them from theta elsewhere: one
/// that cuts off at bounds stays within them.
///
/// A round is one evaluation of F_i: at w, where it has just moved, or at z'. The computation waits for it. A point z'
/// that follows a step comes with that step's parameters, so no message is sent for it. The reference point moves as a
/// coin falls: a function of the seed and the round's index, so all ranks throw it alike, and a training that is
/// resumed goes on with it. Of all steps the part 1 - tau is followed by a round at w.
template <gradient_wire Gradients = full, full_or_encoding Parameters = full>
struct masha {
  Gradients gradients = {};    ///< how differences travel to the owners
  Parameters parameters = {};  ///< how points come back; a new w comes in full
  double tau = 0.75;           ///< from 0 to below 1; at 0 every step is plain extragradient. Each round looks back
                               ///< over 1 / tau others: 0 is cheap, a millionth is not
  std::uint64_t seed = 1;      ///< of the coin
  fixed_pace pace = {};        ///< the same for both points: F_i is one function

  static constexpr std::size_t period = 3;
  static constexpr char const* name = "masha";
  /// Its table: at the reference point; a step; a step to the next reference point.
  [[nodiscard]] constexpr round_plan plan(std::size_t line) const noexcept {
    switch (line % period) {
      case 0: return {.parameters = update::predict, .meanwhile = computation::waits, .wire = 0};
      case 1: return {.parameters = update::commit_and_show, .meanwhile = computation::waits, .wire = 1};
      default: return {.parameters = update::commit, .meanwhile = computation::waits, .wire = 1, .exact = true};
    }
  }
  [[nodiscard]] constexpr std::size_t drawn(std::size_t round) const noexcept {
    return at_reference(round) ? 0 : at_reference(round + 1) ? 2 : 1;
  }
  /// Round 0 is at the reference point; behind one that is none follows, behind others where the coin falls. So in a
  /// run of rounds for which it falls every second one is.
  [[nodiscard]] constexpr bool at_reference(std::size_t round) const noexcept {
    if (tau == 0) return round % 2 == 0;
    std::size_t run = 0;
    while (run < round && falls(round - run)) ++run;
    return run == round ? run % 2 == 0 : run % 2 == 1;
  }
  [[nodiscard]] constexpr bool falls(std::size_t round) const noexcept {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL + round;
    for (int k = 0; k < 2; ++k) {  // the finalizer of splitmix64
      x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9ULL;
      x = (x ^ x >> 27U) * 0x94d049bb133111ebULL;
      x ^= x >> 31U;
    }
    return static_cast<double>(x >> 11U) * 0x1p-53 < 1 - tau;
  }
  [[nodiscard]] constexpr auto wires() const noexcept {
    return std::tuple{coded<reference_gradients, Parameters>{{}, parameters},
                      coded<against_reference<Gradients>, Parameters>{{gradients}, parameters}};
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("tau", tau);
    visit("seed", seed);
  }
};
static_assert(schedule<masha<>>);

template <encoding Code, full_or_encoding Parameters = full>
using masha2 = masha<with_error_feedback<Code>, Parameters>;

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
