// SPDX-License-Identifier: Apache-2.0
// Digests that tasks of a round compute: of the parameters in use, which every rank has, and of this rank's part of the
// state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/stage/state_arrays.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/storage/staged_range.hpp"
#include "acco/storage/storage_traits.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A storage whose tasks can digest arrays. With others, parameters are not compared between ranks, and
/// `options::digest_every` is refused.
template <class Storage>
concept digests = storage_traits_of<Storage>.digests;

/// Owns the sums. The trainer's thread calls all members; what they enqueue has been read when the queue is idle.
template <class Storage>
class round_digests {
 public:
  using queue = typename Storage::queue;
  using parameter_type = typename Storage::parameter_type;

  void allocate(Storage const& storage, parameter_layout const& layout, state_arrays<Storage> const& arrays) {
    of_tensors_ = {storage, layout.tensor_count()};
    shown_.reserve(layout.tensor_count());
    arrays.for_elements([&](std::size_t array, auto values, std::size_t first, std::size_t count) {
      std::get<ranges_list<typename number_at<decltype(values)>::type>>(state_).push_back(
          {values, count, arrays.key(array, first), 0});
    });
    for_state([](auto const&) {});
    of_state_ = {storage, sums_};
  }

  /// Enqueues the digests of the parameters in use, tensor by tensor: the parts of element i of the layout have the
  /// number i + 1. What is frozen may be written to meanwhile, unless the trainer has said that it is not:
  /// `frozen_too`.
  void digest_shown(queue& q, parameter_layout const& layout, gradient_accumulator<Storage> const& accumulator, bool frozen_too) {
    shown_.clear();
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      update_group const& group = layout.groups()[each.group];
      const bool compared = !group.frozen || (frozen_too && !group.per_rank);
      if (compared && each.size != 0)
        shown_.push_back({accumulator.parameter_at(each.offset), each.size, {each.offset + 1, 1}, k});
    }
    Storage::digest(q, std::span<digest_range<parameter_type> const>(shown_), of_tensors_.there(), layout.tensor_count());
    of_tensors_.download(q);
  }
  /// Enqueues the digest of this rank's part of the state, as the sum of as many as there are types of elements; where
  /// tasks find them.
  std::span<unsigned long long const> digest_state(queue& q) {
    for_state([&](auto const& ranges) { Storage::digest(q, std::span(ranges), of_state_.there() + sums_, 1); });
    return {of_state_.there(), sums_};
  }

  /// What `digest_shown` has found: of a tensor, and of everything.
  [[nodiscard]] std::uint64_t shown(std::size_t tensor) const noexcept { return of_tensors_[tensor]; }
  [[nodiscard]] std::uint64_t shown(parameter_layout const& layout) const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) sum += of_tensors_[k];
    return sum;
  }

 private:
  template <class T>
  using ranges_list = std::vector<digest_range<T>>;
  using all_pieces =
      std::tuple<ranges_list<float>, ranges_list<double>, ranges_list<bfloat16>, ranges_list<half>, ranges_list<int8_blocks>>;

  /// visit(ranges) for the lists that have some; `sums_` counts them.
  template <class Visitor>
  void for_state(Visitor&& visit) {
    sums_ = 0;
    const auto unless_empty = [&]<class T>(ranges_list<T> const& each) {
      if constexpr (state_arrays<Storage>::template may_have<T>) {
        if (each.empty()) return;
        visit(each);
        ++sums_;
      }
    };
    std::apply([&](auto const&... each) { (unless_empty(each), ...); }, state_);
  }

  typename Storage::template numbers<unsigned long long> of_tensors_, of_state_;
  ranges_list<parameter_type> shown_;  // of the round in flight
  all_pieces state_;
  std::size_t sums_ = 0;
};

/// Of a storage that cannot.
template <class Storage>
  requires(!digests<Storage>)
class round_digests<Storage> {
 public:
  template <class... Any>
  void allocate(Any const&...) {}
};

/// Which of the ranks' digests, by rank, are not those of most of them.
struct odd_ranks {
  std::vector<std::size_t> ranks;  ///< empty: all are alike
  bool majority = false;           ///< whether more than half of the ranks agree:
                                   ///< then these are the others; else they are all
};
[[nodiscard]] inline odd_ranks odd_among(std::span<std::uint64_t const> digests) {
  std::uint64_t usual = 0;
  std::size_t most = 0;
  for (const std::uint64_t each : digests) {
    std::size_t alike = 0;
    for (const std::uint64_t other : digests) alike += other == each ? 1 : 0;
    if (alike > most) {
      most = alike;
      usual = each;
    }
  }
  odd_ranks found;
  if (most == digests.size()) return found;
  found.majority = 2 * most > digests.size();
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (!found.majority || digests[rank] != usual) found.ranks.push_back(rank);
  }
  return found;
}

/// Throws an error that names a tensor, and the ranks whose parameters in use differ there. `mine` has this rank's
/// digest of each tensor; `broadcast(numbers, root)` gives every rank the root's. Collective: every rank throws alike.
template <class Broadcast>
[[noreturn]] void raise_different_parameters(std::vector<std::uint64_t> const& mine, parameter_layout const& layout, int ranks,
                                             error_place where, Broadcast&& broadcast) {
  std::vector<std::vector<std::uint64_t>> all(static_cast<std::size_t>(ranks), mine);
  for (int root = 0; root < ranks; ++root) broadcast(std::span<std::uint64_t>(all[static_cast<std::size_t>(root)]), root);
  std::size_t first = layout.tensor_count(), tensors = 0;
  odd_ranks odd;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    std::vector<std::uint64_t> of_tensor(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) of_tensor[rank] = all[rank][k];
    odd_ranks found = odd_among(of_tensor);
    if (found.ranks.empty()) continue;
    ++tensors;
    if (first != layout.tensor_count()) continue;
    first = k;
    odd = std::move(found);
  }
  const text advice(
      "Memory, an adapter or a compute unit gives wrong bits there; or the program writes to its parameters; or the "
      "ranks' processors differ, and compute differently (options::compare_every = 0). Restore a checkpoint, "
      "without that machine");
  if (first == layout.tensor_count())
    throw corruption_error(where, text("the digests of the parameters in use have differed between ranks, on their way"), advice);
  text names;
  for (std::size_t k = 0; k < odd.ranks.size(); ++k)
    names.append(k == 0 ? "" : k + 1 == odd.ranks.size() ? " and " : ", ").append(odd.ranks[k]);
  const text others(tensors > 1 ? text(", and in ", tensors - 1, " more") : text(""));
  const auto tensor = layout[first].name;
  const int alone = odd.majority && odd.ranks.size() == 1 ? static_cast<int>(odd.ranks[0]) : -1;
  throw corruption_error(where,
                         odd.majority ? text("the parameters in use of rank ", names,
                                             " are not those of the other ranks, in tensor '", tensor, "'", others)
                                      : text("the parameters in use differ between ranks ", names, ", in tensor '", tensor, "'",
                                             others, ": which of them are right cannot be told"),
                         advice, alone);
}

}  // namespace ACCO_SIMD_NAMESPACE
