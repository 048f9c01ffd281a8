// SPDX-License-Identifier: Apache-2.0
// Who gives what to whom, and when: the schedules of the collectives over messages. In a step a rank gives to one other
// rank at most and takes from one at most, so the links of all are equally busy, in both directions. Giver and taker
// compute a step alike; in the same step they meet.
#pragma once

#include <algorithm>
#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A rank gives to at most so many others at a time, and takes from at most so many: what it needs for messages does
/// not grow with the number of ranks. With the smallest usual piece, 32 KiB, half a mebibyte is then under way in each
/// direction, as much as one piece between two ranks.
inline constexpr int most_peers = 16;

/// What one rank does in a step. Where `to` or `from` is the rank itself nothing travels.
struct message_step {
  static constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  int to, from;
  std::size_t gives, takes;  ///< which piece; or `nothing`
};

/// Every rank has `pieces` pieces for every rank, itself included, and piece by piece gives them to itself, then to the
/// ranks behind it.
class direct_steps {
 public:
  constexpr direct_steps(int rank, int ranks, std::size_t pieces) noexcept : rank_(rank), ranks_(ranks), pieces_(pieces) {}
  [[nodiscard]] constexpr std::size_t pieces() const noexcept { return pieces_; }
  [[nodiscard]] constexpr std::size_t count() const noexcept { return pieces_ * static_cast<std::size_t>(ranks_); }
  [[nodiscard]] constexpr message_step at(std::size_t step) const noexcept {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const int distance = static_cast<int>(step % ranks);
    return {(rank_ + distance) % ranks_, (rank_ + ranks_ - distance) % ranks_, step / ranks, step / ranks};
  }

 private:
  int rank_, ranks_;
  std::size_t pieces_;
};

/// The same, but every rank takes each piece from rank 0, 1, 2, ... in this order, all of one piece before the next: it
/// can add them as they come, in rank order, and keeps no piece. So that the ranks do not all ask rank 0 first, rank r
/// begins N-1-r steps after the last one, and the whole takes N-1 steps more than it must.
///
/// In step t rank r takes from rank u mod N, where u = r + 1 + t, piece u / N - 1: the sender is rank r's neighbour in
/// step 0 and then goes round, and each time it passes 0 a new piece begins.
class ordered_steps {
 public:
  constexpr ordered_steps(int rank, int ranks, std::size_t pieces) noexcept
      : rank_(static_cast<std::size_t>(rank)), ranks_(static_cast<std::size_t>(ranks)), pieces_(pieces) {}
  [[nodiscard]] constexpr std::size_t pieces() const noexcept { return pieces_; }
  [[nodiscard]] constexpr std::size_t count() const noexcept { return pieces_ == 0 ? 0 : (pieces_ + 1) * ranks_ - 1; }
  [[nodiscard]] constexpr message_step at(std::size_t step) const noexcept {
    const std::size_t to = (rank_ + ranks_ - 1 - step % ranks_) % ranks_, from = (rank_ + 1 + step) % ranks_;
    return {static_cast<int>(to), static_cast<int>(from), piece(to, step), piece(rank_, step)};
  }

 private:
  /// That `rank` takes.
  [[nodiscard]] constexpr std::size_t piece(std::size_t rank, std::size_t step) const noexcept {
    const std::size_t round = (rank + 1 + step) / ranks_;
    return round == 0 || round > pieces_ ? message_step::nothing : round - 1;
  }
  std::size_t rank_, ranks_, pieces_;
};

/// How everybody gets a small block of everybody in few messages: blocks are passed on. Before a hop a rank has the
/// blocks of `reach` ranks, from its own on; it gives them to radix - 1 ranks before it, and takes as many from ranks
/// behind it. A rank sends at most ceil(log2 N) + 1 messages; of all such ways this is the one with the fewest hops.
class relay_hops {
 public:
  struct hop {
    int reach, radix;
    /// Of the k-th message, 1 <= k < radix: how far away the other rank is, and how many blocks travel; 0: none.
    [[nodiscard]] constexpr int distance(int k) const noexcept { return k * reach; }
    [[nodiscard]] constexpr int blocks(int k, int ranks) const noexcept { return std::clamp(ranks - k * reach, 0, reach); }
  };
  explicit constexpr relay_hops(int ranks) noexcept {
    int messages = 1;  // as many as are allowed
    for (long long reached = 1; reached < ranks; reached *= 2) ++messages;
    for (count_ = 0; count_ < most;) {  // as few hops as reach all with so many messages, shared out evenly
      ++count_;
      long long reached = 1;
      for (int k = 0; k < count_; ++k) {
        hops_[k] = {static_cast<int>(std::min<long long>(reached, ranks)),
                    1 + messages / count_ + (k < messages % count_ ? 1 : 0)};
        reached *= hops_[k].radix;
      }
      if (reached >= ranks) break;
    }
  }
  [[nodiscard]] constexpr std::size_t count() const noexcept { return static_cast<std::size_t>(count_); }
  [[nodiscard]] constexpr hop const& operator[](std::size_t k) const noexcept { return hops_[k]; }

 private:
  static constexpr int most = 33;
  hop hops_[most] = {};
  int count_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
