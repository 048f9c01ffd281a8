// SPDX-License-Identifier: Apache-2.0
// This rank's slice of the optimizer state: master parameters and the rule's slots (ZeRO-1, arXiv 1910.02054).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "acco/collective/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/elementwise.hpp"

namespace ACCO_NAMESPACE {

/// Owns masters and slots. A prediction reads them and writes only what the ranks will get: there is nothing to roll back.
template <class Storage, class Rule>
class sharded_state {
 public:
  using parameter_type = typename Storage::parameter_type;
  using master_type = typename Storage::master_type;
  using sum_type = typename Storage::sum_type;
  using queue = typename Storage::queue;
  using constants = rule_constants<Rule>;

  sharded_state(Rule const& rule, parameter_layout const& layout, partition shares, int rank)
      : rule_(rule),
        groups_(layout.groups().begin(), layout.groups().end()),
        slice_size_(shares.slice_size()),
        count_(shares.count(rank)) {
    const std::size_t begin = shares.begin(rank);
    for (trainable_run const& run : trainable_runs(layout)) {
      const std::size_t first = std::max(run.first, begin);
      const std::size_t last = std::min(run.first + run.count, begin + count_);
      if (first >= last) continue;
      if (!pieces_.empty() && pieces_.back().group == run.group) {  // neighbours in the slice, though not in the model
        pieces_.back().count += last - first;
      } else {
        pieces_.push_back({first - begin, last - first, run.group, {}});
      }
    }
  }

  void count(memory_table& table) const noexcept {
    table.masters += Storage::allocation_size(slice_size_ * sizeof(master_type), 4);
    for (std::size_t k = 0; k < Rule::slot_count; ++k)
      table.slots += Storage::allocation_size(slice_size_ * sizeof(master_type), 5 + k);
  }

  void allocate(Storage const& storage, queue& q) {
    now_ = {storage, groups_.size()};
    next_ = {storage, groups_.size()};
    masters_ = storage.allocate(slice_size_ * sizeof(master_type), 4);
    Storage::clear(q, masters(), slice_size_);
    for (std::size_t k = 0; k < Rule::slot_count; ++k) {
      slots_[k] = storage.allocate(slice_size_ * sizeof(master_type), 5 + k);
      Storage::clear(q, slot(k), slice_size_);
    }
  }

  /// Enqueues: masters from parameters, `count` elements from `offset` of the slice on.
  void set_masters(queue& q, std::size_t offset, parameter_type const* from, std::size_t count) {
    Storage::convert(q, from, masters() + offset, count);
  }

  /// Computes the constants of the coming update, and those of the update after it, which commit_and_predict uses too; works that
  /// are enqueued after the upload see them.
  void prepare(update_step const& now) { prepare(now_, now); }
  void prepare_next(update_step const& next) { prepare(next_, next); }
  void upload(queue& q) { now_.upload(q); }
  void upload_next(queue& q) { next_.upload(q); }

  /// Enqueues the update of this rank's slice. Gradients are the reduced sum and are multiplied by *scale; `out` is this rank's
  /// slice of what the ranks will get: the committed parameters unchanged where *wanted turns out false. Constants, scale and
  /// `wanted` are read when the task runs.
  void apply(update kind, queue& q, bool const* wanted, sharded<sum_type const> gradients, double const* scale,
             sharded<parameter_type> out) {
    for (piece& each : pieces_) {
      each.arguments = arguments(each.begin, each.count, gradients, out);
      with(kind, [&](auto constant) {
        Storage::template apply<Rule, constant()>(q, wanted, now_.there(each.group), next_.there(each.group), scale,
                                                  &each.arguments);
      });
    }
  }
  /// The same at once for a stretch of the slice, for tasks that work in pieces.
  void apply_now(update kind, std::size_t offset, std::size_t count, bool wanted, sharded<sum_type const> gradients, double scale,
                 sharded<parameter_type> out) const {
    for (piece const& each : pieces_) {
      const std::size_t first = std::max(each.begin, offset);
      const std::size_t last = std::min(each.begin + each.count, offset + count);
      if (first >= last) continue;
      with(kind, [&](auto constant) {
        Storage::template apply_now<Rule, constant()>(wanted, now_[each.group], next_[each.group], scale,
                                                      arguments(first, last - first, gradients, out));
      });
    }
  }

  template <class T, class... Rest>
  void apply(update, queue&, bool const*, partial<T>, Rest&&...) {
    static_assert(!std::is_same_v<T, T>,
                  "acco: a partial gradient cannot feed a rule: reduce_scatter it first, that makes it sharded");
  }

  /// Enqueues out = masters, converted: the committed parameters of this rank's slice.
  void show(queue& q, sharded<parameter_type> out) const {
    Storage::convert(q, static_cast<master_type const*>(masters()), out.slice().data(), count_);
  }

  /// Real elements of the slice; the rest, up to the slice's size, is padding.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// 64-bit hash of masters and slots of this rank.
  [[nodiscard]] std::uint64_t digest(queue& q) const {
    std::uint64_t hash = 0x243f6a8885a308d3ULL;
    const auto mix = [&hash](master_type const* values, std::size_t, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, values + i, sizeof(master_type));
        hash = (hash ^ word) * 0x9fb21c651e98df25ULL;
        hash ^= hash >> 32U;
      }
    };
    Storage::visit_on_host(q, static_cast<master_type const*>(masters()), count_, mix);
    for (std::size_t k = 0; k < Rule::slot_count; ++k)
      Storage::visit_on_host(q, static_cast<master_type const*>(slot(k)), count_, mix);
    return hash;
  }

 private:
  using update_arguments = elementwise::update_arguments<master_type, sum_type, parameter_type, Rule::slot_count>;
  struct piece {  // elements of the slice that belong to one group
    std::size_t begin, count, group;
    update_arguments arguments;
  };
  [[nodiscard]] update_arguments arguments(std::size_t begin, std::size_t count, sharded<sum_type const> gradients,
                                           sharded<parameter_type> out) const noexcept {
    update_arguments result{masters() + begin, {}, gradients.slice().data() + begin, out.slice().data() + begin, count};
    for (std::size_t k = 0; k < Rule::slot_count; ++k) result.slots[k] = slot(k) + begin;
    return result;
  }
  /// Calls function(constant) with the kind as a type.
  template <class Function>
  static void with(update kind, Function&& function) {
    switch (kind) {
      case update::predict: return function(std::integral_constant<update, update::predict>());
      case update::commit: return function(std::integral_constant<update, update::commit>());
      case update::commit_and_predict: return function(std::integral_constant<update, update::commit_and_predict>());
    }
  }
  using constants_table = typename Storage::template numbers<constants>;
  void prepare(constants_table& table, update_step const& step) {
    for (std::size_t g = 0; g < groups_.size(); ++g) table[g] = rule_.prepare(step, groups_[g]);
  }
  [[nodiscard]] master_type* masters() const noexcept { return masters_.template as<master_type>(); }
  [[nodiscard]] master_type* slot(std::size_t k) const noexcept { return slots_[k].template as<master_type>(); }

  Rule rule_;
  std::vector<update_group> groups_;
  std::size_t slice_size_, count_;
  std::vector<piece> pieces_;
  constants_table now_, next_;
  typename Storage::buffer masters_;
  std::array<typename Storage::buffer, Rule::slot_count> slots_;
};

}  // namespace ACCO_NAMESPACE
