// SPDX-License-Identifier: Apache-2.0
// The squares of the reduced gradients, of everything together or region by region, and what a round decides by them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/update_regions.hpp"
#include "acco/number/finite.hpp"
#include "acco/round/sharded_state.hpp"
#include "acco/stage/decision.hpp"
#include "acco/stage/gradient_norm.hpp"
#include "acco/storage/storage_traits.hpp"
#include "acco/storage/update_table.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns the few numbers of it. Where regions are measured, one number travels for each; otherwise one in all.
template <class Storage>
class round_norms {
 public:
  using queue = typename Storage::queue;
  using sum_type = typename Storage::sum_type;

  round_norms(parameter_layout const& layout, norm_detail detail) : regions_(layout, detail), groups_(layout.groups().size()) {}

  [[nodiscard]] update_regions const& regions() const noexcept { return regions_; }
  void allocate(Storage const& storage, queue& q, sharded_state<Storage> const& state, std::size_t buckets) {
    squares_ = {storage, regions_.measured() ? state.block_count() : buckets};
    decided_ = {storage, regions_.size()};
    table_ = {storage, regions_.size()};
    for (std::size_t r = 0; r < regions_.size(); ++r) table_[r] = regions_[r];
    table_.upload(q);
    if (!regions_.measured()) return;
    sums_ = {storage, 2 * regions_.size()};
    of_groups_ = {storage, groups_};
  }

  /// Enqueues the squares of this rank's share of a bucket of its reduced slice.
  void measure(queue& q, sharded_state<Storage>& state, std::size_t bucket, sum_type* slice, std::size_t offset) {
    if (regions_.measured()) {
      state.squares_of_blocks(q, bucket, slice, squares_.there());
    } else {
      Storage::sum_of_squares(q, sharded<sum_type const>({slice + offset, state.real(bucket)}), squares_.there(bucket));
    }
  }
  /// The same where the sums lie elsewhere, in the gradient's type: they come into the slice, or are added to it, on
  /// the way.
  template <class Gradient>
  void take(queue& q, sharded_state<Storage>& state, bucket const& b, Gradient const* sums, sum_type* slice, bool adds) {
    if constexpr (storage_traits_of<Storage>.takes_sums) {
      if (regions_.measured()) {
        state.take_blocks(q, b.index, sums, slice, adds, squares_.there());
      } else {
        Storage::take_sums(q, sums + b.offset, slice + b.offset, state.real(b.index), adds, squares_.there(b.index));
      }
    } else {
      adds ? Storage::add(q, sums + b.offset, slice + b.offset, b.share)
           : Storage::convert(q, sums + b.offset, slice + b.offset, b.share);
      measure(q, state, b.index, slice, b.offset);
    }
  }
  /// Enqueues the sum over ranks, by all_reduce(from, to, how many numbers), and the decision. `holders`: so many ranks
  /// have each share. `own`: this rank's gradients stand for all ranks'. `clip_with`: of the options.
  template <class AllReduce>
  void decide(queue& q, sharded_state<Storage>& state, round_numbers* n, std::size_t buckets, norm_limits const& limits,
              double loss_scale, bool own, int holders, std::function<double(double)> const& clip_with, AllReduce&& all_reduce) {
    double* all = nullptr;
    if (regions_.measured()) {
      double* const mine = sums_.there();
      all = mine + regions_.size();
      Storage::run(q, add_region_squares{mine, regions_.size(), squares_.there(), state.blocks(), state.block_count()});
      if (own || holders > 1) Storage::run(q, scale_own{n, mine, regions_.size(), holders});
      all_reduce(mine, all, regions_.size());
    } else {
      Storage::run(q, add_squares{n, squares_.there(), buckets});
      if (own || holders > 1) Storage::run(q, scale_own{n, &n->squares_mine, 1, holders});
      all_reduce(&n->squares_mine, &n->squares_all, 1);
    }
    if constexpr (Storage::host_memory) {
      if (clip_with) q.enqueue(ask_others{&q, n, all, loss_scale, this, &clip_with});
    }
    Storage::run(q, decide_step{n, loss_scale, limits, table_.there(), regions_.size(), all, of_groups_.there(),
                                static_cast<bool>(clip_with), decided_.there()});
  }
  /// What was decided, by region, for tasks that come later.
  [[nodiscard]] region_update const* decided() noexcept { return decided_.there(); }

  void download(queue& q) {
    if (regions_.measured()) sums_.download(q);
  }
  /// What a kept round had measured, and back again.
  void keep(std::vector<double>& squares) const {
    squares.clear();
    for (std::size_t r = 0; regions_.measured() && r < regions_.size(); ++r) squares.push_back(this->squares(r));
  }
  void restore(queue& q, std::span<double const> squares) {
    if (!regions_.measured() || squares.size() != regions_.size()) return;
    for (std::size_t r = 0; r < regions_.size(); ++r) sums_[regions_.size() + r] = squares[r];
    sums_.upload(q);
  }

  /// After a download, where regions are measured: the norms of the mean gradient of each group, or tensor, of which
  /// sums over so much weight, times the loss's scale, were measured.
  void tell(parameter_layout const& layout, norm_detail detail, double weight, std::span<double> norms) const noexcept {
    std::fill(norms.begin(), norms.end(), 0.0);
    const bool of_groups = detail == norm_detail::groups;
    for (std::size_t k = 0; k < layout.tensor_count() && !of_groups; ++k) {
      if (const std::size_t region = regions_.of_tensor(k); region != update_regions::none) norms[k] = squares(region);
    }
    for (std::size_t r = 0; r < regions_.size() && of_groups; ++r) norms[regions_[r].clips_with] += squares(r);
    for (std::size_t g = 0; g < norms.size() && of_groups; ++g) norms[g] = norms[layout.clips_with(g)];
    for (double& each : norms) each = weight > 0 ? gradient_norm(each, weight) : 0;
  }

  /// After a download, where regions are measured: the squares of the summed gradients of one of them, over all ranks.
  [[nodiscard]] double squares(std::size_t region) const noexcept { return sums_[regions_.size() + region]; }

  /// A commit was applied: each region that it has changed has one update more.
  void count_updates(sharded_state<Storage>& state) const noexcept {
    for (std::size_t r = 0; r < regions_.size(); ++r) {
      if (state.leaves(r) && squares(r) != 0) ++state.updates(r);
    }
  }
  /// How many updates each tensor has had, `steps` where it is never left out; with the commit that has not landed, if
  /// it is `applied`. Nothing where no tensor may be left out.
  void keep_updates(sharded_state<Storage> const& state, parameter_layout const& layout, std::vector<std::uint64_t>& to,
                    std::uint64_t steps, bool applied) const {
    to.clear();
    bool any = false;
    for (std::size_t r = 0; r < regions_.size(); ++r) any = any || state.leaves(r);
    for (std::size_t k = 0; any && k < layout.tensor_count(); ++k) {
      const std::size_t region = regions_.of_tensor(k);
      const bool leaves = region != update_regions::none && state.leaves(region);
      const bool one_more = applied && (!leaves || squares(region) != 0);
      to.push_back((leaves ? state.updates(region) : steps) + (one_more ? 1 : 0));
    }
  }
  /// The reverse; where there are no such numbers each tensor has had `steps`.
  void restore_updates(sharded_state<Storage>& state, parameter_layout const& layout, std::span<std::uint64_t const> from,
                       std::uint64_t steps) const {
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      const std::size_t region = regions_.of_tensor(k);
      if (region == update_regions::none || !state.leaves(region)) continue;
      state.updates(region) = from.size() == layout.tensor_count() ? from[k] : steps;
    }
  }

 private:
  /// The squares, over all ranks, of what is not clipped by a norm of its group; not finite where some other is not.
  [[nodiscard]] double squares_not_of_groups(round_numbers const* n, double const* by_region) const noexcept {
    if (by_region == nullptr) return n->squares_all;
    double sum = 0, all = 0;
    for (std::size_t r = 0; r < regions_.size(); ++r) {
      all += by_region[r];
      sum += regions_[r].clips_itself ? 0 : by_region[r];
    }
    return is_finite(all) ? sum : all;
  }
  /// `options::clip_with`, in a round.
  struct ask_others {
    queue const* of;
    round_numbers* n;
    double const* by_region;
    double loss_scale;
    round_norms const* norms;
    std::function<double(double)> const* ask;

    void operator()() const {
      const double weight = n->step_weight * loss_scale, squares = norms->squares_not_of_groups(n, by_region);
      const double mine = !is_finite(squares) ? squares : weight > 0 ? squares / weight / weight : 0;
      n->squares_together = (*ask)(mine) * (weight > 0 ? weight * weight : 1);
    }
    void dropped() const noexcept {
      if (!of->failed()) return;
      try {
        (void)(*ask)(-1);
      } catch (...) {  // the round has failed already
      }
    }
  };

  update_regions regions_;
  std::size_t groups_;
  // of each bucket; of each block, where regions are measured
  typename Storage::template numbers<double> squares_;
  typename Storage::template numbers<update_region> table_;  // the regions, where tasks find them
  typename Storage::template numbers<region_update> decided_;
  // by region, this rank's, then all ranks'; for the decision
  typename Storage::template numbers<double> sums_, of_groups_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
