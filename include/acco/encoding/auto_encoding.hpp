// SPDX-License-Identifier: Apache-2.0
// Codes that are chosen while the training runs, for each bucket, from what they lose of its gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "acco/encoding/block_gauss.hpp"
#include "acco/encoding/block_integer.hpp"
#include "acco/encoding/encoding.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// For gradients that are committed: each bucket (`options::bucket_elements`) travels by the one of `Encodings` that a plan has
/// chosen for it. At the first commit, and then at every `every`-th, each rank measures what each encoding would lose of each of
/// its buckets; the sums over all ranks are known to all, and from the next commit on every rank sends by the same new plan: the
/// fewest bytes with
///     sum over buckets and ranks of ||g - C(g)||^2  <=  budget * sum of ||g||^2
/// (L-GreCo, Alimohammadi et al., arXiv 2210.17357; encoding/plan.hpp). Where no choice keeps that, every bucket loses the least.
/// Before the first plan, and where a gradient was not finite, the plan stays what it was, at first `first`; so does the code of
/// a bucket whose gradients were all 0. Where all buckets' were, before the first plan, the next commit is measured.
/// `any_optimizer::encoding_plan` tells it. It stands where an encoding does in a schedule's `commit`, also in
/// `with_error_feedback`; what was kept is not part of what is measured. Host memory. A measurement takes a few nanoseconds a
/// number and encoding, on the queue's side of a commit. Checkpoints do not have the plan: a restored training makes a new one.
template <encoding... Encodings>
struct planned_encoding {
  static_assert(
      !(wrapped<Encodings> || ...),
      "acco: planned_encoding chooses between encodings themselves: put with_error_feedback or without_feedback around it");
  static_assert((std::is_empty_v<Encodings> && ...),
                "acco: an encoding of planned_encoding has data members, which it would not keep");
  static_assert(sizeof...(Encodings) > 0 && sizeof...(Encodings) < 256,
                "acco: planned_encoding chooses between 1 to 255 encodings");
  static_assert(
      !(unscaled<Encodings> || ...),
      "acco: an encoding of planned_encoding tells nothing of a number's size, so what it loses says nothing: leave it out");
  static constexpr char const* name = "planned_encoding";
  static constexpr std::size_t count = sizeof...(Encodings);
  static constexpr std::size_t block_size = std::max({Encodings::block_size...});
  static_assert(((Encodings::block_size == block_size) && ...),
                "acco: the encodings of planned_encoding have blocks of different sizes");
  static constexpr std::size_t block_bytes = std::max({Encodings::block_bytes...});
  static constexpr bool biased = (acco::biased<Encodings> || ...), loose = (acco::loose<Encodings> || ...);
  static constexpr bool weighs_sources = (acco::weighs_sources<Encodings> || ...);
  static constexpr bool no_zero = (acco::without_zero<Encodings> || ...);
  static constexpr bool plans = true;

  double budget = 0.02;   ///< relative squared error, 0 or more: 4 bits of the best levels lose 0.01 of Gaussian numbers, 3 bits
                          ///< 0.035, 2 bits 0.12
  unsigned every = 100;   ///< commits from one plan to the next; 0: `first` stays
  std::size_t first = 0;  ///< which one of `Encodings` every bucket begins with

  /// Calls f(encoding) with the one of that number.
  template <class F>
  static constexpr void visit(std::size_t which, F&& f) {
    std::size_t k = 0;
    ((k++ == which ? f(Encodings{}) : void()), ...);
  }
  [[nodiscard]] static constexpr char const* name_of(std::size_t which) noexcept {
    char const* found = "none";
    visit(which, [&](auto const& e) { found = std::remove_cvref_t<decltype(e)>::name; });
    return found;
  }

  // By itself it is the one that it begins with.
  void encode(float const* values, std::byte* bytes) const {
    visit(first, [&](auto const& e) { e.encode(values, bytes); });
  }
  void decode(std::byte const* bytes, float* values) const {
    visit(first, [&](auto const& e) { e.decode(bytes, values); });
  }
};

/// Of 8, 4 and 3 bits. None needs feedback; `planned_encoding<...>` has codes of your choice.
using auto_encoding = planned_encoding<block_int8<>, block_gauss4, block_gauss3>;
static_assert(encoding<auto_encoding>);

}  // namespace ACCO_SIMD_NAMESPACE
