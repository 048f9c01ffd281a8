// SPDX-License-Identifier: Apache-2.0
// What travels of an extragradient method: operators to the owners, points to all, in full or encoded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "acco/collective/redistribution.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/game/extragradient_state.hpp"
#include "acco/game/keyed_blocks.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/coding.hpp"
#include "acco/storage/host.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The messages of `compressed_extragradient`, by `Method`'s codes. All calls but the questions are collective, and enqueue what
/// they do; what they are given must stay where it is. Codes are given the numbers of the game alone: of the zeros behind the
/// last one they would make something else, where they have no 0.
template <class Method, class Backend>
class extragradient_messages {
  using up_type = decltype(Method::up);
  using down_type = decltype(Method::down);
  using up_encoding = encoding_of<up_type>;
  using down_encoding = encoding_of<down_type>;

 public:
  static constexpr bool codes_up = !std::is_same_v<up_type, full>, codes_down = !std::is_same_v<down_type, full>;
  static constexpr bool keeps_lost = Method::feeds_back && codes_up;

  extragradient_messages(Method const& method, Backend& backend, host_queue& queue, extragradient_state& state) noexcept
      : method_(method), backend_(backend), queue_(queue), state_(state) {}
  extragradient_messages(extragradient_messages const&) = delete;
  extragradient_messages& operator=(extragradient_messages const&) = delete;

  void allocate() {
    using storage = extragradient_state::storage_type;
    leaving_ = state_.storage().allocate(leaving_bytes(), stagger);
    arriving_ = state_.storage().allocate(arriving_bytes(), stagger + 1);
    storage::clear(queue_, leaving(), leaving_bytes());
    storage::clear(queue_, arriving(), arriving_bytes());
  }
  /// Bytes of what `allocate` allocates.
  [[nodiscard]] std::size_t memory() const noexcept {
    return extragradient_state::room(leaving_bytes(), stagger) + extragradient_state::room(arriving_bytes(), stagger + 1);
  }

  /// Messages are those of this evaluation now, counted from 0: it decides the noise of codes.
  void begin(std::uint64_t evaluation) noexcept {
    evaluation_ = evaluation;
    bytes_ = 0;
  }
  /// Bytes that this rank sends in this evaluation, where the backend does not count.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// state.reduced() = the sum over ranks of state.operators(), which hold differences, by `up`.
  void sum_differences() {
    if constexpr (codes_up) {
      const std::size_t bytes = state_.ranks() * slice_bytes<up_encoding>();
      queue_.enqueue([this] { encode_operators(); });
      backend_.all_to_all(queue_, std::span<std::byte const>(leaving(), bytes), std::span<std::byte>(arriving(), bytes));
      bytes_ += bytes_sent(collective::all_to_all, backend_.size(), bytes);
      queue_.enqueue([this] {
        coding::decode_sum(
            with_key(method_.up, 0), backend_.size(),
            [this](int rank) { return arriving() + static_cast<std::size_t>(rank) * slice_bytes<up_encoding>(); },
            state_.reduced(), state_.own_real(), false);
      });
    } else {
      sum_in_full(state_.operators(), state_.reduced());
    }
  }
  /// slice = the sum over ranks of `whole`, in full.
  void sum_in_full(float const* whole, float* slice) {
    const std::size_t size = state_.padded_size();
    backend_.reduce_scatter(queue_, partial<float const>({whole, size}), sharded<float>({slice, state_.share()}));
    bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), size * sizeof(float));
  }
  /// The parameters in use become what owners have in state.reduced(), by `down`: up to what the code loses, within the bounds.
  void show() {
    if constexpr (codes_down) {
      const std::size_t bytes = slice_bytes<down_encoding>(), all = state_.ranks() * bytes;
      queue_.enqueue([this] { encode_point(); });
      backend_.all_gather(queue_, sharded<std::byte const>({leaving(), bytes}), replicated<std::byte>({arriving(), all}));
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), all);
      queue_.enqueue([this, bytes] {
        for (std::size_t rank = 0; rank < state_.ranks(); ++rank) {
          const std::size_t begin = rank * state_.share();
          coding::decode_onto(with_key(method_.down, 0), arriving() + rank * bytes, state_.in_use(), begin, state_.real(rank),
                              state_.shown() + begin);
        }
        state_.cut_off_shown();  // what arrives may lie beyond; on every rank alike
      });
    } else {
      gather_in_full(state_.reduced(), state_.shown());
    }
  }
  /// whole = the ranks' slices, in full.
  void gather_in_full(float const* slice, float* whole) {
    const std::size_t size = state_.padded_size();
    backend_.all_gather(queue_, sharded<float const>({slice, state_.share()}), replicated<float>({whole, size}));
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), size * sizeof(float));
  }
  /// to = the sums over ranks of a few numbers.
  void sum_numbers(std::span<double const> numbers, std::span<double> to) {
    backend_.all_reduce(queue_, partial<double const>(numbers), replicated<double>(to));
    bytes_ += bytes_sent(collective::all_reduce, backend_.size(), numbers.size_bytes());
  }

 private:
  static constexpr std::size_t stagger = extragradient_state::next_stagger;

  template <class Encoding>
  [[nodiscard]] std::size_t slice_bytes() const noexcept {
    if constexpr (encoding<Encoding>) {
      return encoded_size<Encoding>(state_.share());
    } else {
      return 0;
    }
  }
  [[nodiscard]] std::size_t leaving_bytes() const noexcept {
    return std::max(state_.ranks() * slice_bytes<up_encoding>(), slice_bytes<down_encoding>());
  }
  [[nodiscard]] std::size_t arriving_bytes() const noexcept {
    return state_.ranks() * std::max(slice_bytes<up_encoding>(), slice_bytes<down_encoding>());
  }
  [[nodiscard]] std::byte* leaving() const noexcept { return leaving_.as<std::byte>(); }
  [[nodiscard]] std::byte* arriving() const noexcept { return arriving_.as<std::byte>(); }

  void encode_operators() {
    unsigned long long found = 0, where = 0;  // has been counted
    for (std::size_t rank = 0; rank < state_.ranks(); ++rank) {
      const std::size_t begin = rank * state_.share();
      encode_keyed(method_.up, message_key{method_.seed, evaluation_, backend_.rank(), false}, begin, state_.real(rank),
                   leaving() + rank * slice_bytes<up_encoding>(),
                   [&](auto const& code, std::size_t i, std::size_t count, std::byte* to) {
                     const coding::refused bad{&found, &where};
                     float const* const from = state_.operators() + begin + i;
                     if constexpr (keeps_lost) {
                       coding::encode_with_lost(code, from, state_.lost() + begin + i, 1.0, begin + i, count, to, bad);
                     } else {
                       coding::encode_values(code, from, begin + i, count, to, bad);
                     }
                   });
    }
  }
  void encode_point() {
    unsigned long long found = 0, where = 0;  // both are finite
    const std::size_t first = state_.first();
    encode_keyed(method_.down, message_key{method_.seed, evaluation_, backend_.rank(), true}, first, state_.own_real(), leaving(),
                 [&](auto const& code, std::size_t i, std::size_t count, std::byte* to) {
                   coding::encode_difference(code, state_.reduced() + i, state_.in_use(), first + i, count, to,
                                             coding::refused{&found, &where});
                 });
  }

  Method const& method_;
  Backend& backend_;
  host_queue& queue_;
  extragradient_state& state_;
  std::uint64_t evaluation_ = 0, bytes_ = 0;
  host_buffer leaving_, arriving_;
};

}  // namespace ACCO_SIMD_NAMESPACE
