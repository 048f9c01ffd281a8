// SPDX-License-Identifier: Apache-2.0
// What senders keep of coded gradients, on a device: a policy's two functions, block by block.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/code/feedback.hpp"
#include "acco/cuda/coding.cuh"
#include "acco/number/int8_place.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

template <class Encoding, class Feedback, class Store>
struct device_encoding<with_feedback<Encoding, Feedback, Store>> : device_encoding<Encoding> {};
template <class Encoding, class Feedback, class Store>
struct device_encoding<with_feedback_ahead<Encoding, Feedback, Store>> : device_encoding<Encoding> {};

/// States that lie in int8_blocks: of slices that begin at a block's border, and have whole ones.
struct packed_source {
  int8_place begin;

  template <class Encoding, class Into>
  __device__ void take(block_at const& at, unsigned lane, Into&& into) const {
    using values = block_values<Encoding>;
#pragma unroll
    for (std::size_t s = 0; s < values::stretches; ++s) {
      const std::size_t i = values::index(4 * s, lane);
      if (i >= at.left || i >= Encoding::block_size) continue;
      const int8_place there = begin + at.first + i;
      const auto codes = load<4>(static_cast<std::int8_t const*>(there.codes));
      const float scale = int8_blocks::scale_of(there.exponent());
#pragma unroll
      for (std::size_t k = 0; k < 4; ++k) into(4 * s + k, int8_blocks::value_of(codes.value[k], scale));
    }
  }
};
/// Writes the states that a lane holds of a block: state(k) gives the k-th.
template <class Encoding, class State, class Number>
__device__ void write_states(State* to, block_at const& at, unsigned lane, Number&& state) {
  write_block<Encoding, false>(to, at, lane, [&](std::size_t k, State) { return static_cast<State>(state(k)); });
}
/// Sixteen lanes have what shares a scale.
template <class Encoding, class Number>
__device__ void write_states(int8_place array, block_at const& at, unsigned lane, Number&& state) {
  const int8_place to = array + at.first;
  using values = block_values<Encoding>;
  static_assert(stretch_size == 2 * int8_blocks::block_size);
#pragma unroll
  for (std::size_t s = 0; s < values::stretches; ++s) {
    const std::size_t i = values::index(4 * s, lane);
    const bool there = i < at.left && i < Encoding::block_size;
    float x[4];
    std::int32_t most = 0;
#pragma unroll
    for (std::size_t k = 0; k < 4; ++k) {
      x[k] = there ? static_cast<float>(state(4 * s + k)) : 0.0F;
      const std::int32_t bits = std::bit_cast<std::int32_t>(x[k]) & int8_blocks::magnitude_mask;
      most = most < bits ? bits : most;
    }
#pragma unroll
    for (int apart = static_cast<int>(warp_lanes) / 4; apart > 0; apart /= 2) {
      const std::int32_t other = __shfl_xor_sync(whole_warp, most, apart);
      most = most < other ? other : most;
    }
    if (!there) continue;
    const std::uint8_t exponent = int8_blocks::exponent_of(most);
    const float inverse = int8_blocks::inverse_of(exponent);
    lanes<std::int8_t, 4> codes;
#pragma unroll
    for (std::size_t k = 0; k < 4; ++k) codes.value[k] = static_cast<std::int8_t>(int8_blocks::code_of(x[k], inverse));
    store<4>((to + i).codes, codes);
    if (lane % (warp_lanes / 2) == 0) to.exponent(i) = exponent;
  }
}

/// What a policy sends of gradients and their state, which lies from a `Place` on.
template <class Encoding, class T, class Place>
struct feedback_to_encode {
  using number = typename number_at<Place>::type;
  static constexpr bool packed = std::is_same_v<number, int8_blocks>;
  using real = elementwise::wider<T, number>;
  array_source<T> gradients;
  std::conditional_t<packed, packed_source, array_source<number>> state;
  decltype(Encoding::policy) policy;
  real rate;

  /// sent[k] and, where it is wanted, before[k]: the state.
  __device__ void take(block_at const& at, unsigned lane, real* sent, real* before) const {
    gradients.template take<Encoding>(at, lane, [&](std::size_t k, T g) { sent[k] = static_cast<real>(g); });
    state.template take<Encoding>(at, lane, [&](std::size_t k, auto s) {
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
  /// Of `all` gradients.
  static feedback_to_encode from(decltype(Encoding::policy) const& policy, T const* values, Place states, std::size_t all,
                                 double rate) {
    const array_source<T> gradients{values, values + all};
    if constexpr (packed) {
      return {gradients, {states}, policy, static_cast<real>(rate)};
    } else {
      return {gradients, {states, states + all}, policy, static_cast<real>(rate)};
    }
  }
};

/// Where *wanted: the state becomes what the policy keeps, in slices of `count` numbers.
template <class Encoding, class T, class Place>
struct keep_feedback_body {
  static constexpr int resident = 1;
  static constexpr std::size_t threads = block_values<Encoding>::threads;
  bool const* wanted;
  feedback_to_encode<Encoding, T, Place> source;
  blocks_at<Encoding> where;
  std::byte const* codes;
  Place state;

  __device__ void operator()(std::size_t block, unsigned lane) const {
    using real = typename feedback_to_encode<Encoding, T, Place>::real;
    if (!*wanted) return;
    const block_at here = where(block);
    block_values<Encoding> decoded{};
    device_encoding<Encoding>::decode(codes + block * Encoding::block_bytes, lane, decoded);
    real sent[4 * decoded.stretches] = {}, before[4 * decoded.stretches];
    source.take(here, lane, sent, before);
    write_states<Encoding>(state, here, lane, [&](std::size_t k) {
      return source.policy.kept(sent[k], static_cast<real>(decoded.value[k]), before[k]);
    });
  }
};

/// As coding::encode_with_feedback and keep_feedback, of slices of `count` numbers.
template <class Encoding, class T, class Place>
void launch_encode_with_feedback(on where, Encoding const& e, T const* from, Place state, std::size_t index, std::size_t slices,
                                 std::size_t count, std::byte* to, coding::refused const& bad, double rate) {
  using source = feedback_to_encode<Encoding, T, Place>;
  const blocks_at<Encoding> places(e, count);
  launch_blocks(where, slices * places.blocks,
                encode_body<Encoding, source>{source::from(e.policy, from, state, slices * count, rate), index, places, to, bad});
}
template <class Encoding, class T, class Place>
void launch_keep_feedback(on where, bool const* wanted, Encoding const& e, T const* from, Place state, std::size_t slices,
                          std::size_t count, std::byte const* sent, double rate) {
  using source = feedback_to_encode<Encoding, T, Place>;
  const blocks_at<Encoding> places(e, count);
  launch_blocks(where, slices * places.blocks,
                keep_feedback_body<Encoding, T, Place>{wanted, source::from(e.policy, from, state, slices * count, rate), places,
                                                       sent, state});
}

// Packed numbers elsewhere: as launch_clear and launch_digest, one number a thread at a time.

template <class Body>
__global__ void __launch_bounds__(block_threads) for_each_number(std::size_t count, Body body) {
  body([&](auto&& visit) {
    const std::size_t threads = static_cast<std::size_t>(gridDim.x) * block_threads;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * block_threads + threadIdx.x; i < count; i += threads) visit(i);
  });
}
struct clear_codes {
  bool const* wanted;
  int8_place to;
  template <class Numbers>
  __device__ void operator()(Numbers&& numbers) const {
    if (!*wanted) return;
    numbers([&](std::size_t i) { to.codes[i] = 0; });
  }
};
inline void launch_clear(on where, bool const* wanted, int8_place to, std::size_t count) {
  launch<&for_each_number<clear_codes>>(where, where.blocks(seldom(count)), block_threads, count, clear_codes{wanted, to});
}
struct digest_codes {
  int8_place from;
  digest_key key;
  unsigned long long* sum;
  template <class Numbers>
  __device__ void operator()(Numbers&& numbers) const {
    unsigned long long mine = 0;
    numbers([&](std::size_t i) { mine += digest_part(bfloat16(from[i]), key(i)); });
    const unsigned long long together = over_warp<unsigned long long>().Sum(mine);
    if (threadIdx.x % warp_lanes == 0) atomicAdd(sum, together);
  }
};
inline void launch_digest(on where, int8_place from, std::size_t count, digest_key key, unsigned long long* sum) {
  launch<&for_each_number<digest_codes>>(where, where.blocks(seldom(count)), block_threads, count, digest_codes{from, key, sum});
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
