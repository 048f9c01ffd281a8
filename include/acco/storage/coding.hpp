// SPDX-License-Identifier: Apache-2.0
// Arrays in host memory, encoded block by block: what `host_storage` does. A block passes through the
// cache, so memory is read and written once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/refused.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::coding {

/// Encodes `count` numbers, whose first has the index `index`; read(i, n, room) gives a pointer to n floats from the
/// i-th on,
/// in `room` or elsewhere. Rounds at random by `seed`; 0: to nearest.
template <encoding Encoding, class Read>
void encode(Encoding const& e, std::size_t index, std::size_t count, std::byte* to, refused const& bad, Read&& read,
            [[maybe_unused]] std::uint64_t seed = 0) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float room[block];
  for (std::size_t i = 0; i < count; i += block, to += Encoding::block_bytes) {
    const std::size_t n = std::min(block, count - i);
    float const* values = read(i, n, room);
    if (n < block) {
      if (values != room) std::copy_n(values, n, room);
      std::fill(room + n, room + block, 0.0F);
      values = room;
    }
    if (!elementwise::all_finite(values, block)) {
      std::size_t where = 0;
      const std::size_t found = elementwise::count_non_finite(values, n, where);
      if (found != 0) bad.note(found, index + i + where);
    }
    if constexpr (rounds_at_random<Encoding>) {
      if (seed != 0) {
        e.encode(values, to, random_bits(seed, index + i));
        continue;
      }
    }
    e.encode(values, to);
  }
}

/// Encodes an array.
template <encoding Encoding, class T>
void encode_values(Encoding const& e, T const* from, std::size_t index, std::size_t count, std::byte* to, refused const& bad,
                   std::uint64_t seed = 0) {
  const auto read = [from](std::size_t i, std::size_t n, float* room) -> float const* {
    if constexpr (std::is_same_v<T, float>) {
      return from + i;
    } else {
      elementwise::convert(from + i, room, n);
      return room;
    }
  };
  encode(e, index, count, to, bad, read, seed);
}

/// Encodes what a feedback policy sends of gradients and their state.
template <feeds_back Encoding, class T, class State>
void encode_with_feedback(Encoding const& e, T const* from, State const* state, double rate, std::size_t index, std::size_t count,
                          std::byte* to, refused const& bad) {
  using numbers = pack<elementwise::wider<T, State>>;
  const numbers factor(rate);
  encode(e, index, count, to, bad, [=, &e](std::size_t i, std::size_t n, float* room) {
    elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
      elementwise::store(e.policy.sent(elementwise::load<numbers>(from + i + k, lanes),
                                       elementwise::load<numbers>(state + i + k, lanes), factor),
                         room + k, lanes);
    });
    return static_cast<float const*>(room);
  });
}
/// state = what the policy keeps of that: `sent` is the code.
template <feeds_back Encoding, class T, class State>
void keep_feedback(Encoding const& e, T const* from, State* state, double rate, std::size_t count, std::byte const* sent) {
  using numbers = pack<elementwise::wider<T, State>>;
  const numbers factor(rate);
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float decoded[block];
  for (std::size_t i = 0; i < count; i += block, sent += Encoding::block_bytes) {
    e.decode(sent, decoded);
    elementwise::for_packs<numbers::lanes>(std::min(block, count - i), [&](std::size_t k, auto lanes) {
      const auto before = elementwise::load<numbers>(state + i + k, lanes);
      const auto x = e.policy.sent(elementwise::load<numbers>(from + i + k, lanes), before, factor);
      elementwise::store(e.policy.kept(x, elementwise::load<numbers>(decoded + k, lanes), before), state + i + k, lanes);
    });
  }
}

/// Encodes values[i] - reference[index + i].
template <encoding Encoding, class T>
void encode_difference(Encoding const& e, T const* values, trainable_view<T> reference, std::size_t index, std::size_t count,
                       std::byte* to, refused const& bad) {
  using numbers = pack<elementwise::wider<T, T>>;
  encode(e, index, count, to, bad, [=](std::size_t i, std::size_t n, float* room) {
    if (reference.gaps) std::fill_n(room, n, 0.0F);
    reference.for_stretches(index + i, n, [&](T const* base, std::size_t at, std::size_t length) {
      elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto lanes) {
        elementwise::store(elementwise::load<numbers>(values + i + at + k, lanes) - elementwise::load<numbers>(base + k, lanes),
                           room + at + k, lanes);
      });
    });
    return static_cast<float const*>(room);
  });
}

/// out = (or +=) the sum over sources of the decoded numbers, in the order of the sources; source(k) is where the k-th
/// begins. Codes that can be are added before they are decoded. `bringing` of the ranks bring samples; 0: all.
template <encoding Encoding, class Source, class To>
void decode_sum(Encoding const& e, int sources, Source source, To* out, std::size_t count, bool add,
                [[maybe_unused]] int bringing = 0) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float sums[block];
  [[maybe_unused]] alignas(64) float addend[sums_codes<Encoding> ? 1 : block];
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; i += block, at += Encoding::block_bytes) {
    const std::size_t n = std::min(block, count - i);
    if constexpr (sums_codes<Encoding>) {
      const auto of_block = [&](int k) { return static_cast<std::byte const*>(source(k)) + at; };
      if constexpr (means_senders<Encoding>) {
        e.decode_sum(sources, of_block, sums, bringing);
      } else {
        e.decode_sum(sources, of_block, sums);
      }
    } else {
      e.decode(source(0) + at, sums);
      for (int k = 1; k < sources; ++k) {
        e.decode(source(k) + at, addend);
        elementwise::add(static_cast<float const*>(addend), sums, block);
      }
    }
    add ? elementwise::add(static_cast<float const*>(sums), out + i, n)
        : elementwise::convert(static_cast<float const*>(sums), out + i, n);
  }
}

/// out[i] = reference[index + i] + the decoded difference.
template <encoding Encoding, class T>
void decode_onto(Encoding const& e, std::byte const* from, trainable_view<T> reference, std::size_t index, std::size_t count,
                 T* out) {
  using numbers = pack<elementwise::wider<T, T>>;
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float change[block];
  for (std::size_t i = 0; i < count; i += block, from += Encoding::block_bytes) {
    e.decode(from, change);
    reference.for_stretches(index + i, std::min(block, count - i), [&](T const* base, std::size_t at, std::size_t length) {
      elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto n) {
        elementwise::store(elementwise::load<numbers>(base + k, n) + elementwise::load<numbers>(change + at + k, n),
                           out + i + at + k, n);
      });
    });
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::coding

#include "acco/restore_macros.hpp"
