// SPDX-License-Identifier: Apache-2.0
// Gradients of matrices travel as products of thin ones (code/power_sgd.hpp), all others with them, exactly:
//
//   network          | sum of p Q, and of others |                      | sum of p' P |
//   update     p Q   |                           | P orthonormal, p' P  |             | P Q', bucket by bucket ... settle
//
// A sum is an all-to-all, whose receivers add in the order of ranks, and an all-gather: every rank has the same bits.
// P is made orthonormal by every rank for itself: it decides only what an owner takes for the sum of its shard, and
// what a rank keeps of its own gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/error.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/low_rank.hpp"
#include "acco/number/pack.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The trainable tensors, and where each lies in the two messages.
class thin_tensors {
 public:
  /// One that travels as a product, or, of rank 0, exactly.
  struct tensor {
    std::size_t first, size;  ///< trainable elements
    matrices::thin_shape thin;
    std::size_t left, right;  ///< where its P, or itself, begins in the first message, and its Q in the second
  };

  template <class Code>
  thin_tensors(Code const& code, parameter_layout const& layout) {
    std::size_t first = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      if (layout.groups()[each.group].frozen || each.size == 0) continue;
      const std::size_t rows = each.shape.empty() ? 1 : each.shape[0], columns = each.size / rows;
      const bool pays = each.shape.size() >= 2 && code.pays(rows, columns);
      const std::size_t rank = pays ? std::min({rows, columns, std::size_t{code.rank}}) : 0;
      tensors_.push_back({first, each.size, {rows, columns, rank}, left_, right_});
      left_ += pays ? rank * rows : each.size;
      right_ += rank * columns;
      first += each.size;
    }
    if (right_ == 0) {
      throw usage_error({},
                        text("power_sgd: no trainable tensor is a matrix that rank ", code.rank, " makes ", code.min_compression,
                             " times smaller"),
                        text("Give the layout its tensors with their shapes, or a smaller rank or min_compression"));
    }
  }
  [[nodiscard]] std::vector<tensor> const& all() const noexcept { return tensors_; }
  /// Numbers of the messages.
  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  [[nodiscard]] std::size_t right() const noexcept { return right_; }

  /// visit(tensor, first element in it, position, count) for what lies at `length` positions from `from` on.
  template <class Visitor>
  void for_pieces(partition const& shares, std::size_t from, std::size_t length, Visitor&& visit) const {
    if (from >= shares.size()) return;
    shares.for_elements(
        from, std::min(length, shares.size() - from), [&](std::size_t position, std::size_t first, std::size_t count) {
          auto in = std::upper_bound(tensors_.begin(), tensors_.end(), first,
                                     [](std::size_t element, tensor const& each) { return element < each.first; }) -
                    1;
          for (std::size_t done = 0; done < count; ++in) {
            const std::size_t at = first + done - in->first, n = std::min(in->size - at, count - done);
            visit(*in, at, position + done, n);
            done += n;
          }
        });
  }

 private:
  std::vector<tensor> tensors_;
  std::size_t left_ = 0, right_ = 0;
};

template <low_rank Code, class Storage>
class reducer<Code, Storage> final : public reducer_in_use<Storage> {
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  using master_type = typename Storage::master_type;
  using state_type = state_number<Code, gradient_type>;
  using numbers = pack<sum_type>;
  using tensor = thin_tensors::tensor;
  static_assert(!sums_states<Code>,
                "acco: a feedback whose receivers sum states (ef21) is for encodings of blocks: give "
                "power_sgd error_feedback");
  static_assert(!feeds_back<Code> || std::is_same_v<state_type, kept_number<gradient_type>>,
                "acco: power_sgd keeps what it loses in the gradients' type: give its feedback no other store");

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit reducer(Code const& code) : code_(code) {
    code.check();
    if constexpr (requires { code.policy.check(); }) code.policy.check();
  }

  void declare(view_type& v, world_type const&, bool) override {
    tensors_.emplace_back(code_, v.layout);
    const auto room = [&](char const* name, std::size_t count, std::size_t place) {
      return v.arrays.declare_room(name, count * sizeof(sum_type), {place, &memory_table::encoded});
    };
    const std::size_t first = part_of(v, left()) * ranks(v), second = part_of(v, right()) * ranks(v);
    rooms_ = {room("codes that leave", std::max(first, second), stagger::encoded),
              room("codes that arrive", std::max(first, second), stagger::encoded + 1),
              room("sums of thin matrices", first + second, stagger::encoded), room("", right(), stagger::encoded + 1)};
    kept_directions_ = v.arrays.template declare<master_type>({.name = "directions", .use = array_use::feedback},
                                                              {stagger::encoded, &memory_table::encoded});
    if constexpr (feeds_back<Code>) {
      state_ = v.arrays.template declare<state_type>(
          {.name = decltype(code_.policy)::name, .extent = array_extent::whole, .use = array_use::feedback},
          {stagger::encoded + 1, &memory_table::encoded});
    }
  }
  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    const round_arrays a = arrays_of(v);
    if (held_ != v.arrays.replaced()) {  // on all ranks: what they do between rounds they do together
      stages.once(lane::update, [&] { Storage::run(v.queue, [this, a] { tell_directions(a); }); });
      stages.once(lane::network, [&] { sum(v, world, right(), a.right); });
      stages.once(lane::update, [&] {
        Storage::run(v.queue, [this, a, now = v.arrays.replaced()] {
          std::copy_n(a.right, right(), a.directions);
          held_ = now;
        });
      });
    }
    stages.once(lane::update, [&] { Storage::run(v.queue, [this, a] { begin(a); }); });
    stages.once(lane::network, [&] { sum(v, world, left(), a.left); });
    stages.once(lane::update, [&] { Storage::run(v.queue, [this, a] { turn(a); }); });
    stages.once(lane::network, [&] { sum(v, world, right(), a.right); });
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    Storage::run(v.queue, [this, a = arrays_of(v), b = v.shares[k], adds = v.adds] { write(a, b, adds); });
    squares.measure(k);
  }
  void find_non_finite(view_type& v) const override {
    round_numbers* const n = v.numbers;
    Storage::find_non_finite(v.queue, &n->not_finite, v.carried.local().data(), v.shares.size(), &n->found, &n->first);
  }
  void settle(view_type& v, std::size_t k) override {
    Storage::run(v.queue, [this, a = arrays_of(v), b = v.shares[k], n = v.numbers] {
      if (!n->apply) return;
      if (b.index == 0) point(a);
      keep_directions(a, b);
      if constexpr (feeds_back<Code>) keep(a, b);
    });
  }

 private:
  /// What tasks need of the view.
  struct round_arrays {
    partition const* shares;
    gradient_type const* gradients;
    state_type* state;
    sum_type *reduced, *leaving, *left, *right, *directions;
    master_type* kept_directions;
    double rate;
    int rank;
  };
  [[nodiscard]] round_arrays arrays_of(view_type const& v) const noexcept {
    const auto room = [&](std::size_t which) { return v.arrays.template as<sum_type>(which); };
    return {&v.shares,
            v.carried.local().data(),
            feeds_back<Code> ? v.arrays.template as<state_type>(state_) : nullptr,
            v.reduced,
            room(rooms_.leaving),
            room(rooms_.sums),
            room(rooms_.sums) + part_of(v, left()) * ranks(v),
            room(rooms_.directions),
            v.arrays.template as<master_type>(kept_directions_),
            v.rate,
            v.rank};
  }
  [[nodiscard]] std::size_t left() const noexcept { return tensors_[0].left(); }
  [[nodiscard]] std::size_t right() const noexcept { return tensors_[0].right(); }
  [[nodiscard]] static std::size_t ranks(view_type const& v) noexcept { return static_cast<std::size_t>(v.ranks()); }
  /// Of a message every rank sums as many numbers: begins of cache lines.
  [[nodiscard]] static std::size_t part_of(view_type const& v, std::size_t message) noexcept {
    const std::size_t part = (message + ranks(v) - 1) / ranks(v);
    return (part + partition::alignment - 1) / partition::alignment * partition::alignment;
  }

  /// Enqueues the sum over ranks of a message that leaves.
  void sum(view_type& v, world_type& world, std::size_t message, sum_type* to) const {
    const std::size_t part = part_of(v, message), whole = part * ranks(v);
    sum_type* const mine = to + static_cast<std::size_t>(v.rank) * part;
    auto* const arriving = v.arrays.template as<sum_type>(rooms_.arriving);
    const auto bytes = [](sum_type* from, std::size_t count) { return std::as_writable_bytes(std::span(from, count)); };
    world.all_to_all(v.queue, bytes(v.arrays.template as<sum_type>(rooms_.leaving), whole), bytes(arriving, whole));
    Storage::run(v.queue, [=, ranks = v.ranks()] {
      const auto source = [&](int rank) -> sum_type const* { return arriving + static_cast<std::size_t>(rank) * part; };
      elementwise::sum_sources(ranks, source, mine, part, false);
    });
    world.all_gather(v.queue, sharded<std::byte const>(bytes(mine, part)), replicated<std::byte>(bytes(to, whole)));
    v.sends(collective::all_to_all, whole * sizeof(sum_type));
    v.sends(collective::all_gather, whole * sizeof(sum_type));
  }
  /// This rank's share of a bucket: visit(tensor, first element in it, index in the shard, count).
  template <class Visitor>
  void for_own(round_arrays const& a, bucket const& b, Visitor&& visit) const {
    const std::size_t begin = b.begin + static_cast<std::size_t>(a.rank) * b.share;
    tensors_[0].for_pieces(*a.shares, begin, b.share,
                           [&](tensor const& t, std::size_t at, std::size_t position, std::size_t count) {
                             visit(t, at, b.offset + (position - begin), count);
                           });
  }
  template <class Visitor>
  void for_all(round_arrays const& a, Visitor&& visit) const {
    tensors_[0].for_pieces(*a.shares, 0, a.shares->size(), visit);
  }
  /// What this rank sends of its gradients; what it keeps it sends also where it brings no samples: else what the
  /// others keep, which is of the same sums, would not be met.
  template <class N>
  [[nodiscard]] numbers sent(round_arrays const& a, std::size_t position, N n) const {
    const auto gradient = elementwise::load<numbers>(a.gradients + position, n);
    if constexpr (feeds_back<Code>) {
      return code_.policy.sent(gradient, elementwise::load<numbers>(a.state + position, n), numbers(a.rate));
    } else {
      return gradient;
    }
  }

  // Tasks.

  /// Of the directions that are kept, which all ranks together have once: the number k of a tensor's lies in the shard
  /// of its element k.
  void tell_directions(round_arrays const& a) const {
    std::fill_n(a.leaving, right(), sum_type(0));
    for_directions(a, [&](std::size_t in_shard, std::size_t in_message, std::size_t count) {
      elementwise::convert(static_cast<master_type const*>(a.kept_directions + in_shard), a.leaving + in_message, count);
    });
  }
  void keep_directions(round_arrays const& a, bucket const& b) const {
    for_own_directions(a, b, [&](std::size_t in_shard, std::size_t in_message, std::size_t count) {
      elementwise::convert(static_cast<sum_type const*>(a.directions + in_message), a.kept_directions + in_shard, count);
    });
  }
  template <class Visitor>
  void for_directions(round_arrays const& a, Visitor&& visit) const {
    for (std::size_t k = 0; k < a.shares->buckets(); ++k) for_own_directions(a, (*a.shares)[k], visit);
  }
  template <class Visitor>
  void for_own_directions(round_arrays const& a, bucket const& b, Visitor&& visit) const {
    for_own(a, b, [&](tensor const& t, std::size_t at, std::size_t in_shard, std::size_t count) {
      const std::size_t all = t.thin.rank * t.thin.columns;
      if (at < all) visit(in_shard, t.right + at, std::min(count, all - at));
    });
  }
  /// Q of this round, for the next: as numbers of the type in which they are kept.
  void point(round_arrays const& a) const {
    for_vectors(a, [&](std::size_t, sum_type* to, sum_type const* from, std::size_t count) {
      std::copy_n(from, count, to);
      matrices::normalize(to, count);
      for (std::size_t k = 0; k < count; ++k) to[k] = static_cast<sum_type>(static_cast<master_type>(to[k]));
    });
  }
  /// visit(element that it is kept at, vector of the directions, the same of this round's Q, count).
  template <class Visitor>
  void for_vectors(round_arrays const& a, Visitor&& visit) const {
    for (tensor const& t : tensors_[0].all()) {
      for (std::size_t v = 0; v < t.thin.rank; ++v) {
        const std::size_t at = v * t.thin.columns;
        visit(t.first + at, a.directions + t.right + at, a.right + t.right + at, t.thin.columns);
      }
    }
  }

  /// The first message. A direction that points nowhere, at first or because a matrix had no gradients, would for ever:
  /// it begins at random.
  void begin(round_arrays const& a) const {
    for_vectors(a, [&](std::size_t element, sum_type* to, sum_type const*, std::size_t count) {
      if (std::any_of(to, to + count, [](sum_type x) { return x != 0; })) return;
      for (std::size_t k = 0; k < count; ++k) {
        const std::uint32_t bits = random_bits(std::uint64_t{code_.seed} << 32U, element + k);
        to[k] = static_cast<sum_type>(static_cast<master_type>(static_cast<double>(bits) / 2147483648.0 - 1));
      }
    });
    std::fill_n(a.leaving, left(), sum_type(0));
    for_all(a, [&](tensor const& t, std::size_t at, std::size_t position, std::size_t count) {
      const auto read = [&](std::size_t i, auto n) { return sent(a, position + i, n); };
      if (t.thin.rank != 0) return matrices::project(t.thin, at, count, read, a.directions + t.right, a.leaving + t.left);
      sum_type* const to = a.leaving + t.left + at;
      elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) { elementwise::store(read(i, n), to + i, n); });
    });
  }
  /// Between the messages.
  void turn(round_arrays const& a) const {
    for (tensor const& t : tensors_[0].all()) matrices::orthonormalize(a.left + t.left, t.thin.rows, t.thin.rank);
    std::fill_n(a.leaving, right(), sum_type(0));
    for_all(a, [&](tensor const& t, std::size_t at, std::size_t position, std::size_t count) {
      if (t.thin.rank == 0) return;
      matrices::project_back(
          t.thin, at, count, [&](std::size_t i, auto n) { return sent(a, position + i, n); }, a.left + t.left,
          a.leaving + t.right);
    });
  }
  void write(round_arrays const& a, bucket const& b, bool adds) const {
    if (!adds) std::fill_n(a.reduced + b.offset, b.share, sum_type(0));
    for_own(a, b, [&](tensor const& t, std::size_t at, std::size_t in_shard, std::size_t count) {
      sum_type* const to = a.reduced + in_shard;
      if (t.thin.rank == 0) return elementwise::add(static_cast<sum_type const*>(a.left + t.left + at), to, count);
      matrices::for_product(t.thin, at, count, a.left + t.left, a.right + t.right, [&](std::size_t i, auto n, numbers const& x) {
        elementwise::store(elementwise::load<numbers>(to + i, n) + x, to + i, n);
      });
    });
  }
  /// What the feedback keeps of a bucket: of a matrix P p' P has arrived, which is what still lies in the message that
  /// left; of anything else all that was sent.
  void keep(round_arrays const& a, bucket const& b) const
    requires feeds_back<Code>
  {
    const std::size_t whole = b.share * static_cast<std::size_t>(a.shares->ranks());
    tensors_[0].for_pieces(
        *a.shares, b.begin, whole, [&](tensor const& t, std::size_t at, std::size_t position, std::size_t count) {
          const auto keep_of = [&](std::size_t i, auto n, numbers const& x, numbers const& arrived) {
            state_type* const to = a.state + position + i;
            elementwise::store(code_.policy.kept(x, arrived, elementwise::load<numbers>(to, n)), to, n);
          };
          if (t.thin.rank == 0) {
            elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
              const numbers x = sent(a, position + i, n);
              keep_of(i, n, x, x);
            });
            return;
          }
          matrices::for_product(
              t.thin, at, count, a.left + t.left, a.leaving + t.right,
              [&](std::size_t i, auto n, numbers const& arrived) { keep_of(i, n, sent(a, position + i, n), arrived); });
        });
  }

  Code code_;
  std::vector<thin_tensors> tensors_;  // one, once it is declared
  struct {
    std::size_t leaving = 0, arriving = 0, sums = 0, directions = 0;
  } rooms_;
  std::size_t kept_directions_ = 0, state_ = 0;  // numbers of arrays
  std::uint64_t held_ = ~std::uint64_t{0};       // of which replacement the directions in the room are; set by tasks
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
