// SPDX-License-Identifier: Apache-2.0
// Numbers travel encoded: gradients by an all-to-all, whose receivers decode and sum; parameters as differences to
// those in use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/code/in_places.hpp"
#include "acco/storage/coding.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where the codes of a bucket lie in a room for all of them: full buckets come before. `in_tiles`: of tiles, where the
/// round has them.
template <encoding Encoding, class Storage, bool in_tiles = false>
struct code_room {
  std::size_t array = 0, parts = 1, stride = 0;

  /// `parts` of a bucket, each of a share's size. `arriving`: whether it is the room for what arrives. `stride`: bytes
  /// from one bucket to the next, where other codes need more.
  static code_room declare(round_view<Storage>& v, int parts, bool arriving, std::size_t stride = 0) {
    const bucket last = v.shares[v.shares.buckets() - 1];
    code_room made{0, static_cast<std::size_t>(parts)};
    made.stride = std::max(stride, made.bytes_of(v, v.shares[0]));
    const std::size_t bytes = last.index * made.stride + made.bytes_of(v, last);
    made.array = arriving ? v.arrays.declare_room("codes that arrive", bytes, {stagger::encoded + 1, &memory_table::encoded})
                          : v.arrays.declare_room("codes that leave", bytes, {stagger::encoded, &memory_table::encoded});
    return made;
  }
  /// All shares of a bucket, and a rank's.
  [[nodiscard]] std::span<std::byte> operator()(round_view<Storage> const& v, bucket const& b) const noexcept {
    return {v.arrays.template as<std::byte>(array) + b.index * stride, bytes_of(v, b)};
  }
  [[nodiscard]] std::span<std::byte> share(round_view<Storage> const& v, bucket const& b) const noexcept {
    const std::size_t bytes = encoded_size<Encoding>(b.share);
    return (*this)(v, b).subspan(static_cast<std::size_t>(v.rank) * bytes, bytes);
  }

 private:
  [[nodiscard]] std::size_t bytes_of(round_view<Storage> const& v, bucket const& b) const noexcept {
    const bool placed = in_tiles && v.tiles.each != 0;
    return parts * (placed ? v.tiles.each * Encoding::block_bytes : encoded_size<Encoding>(b.share));
  }
};

/// This rank's gradients of a bucket, and what it keeps, as they would be encoded now.
template <class Gradient, class State>
struct bucket_to_encode {
  Gradient const* gradients;
  State state;
  bool feeds_back;
  std::size_t index, slices, share;
  std::uint64_t rounding;
  double rate;
};

/// Gradients: any encoding, with any feedback. The feedback's state is a whole array of this rank's own. It is read
/// when gradients are encoded, and written behind the decision.
template <encoding Encoding, class Storage>
class reducer<Encoding, Storage> : public reducer_in_use<Storage> {
  using gradient_type = typename Storage::gradient_type;
  using state_type = state_number<Encoding, gradient_type>;
  using master_type = typename Storage::master_type;
  using room = code_room<Encoding, Storage, wants_tiles<Encoding>>;
  static_assert(!wants_tiles<Encoding> || without_zero<Encoding>, "acco: a code that is of_tiles is no_zero, too");
  static_assert(!sums_states<Encoding> ||
                    (std::is_same_v<typename Storage::sum_type, master_type> && std::is_same_v<gradient_type, master_type>),
                "acco: a feedback whose receivers sum states (ef21) needs a storage whose gradients and sums have the "
                "masters' type: else senders and receivers round apart");
  static_assert(!(sums_states<Encoding> && means_senders<Encoding>),
                "acco: a feedback whose receivers sum states (ef21) needs a code whose sum is that of what is decoded");
  static_assert(!(looks_ahead<Encoding> && sums_states<Encoding>),
                "acco: a feedback whose receivers sum states (ef21) has nothing to send ahead");

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit reducer(Encoding const& code) : code_(code) {
    if constexpr (feeds_back<Encoding>) {
      if constexpr (requires { code.policy.check(); }) code.policy.check();
    }
  }

  [[nodiscard]] bool keeps() const noexcept override { return !feeds_back<Encoding>; }
  [[nodiscard]] bool has_tiles() const noexcept override { return wants_tiles<Encoding>; }
  void declare(view_type& v, world_type const&, bool) override {
    declare_rooms(v);
    declare_state(v);
  }
  /// `share`: the bytes in which the largest code of a bucket's shares fits, where others share the rooms.
  void declare_rooms(view_type& v, std::size_t share = 0) {
    leaving_ = room::declare(v, v.ranks(), false, share * static_cast<std::size_t>(v.ranks()));
    arriving_ = room::declare(v, v.sources, true, share * static_cast<std::size_t>(v.sources));
  }
  void declare_state([[maybe_unused]] view_type& v) {
    if constexpr (feeds_back<Encoding> && !looks_ahead<Encoding>) {
      state_ = v.arrays.template declare<state_type>(
          {.name = decltype(code_.policy)::name + of_, .extent = array_extent::whole, .use = array_use::feedback},
          {stagger::encoded + 1, &memory_table::encoded});
    }
    if constexpr (sums_states<Encoding>) {
      total_ = v.arrays.template declare<master_type>(
          {.name = decltype(code_.policy)::name + of_ + ".sum", .use = array_use::feedback},
          {stagger::encoded, &memory_table::encoded});
    }
  }
  /// Behind the names of what its feedback keeps. Before it is declared.
  void name_state(std::string of) { of_ = std::move(of); }
  /// What another one's feedback keeps is what this one's does.
  template <class Other>
  void keep_with(Other const& other) noexcept {
    state_ = other.state_;
    total_ = other.total_;
  }
  void encode_kept([[maybe_unused]] view_type& v) const override {
    if constexpr (!feeds_back<Encoding>) {
      Storage::forget(v.queue, v.refused_gradients());
      for (std::size_t k = 0; k < v.shares.buckets(); ++k) {
        bucket const b = v.shares[k];
        Storage::encode_now(v.queue, code(v, b), v.gradients(b), b.begin, static_cast<std::size_t>(v.ranks()), b.share,
                            leaving_(v, b).data(), v.refused_gradients());
      }
    }
  }
  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    if constexpr (looks_ahead<Encoding>) state_ = v.arrays.number_of(decltype(code_.policy)::name);
    if (!v.encoded_early) stages.each(lane::update, [&](std::size_t k) { encode(v, v.shares[k]); });
    stages.each(lane::network, [&](std::size_t k) { exchange(v, v.shares[k], world); });
  }
  /// Enqueues the code of a bucket, and its message.
  void encode(view_type& v, bucket const& b) {
    const auto ranks = static_cast<std::size_t>(v.ranks());
    if constexpr (feeds_back<Encoding>) {
      if (sends(v)) {
        return Storage::encode_with_feedback(v.queue, code(v, b), v.gradients(b), state(v, b), b.begin, ranks, b.share,
                                             leaving_(v, b).data(), v.refused_gradients(), v.rate);
      }
    }
    Storage::encode(v.queue, code(v, b), v.gradients(b), b.begin, ranks, b.share, leaving_(v, b).data(), v.refused_gradients(),
                    v.rounding);
  }
  void exchange(view_type& v, bucket const& b, world_type& world) {
    const std::span<std::byte const> leaving = leaving_(v, b);
    const std::span<std::byte> arriving = arriving_(v, b);
    if (v.ranks() == v.sources) {
      world.all_to_all(v.queue, leaving, arriving);
      v.sends(collective::all_to_all, leaving.size());
    } else {  // every rank has every share
      world.all_gather(v.queue, sharded<std::byte const>(leaving), replicated<std::byte>(arriving));
      v.sends(collective::all_gather, arriving.size());
    }
  }
  /// What it would encode; and what the code loses of that, squared, as a task in host memory finds out.
  [[nodiscard]] auto to_encode(view_type const& v, bucket const& b) const noexcept {
    using state_place = pointer_to<state_type>;
    bucket_to_encode<gradient_type, state_place> made{
        v.gradients(b), state_place(), false, b.begin, static_cast<std::size_t>(v.ranks()), b.share, v.rounding, v.rate};
    if constexpr (feeds_back<Encoding>) {
      made.feeds_back = sends(v);
      made.state = state(v, b);
    }
    return made;
  }
  template <class ToEncode>
  [[nodiscard]] double lost_of(ToEncode const& of) const {
    double sum = 0;
    for (std::size_t k = 0; k < of.slices; ++k) {
      const std::size_t at = k * of.share, index = of.index + at;
      if constexpr (feeds_back<Encoding>) {
        if (of.feeds_back) {
          sum += coding::squared_error(code_, coding::sent_by(code_, of.gradients + at, of.state + at, of.rate), index, of.share);
          continue;
        }
      }
      sum += coding::squared_error(code_, coding::values_at(of.gradients + at), index, of.share, of.rounding);
    }
    return sum;
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    bucket const b = v.shares[k];
    if constexpr (sums_states<Encoding>)
      Storage::convert(v.queue, static_cast<master_type const*>(total(v, b)), v.sums(b).data(), b.share);
    auto const coded_here = code(v, b, v.shares.share_of_rank(v.rank));
    std::byte const* const codes = arriving_(v, b).data();
    if constexpr (means_senders<Encoding>) {
      Storage::decode_sum(v.queue, coded_here, codes, v.sources, v.sums(b).data(), b.share, v.adds, &v.numbers->bringing);
    } else {
      Storage::decode_sum(v.queue, coded_here, codes, v.sources, v.sums(b).data(), b.share, v.adds || sums_states<Encoding>);
    }
    if constexpr (without_zero<Encoding>) {  // norms are of all that lies in front of the padding: in gaps gradients are 0
      const std::size_t begin = b.begin + v.shares.share_of_rank(v.rank) * b.share;
      v.shares.for_gaps(begin, v.real(b), [&](std::size_t position, std::size_t count) {
        Storage::convert(v.queue, v.gradients(b) + (position - b.begin), v.sums(b).data() + (position - begin), count);
      });
    }
    squares.measure(k);
  }
  void find_non_finite(view_type&) const override {}  // whoever encodes has looked
  void settle([[maybe_unused]] view_type& v, [[maybe_unused]] std::size_t k) override {
    if constexpr (feeds_back<Encoding> && !looks_ahead<Encoding>) {
      bucket const b = v.shares[k];
      if constexpr (sums_states<Encoding>)
        Storage::average(v.queue, &v.numbers->apply, static_cast<master_type const*>(v.sums(b).data()), total(v, b), b.share, 0);
      if (!sends(v)) return;
      Storage::keep_feedback(v.queue, &v.numbers->apply, code(v, b), v.gradients(b), state(v, b),
                             static_cast<std::size_t>(v.ranks()), b.share, leaving_(v, b).data(), v.rate);
      if constexpr (without_zero<Encoding>) clear_gaps(v, b);
    }
  }

 private:
  template <class, class>
  friend class reducer;
  /// For the shares of a bucket, from the k-th on.
  [[nodiscard]] auto code([[maybe_unused]] round_view<Storage> const& v, [[maybe_unused]] bucket const& b,
                          [[maybe_unused]] std::size_t k = 0) const noexcept {
    if constexpr (wants_tiles<Encoding>) {
      return in_places<Encoding>{code_, v.tiles.share(b.index * static_cast<std::size_t>(v.ranks()) + k)};
    } else {
      return code_;
    }
  }
  /// Whether this rank sends what it keeps: with its samples; or always, because receivers use all states.
  [[nodiscard]] static bool sends(round_view<Storage> const& v) noexcept { return v.contributes || sums_states<Encoding>; }
  /// Where no element lies a 0 is kept: no checkpoint has that.
  void clear_gaps(view_type& v, bucket const& b) {
    v.shares.for_gaps(b.begin, v.whole_of(b), [&](std::size_t position, std::size_t count) {
      Storage::clear_if(v.queue, &v.numbers->apply, state(v, b) + (position - b.begin), count);
    });
    if constexpr (sums_states<Encoding>) {
      const std::size_t begin = b.begin + v.shares.share_of_rank(v.rank) * b.share;
      v.shares.for_gaps(begin, b.share, [&](std::size_t position, std::size_t count) {
        Storage::clear_if(v.queue, &v.numbers->apply, total(v, b) + (position - begin), count);
      });
    }
  }
  [[nodiscard]] pointer_to<state_type> state(round_view<Storage> const& v, bucket const& b) const noexcept {
    return v.arrays.template place<state_type>(state_) + b.begin;
  }
  [[nodiscard]] master_type* total(round_view<Storage> const& v, bucket const& b) const noexcept {
    return v.arrays.template as<master_type>(total_) + b.offset;
  }

  Encoding code_;
  std::string of_;
  room leaving_, arriving_;
  std::size_t state_ = 0, total_ = 0;
};

/// Parameters.
template <encoding Encoding, class Storage>
class gatherer<Encoding, Storage> final : public gatherer_in_use<Storage> {
  static_assert(!feeds_back<Encoding>, "acco: parameters that travel encoded need no feedback: give it to the gradients");

 public:
  using typename gatherer_in_use<Storage>::stages_type;
  using typename gatherer_in_use<Storage>::view_type;
  using typename gatherer_in_use<Storage>::world_type;

  explicit gatherer(Encoding const& code) : code_(code) {}

  void declare(view_type& v) override { room_ = code_room<Encoding, Storage>::declare(v, v.ranks(), true); }
  void encode(view_type& v, std::size_t k) override {
    bucket const b = v.shares[k];
    Storage::encode_difference(v.queue, code_, v.own_parameters(b).data(), v.in_use, v.shares.position(v.rank, b.offset),
                               v.real(b), room_.share(v, b).data(), v.refused_parameters());
  }
  void gather(stages_type& stages, view_type& v, world_type& world) override {
    stages.each(lane::network, [&](std::size_t k) {
      bucket const b = v.shares[k];
      const std::span<std::byte> all = room_(v, b);
      world.all_gather(v.queue, sharded<std::byte const>(room_.share(v, b)), replicated<std::byte>(all));
      v.sends(collective::all_gather, all.size());
    });
    stages.beside(lane::network, [&] {
      round_numbers* const n = v.numbers;
      Storage::run(v.queue, tell_diverged{n});
      v.all_reduce(world, &n->diverged_mine, &n->diverged_all, 1);
    });
    stages.each(lane::update, [&](std::size_t k) {
      bucket const b = v.shares[k];
      Storage::decode_onto(v.queue, code_, room_(v, b).data(), v.in_use, b.begin, b.share,
                           std::min(v.whole_of(b), v.shares.size() - b.begin), v.parameters(b).data());
    });
  }

 private:
  Encoding code_;
  code_room<Encoding, Storage> room_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
