// SPDX-License-Identifier: Apache-2.0
// This rank's slice of the optimizer state: master parameters and the rule's slots (ZeRO-1, arXiv 1910.02054).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/update_regions.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/stage/stagger.hpp"
#include "acco/stage/state_arrays.hpp"
#include "acco/storage/update_table.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Masters and slots. A prediction reads them and writes only what the ranks will get: there is nothing to roll back.
template <class Storage>
class sharded_state {
 public:
  using parameter_type = typename Storage::parameter_type;
  using master_type = typename Storage::master_type;
  using sum_type = typename Storage::sum_type;
  using queue = typename Storage::queue;

  /// Declares its `arrays`, which must outlive it. `averages`: whether it keeps an exponential moving average of the
  /// masters.
  sharded_state(state_arrays<Storage>& arrays, rule_in_use<Storage>& rule, parameter_layout const& layout,
                update_regions const& regions, partition shares, int rank, bool averages)
      : arrays_(arrays), rule_(rule), shares_(shares), rank_(rank), count_(shares.count(rank)), keeps_averages_(averages) {
    for (std::size_t r = 0; r < regions.size(); ++r) groups_.push_back(layout.groups()[regions[r].group]);
    updates_.resize(groups_.size(), 0);
    list_blocks(layout, regions);
    const auto keep = [this](std::string const& name, array_start start, std::size_t cache_offset,
                             std::size_t memory_table::* row) {
      return arrays_.template declare<master_type>({.name = name, .start = start}, {cache_offset, row});
    };
    masters_ = keep("master", array_start::parameters, stagger::masters, &memory_table::masters);
    for (std::size_t k = 0; k < slot_count(); ++k)
      slots_.push_back(keep(name_of_slot(rule_.name(), k), array_start::zeros, stagger::slots + k, &memory_table::slots));
    if (keeps_averages_)
      averages_ = keep(state_shape::average, array_start::parameters, stagger::slots + slot_count(), &memory_table::averages);
    for_matrices_ = arrays_.declare_room("room for a matrix", scratch_ * sizeof(master_type), {0, &memory_table::scratch});
  }
  [[nodiscard]] std::size_t slot_count() const noexcept { return rule_.slot_count; }

  /// Its tables; the arrays are allocated by whoever owns them.
  void allocate(Storage const& storage, queue& q) {
    rule_.allocate(storage, groups_.size());
    slices_.resize(slot_count());
    blocks_ = {storage, cut_.size()};
    for (std::size_t k = 0; k < cut_.size(); ++k) blocks_[k] = cut_[k];
    matrices_ = {storage, cut_matrices_.size()};
    for (std::size_t k = 0; k < cut_matrices_.size(); ++k) matrices_[k] = cut_matrices_[k];
    q.after_computation();
    blocks_.upload(q);
    matrices_.upload(q);
  }

  /// Enqueues: masters from parameters, `count` elements from `offset` of the slice on. A master that is shown as its
  /// parameter already stays what it is.
  void set_masters(queue& q, std::size_t offset, parameter_type const* from, std::size_t count) {
    Storage::replace_edited(q, from, masters() + offset, count);
  }

  /// At once, between the trainer's own computations: masters, in their own type, from host memory.
  void put_masters(queue& q, std::size_t offset, master_type const* from, std::size_t count) {
    Storage::copy(q, from, masters() + offset, count);
  }
  /// This rank's slice of the masters, padding included, for whoever replaces them between rounds.
  [[nodiscard]] std::span<master_type> slice() noexcept { return {masters(), shares_.slice_size()}; }
  [[nodiscard]] bool rule_averages() const noexcept { return rule_.averages(); }
  /// This rank's slice of the masters, or of the averages that `options::average_decay` keeps.
  [[nodiscard]] master_type const* values(bool averaged) const noexcept { return averaged ? averages() : masters(); }
  /// What `average_of_rule` needs.
  void count(memory_table& table) const noexcept {
    if (rule_averages()) table.gathering += Storage::allocation_size(shares_.slice_size() * sizeof(master_type), 0);
  }
  /// Enqueues: `to`, of a slice, becomes the rule's own averages.
  void average_of_rule(queue& q, master_type* to) const {
    Storage::convert(q, static_cast<master_type const*>(masters()), to, shares_.slice_size());
    Storage::add(q, static_cast<master_type const*>(slot(rule_.average_slot)), to, shares_.slice_size());
  }

  /// Enqueues: the averages begin as the masters.
  void begin_averages(queue& q) {
    if (keeps_averages_) Storage::convert(q, static_cast<master_type const*>(masters()), averages(), shares_.slice_size());
  }
  /// Enqueues, where *wanted, for this rank's share of a bucket: average <- keep average + (1 - keep) master.
  void average(queue& q, std::size_t bucket, bool const* wanted, double keep) {
    const std::size_t offset = shares_[bucket].offset;
    Storage::average(q, wanted, masters() + offset, averages() + offset, real(bucket), keep);
  }
  /// Enqueues the sums of squares of this rank's share of a bucket of the slice, block by block.
  void squares_of_blocks(queue& q, std::size_t bucket, sum_type const* slice, double* results) {
    Storage::squares_of_blocks(q, slice, blocks_.there(), first_[bucket], first_[bucket + 1], results);
  }
  /// The same of sums in the gradient's type, which come into the slice, or are added to it, on the way.
  template <class Gradient>
  void take_blocks(queue& q, std::size_t bucket, Gradient const* from, sum_type* slice, bool adds, double* results) {
    Storage::take_blocks(q, from, slice, adds, blocks_.there(), first_[bucket], first_[bucket + 1], results);
  }
  [[nodiscard]] update_block const* blocks() noexcept { return blocks_.there(); }
  [[nodiscard]] std::size_t block_count() const noexcept { return cut_.size(); }

  /// Computes the constants of the coming update, and those of the update after it, which commit_and_predict uses too;
  /// tasks that are enqueued after the upload see them. A region that may be left out has updates(region) behind it,
  /// whatever step.count says; moves(region): whether the coming update changes it.
  void prepare(update_step const& now) {
    for (std::size_t r = 0; r < groups_.size(); ++r) rule_.prepare(r, step_of(r, now, 1), groups_[r]);
  }
  template <class Moves>
  void prepare_next(update_step const& next, Moves&& moves) {
    for (std::size_t r = 0; r < groups_.size(); ++r)
      rule_.prepare_next(r, step_of(r, next, leaves(r) && moves(r) ? 2 : 1), groups_[r]);
  }
  /// Whether a region is left out of updates in which it has no gradient; how many it had.
  [[nodiscard]] bool leaves(std::size_t region) const noexcept { return groups_[region].leave_without_gradient; }
  [[nodiscard]] std::uint64_t& updates(std::size_t region) noexcept { return updates_[region]; }
  [[nodiscard]] std::uint64_t updates(std::size_t region) const noexcept { return updates_[region]; }
  void upload(queue& q) { rule_.upload(q); }
  void upload_next(queue& q) { rule_.upload_next(q); }

  /// What the updates of a round read: gradients are the reduced sum. Constants and what has been decided, both by
  /// region, are read when the tasks run.
  void begin(sharded<sum_type const> gradients, region_update const* decided) {
    for (std::size_t k = 0; k < slot_count(); ++k) slices_[k] = slot(k);
    rule_.begin({masters(), slices_.data(), gradients.slice().data(), decided, blocks_.there(), matrices_.there(),
                 arrays_.template as<master_type>(for_matrices_)});
  }
  template <class T, class... Rest>
  void begin(partial<T>, Rest&&...) {
    static_assert(!std::is_same_v<T, T>,
                  "acco: a partial gradient cannot feed a rule: reduce_scatter it first, that makes it sharded");
  }
  /// Enqueues the update of this rank's share of a bucket. `out` is the whole of what the ranks will get, where the
  /// share becomes the new parameters, or the committed ones unchanged where *wanted turns out false.
  void apply(update kind, queue& q, std::size_t bucket, replicated<parameter_type> out) {
    parameter_type* const share = share_of(bucket, out);
    if (first_[bucket] != elementwise_[bucket]) rule_.apply(kind, q, first_[bucket], elementwise_[bucket], share);
    if (first_matrix_[bucket] != first_matrix_[bucket + 1])
      rule_.apply_to_matrices(kind, q, first_matrix_[bucket], first_matrix_[bucket + 1], share);
  }

  /// Enqueues: this rank's share of a bucket = that of the slice `values`, masters or their averages, converted.
  void show(queue& q, std::size_t bucket, master_type const* values, replicated<parameter_type> out) const {
    const std::size_t offset = shares_[bucket].offset;
    Storage::convert(q, values + offset, share_of(bucket, out) + offset, real(bucket));
  }

  /// This rank's shard of the mean of the other ranks' last gradients, where the rule has it; else null.
  [[nodiscard]] master_type* others() const noexcept {
    return rule_.others_slot == rule_facts::none ? nullptr : slot(rule_.others_slot);
  }
  /// The same of the mean gradient at the reference point, and of how far that point lies ahead.
  [[nodiscard]] reference_place<Storage> reference() const noexcept {
    if (rule_.reference_slot == rule_facts::none) return {};
    return {slot(rule_.reference_slot), slot(rule_.reference_slot + 1)};
  }

  /// Real elements of the slice; the rest, up to the slice's size, is padding.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Real elements of this rank's share of a bucket.
  [[nodiscard]] std::size_t real(std::size_t bucket) const noexcept {
    const auto b = shares_[bucket];
    return std::min(b.share, count_ - std::min(count_, b.offset));
  }

 private:
  /// The slice as blocks of one region each, bucket by bucket; in a bucket those of matrices come last.
  void list_blocks(parameter_layout const& layout, update_regions const& regions) {
    struct trained {
      std::size_t first, tensor;  // the number of its first trainable element
    };
    std::vector<trained> tensors;
    std::size_t elements = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      if (regions.of_tensor(k) == update_regions::none || layout[k].size == 0) continue;
      tensors.push_back({elements, k});
      elements += layout[k].size;
    }
    for (std::size_t b = 0; b < shares_.buckets(); ++b) {
      first_.push_back(cut_.size());
      first_matrix_.push_back(cut_matrices_.size());
      const std::size_t offset = shares_[b].offset, begin = shares_.position(rank_, offset);
      const auto for_tensors = [&](bool whole_ones, auto&& visit) {  // visit(tensor, offset in the slice, how many)
        shares_.for_elements(begin, real(b), [&](std::size_t position, std::size_t first, std::size_t count) {
          const auto in =
              std::upper_bound(tensors.begin(), tensors.end(), first, [](std::size_t at, trained t) { return at < t.first; });
          for (std::size_t done = 0, k = static_cast<std::size_t>(in - tensors.begin()) - 1; done < count; ++k) {
            const std::size_t tensor = tensors[k].tensor, behind = tensors[k].first + layout[tensor].size;
            const std::size_t length = std::min(count - done, behind - (first + done));
            if (rule_.whole(layout.groups()[layout[tensor].group]) == whole_ones)
              visit(tensor, offset + (position - begin) + done, length);
            done += length;
          }
        });
      };
      const auto add_blocks = [&](std::size_t tensor, std::size_t in_slice, std::size_t count) {
        const auto region = static_cast<std::uint32_t>(regions.of_tensor(tensor));
        while (count != 0) {
          const std::size_t length = std::min(count, update_block::most - in_slice % update_block::most);
          const bool joins = cut_.size() > first_.back() && cut_.back().region == region &&
                             cut_.back().begin + cut_.back().count == in_slice && in_slice % update_block::most != 0;
          if (joins) {
            cut_.back().count += static_cast<std::uint32_t>(length);
          } else {
            cut_.push_back({in_slice, static_cast<std::uint32_t>(length), region});
          }
          in_slice += length;
          count -= length;
        }
      };
      for_tensors(false, add_blocks);
      elementwise_.push_back(cut_.size());
      for_tensors(true, [&](std::size_t tensor, std::size_t in_slice, std::size_t count) {
        add_blocks(tensor, in_slice, count);
        const std::size_t rows = layout[tensor].shape[0], columns = count / rows;
        cut_matrices_.push_back({in_slice, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                                 static_cast<std::uint32_t>(regions.of_tensor(tensor))});
        scratch_ = std::max(scratch_, count + rule_.scratch_of(rows, columns));
      });
    }
    first_.push_back(cut_.size());
    first_matrix_.push_back(cut_matrices_.size());
  }
  /// Base pointer such that `base[offset in the slice]` is this bucket's element in the gathered buffer.
  [[nodiscard]] parameter_type* share_of(std::size_t bucket, replicated<parameter_type> out) const noexcept {
    return out.whole().data() + (shares_.position(rank_, shares_[bucket].offset) - shares_[bucket].offset);
  }
  [[nodiscard]] update_step step_of(std::size_t region, update_step step, std::uint64_t ahead) const noexcept {
    if (leaves(region)) step.count = updates_[region] + ahead;
    return step;
  }
  [[nodiscard]] master_type* masters() const noexcept { return arrays_.template as<master_type>(masters_); }
  [[nodiscard]] master_type* averages() const noexcept { return arrays_.template as<master_type>(averages_); }
  [[nodiscard]] master_type* slot(std::size_t k) const noexcept { return arrays_.template as<master_type>(slots_[k]); }

  state_arrays<Storage>& arrays_;
  rule_in_use<Storage>& rule_;
  std::vector<update_group> groups_;    // by region
  std::vector<std::uint64_t> updates_;  // the same; counted where it may be left out
  partition shares_;
  int rank_;
  std::size_t count_;
  bool keeps_averages_;
  std::vector<update_block> cut_;
  std::vector<std::size_t> first_;        // block of each bucket, and one behind the last
  std::vector<std::size_t> elementwise_;  // of each bucket: behind the blocks that are no matrices
  std::vector<update_matrix> cut_matrices_;
  std::vector<std::size_t> first_matrix_;  // of each bucket, and one behind the last
  std::size_t scratch_ = 0;                // numbers
  typename Storage::template numbers<update_block> blocks_;
  typename Storage::template numbers<update_matrix> matrices_;
  std::size_t masters_ = 0, averages_ = 0, for_matrices_ = 0;  // numbers of arrays
  std::vector<std::size_t> slots_;                             // the same
  std::vector<master_type*> slices_;                           // where these lie
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
