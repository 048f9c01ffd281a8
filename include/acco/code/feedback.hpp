// SPDX-License-Identifier: Apache-2.0
// What a sender keeps of the gradients that an encoding loses. A policy is two pure functions of one element: what is
// sent, and what is kept once the round has counted. They are evaluated by scalars, packs and GPU threads alike.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "acco/bfloat16.hpp"
#include "acco/code/encoding.hpp"
#include "acco/half.hpp"
#include "acco/number/int8_blocks.hpp"
#include "acco/number/pack.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A feedback policy has, as templates over the number, which may be a pack of numbers,
///  - `sent(g, s, rate)`: what the encoding gets of a gradient g and its state s; `rate` is the learning rate's factor;
///  - `kept(x, decoded, s)`: the new state, of what was sent, what the receivers decode of it, and the old state;
///  - `static constexpr char const* name`, as a file may be called;
///  - optionally `check() const`, which throws `usage_error` where a hyperparameter is out of its range;
///  - optionally `static constexpr bool sums_states = true`: what the receivers use is the sum of the states, what has
///    arrived included;
///  - optionally `static constexpr bool keeps_sent = true`: what it keeps does not depend on what the receivers decode.
/// The state begins as 0. It is written only when the round has counted: a round that is skipped leaves it as it was.
/// So does one to which this rank contributes nothing, unless the policy sums states: then it sends a gradient of 0.
template <class Feedback>
concept feedback = std::is_trivially_copyable_v<Feedback> && requires(Feedback const& f, float x, pack<float> p) {
  { f.sent(x, x, x) } -> std::same_as<float>;
  { f.kept(x, x, x) } -> std::same_as<float>;
  { f.sent(p, p, p) } -> std::same_as<pack<float>>;
  { f.kept(p, p, p) } -> std::same_as<pack<float>>;
  { Feedback::name } -> std::convertible_to<char const*>;
};

/// Error feedback (Karimireddy et al., arXiv 1901.09847, Algorithm 2): what was lost is added to what is sent next. All
/// that is applied is all that was computed, but for what the ranks still keep. With a `decay` below 1 old losses fade
/// (SparseLoCo, arXiv 2508.15706, has 0.95): then the part 1 - decay of what is kept is forgotten in each round that
/// counts.
struct error_feedback {
  static constexpr char const* name = "residual";
  double decay = 1;
  void check() const { require_part("error_feedback::decay", decay); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("decay", decay);
  }
  template <class Real>
  [[nodiscard]] constexpr Real sent(Real gradient, Real state, Real) const noexcept {
    return gradient + Real(decay) * state;
  }
  template <class Real>
  [[nodiscard]] constexpr Real kept(Real sent, Real decoded, Real) const noexcept {
    return sent - decoded;
  }
};

/// DeMo's decoupled momentum (Peng, Quesnelle, Kingma, arXiv 2411.19870, Algorithm 1): the state is a momentum of every
/// rank's own; what is sent of it leaves it.
struct decoupled_momentum {
  static constexpr char const* name = "decoupled_momentum";
  double decay = 0.999;
  void check() const { require_share("decoupled_momentum::decay", decay); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("decay", decay);
  }
  template <class Real>
  [[nodiscard]] constexpr Real sent(Real gradient, Real state, Real rate) const noexcept {
    return Real(decay) * state + rate * gradient;
  }
  template <class Real>
  [[nodiscard]] constexpr Real kept(Real sent, Real decoded, Real) const noexcept {
    return sent - decoded;
  }
};

/// The state is a momentum of this rank's gradients, which stays whole, and it is what is sent: with `majority_vote`
/// Signum (Bernstein et al., arXiv 1810.05291, Algorithm 1). Nothing of what a code loses is sent later.
struct local_momentum {
  static constexpr char const* name = "local_momentum";
  static constexpr bool keeps_sent = true;
  double decay = 0.9;
  void check() const { require_share("local_momentum::decay", decay); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("decay", decay);
  }
  template <class Real>
  [[nodiscard]] constexpr Real sent(Real gradient, Real state, Real) const noexcept {
    return Real(decay) * state + Real(1 - decay) * gradient;
  }
  template <class Real>
  [[nodiscard]] constexpr Real kept(Real sent, Real, Real) const noexcept {
    return sent;
  }
};

/// EF21 (Richtarik, Sokolov, Fatkhullin, arXiv 2106.05203, Algorithm 2): the state is what the receivers believe this
/// rank's gradient to be, and its difference to that is sent. The owners keep the sum of all ranks' states.
struct ef21 {
  static constexpr char const* name = "believed_gradient";
  static constexpr bool sums_states = true;
  template <class Real>
  [[nodiscard]] constexpr Real sent(Real gradient, Real state, Real) const noexcept {
    return gradient - state;
  }
  template <class Real>
  [[nodiscard]] constexpr Real kept(Real, Real decoded, Real state) const noexcept {
    return state + decoded;
  }
};

/// In what a state may be kept; `full`: in the gradients' type, of `half` in `float`.
template <class Store>
concept feedback_store =
    std::same_as<Store, full> || std::same_as<Store, float> || std::same_as<Store, bfloat16> || std::same_as<Store, int8_blocks>;
/// No two blocks of the code have numbers that are kept with one scale.
template <class Encoding>
concept fills_int8_blocks =
    !encoding<Encoding> || (Encoding::block_size % int8_blocks::block_size == 0 && !wants_tiles<Encoding>);
template <class Feedback>
concept keeps_sent = requires { requires Feedback::keeps_sent; };

/// An encoding whose sender keeps what `Feedback` says: `with_feedback{block_int4{}, error_feedback{}}` as the
/// gradients of a schedule's `commit`. Alone it stands for both directions: parameters travel in the encoding, which
/// needs no feedback there (in full, where the code is one of matrices).
/// It rounds to nearest. The state is an array of all trainable elements on every rank, in memory, digests and
/// checkpoints (docs/coarse.md): in the gradients' type (of `half` in `float`: what is kept is a sum, and may be larger
/// than any gradient), or in that of `Store`, `float`, `bfloat16` or `int8_blocks`.
/// What a store rounds is lost, in each round that counts. By bfloat16 it is at most 2^-8 of each number; of error
/// feedback behind `block_int4` that is 1/3500 of the largest magnitude of its block. By `int8_blocks`, 65 bytes for 64
/// numbers, it is at most 1/127 of the largest magnitude that is kept of the 64, whatever the size of the number
/// itself: what a sender would keep of a number is lost whole, in every round, where it is below 1/256 of that.
template <lossy Encoding, feedback Feedback, feedback_store Store = full>
struct with_feedback : Encoding {
  using says = says_as<with_feedback, Encoding>;
  static_assert(!unscaled<Encoding> || keeps_sent<Feedback>,
                "acco: the encoding sends signs without sizes, so what it loses is not the difference to what arrives: give "
                "it local_momentum, or say without_feedback<code>");
  static_assert(
      std::same_as<Store, full> || !requires { requires Feedback::sums_states; },
      "acco: a feedback whose receivers sum states (ef21) keeps them in the masters' type: give it no other store");
  static_assert(!std::same_as<Store, int8_blocks> || fills_int8_blocks<Encoding>,
                "acco: int8_blocks keeps 64 numbers with one scale: give it a code whose blocks have a multiple of 64, "
                "and are no tiles");
  using store = Store;
  Feedback policy = {};
};
template <class Encoding, class Feedback>
with_feedback(Encoding, Feedback) -> with_feedback<Encoding, Feedback>;
template <lossy Encoding, feedback_store Store = full>
using with_error_feedback = with_feedback<Encoding, error_feedback, Store>;

/// For the estimates of a schedule whose commits have this feedback: what it would send of what has come so far.
/// Nothing is kept of that. `with_feedback_ahead{commit.gradients}`; not with `options::in_place`.
template <encoding Encoding, feedback Feedback, feedback_store Store = full>
struct with_feedback_ahead : with_feedback<Encoding, Feedback, Store> {
  using says = says_as<with_feedback_ahead, Encoding>;
  static constexpr bool ahead = true;
};
template <class Encoding, class Feedback, class Store>
with_feedback_ahead(with_feedback<Encoding, Feedback, Store>) -> with_feedback_ahead<Encoding, Feedback, Store>;

template <class Wire>
concept feeds_back = lossy<Wire> && requires(Wire const& wire) { requires feedback<std::remove_cvref_t<decltype(wire.policy)>>; };
/// In what `full` keeps a state of such gradients.
template <class Gradient>
using kept_number = std::conditional_t<std::same_as<Gradient, half>, float, Gradient>;
/// The type of the state's numbers, where gradients are of type `Gradient`; without a feedback it is that.
template <class Wire, class Gradient>
struct number_of_state {
  using type = Gradient;
};
template <feeds_back Wire, class Gradient>
struct number_of_state<Wire, Gradient> {
  using type = std::conditional_t<std::same_as<typename Wire::store, full>, kept_number<Gradient>, typename Wire::store>;
};
template <class Wire, class Gradient>
using state_number = typename number_of_state<Wire, Gradient>::type;

template <encoding Encoding, feedback Feedback, class Store>
[[nodiscard]] constexpr coded<with_feedback<Encoding, Feedback, Store>, Encoding> as_coded(
    with_feedback<Encoding, Feedback, Store> const& both) noexcept {
  return {both, both};
}

template <class Wire>
concept looks_ahead = feeds_back<Wire> && requires { requires Wire::ahead; };
/// Whether it is ahead of what that sends.
template <class Estimate, class Commit>
inline constexpr bool is_ahead_of = false;
template <class Estimate, class Commit, class Feedback, class Store>
inline constexpr bool is_ahead_of<with_feedback_ahead<Estimate, Feedback, Store>, with_feedback<Commit, Feedback, Store>> = true;

template <class Wire>
concept sums_states = feeds_back<Wire> && requires { requires decltype(Wire::policy)::sums_states; };

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
