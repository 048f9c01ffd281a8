// SPDX-License-Identifier: Apache-2.0
// What a sender keeps of the gradients that an encoding loses. A policy is two pure functions of one element: what is
// sent, and what is kept once the round has counted. They are evaluated by scalars, packs and GPU threads alike.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "acco/code/encoding.hpp"
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
///  - optionally `static constexpr bool sums_states = true`: what the receivers use is the sum of the states, what has arrived
///    included.
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
/// that is applied is all that was computed, but for what the ranks still keep.
struct error_feedback {
  static constexpr char const* name = "residual";
  template <class Real>
  [[nodiscard]] constexpr Real sent(Real gradient, Real state, Real) const noexcept {
    return gradient + state;
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

/// An encoding whose sender keeps what `Feedback` says: `with_feedback{block_int4{}, error_feedback{}}` as the
/// gradients of a schedule's `commit`. Alone it stands for both directions: parameters travel in the encoding, which
/// needs no feedback there.
/// It rounds to nearest. The state is an array of all trainable elements, in the gradients' type, on every rank, in
/// memory, digests and checkpoints (docs/coarse.md).
template <encoding Encoding, feedback Feedback>
struct with_feedback : Encoding {
  Feedback policy = {};
};
template <class Encoding, class Feedback>
with_feedback(Encoding, Feedback) -> with_feedback<Encoding, Feedback>;
template <encoding Encoding>
using with_error_feedback = with_feedback<Encoding, error_feedback>;

/// For the estimates of a schedule whose commits have this feedback: what it would send of what has come so far. Nothing
/// is kept of that. `with_feedback_ahead{commit.gradients}`; not with `options::in_place`.
template <encoding Encoding, feedback Feedback>
struct with_feedback_ahead : with_feedback<Encoding, Feedback> {
  static constexpr bool ahead = true;
};
template <class Encoding, class Feedback>
with_feedback_ahead(with_feedback<Encoding, Feedback>) -> with_feedback_ahead<Encoding, Feedback>;

template <class Wire>
concept feeds_back =
    encoding<Wire> && requires(Wire const& wire) { requires feedback<std::remove_cvref_t<decltype(wire.policy)>>; };

template <encoding Encoding, feedback Feedback>
[[nodiscard]] constexpr coded<with_feedback<Encoding, Feedback>, Encoding> as_coded(
    with_feedback<Encoding, Feedback> const& both) noexcept {
  return {both, both};
}

template <class Wire>
concept looks_ahead = feeds_back<Wire> && requires { requires Wire::ahead; };
/// Whether it is ahead of what that sends.
template <class Estimate, class Commit>
inline constexpr bool is_ahead_of = false;
template <class Estimate, class Commit, class Feedback>
inline constexpr bool is_ahead_of<with_feedback_ahead<Estimate, Feedback>, with_feedback<Commit, Feedback>> = true;

template <class Wire>
concept sums_states = feeds_back<Wire> && requires { requires decltype(Wire::policy)::sums_states; };

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
