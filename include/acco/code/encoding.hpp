// SPDX-License-Identifier: Apache-2.0
// How a block of numbers travels. An encoding knows one block; cutting arrays into blocks, sums, differences, element
// types and messages are done elsewhere (storage/coding.hpp), so an encoding is a few lines.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Not encoded: numbers travel in their element type, gradients as they are accumulated, parameters as they are used.
struct full {
  static constexpr char const* name = "full";
};

/// Gradients that do not travel: every owner takes its own rank's share as an estimate of all ranks' (SAPipe's option
/// 1, NeurIPS 2022, in the form that overlaps). For estimates only: nothing may be committed from it.
struct own_slice {
  static constexpr char const* name = "own slice";
};

/// The same, and the samples of the other ranks count with the mean of the others' gradients in the last step (SAPipe's
/// option 3, in the form that overlaps). Every owner estimates the mean of all ranks' gradients
///     g~ = w g_own + (1 - w) g_others,    g_others = (sum of all - own sum) / (weight of all - own weight) of the last step,
/// with w its own share of the samples now. Where that share stays what it was, this is the mean of the last step,
/// corrected by own gradients: g~ = g_last + w (g_own - g_own,last), w = 1 / N for equal batches. It is less noisy than
/// an `own_slice`, and all of it but the part w is a step old: docs/schedules.md compares the two. Costs a slot,
/// g_others. Before the first update it is `own_slice`; what was not committed does not count; and where the others had
/// less than a 64th of a step's samples, their mean stays that of an earlier step (0 where there is none): the
/// difference of the sums would be rounding.
struct own_corrected {
  static constexpr char const* name = "own corrected";
};

/// Parameters that do not travel: every rank has all of the state and makes every update itself, as before ZeRO. Its
/// codes go to all other ranks: it sends N - 1 times what it encodes, where owners would get (N - 1) / N of it, and
/// give back parameters. For all of a schedule's rounds, gradients encoded; such a training is neither saved nor
/// restored.
struct updated_by_all {
  static constexpr char const* name = "updated by all";
};

/// An encoding has
///  - `static constexpr std::size_t block_size`: numbers of a block, a divisor of 4096; blocks are encoded one by one;
///  - `static constexpr std::size_t block_bytes`: what a block takes on the wire, always;
///  - `encode(float const* values, std::byte* bytes) const`: one block, with no alignment of `bytes`. Where a value is
///    infinite or not a number, the block must decode to something that is not finite: the round then refuses it;
///  - `decode(std::byte const* bytes, float* values) const`: the same on every rank, bit by bit;
///  - `static constexpr char const* name`;
///  - optionally `static bool says_non_finite(std::byte const* bytes)`: whether such a value was in this block, and
///    `using says = ` the encoding itself: who derives from it may write other bytes. Without these two the values are
///    looked through before they are encoded;
///  - optionally `describe(visit) const`: visit("name", number) of what decides how it decodes and is seen neither in
///    its name nor in the size of its blocks: ranks in which that differs are found when the training begins;
///  - optionally `static constexpr bool biased = true`: what it loses of committed gradients adds up, step by step;
///  - optionally `static constexpr bool loose = true`: in a closed loop it may fall so far behind that momentum
///    diverges;
///  - optionally `static constexpr bool no_zero = true`: a number that is exactly 0 may arrive as another;
///  - optionally `static constexpr bool unscaled = true`: what it decodes to says nothing of sizes;
///  - optionally `static constexpr bool of_tiles = true`: a block is a tile, 64 rows of 64 numbers. As gradients
///    of a layout with matrices it gets those of their tiles (layout/tiles.hpp), otherwise 4096 neighbours.
/// It is trivially copyable. The last block of an array is filled up with zeros. Blocks of fixed size suit
/// quantisation, and choices inside a block (top-k, the largest components of a transform).
template <class Encoding>
concept encoding = std::is_trivially_copyable_v<Encoding> &&
                   requires(Encoding const& e, float const* values, float* decoded, std::byte const* bytes, std::byte* encoded) {
                     { Encoding::block_size } -> std::convertible_to<std::size_t>;
                     { Encoding::block_bytes } -> std::convertible_to<std::size_t>;
                     { Encoding::name } -> std::convertible_to<char const*>;
                     e.encode(values, encoded);
                     e.decode(bytes, decoded);
                   };

/// Its bytes say whether a value was not finite.
template <class Encoding>
concept says_non_finite = encoding<Encoding> && requires(std::byte const* bytes) {
  { Encoding::says_non_finite(bytes) } -> std::same_as<bool>;
  requires std::same_as<typename Encoding::says, Encoding>;
};
/// `says` of an encoding that is another one but for its name.
template <class Same, class Encoding>
using says_as = std::conditional_t<says_non_finite<Encoding>, Same, void>;

/// An encoding whose codes can be added before they are decoded: decode_sum(sources, source, sums) makes the sum of one
/// block's codes, source(k) for k from 0 on, in that order; of one alone what `decode` makes of it. Where one is not
/// finite, neither is the sum.
template <class Encoding>
concept sums_codes = encoding<Encoding> &&
                     requires(Encoding const& e, std::byte const* (*source)(int), float* sums) { e.decode_sum(1, source, sums); };

/// The sum of its codes is not that of what they decode to: a mean is over those who sent a number. decode_sum(sources,
/// source, sums, bringing) stands for so many ranks that bring samples. No feedback whose receivers add states (ef21)
/// can follow it.
template <class Wire>
concept means_senders = requires { requires Wire::of_senders; };

/// An encoding that can round each number up or down at random, so that what a block decodes to is right in the mean:
/// without that a number that is small beside the largest of its block is 0 in every round, and its parameter never
/// moves. It has a third form, `encode(float const* values, std::byte* bytes, std::uint32_t random) const`, where
/// `random` are bits of this block and round. Commits use it: a gradient that is committed counts for ever. Estimates
/// round to nearest, which is closer in any one round, and so do differences of parameters, of which the next round
/// sends what this one has lost.
template <class Encoding>
concept rounds_at_random = encoding<Encoding> && !requires {
  requires Encoding::to_nearest;
} && requires(Encoding const& e, float const* values, std::byte* encoded) { e.encode(values, encoded, std::uint32_t{}); };
/// The same encoding, rounding to nearest in commits too. It is biased: quiet parameters beside a loud one do not
/// train.
template <encoding Encoding>
struct nearest : Encoding {
  using says = says_as<nearest, Encoding>;
  static constexpr bool to_nearest = true;
};
/// What a rank's rounding begins with in a step, counted from 1; never 0. Ranks lie equally far apart: what one rounds
/// up another one rounds down.
[[nodiscard]] constexpr std::uint64_t rounding_seed(std::uint64_t step, int rank, int ranks) noexcept {
  return (step % 0xfffffff0U + 1) << 32U | ((static_cast<std::uint64_t>(rank) << 32U) / static_cast<std::uint64_t>(ranks));
}
/// The bits of the block that begins with element `index`: a random phase (the finalizer of splitmix64) for every 16
/// steps, which moves by an irrational share of a turn from one to the next. A number that stays the same so is rounded
/// up in nearly its share of 16 steps, where independent bits would take many more. Other phases follow, so that no
/// period of the data locks with them.
[[nodiscard]] constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ULL + (seed >> 36U) * 0xd1342543de82ef95ULL;
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27U) * 0x94d049bb133111ebULL;
  return static_cast<std::uint32_t>(x >> 32U) + static_cast<std::uint32_t>(seed >> 32U) * 0x91e10da5U +
         static_cast<std::uint32_t>(seed);
}

/// A code of whole matrices, whose sums over ranks are those of thin ones (power_sgd.hpp). It is no encoding of blocks.
template <class Wire>
concept low_rank = requires { requires Wire::low_rank; };
/// A choice among encodings, for each bucket its own (planned.hpp). It is none itself.
template <class Wire>
concept planned_wire = requires { requires Wire::plans; };
/// Codes that may lose what a feedback keeps.
template <class Wire>
concept lossy = encoding<Wire> || low_rank<Wire> || planned_wire<Wire>;

/// What it loses adds up, unless a feedback keeps it (feedback.hpp): commits of gradients ask for one, or for the word
/// `without_feedback`. Estimates are free, and so are parameters, of which the next round sends what this one has lost.
template <class Wire>
concept biased = requires { requires Wire::biased; };
/// The same encoding, meant as it is: what it loses of committed gradients is lost.
template <lossy Encoding>
struct without_feedback : Encoding {
  using says = says_as<without_feedback, Encoding>;
  static constexpr bool biased = false;
};

/// In a closed loop, as parameters travel and gradients with feedback, what arrives may fall so far behind that a rule
/// with momentum diverges: an encoding that sends few of a block's numbers, or one size for all of them. Commits ask
/// for a rule of bounded steps (rule/update_rule.hpp), or for the word `loosely`; of an estimate nothing lasts.
template <class Wire>
concept loose = requires { requires Wire::loose; };
/// The same encoding, meant whatever the rule: of `sgd` without momentum, say.
template <encoding Encoding>
struct loosely : Encoding {
  using says = says_as<loosely, Encoding>;
  static constexpr bool loose = false;
};

/// A number that is exactly 0 may arrive as another, in a block that holds something. Layouts with
/// `update_group::leave_without_gradient` refuse it: a tensor without a gradient would get one, or be moved.
template <class Wire>
concept without_zero = requires { requires Wire::no_zero; };
/// What arrives says nothing of sizes.
template <class Wire>
concept unscaled = requires { requires Wire::unscaled; };

/// A block is a tile of 64 by 64.
template <class Wire>
concept wants_tiles = encoding<Wire> && requires { requires Wire::of_tiles; };

template <class Wire>
concept full_or_encoding = std::same_as<Wire, full> || encoding<Wire>;
/// Gradients do not travel.
template <class Wire>
concept own_gradients = std::same_as<Wire, own_slice> || std::same_as<Wire, own_corrected>;

/// Gradients in full, which every rank keeps: those at the reference point, for the rounds after. Per unit of the
/// round's weight, so that the sum over ranks of what is kept is the mean.
struct reference_gradients {
  static constexpr char const* name = "reference";
};
/// Gradients as differences to those that the last round of `reference_gradients` has left. What the owners get is
/// their mean, and the sum of the differences. `Wire` is `full`, an encoding, or one with_feedback.
template <class Wire>
struct against_reference : Wire {
  static constexpr bool takes_differences = true;
  using differences = Wire;
};
template <class Wire>
against_reference(Wire) -> against_reference<Wire>;
template <class Wire>
concept takes_differences = requires { requires Wire::takes_differences; };

template <class Wire>
concept gradient_wire = full_or_encoding<Wire> || own_gradients<Wire> || low_rank<Wire> || planned_wire<Wire> ||
                        takes_differences<Wire> || std::same_as<Wire, reference_gradients>;
template <class Wire>
concept parameter_wire = full_or_encoding<Wire> || std::same_as<Wire, updated_by_all>;

/// Bytes of `count` numbers.
template <encoding Encoding>
[[nodiscard]] constexpr std::size_t encoded_size(std::size_t count) noexcept {
  static_assert(4096 % Encoding::block_size == 0, "acco: the size of an encoding's block divides 4096");
  return (count + Encoding::block_size - 1) / Encoding::block_size * Encoding::block_bytes;
}

/// How a round's two messages travel: gradients to the owners of the slices, parameters back. Encoded parameters travel
/// as differences against those in use, which every rank holds alike. What codes lose of gradients that are committed a
/// feedback keeps (feedback.hpp).
template <gradient_wire Gradients = full, parameter_wire Parameters = full>
struct coded {
  static_assert(encoding<Gradients> || !std::same_as<Parameters, updated_by_all>,
                "acco: parameters that are updated_by_all need gradients in a code, which all ranks get: bfloat16_wire, say");
  Gradients gradients = {};
  Parameters parameters = {};
  /// Every so many commits parameters travel in full, as if they were not encoded; 0: never.
  unsigned exact_every = 0;

  using gradient_encoding = Gradients;
  using parameter_encoding = Parameters;
};

template <own_gradients Wire>
[[nodiscard]] constexpr coded<Wire, full> as_coded(Wire) noexcept {
  return {};
}
/// Of matrices, or of a plan, for gradients: parameters travel in full.
template <class Wire>
  requires low_rank<Wire> || planned_wire<Wire>
[[nodiscard]] constexpr coded<Wire, full> as_coded(Wire const& gradients) noexcept {
  return {gradients, {}};
}
/// One encoding stands for both.
template <full_or_encoding Wire>
[[nodiscard]] constexpr coded<Wire, Wire> as_coded(Wire const& both) noexcept {
  return {both, both};
}
template <class Gradients, class Parameters>
[[nodiscard]] constexpr coded<Gradients, Parameters> as_coded(coded<Gradients, Parameters> const& wire) noexcept {
  return wire;
}
template <class Wire>
concept wire = requires(Wire const& w) { as_coded(w); };

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
