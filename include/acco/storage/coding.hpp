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
#include "acco/code/in_places.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/number/int8_place.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/refused.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::coding {

/// The block that begins with element `index`.
template <encoding Encoding>
void encode_block(Encoding const& e, float const* values, std::byte* to, [[maybe_unused]] std::uint64_t seed,
                  [[maybe_unused]] std::size_t index) {
  if constexpr (rounds_at_random<Encoding>) {
    if (seed != 0) return e.encode(values, to, random_bits(seed, index));
  }
  e.encode(values, to);
}
/// Encodes `count` numbers, which do not lie where `to` is; the first has the index `index`. read(i, n, room) gives a
/// pointer to n floats from the i-th on, in `room` or elsewhere. Rounds at random by `seed`; 0: to nearest.
template <encoding Encoding, class Read>
void encode(Encoding const& e, std::size_t index, std::size_t count, std::byte* to, refused const& bad, Read&& read,
            std::uint64_t seed = 0) {
  constexpr std::size_t block = Encoding::block_size;
  const std::size_t blocks = blocks_in(e, count);
  alignas(64) float room[block];
  for (std::size_t k = 0; k < blocks; ++k, to += Encoding::block_bytes) {
    float const* values = room;
    std::size_t behind = 0;  // the numbers that are there
    for_neighbours(e, k, count, [&](std::size_t at, std::size_t i, std::size_t n) {
      float const* const some = read(i, n, room + at);
      if (n == block) {
        values = some;
      } else {
        if (some != room + at) std::copy_n(some, n, room + at);
        std::fill(room + behind, room + at, 0.0F);
      }
      behind = at + n;
    });
    std::fill(room + behind, room + block, 0.0F);
    const auto look = [&] {
      std::size_t where = 0;
      const std::size_t found = elementwise::count_non_finite(values, block, where);
      if (found != 0) bad.note(found, index + place_in(e, k, where));
    };
    constexpr bool looks_before = !says_non_finite<Encoding>;
    if constexpr (looks_before) {
      if (!elementwise::all_finite(values, block)) look();
    }
    encode_block(e, values, to, seed, index + k * block);
    if constexpr (!looks_before) {
      if (Encoding::says_non_finite(to)) look();
    }
  }
}

/// Asks for what lies a page behind these numbers, so that it comes while they are encoded: processors look ahead for
/// larger blocks only. Whether that is in the array makes no difference.
template <class T>
void fetch_ahead(T const* from, std::size_t n) noexcept {
  constexpr std::size_t page = 4096, line = 64;
  const std::size_t bytes = n * sizeof(T);
  if (bytes > page) return;
  const auto ahead = reinterpret_cast<std::uintptr_t>(from) + page;
  for (std::size_t k = 0; k < bytes; k += line)
    __builtin_prefetch(reinterpret_cast<void const*>(ahead + k));  // NOLINT(performance-no-int-to-ptr): no object need be there
}
/// Encodes an array; `values_at` reads it.
template <class T>
[[nodiscard]] auto values_at(T const* from) noexcept {
  return [from](std::size_t i, std::size_t n, float* room) -> float const* {
    fetch_ahead(from + i, n);
    if constexpr (std::is_same_v<T, float>) {
      return from + i;
    } else {
      elementwise::convert(from + i, room, n);
      return room;
    }
  };
}
template <encoding Encoding, class T>
void encode_values(Encoding const& e, T const* from, std::size_t index, std::size_t count, std::byte* to, refused const& bad,
                   std::uint64_t seed = 0) {
  encode(e, index, count, to, bad, values_at(from), seed);
}

/// The states of a block: where they lie, or unpacked.
template <encoding Encoding, class Place>
struct states_of_block {
  Place at;
  states_of_block(Place from, std::size_t) noexcept : at(from) {}
  void keep(std::size_t) const noexcept {}
};
template <encoding Encoding>
struct states_of_block<Encoding, int8_place> {
  alignas(64) float at[Encoding::block_size];
  int8_place place;
  states_of_block(int8_place from, std::size_t count) : place(from) { from.unpack(at, count); }
  void keep(std::size_t count) const noexcept { place.pack(at, count); }
};

/// Encodes what a feedback policy sends of gradients and their state; `sent_by` reads it. The encoding stays while it
/// is used.
template <feeds_back Encoding, class T, class Place>
[[nodiscard]] auto sent_by(Encoding const& e, T const* from, Place state, double rate) noexcept {
  using numbers = pack<elementwise::wider<T, typename number_at<Place>::type>>;
  return [=, &e, factor = numbers(rate)](std::size_t i, std::size_t n, float* room) {
    const states_of_block<Encoding, Place> states(state + i, n);
    elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
      elementwise::store(e.policy.sent(elementwise::load<numbers>(from + i + k, lanes),
                                       elementwise::load<numbers>(states.at + k, lanes), factor),
                         room + k, lanes);
    });
    return static_cast<float const*>(room);
  };
}
template <feeds_back Encoding, class T, class Place>
void encode_with_feedback(Encoding const& e, T const* from, Place state, double rate, std::size_t index, std::size_t count,
                          std::byte* to, refused const& bad) {
  encode(e, index, count, to, bad, sent_by(e, from, state, rate));
}
/// state = what the policy keeps of that: `sent` is the code.
template <feeds_back Encoding, class T, class Place>
void keep_feedback(Encoding const& e, T const* from, Place state, double rate, std::size_t count, std::byte const* sent) {
  using numbers = pack<elementwise::wider<T, typename number_at<Place>::type>>;
  const numbers factor(rate);
  const std::size_t blocks = blocks_in(e, count);
  alignas(64) float decoded[Encoding::block_size];
  for (std::size_t block = 0; block < blocks; ++block, sent += Encoding::block_bytes) {
    e.decode(sent, decoded);
    for_neighbours(e, block, count, [&](std::size_t at, std::size_t i, std::size_t n) {
      states_of_block<Encoding, Place> states(state + i, n);
      elementwise::for_packs<numbers::lanes>(n, [&](std::size_t k, auto lanes) {
        const auto before = elementwise::load<numbers>(states.at + k, lanes);
        const auto x = e.policy.sent(elementwise::load<numbers>(from + i + k, lanes), before, factor);
        elementwise::store(e.policy.kept(x, elementwise::load<numbers>(decoded + at + k, lanes), before), states.at + k, lanes);
      });
      states.keep(n);
    });
  }
}

/// The sum of the squares of what the code loses of so many numbers, which `read` gives as to `encode`; not finite
/// where they are not.
template <encoding Encoding, class Read>
[[nodiscard]] double squared_error(Encoding const& e, Read const& read, std::size_t index, std::size_t count,
                                   std::uint64_t seed = 0) {
  constexpr std::size_t block = Encoding::block_size;
  alignas(64) float room[block];
  alignas(64) float decoded[block];
  alignas(64) std::byte bytes[Encoding::block_bytes];
  unsigned long long found = 0, first = 0;
  double sum = 0;
  for (std::size_t i = 0; i < count; i += block) {
    const std::size_t n = std::min(block, count - i);
    float const* const values = read(i, n, room);
    encode(e, index + i, n, bytes, {&found, &first}, [values](std::size_t, std::size_t, float*) { return values; }, seed);
    e.decode(bytes, decoded);
    for (std::size_t k = 0; k < n; ++k) decoded[k] -= values[k];
    sum += elementwise::sum_of_squares(static_cast<float const*>(decoded), n);
  }
  return sum;
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
  const std::size_t blocks = blocks_in(e, count);
  for (std::size_t k = 0, at = 0; k < blocks; ++k, at += Encoding::block_bytes) {
    if constexpr (sums_codes<Encoding>) {
      const auto of_block = [&](int each) { return static_cast<std::byte const*>(source(each)) + at; };
      if constexpr (means_senders<Encoding>) {
        e.decode_sum(sources, of_block, sums, bringing);
      } else {
        e.decode_sum(sources, of_block, sums);
      }
    } else {
      e.decode(source(0) + at, sums);
      for (int each = 1; each < sources; ++each) {
        e.decode(source(each) + at, addend);
        elementwise::add(static_cast<float const*>(addend), sums, block);
      }
    }
    for_neighbours(e, k, count, [&](std::size_t in_block, std::size_t i, std::size_t n) {
      add ? elementwise::add(static_cast<float const*>(sums + in_block), out + i, n)
          : elementwise::convert(static_cast<float const*>(sums + in_block), out + i, n);
    });
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
