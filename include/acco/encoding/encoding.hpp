// SPDX-License-Identifier: Apache-2.0
// How a block of numbers travels. An encoding knows one block; cutting arrays into blocks, sums, differences, element types and
// messages are done elsewhere (storage/coding.hpp), so an encoding is a few lines.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Not encoded: numbers travel in their element type, gradients as they are accumulated, parameters as they are used.
struct full {
  static constexpr char const* name = "full";
};

/// Gradients that do not travel: every owner takes its own rank's share as an estimate of all ranks' (SAPipe's option 1, NeurIPS
/// 2022, in the form that overlaps). For estimates only: nothing may be committed from it.
struct own_slice {
  static constexpr char const* name = "own slice";
};

/// The same, and the samples of the other ranks count with the mean of the others' gradients in the last step (SAPipe's option 3,
/// in the form that overlaps). Every owner estimates the mean of all ranks' gradients
///     g~ = w g_own + (1 - w) g_others,    g_others = (sum of all - own sum) / (weight of all - own weight) of the last step,
/// with w its own share of the samples now. Where that share stays what it was, this is the mean of the last step, corrected by
/// own gradients: g~ = g_last + w (g_own - g_own,last), w = 1 / N for equal batches. It is less noisy than an `own_slice`, and
/// all of it but the part w is a step old: docs/schedules.md compares the two. Costs a slot, g_others. Before the first update it
/// is `own_slice`; what was not committed does not count; and where the others had less than a 64th of a step's samples, their
/// mean stays that of an earlier step (0 where there is none): the difference of the sums would be rounding.
struct own_corrected {
  static constexpr char const* name = "own corrected";
};

/// An encoding has
///  - `static constexpr std::size_t block_size`: numbers of a block, a divisor of 1024; blocks are encoded one by one;
///  - `static constexpr std::size_t block_bytes`: what a block takes on the wire, always;
///  - `encode(float const* values, std::byte* bytes) const`: one block, with no alignment of `bytes`. Where a value is infinite
///    or not a number, the block must decode to something that is not finite: the round then refuses it;
///  - `decode(std::byte const* bytes, float* values) const`: the same on every rank, bit by bit;
///  - `static constexpr char const* name`;
///  - optional, `static constexpr bool biased`: true where it is too coarse for gradients that are committed without feedback,
///  and
///    `loose`: true where it is too coarse for parameters, and for feedback, under rules with momentum, and
///    `unscaled`: true where it tells nothing of sizes, and
///    `no_zero`: true where a 0 may arrive as another number (all below);
///  - optional, `decode_sum`, where codes can be added before they are decoded (`sums_codes`);
///  - optional, `describe(visit) const`: visit("name", number) of what decides how it decodes and is seen neither in its name nor
///    in the size of its blocks, template parameters say. Ranks in which that differs are found when the training begins.
/// It is trivially copyable. The last block of an array is filled up with zeros. Blocks of fixed size suit quantisation, and
/// choices inside a block (top-k, the largest components of a transform).
template <class Encoding>
concept encoding = std::is_trivially_copyable_v<Encoding> &&
                   requires(Encoding const& e, float const* values, float* decoded, std::byte const* bytes, std::byte* encoded) {
                     { Encoding::block_size } -> std::convertible_to<std::size_t>;
                     { Encoding::block_bytes } -> std::convertible_to<std::size_t>;
                     { Encoding::name } -> std::convertible_to<char const*>;
                     e.encode(values, encoded);
                     e.decode(bytes, decoded);
                   };

template <class Wire>
concept full_or_encoding = std::same_as<Wire, full> || encoding<Wire>;
/// Gradients do not travel.
template <class Wire>
concept own_gradients = std::same_as<Wire, own_slice> || std::same_as<Wire, own_corrected>;
/// Gradients of matrices travel as products of thin ones (power_sgd.hpp): declared by `static constexpr bool low_rank = true`.
template <class Wire>
concept low_rank_wire = requires { requires Wire::low_rank; };
template <class Wire>
concept gradient_wire = full_or_encoding<Wire> || own_gradients<Wire> || low_rank_wire<Wire>;

/// An encoding with something said of it, below.
template <class Wire>
concept wrapped = requires { typename Wire::code_type; };

/// What was lost is kept in blocks of 8-bit integers with a scale each (`block_int8` with the encoding's own blocks): a byte a
/// number, as LoCo does (Xie et al., arXiv 2407.04480). What a block cannot say of it is lost: at most a 252nd of its largest.
struct int8_blocks {
  static constexpr char const* name = "int8 blocks";
};
/// In what the sender may keep what was lost: the gradients' type (`full`), `float`, `bfloat16`, `int8_blocks`.
template <class Store>
concept residual_store =
    std::same_as<Store, full> || std::same_as<Store, float> || std::same_as<Store, bfloat16> || std::same_as<Store, int8_blocks>;

/// The sender keeps what this encoding loses of the gradients that it commits, and adds it to what it sends next:
///     p = keep e + g,    q = C(p) travels,    e <- p - q.
/// keep = 1 is error feedback (Karimireddy et al., arXiv 1901.09847, Algorithm 2): nothing is lost for good, only late. keep < 1
/// is the decoupled momentum of DeMo (Peng et al., arXiv 2411.19870, Algorithm 1): what does not travel is the sender's own
/// momentum, and fades. For a schedule's `commit`; local updates exchange changes in this way of themselves
/// (outer/exchange_settings.hpp). e takes the room of all gradients on every rank (`memory_table::encoded`), over two levels of a
/// group's part (round/group_sums.hpp). It begins at 0, and does so again after `set_parameters`, and after a step that is
/// skipped, of which it would hold a part. Checkpoints have it (`options::residuals`).
///
/// `Store` is what e is kept in: the gradients' type (over two levels that of their sums), or `float`, `bfloat16` or
/// `int8_blocks`. What a narrow one rounds is lost for good, in half cut off at its largest number.
template <encoding Encoding, residual_store Store = full>
struct with_error_feedback : Encoding {
  static_assert(!wrapped<Encoding>, "acco: with_error_feedback and without_feedback are given an encoding itself");
  static_assert(!std::same_as<Store, int8_blocks> || (Encoding::block_size >= 128 && Encoding::block_size <= 1024),
                "acco: what an encoding loses is kept in int8_blocks as large as its own: that asks for blocks of 128, 256, 512 "
                "or 1024 numbers; keep it in acco::bfloat16");
  static constexpr bool feeds_back = true;
  using code_type = Encoding;
  using store_type = Store;
  float keep = 1;

  constexpr with_error_feedback() = default;
  constexpr with_error_feedback(Encoding const& code, float keeps = 1) noexcept  // NOLINT(google-explicit-constructor)
      : Encoding(code), keep(keeps) {}
};
template <class Wire>
concept feeds_back = requires { requires Wire::feeds_back; };

/// Every rank keeps an estimate h_i of its part of the mean gradient, and sends, encoded, what that lacks. With g_i the sum of
/// the gradients of its samples and n the samples of all ranks in the step,
///     q_i = C(g_i / n - h_i) travels,    h_i <- h_i + q_i,    and the step is taken with H = the sum of all h_i
/// (EF21, Richtarik et al., arXiv 2106.05203, Algorithm 2, there with equal weights, and h_i n times as large). Where gradients
/// settle what is sent becomes small, so also the coarsest code arrives at them, though every rank's own differ. Their noise is
/// sent twice: use large batches. A rank without samples sends what its estimate must lose.
///
/// h_i takes the room of all gradients on every rank, in the type of their sums, H that of this rank's slice
/// (`memory_table::encoded`): both add the same codes up, so no narrower type is offered. A step that is left out changes
/// neither. They begin at 0, again after `set_parameters`; checkpoints have them, as what is lost (`options::residuals`), and
/// without them all ranks begin at 0. For a schedule's `commit`, over one level.
template <encoding Encoding>
struct with_ef21 : Encoding {
  static_assert(!wrapped<Encoding>, "acco: with_ef21 is given an encoding itself");
  static_assert(
      !requires { requires Encoding::plans; },
      "acco: a plan of codes is made from gradients, and with_ef21 sends what estimates of them lack: give it one "
      "encoding, or acco::one_of");
  static constexpr bool feeds_back = true, tracks = true;
  using code_type = Encoding;

  constexpr with_ef21() = default;
  constexpr with_ef21(Encoding const& code) noexcept : Encoding(code) {}  // NOLINT(google-explicit-constructor)
};
template <class Wire>
concept tracks = requires { requires Wire::tracks; };
/// Of an estimate, where the commit has `with_error_feedback`: what travels is the code of the first part's gradients with what
/// the commit would add to them, which stays as it is,
///     C(keep e + g_a) travels,    e stays.
/// With DeMo's momentum the estimate is then of the momentum, as the commit is, and not of gradients only.
template <encoding Encoding>
struct with_feedback_ahead : Encoding {
  static_assert(!wrapped<Encoding>, "acco: with_feedback_ahead is given an encoding itself");
  static constexpr bool feeds_ahead = true;
  using code_type = Encoding;

  constexpr with_feedback_ahead() = default;
  constexpr with_feedback_ahead(Encoding const& code) noexcept : Encoding(code) {}  // NOLINT(google-explicit-constructor)
};
/// What is kept of what was lost is numbers of the gradients' type.
template <class Wire>
concept feeds_back_numbers = feeds_back<Wire> && requires { requires std::is_same_v<typename Wire::store_type, full>; };
template <class Wire>
concept feeds_ahead = requires { requires Wire::feeds_ahead; };

/// Says that gradients are to be committed from a `biased` encoding as it is: what it loses is lost.
template <encoding Encoding>
struct without_feedback : Encoding {
  static_assert(!wrapped<Encoding>, "acco: with_error_feedback and without_feedback are given an encoding itself");
  static constexpr bool biased = false;
  using code_type = Encoding;
};
/// An encoding that declares `static constexpr bool biased = true`: what it loses of gradients adds up, step by step, unless it
/// is fed back.
template <class Wire>
concept biased = requires { requires Wire::biased; };

/// An encoding that declares `static constexpr bool loose = true`: in a closed loop, as parameters travel and gradients with
/// feedback, what arrives may fall so far behind that a rule with momentum diverges (tests/round/feedback.cpp). A code that
/// brings each number nearer, and the largest ones nearly there, is not. Rules of bounded steps, such as AdamW, are not harmed.
template <class Wire>
concept loose = requires { requires Wire::loose; };
/// Says that a `loose` encoding is meant, whatever the rule: of `sgd` without momentum, say.
template <class Encoding>
  requires(encoding<Encoding> || low_rank_wire<Encoding>)
struct loosely : Encoding {
  static constexpr bool loose = false;
  static constexpr bool meant_loosely = true;
  using code_type = Encoding;
};

template <class Wire>
concept meant_loosely = requires { requires Wire::meant_loosely; };

/// An encoding that is chosen anew for each bucket while the training runs (auto_encoding.hpp).
template <class Wire>
concept plans = requires { requires Wire::plans; };

/// An encoding that declares `static constexpr bool unscaled = true`: what arrives says which way a number points, and nothing of
/// its size. For gradients only, and without feedback: a difference of parameters would arrive as a step of 1, and what is lost
/// would grow. A `one_of` declares nothing of this kind, for its choice is not known: choose no such encoding for parameters.
template <class Wire>
concept unscaled = requires { requires Wire::unscaled; };

/// An encoding that declares `static constexpr bool no_zero = true`: a number that is exactly 0 may arrive as another one, in a
/// block that holds something. Gradients of a layout with `update_group::leave_without_gradient` do not travel by it.
template <class Wire>
concept without_zero = requires { requires Wire::no_zero; };

/// An encoding that adds codes before it decodes them, which a transform has to do once then, not once a rank:
/// `decode_sum(sources, source, weights, sums) const` gives the sum of one block of `sources` ranks, whose bytes source(k) points
/// to, in their order. `weights` has what each source weighs, samples say, or is null where all weigh alike. The same on every
/// rank and device, bit by bit, and of one source what `decode` gives.
template <class Encoding>
concept sums_codes = requires(Encoding const& e, std::byte const* (*source)(int), double const* weights, float* sums) {
  e.decode_sum(1, source, weights, sums);
};
/// Such an encoding that declares `static constexpr bool weighs_sources = true`: its sum depends on the weights, which a round
/// then gathers from all ranks.
template <class Wire>
concept weighs_sources = requires { requires Wire::weighs_sources; };
/// Codes that are to be added with these weights: for `decode_sum` of a storage. What `weights` points to is read when it
/// decodes.
template <encoding Encoding>
struct weighed : Encoding {
  double const* weights = nullptr;

  constexpr weighed(Encoding const& code, double const* of_sources) noexcept : Encoding(code), weights(of_sources) {}
};
template <class Encoding>
struct without_weights {
  using type = Encoding;
};
template <class Encoding>
struct without_weights<weighed<Encoding>> {
  using type = Encoding;
};
/// The encoding of which codes are added, without the weights.
template <encoding Encoding>
using unweighed = typename without_weights<Encoding>::type;
/// Null where they weigh alike.
template <encoding Encoding>
[[nodiscard]] constexpr double const* weights_of([[maybe_unused]] Encoding const& e) noexcept {
  if constexpr (!std::is_same_v<Encoding, unweighed<Encoding>>) {
    return e.weights;
  } else {
    return nullptr;
  }
}

/// An encoding that stands for one of several: `visit(f)` calls f with that one (one_of.hpp).
template <class Wire>
concept chooses = encoding<Wire> && requires(Wire const& e) { e.visit([](auto const&) {}); };
/// Calls f with the encoding by which numbers travel: without what is said of it, and the one of several that was chosen.
template <encoding Encoding, class F>
void with_chosen(Encoding const& e, F&& f) {
  if constexpr (wrapped<Encoding>) {
    with_chosen(static_cast<typename Encoding::code_type const&>(e), f);
  } else if constexpr (chooses<Encoding>) {
    e.visit(f);
  } else {
    f(e);
  }
}

/// Bytes of `count` numbers.
template <encoding Encoding>
[[nodiscard]] constexpr std::size_t encoded_size(std::size_t count) noexcept {
  static_assert(1024 % Encoding::block_size == 0, "acco: the size of an encoding's block divides 1024");
  return (count + Encoding::block_size - 1) / Encoding::block_size * Encoding::block_bytes;
}

/// How a round's two messages travel: gradients to the owners of the slices, parameters back. Encoded parameters travel as
/// differences against those in use, which every rank holds alike.
template <gradient_wire Gradients = full, full_or_encoding Parameters = full>
struct coded {
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
template <low_rank_wire Wire>
[[nodiscard]] constexpr coded<Wire, full> as_coded(Wire const& gradients) noexcept {
  return {gradients, {}};
}
/// One encoding stands for both.
template <full_or_encoding Wire>
[[nodiscard]] constexpr coded<Wire, Wire> as_coded(Wire const& both) noexcept {
  return {both, both};
}
/// What is said of gradients only is left out of the parameters'.
template <encoding Encoding, class Store>
[[nodiscard]] constexpr coded<with_error_feedback<Encoding, Store>, Encoding> as_coded(
    with_error_feedback<Encoding, Store> const& both) noexcept {
  return {both, both};
}
template <encoding Encoding>
[[nodiscard]] constexpr coded<with_ef21<Encoding>, Encoding> as_coded(with_ef21<Encoding> const& both) noexcept {
  return {both, both};
}
template <encoding Encoding>
[[nodiscard]] constexpr coded<with_feedback_ahead<Encoding>, Encoding> as_coded(
    with_feedback_ahead<Encoding> const& both) noexcept {
  return {both, both};
}
template <encoding Encoding>
[[nodiscard]] constexpr coded<without_feedback<Encoding>, Encoding> as_coded(without_feedback<Encoding> const& both) noexcept {
  return {both, both};
}
template <class Gradients, class Parameters>
[[nodiscard]] constexpr coded<Gradients, Parameters> as_coded(coded<Gradients, Parameters> const& wire) noexcept {
  return wire;
}
template <class Wire>
concept wire = requires(Wire const& w) { as_coded(w); };

}  // namespace ACCO_NAMESPACE
