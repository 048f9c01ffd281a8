// SPDX-License-Identifier: Apache-2.0
// How many messages must be under way so that a long link is full.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "acco/error.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Stages of messages under way at a time, of one rank: 4; on a link whose round trip takes a millisecond or more,
/// twice what 1 Gbit/s brings in a round trip, and twice what was seen to come in one: it doubles from stage to stage
/// of a round, as long as more comes. It never shrinks. One thread at a time; `stages` any.
class message_window {
 public:
  static constexpr std::size_t least = 4, most = 128;                // two ranks' together: of 256, as labels tell apart
  static constexpr std::size_t most_bytes = std::size_t{64} << 20U;  // 1 Gbit/s for half a second
  static constexpr double shortest = 1e-3;                           // seconds; below it 4 fill any link

  static constexpr std::size_t largest_piece = std::size_t{1} << 30U;
  /// What an option chooses. Throws `usage_error`.
  [[nodiscard]] static std::size_t checked_piece(std::size_t chosen, error_place const& where = {}) {
    if (chosen <= largest_piece) return chosen;
    throw usage_error(where, text("piece_bytes is ", chosen), text("Give at most ", largest_piece, ", or 0: as was measured"));
  }
  /// Bytes of a piece, of a rank's part that travels and is summed as one: as chosen, in units of the smallest; 0: the
  /// usual ones divided by the number of other ranks, but not below 32 KiB: where several ranks send to one, its link
  /// drops what it cannot hold.
  static constexpr std::size_t smallest_piece = std::size_t{8} << 10U;
  [[nodiscard]] static constexpr std::size_t piece_bytes(std::size_t chosen, std::size_t usual, int ranks) noexcept {
    const std::size_t others = std::max(static_cast<std::size_t>(ranks), std::size_t{2}) - 1;
    const std::size_t bytes = chosen != 0 ? chosen : std::min(usual, std::max(usual / others, std::size_t{32} << 10U));
    return std::max(bytes / smallest_piece, std::size_t{1}) * smallest_piece;
  }

  /// Bytes a second at which messages may leave over a round trip of so many seconds: the widest window in 1.67 of them.
  /// A faster burst would be dropped by the queue in front of a long link.
  [[nodiscard]] static constexpr double pace(double round_trip) noexcept {
    return 0.6 * static_cast<double>(most_bytes) / round_trip;
  }

  /// `stage_bytes`: what arrives in a stage. `round_trip`: seconds; 0: unknown.
  message_window(std::size_t stage_bytes, double round_trip) noexcept
      : stage_bytes_(std::max(stage_bytes, std::size_t{1})), round_trip_(round_trip) {
    if (round_trip_ >= shortest) (void)widen(usual_rate * round_trip_ / static_cast<double>(stage_bytes_));
  }

  [[nodiscard]] std::size_t stages() const noexcept { return stages_.load(std::memory_order_relaxed); }
  void as_wide_as(message_window const& other) noexcept { stages_.store(other.stages(), std::memory_order_relaxed); }
  /// Nothing is under way any more; `seconds` after the first stage `more` other ones had come. Whether the window has
  /// grown.
  bool ended(std::size_t more, double seconds) noexcept {
    if (round_trip_ < shortest || more < 3 || !(seconds > 0)) return false;
    return widen(static_cast<double>(more - 1) / seconds * round_trip_);  // the last one may be short
  }

 private:
  static constexpr double usual_rate = 125e6;  // bytes a second
  bool widen(double in_a_round_trip) noexcept {
    const auto bound = std::clamp(most_bytes / stage_bytes_, least, most);
    const auto wanted = static_cast<std::size_t>(std::min(2 * in_a_round_trip + 1, static_cast<double>(bound)));
    if (wanted <= stages()) return false;
    stages_.store(wanted, std::memory_order_relaxed);
    return true;
  }

  std::size_t stage_bytes_;
  double round_trip_;
  std::atomic<std::size_t> stages_ = least;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
