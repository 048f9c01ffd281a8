// SPDX-License-Identifier: Apache-2.0
// Arrays in host memory, encoded block by block: what `host_storage` does. A block passes through the
// cache, so memory is read and written once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "acco/encoding/encoding.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/refused.hpp"
#include "acco/storage/residual.hpp"

namespace ACCO_SIMD_NAMESPACE::coding {

/// Encodes `count` numbers, whose first has the index `index`; read(i, n, room) gives a pointer to n floats from the i-th on,
/// in `room` or elsewhere.
template <encoding Encoding, class Read>
void encode(Encoding const& e, std::size_t index, std::size_t count, std::byte* to, refused const& bad, Read&& read) {
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
    e.encode(values, to);
  }
}

/// Encodes an array.
template <encoding Encoding, class T>
void encode_values(Encoding const& e, T const* from, std::size_t index, std::size_t count, std::byte* to, refused const& bad) {
  encode(e, index, count, to, bad, [from](std::size_t i, std::size_t n, float* room) -> float const* {
    if constexpr (std::is_same_v<T, float>) {
      return from + i;
    } else {
      elementwise::convert(from + i, room, n);
      return room;
    }
  });
}

/// Encodes from[i] + keep lost[i]; lost[i] becomes what the decoded number lacks of that, divided by `unit`. `lost` is a pointer
/// to numbers, or residual_blocks (residual.hpp).
template <encoding Encoding, class T, class Residual>
void encode_with_lost(Encoding const& e, T const* from, Residual lost, double keep, std::size_t index, std::size_t count,
                      std::byte* to, refused const& bad, double unit = 1) {
  using total = elementwise::wider<T, T>;
  using numbers = pack<total>;
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) total sum[block];
  alignas(64) float decoded[block];
  [[maybe_unused]] alignas(64) float room[in_blocks<Residual> ? block : 1];  // what lies in blocks, as numbers
  const numbers kept(keep), divisor(unit);
  for (std::size_t i = 0; i < count; i += block, to += Encoding::block_bytes) {
    const std::size_t n = std::min(block, count - i);
    auto* const here = [&] {
      if constexpr (in_blocks<Residual>) {
        Residual::code::decode(lost.begin + i / block * Residual::code::block_bytes, room);
        return static_cast<float*>(room);
      } else {
        return lost + i;
      }
    }();
    elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
      elementwise::store(elementwise::load<numbers>(from + i + k, lanes) + kept * elementwise::load<numbers>(here + k, lanes),
                         sum + k, lanes);
    });
    encode_values(e, static_cast<total const*>(sum), index + i, n, to, bad);
    e.decode(to, decoded);
    elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
      auto lacks = elementwise::load<numbers>(sum + k, lanes) - elementwise::load<numbers>(decoded + k, lanes);
      if (unit != 1) lacks = lacks / divisor;
      if constexpr (constexpr float largest = largest_kept<std::remove_pointer_t<decltype(lost)>>; largest != 0) {
        const numbers most(largest);
        lacks = -maximum(-maximum(lacks, -most), -most);
      }
      elementwise::store(lacks, here + k, lanes);
    });
    if constexpr (in_blocks<Residual>) {
      static_assert(Residual::code::block_size == block);
      std::fill(room + n, room + block, 0.0F);
      Residual::code::encode(room, lost.begin + i / block * Residual::code::block_bytes);
    }
  }
}

/// Encodes from[i] - factor kept[i].
template <encoding Encoding, class T, class Kept>
void encode_towards(Encoding const& e, T const* from, Kept const* kept, double factor, std::size_t index, std::size_t count,
                    std::byte* to, refused const& bad) {
  using total = elementwise::wider<T, Kept>;
  alignas(64) total lacks[Encoding::block_size];
  for (std::size_t i = 0; i < count; i += Encoding::block_size, to += Encoding::block_bytes) {
    const std::size_t n = std::min(Encoding::block_size, count - i);
    elementwise::combine(1, from + i, -factor, kept + i, static_cast<total*>(lacks), n);
    encode_values(e, static_cast<total const*>(lacks), index + i, n, to, bad);
  }
}
/// to[i] += factor times the sum over sources of the decoded numbers; the k-th begins `stride` bytes behind the one before.
template <encoding Encoding, class To>
void decode_towards(Encoding const& e, std::byte const* from, int sources, std::size_t stride, double factor, To* to,
                    std::size_t count) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float sums[block];
  for (std::size_t i = 0; i < count; i += block, from += Encoding::block_bytes) {
    const std::size_t n = std::min(block, count - i);
    decode_sum(
        e, sources, [=](int k) { return from + static_cast<std::size_t>(k) * stride; }, static_cast<float*>(sums), block, false);
    elementwise::combine(1, to + i, factor, static_cast<float const*>(sums), to + i, n);
  }
}

/// Encodes from[i] + keep lost[i]; `lost` stays.
template <encoding Encoding, class T>
void encode_ahead(Encoding const& e, T const* from, T const* lost, double keep, std::size_t index, std::size_t count,
                  std::byte* to, refused const& bad) {
  using numbers = pack<elementwise::wider<T, T>>;
  const numbers kept(keep);
  encode(e, index, count, to, bad, [=](std::size_t i, std::size_t n, float* room) {
    elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
      elementwise::store(elementwise::load<numbers>(from + i + k, lanes) + kept * elementwise::load<numbers>(lost + i + k, lanes),
                         room + k, lanes);
    });
    return static_cast<float const*>(room);
  });
}

/// The sum of the squares of what is lost of `count` numbers.
template <encoding Encoding, class T>
[[nodiscard]] double squared_error(Encoding const& e, T const* from, std::size_t count) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float values[block], decoded[block];
  std::byte bytes[Encoding::block_bytes];
  double lost = 0;
  for (std::size_t i = 0; i < count; i += block) {
    const std::size_t n = std::min(block, count - i);
    elementwise::convert(from + i, values, n);
    std::fill(values + n, values + block, 0.0F);
    e.encode(values, bytes);
    e.decode(bytes, decoded);
    elementwise::for_packs<pack<float>::lanes>(n, [&](std::size_t k, auto lanes) {
      elementwise::store(elementwise::load<pack<float>>(values + k, lanes) - elementwise::load<pack<float>>(decoded + k, lanes),
                         decoded + k, lanes);
    });
    lost += elementwise::sum_of_squares(static_cast<float const*>(decoded), n);
  }
  return lost;
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

/// out = (or +=) the sum over sources of the decoded numbers, in the order of the sources; source(k) is where the k-th begins.
/// Codes that can be are added before they are decoded.
template <encoding Encoding, class Source, class To>
void decode_sum(Encoding const& e, int sources, Source source, To* out, std::size_t count, bool add) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float sums[block];
  [[maybe_unused]] alignas(64) float addend[sums_codes<Encoding> ? 1 : block];
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; i += block, at += Encoding::block_bytes) {
    const std::size_t n = std::min(block, count - i);
    if constexpr (sums_codes<Encoding>) {
      e.decode_sum(sources, [&](int k) { return static_cast<std::byte const*>(source(k)) + at; }, weights_of(e), sums);
    } else {
      e.decode(source(0) + at, sums);
      for (int k = 1; k < sources; ++k) {
        e.decode(source(k) + at, addend);
        elementwise::add(static_cast<float const*>(addend), sums, block);
      }
    }
    if (add) {
      elementwise::add(static_cast<float const*>(sums), out + i, n);
    } else {
      elementwise::convert(static_cast<float const*>(sums), out + i, n);
    }
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
