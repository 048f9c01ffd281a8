// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other while no round is in flight, or one is done and has not landed. Collective; all of it
// blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "acco/collective/blocking.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/round/agreement.hpp"
#include "acco/stage/decision.hpp"
#include "acco/storage/lane.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// visit(k, bucket) in the network lane, and waits.
template <class Tasks, class Visitor>
void for_buckets_outside(Tasks& tasks, Visitor&& visit) {
  tasks.queue().on(lane::network);
  for (std::size_t k = 0; k < tasks.shares().buckets(); ++k) visit(k, tasks.shares()[k]);
  tasks.queue().wait();
}
/// Every rank's shares of `whole`, in which this rank's own lie already.
template <class Tasks>
void gather_shares(Tasks& tasks, replicated<typename Tasks::parameter_type> whole) {
  for_buckets_outside(tasks, [&](std::size_t, bucket const& b) { tasks.view().all_gather(tasks.backend(), b, whole); });
}
/// Brings the slices of all ranks, masters or their averages, of which `values` is this rank's, into `whole`,
/// converted.
template <class Tasks>
void gather_values(Tasks& tasks, auto const* values, replicated<typename Tasks::parameter_type> whole) {
  for_buckets_outside(tasks, [&](std::size_t k, bucket const& b) {
    tasks.state().show(tasks.queue(), k, values, whole);
    tasks.view().all_gather(tasks.backend(), b, whole);
  });
}
template <class Tasks>
void gather_masters(Tasks& tasks, replicated<typename Tasks::parameter_type> whole) {
  gather_values(tasks, tasks.state().values(false), whole);
}
/// All ranks' shards of an array of the state, this rank's of which is `shard`, by wire index. In host memory.
template <class Tasks, class T>
void gather_shards(Tasks& tasks, T const* shard, std::span<T> whole) {
  for_buckets_outside(tasks, [&](std::size_t, bucket const& b) {
    tasks.backend().all_gather(tasks.queue(), sharded<T const>(std::span(shard + b.offset, b.share)),
                               replicated<T>(whole.subspan(b.begin, tasks.view().whole_of(b))));
  });
}
/// Replaces the numbers by their sums over all ranks. Throws where another rank sums something else.
template <class Tasks>
void sum_over_ranks(Tasks& tasks, std::span<double> numbers, double kind = sum_kind::by_library) {
  auto& backend = tasks.backend();
  std::vector<double> mine(1 + numbers.size(), kind), all(mine.size());
  std::copy(numbers.begin(), numbers.end(), mine.begin() + 1);
  all_reduce_and_wait(tasks.queue(), backend, std::span<double const>(mine), std::span<double>(all));
  if (all[0] != backend.size() * kind) raise_different_sums(all[0], backend.size(), tasks.queue().place);
  std::copy(all.begin() + 1, all.end(), numbers.begin());
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
