// SPDX-License-Identifier: Apache-2.0
// The means of what workers keep of their own: the slots of their rules (DES-LOC, arXiv 2505.22549).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend_in_use.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/outer/split_backend.hpp"
#include "acco/round/membership.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's channel to the ranks of its place in the other workers. Nothing is under way between calls. The trainer's
/// thread calls all members; those that communicate are collective, and block.
template <class Backend>
class slot_channel {
 public:
  slot_channel(split_backend<Backend> workers, double deadline)
      : ranks_(std::move(workers)), member(ranks_), queue_(make_queue<host_queue>(ranks_.held())) {
    queue_.deadline = deadline;
    queue_.place = {ranks_.rank(), -1, "slots"};
  }
  slot_channel(slot_channel const&) = delete;
  slot_channel& operator=(slot_channel const&) = delete;
  ~slot_channel() {
    member.end(false);
    queue_.stop();
  }

  /// `values` become their mean over the workers, of which each counts by its `weight`, not negative, in sum positive.
  /// Sums are in at least fp32, in the order of the workers. Returns the bytes that this rank has sent.
  template <class T>
  std::uint64_t average(std::span<T> values, double weight) {
    split_backend<Backend>& backend = ranks_.held();  // NOLINT(misc-const-correctness): of some, operations are not const
    const std::uint64_t before = ranks_.bytes_sent().all;
    double all = 0;
    backend.all_reduce(queue_, partial<double const>({&weight, 1}), replicated<double>({&all, 1}));
    queue_.wait();
    const auto workers = static_cast<std::size_t>(ranks_.size());
    std::vector<T> mine, mean;
    for (std::size_t begin = 0, count = 0; begin < values.size(); begin += count) {
      count = std::min(values.size() - begin, most);
      const std::size_t share = (count + workers - 1) / workers;
      std::span<T> const here = values.subspan(begin, count);
      mine.assign(share * workers, T(0));
      mean.resize(share);
      std::transform(here.begin(), here.end(), mine.begin(),
                     [part = static_cast<T>(weight / all)](T each) { return part == T(0) ? T(0) : part * each; });
      backend.reduce_scatter(queue_, partial<T const>(mine), sharded<T>(mean));
      queue_.wait();
      backend.all_gather(queue_, sharded<T const>(mean), replicated<T>(mine));
      queue_.wait();
      std::copy_n(mine.begin(), count, here.begin());
    }
    return ranks_.bytes_sent().all - before;
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 18U;  // numbers at a time

  ranks_of<ranks_in_use, split_backend<Backend>> ranks_;

 public:
  membership member;

 private:
  host_queue queue_;
};

/// The slots of a worker's rule, of which wanted(number) says which, become means over the workers, at a boundary.
/// Returns the bytes that this rank has sent.
template <class World, class Inner, class Wanted>
std::uint64_t average_slots(World& in, Inner& inner, double weight, Wanted&& wanted) {
  state_shape const& shape = inner.shape();
  std::uint64_t bytes = 0;
  inner.for_arrays([&](std::size_t array, auto values) {
    if constexpr (std::is_same_v<decltype(values), decltype(inner.loop().masters().data())>) {
      const bool is_slot = array != 0 && shape.kept[array].use == array_use::state;  // behind the masters
      if (is_slot && wanted(array - 1)) bytes += in.average(std::span(values, inner.shares().slice_size()), weight);
    }
  });
  return bytes;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
