// SPDX-License-Identifier: Apache-2.0
// What senders keep of coded gradients, on a device: a policy's two functions, block by block.
#pragma once

#include <cstddef>

#include "acco/code/feedback.hpp"
#include "acco/cuda/coding.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

template <class Encoding, class Feedback, class Store>
struct device_encoding<with_feedback<Encoding, Feedback, Store>> : device_encoding<Encoding> {};
template <class Encoding, class Feedback, class Store>
struct device_encoding<with_feedback_ahead<Encoding, Feedback, Store>> : device_encoding<Encoding> {};

/// What a policy sends of gradients and their state.
template <class Encoding, class T, class State>
struct feedback_to_encode {
  using real = elementwise::wider<T, State>;
  array_source<T> gradients;
  array_source<State> state;
  decltype(Encoding::policy) policy;
  real rate;

  /// sent[k] and, where it is wanted, before[k]: the state.
  __device__ void take(block_at const& at, unsigned lane, real* sent, real* before) const {
    gradients.template take<Encoding>(at, lane, [&](std::size_t k, T g) { sent[k] = static_cast<real>(g); });
    state.template take<Encoding>(at, lane, [&](std::size_t k, State s) {
      before[k] = static_cast<real>(s);
      sent[k] = policy.sent(sent[k], before[k], rate);
    });
  }
  __device__ block_values<Encoding> operator()(block_at const& at, unsigned lane) const {
    block_values<Encoding> x{};
    real sent[4 * x.stretches] = {}, before[4 * x.stretches];
    take(at, lane, sent, before);
#pragma unroll
    for (std::size_t k = 0; k < 4 * x.stretches; ++k) x.value[k] = static_cast<float>(sent[k]);
    return x;
  }
};

/// Where *wanted: the state becomes what the policy keeps, in slices of `count` numbers.
template <class Encoding, class T, class State>
struct keep_feedback_body {
  static constexpr int resident = 1;
  static constexpr std::size_t threads = block_values<Encoding>::threads;
  bool const* wanted;
  feedback_to_encode<Encoding, T, State> source;
  blocks_at<Encoding> where;
  std::byte const* codes;
  State* state;

  __device__ void operator()(std::size_t block, unsigned lane) const {
    using real = typename feedback_to_encode<Encoding, T, State>::real;
    if (!*wanted) return;
    const block_at here = where(block);
    block_values<Encoding> decoded{};
    device_encoding<Encoding>::decode(codes + block * Encoding::block_bytes, lane, decoded);
    real sent[4 * decoded.stretches] = {}, before[4 * decoded.stretches];
    source.take(here, lane, sent, before);
    write_block<Encoding, false>(state, here, lane, [&](std::size_t k, State) {
      return static_cast<State>(source.policy.kept(sent[k], static_cast<real>(decoded.value[k]), before[k]));
    });
  }
};

/// As coding::encode_with_feedback and keep_feedback, of slices of `count` numbers.
template <class Encoding, class T, class State>
void launch_encode_with_feedback(on where, Encoding const& e, T const* from, State const* state, std::size_t index,
                                 std::size_t slices, std::size_t count, std::byte* to, coding::refused const& bad, double rate) {
  using source = feedback_to_encode<Encoding, T, State>;
  const blocks_at<Encoding> places(e, count);
  const std::size_t all = slices * count;
  launch_blocks(where, slices * places.blocks,
                encode_body<Encoding, source>{
                    {{from, from + all}, {state, state + all}, e.policy, static_cast<typename source::real>(rate)},
                    index,
                    places,
                    to,
                    bad});
}
template <class Encoding, class T, class State>
void launch_keep_feedback(on where, bool const* wanted, Encoding const& e, T const* from, State* state, std::size_t slices,
                          std::size_t count, std::byte const* sent, double rate) {
  using source = feedback_to_encode<Encoding, T, State>;
  const blocks_at<Encoding> places(e, count);
  const std::size_t all = slices * count;
  launch_blocks(where, slices * places.blocks,
                keep_feedback_body<Encoding, T, State>{
                    wanted,
                    {{from, from + all}, {state, state + all}, e.policy, static_cast<typename source::real>(rate)},
                    places,
                    sent,
                    state});
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
