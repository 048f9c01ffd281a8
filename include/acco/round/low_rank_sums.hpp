// SPDX-License-Identifier: Apache-2.0
// Sums of gradients over ranks of which matrices travel as products of thin ones (encoding/power_sgd.hpp):
//
//   network            sum of p Q, and of all that is no such matrix |                      | sum of p' P |
//   update   p = e + g                                               | P orthonormal, p' P  |             | P Q', bucket by
//   bucket ... e = p - P Q'
//
// A sum is a reduce-scatter and an all-gather of the same numbers: every rank has the same bits. P is made orthonormal by every
// rank for itself: it decides only what an owner adds to its slice, and parameters travel from there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/decision.hpp"
#include "acco/round/stagger.hpp"
#include "acco/storage/low_rank.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns what each rank keeps of its own gradients, the directions of the last round, and the messages. Empty unless `add` has
/// been called. The trainer's thread calls all members; those that take a queue enqueue on its current lane, but for `forget` and
/// `put`, which are at once.
template <class Storage>
class low_rank_sums {
 public:
  using sum_type = typename Storage::sum_type;
  using gradient_type = typename Storage::gradient_type;
  using queue_type = typename Storage::queue;

  low_rank_sums(partition shares, int rank) : shares_(shares), rank_(rank) {}

  /// Rounds may travel like this. Throws `usage_error` where no trainable tensor becomes smaller by it. Before `allocate`.
  template <low_rank_wire Wire>
  void add(Wire const& wire, parameter_layout const& layout, error_place const& where) {
    wire.check(where);
    std::vector<std::size_t> firsts;       // trainable elements before each trainable tensor
    std::vector<std::uint32_t> travel_as;  // its matrix
    std::size_t first = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      if (layout.groups()[each.group].frozen || each.size == 0) continue;
      firsts.push_back(first);
      first += each.size;
      travel_as.push_back(low_rank_piece::exact);
      if (each.shape.size() < 2) continue;
      const std::size_t rows = each.shape[0], columns = each.size / rows;
      if (!wire.pays(rows, columns)) continue;
      travel_as.back() = static_cast<std::uint32_t>(matrices_.size());
      const std::size_t rank = std::min({rows, columns, std::size_t{wire.rank}});
      matrices_.push_back({rows, columns, rank, kept_, left_, right_, mix_bits(wire.seed) + static_cast<std::uint32_t>(k)});
      kept_ += each.size;
      left_ += rank * rows;
      right_ += rank * columns;
      rows_ += rows;
      columns_ += columns;
    }
    if (matrices_.empty()) {
      throw usage_error(where,
                        text("power_sgd: no trainable tensor is a matrix that rank ", wire.rank, " makes ", wire.min_compression,
                             " times smaller"),
                        text("Give the layout its tensors with their shapes, and a smaller rank or min_compression"));
    }
    trainable_ = first;
    find_pieces(firsts, travel_as);
  }
  [[nodiscard]] bool any() const noexcept { return !matrices_.empty(); }

  void count(memory_table& table) const noexcept {
    table.encoded += Storage::allocation_size(kept_bytes(), stagger::encoded) +
                     Storage::allocation_size(message_bytes(), stagger::encoded + 1);
  }
  void allocate(Storage const& storage, queue_type& queue) {
    if (!any()) return;
    state_ = storage.allocate(kept_bytes(), stagger::encoded);
    messages_ = storage.allocate(message_bytes(), stagger::encoded + 1);
    table_ = {storage, matrices_.size()};
    for (std::size_t k = 0; k < matrices_.size(); ++k) table_[k] = matrices_[k];
    carried_ = {storage, of_carried_.size()};
    for (std::size_t k = 0; k < of_carried_.size(); ++k) carried_[k] = of_carried_[k];
    slice_ = {storage, of_slice_.size()};
    for (std::size_t k = 0; k < of_slice_.size(); ++k) slice_[k] = of_slice_[k];
    table_.upload(queue);
    carried_.upload(queue);
    slice_.upload(queue);
    queue.wait();  // `forget` does not
    Storage::clear(queue, messages_.template as<std::byte>(), message_bytes());
  }

  /// What this rank keeps from one round to the next: e, and Q.
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return (kept_ + right_) * sizeof(sum_type); }
  [[nodiscard]] void const* kept() const noexcept { return state_.template as<sum_type>(); }
  void put(queue_type& queue, std::byte const* from) {
    if (any()) Storage::copy(queue, reinterpret_cast<sum_type const*>(from), state_.template as<sum_type>(), kept_ + right_);
  }
  void forget([[maybe_unused]] queue_type& queue) {
    if constexpr (has_low_rank<Storage>) {
      if (any()) Storage::low_rank_forget(queue, view());
    }
  }

  /// Adds this rank's gradients, by position, to what it has kept, and writes the first message. `n` are the round's numbers.
  void begin(queue_type& queue, gradient_type const* gradients, double loss_scale, round_numbers const* n) {
    Storage::low_rank_begin(queue, view(), carried_.there(), of_carried_.size(), gradients, loss_scale, &n->counts_mine[0]);
  }
  /// Between the messages.
  void turn(queue_type& queue, round_numbers const* n) { Storage::low_rank_turn(queue, view(), &n->counts_mine[0]); }
  /// Sums the first message, or the second, over all ranks. Returns the bytes that this rank sends for it in a ring.
  template <class Backend>
  std::uint64_t sum(queue_type& queue, Backend& backend, bool first) {
    const std::size_t part = part_of(first ? left_ + exact_ : right_), whole = part * ranks();
    sum_type* const to = first ? view().left : view().right;
    const std::span<sum_type> mine(to + static_cast<std::size_t>(rank_) * part, part);
    backend.reduce_scatter(queue, partial<sum_type const>({view().leaving, whole}), sharded<sum_type>(mine));
    backend.all_gather(queue, sharded<sum_type const>(mine), replicated<sum_type>({to, whole}));
    const std::uint64_t bytes = whole * sizeof(sum_type);
    return bytes_sent(collective::reduce_scatter, backend.size(), bytes) +
           bytes_sent(collective::all_gather, backend.size(), bytes);
  }
  /// This rank's share of a bucket = (or +=) its part of the sum.
  void write(queue_type& queue, bucket const& b, sum_type* share, bool add) {
    const std::size_t begin = first_of_[b.index];
    Storage::low_rank_write(queue, view(), slice_.there() + begin, first_of_[b.index + 1] - begin, share, b.share, add);
  }
  /// Keeps what was not sent, or nothing of a step that is skipped.
  void end(queue_type& queue, double loss_scale, round_numbers const* n) {
    Storage::low_rank_end(queue, view(), loss_scale, &n->counts_mine[0], &n->all.weight, &n->skip);
  }

 private:
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(shares_.ranks()); }
  /// Of a message every rank sums as many numbers: begins of cache lines.
  [[nodiscard]] std::size_t part_of(std::size_t numbers) const noexcept {
    return ((numbers + ranks() - 1) / ranks() + partition::alignment - 1) / partition::alignment * partition::alignment;
  }
  [[nodiscard]] std::size_t first_size() const noexcept { return part_of(left_ + exact_) * ranks(); }
  [[nodiscard]] std::size_t second_size() const noexcept { return part_of(right_) * ranks(); }
  [[nodiscard]] std::size_t message_bytes() const noexcept {
    return any() ? (std::max(first_size(), second_size()) + first_size() + second_size()) * sizeof(sum_type) : 0;
  }
  [[nodiscard]] low_rank_view<sum_type> view() const noexcept {
    auto *const state = state_.template as<sum_type>(), *const messages = messages_.template as<sum_type>();
    sum_type* const left = messages + std::max(first_size(), second_size());
    return {table_.there(), matrices_.size(),    state,          state + kept_, messages,
            left,           left + first_size(), shares_.size(), rows_,         columns_};
  }

  /// Where the elements lie that this rank carries, and those of its slice.
  void find_pieces(std::vector<std::size_t> const& firsts, std::vector<std::uint32_t> const& travel_as) {
    std::vector<std::size_t> exact_at;  // by tensor: where it begins in the first message
    for (std::size_t k = 0; k < firsts.size(); ++k) {
      exact_at.push_back(left_ + exact_);
      if (travel_as[k] != low_rank_piece::exact) continue;
      const std::size_t behind = k + 1 < firsts.size() ? firsts[k + 1] : trainable_;
      exact_ += behind - firsts[k];
    }
    const auto add = [&](std::vector<low_rank_piece>& to, std::size_t from, std::size_t length) {
      shares_.for_elements(from, length, [&](std::size_t position, std::size_t first, std::size_t count) {
        auto in = static_cast<std::size_t>(std::upper_bound(firsts.begin(), firsts.end(), first) - firsts.begin()) - 1;
        for (std::size_t done = 0; done < count; ++in) {
          const std::size_t behind = in + 1 < firsts.size() ? firsts[in + 1] : trainable_, element = first + done;
          const std::size_t n = std::min(count - done, behind - element), in_tensor = element - firsts[in];
          const bool exact = travel_as[in] == low_rank_piece::exact;
          to.push_back({position + done - from, exact ? exact_at[in] + in_tensor : in_tensor, n, travel_as[in]});
          done += n;
        }
      });
    };
    add(of_carried_, 0, shares_.size());
    for (std::size_t k = 0; k < shares_.buckets(); ++k) {
      const bucket b = shares_[k];
      const std::size_t begin = b.begin + static_cast<std::size_t>(rank_) * b.share;
      first_of_.push_back(of_slice_.size());
      if (begin < shares_.size()) add(of_slice_, begin, std::min(b.share, shares_.size() - begin));
    }
    first_of_.push_back(of_slice_.size());
  }

  partition shares_;
  int rank_;
  std::size_t trainable_ = 0;
  std::size_t kept_ = 0, left_ = 0, right_ = 0, exact_ = 0;  // numbers
  std::size_t rows_ = 0, columns_ = 0;                       // of all matrices
  std::vector<low_rank_matrix> matrices_;
  std::vector<low_rank_piece> of_carried_, of_slice_;
  std::vector<std::size_t> first_of_;  // piece of each bucket of the slice, and one behind the last
  typename Storage::template numbers<low_rank_matrix> table_;
  typename Storage::template numbers<low_rank_piece> carried_, slice_;
  typename Storage::buffer state_, messages_;
};

}  // namespace ACCO_SIMD_NAMESPACE
