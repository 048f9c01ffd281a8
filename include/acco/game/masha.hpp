// SPDX-License-Identifier: Apache-2.0
// MASHA1 and MASHA2 (Beznosikov, Richtarik, Diskin, Ryabinin, Gasnikov, arXiv 2110.03313): settings, and the coin that all ranks
// throw alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/encoding/encoding.hpp"
#include "acco/encoding/stochastic_integer.hpp"
#include "acco/error.hpp"
#include "acco/number/demand.hpp"
#include "acco/number/digest.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// How a message of such a method may travel: in full, by an encoding, by one with noise.
template <class Code>
concept message_code = full_or_encoding<Code> || stochastic_encoding<Code>;

/// What is wrong with a code in this place, in one sentence.
template <message_code Up, message_code Down, bool FeedsBack>
consteval bool check_messages() {
  static_assert(!plans<Up> && !plans<Down>, "acco: planned_encoding is for the commits of a schedule: give one of its encodings");
  static_assert(!feeds_back<Up>, "acco: masha2 has error feedback, and masha1 has none: give `up` the encoding alone");
  static_assert(FeedsBack || !biased<Up>,
                "acco: masha1 is for codes without bias, and what this one loses adds up: use masha2, which feeds it back");
  static_assert(!unscaled<Up> && !unscaled<Down>,
                "acco: this encoding tells nothing of sizes, and a game's messages are differences that must vanish: take "
                "block_sign under masha2, which has a scale");
  static_assert(!loose<Down>,
                "acco: points in this encoding fall behind, and a game turns around them: give `down` block_gauss2 or finer, or "
                "say acco::loosely<Encoding>");
  static_assert(!feeds_back<Down>, "acco: `down` carries differences to what all ranks hold: give it the encoding alone");
  return true;
}

/// What both methods share, checked.
inline void check_extragradient(char const* step_name, char const* tau_name, char const* deadline_name, double step, double tau,
                                double deadline) {
  demand_positive(step_name, step);
  demand_positive(deadline_name, deadline);
  if (!(is_finite(tau) && tau > 0 && tau < 1)) {
    throw usage_error({}, text(tau_name, " is ", tau),
                      text("Give a share above 0 and below 1: of all steps, 1 - tau move the reference point"));
  }
}

/// Whether the coin of this step falls, so that the reference point moves: with probability 1 - tau, a function of its arguments.
[[nodiscard]] constexpr bool reference_moves(std::uint64_t seed, std::uint64_t step, double tau) noexcept {
  const std::uint64_t drawn = mix(mix(seed + digest_step) + (step + 1) * digest_step);
  return static_cast<double>(drawn >> 11U) * 0x1p-53 < 1 - tau;
}

/// MASHA1: for codes without bias, as those of encoding/stochastic_integer.hpp. `compressed_extragradient` has the equations.
/// Codes that round to the nearest (`block_int8`, `block_int4`, `block_gauss4`, `block_gauss3`) are allowed, too, though the
/// method's theory does not know them: what they lose of a difference is small against it, and vanishes with it.
template <message_code Up = full, message_code Down = full>
struct masha1 {
  double step = 0;         ///< gamma; with L the Lipschitz constant of F and exact messages, less than sqrt(1 - tau) / L
  double tau = 0.75;       ///< 1 - tau of all steps move the reference point and exchange F there in full
  Up up = {};              ///< how a rank's operator travels to the owners: its difference to the one at the reference point
  Down down = {};          ///< how points travel back: their difference to the one that all ranks hold
  std::uint64_t seed = 1;  ///< of the coin, and of the noise of codes
  double deadline = 600;   ///< seconds that any rank waits for another

  static constexpr char const* name = "masha1";
  static constexpr bool feeds_back = false;
  static constexpr bool codes_fit = check_messages<Up, Down, feeds_back>();
  void check() const { check_extragradient("masha1::step", "masha1::tau", "masha1::deadline", step, tau, deadline); }
};

/// MASHA2: for any code, with error feedback of what it loses, which a rank keeps in an array of the size of all parameters. It
/// knows no bounds (h = 0).
template <message_code Up = full, message_code Down = full>
struct masha2 {
  double step = 0;  ///< as of `masha1`, all of them
  double tau = 0.75;
  Up up = {};
  Down down = {};
  std::uint64_t seed = 1;
  double deadline = 600;

  static constexpr char const* name = "masha2";
  static constexpr bool feeds_back = true;
  static constexpr bool codes_fit = check_messages<Up, Down, feeds_back>();
  void check() const { check_extragradient("masha2::step", "masha2::tau", "masha2::deadline", step, tau, deadline); }
};

}  // namespace ACCO_SIMD_NAMESPACE
