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
template <class Works, class Visitor>
void for_buckets_outside(Works& works, Visitor&& visit) {
  works.queue().on(lane::network);
  for (std::size_t k = 0; k < works.shares().buckets(); ++k) visit(k, works.shares()[k]);
  works.queue().wait();
}
/// Every rank's shares of `whole`, in which this rank's own lie already.
template <class Works>
void gather_shares(Works& works, replicated<typename Works::parameter_type> whole) {
  for_buckets_outside(works, [&](std::size_t, bucket const& b) { works.view().all_gather(works.backend(), b, whole); });
}
/// Brings the masters of all ranks, converted, or their averages, into `whole`.
template <class Works>
void gather_masters(Works& works, replicated<typename Works::parameter_type> whole, bool averaged = false) {
  for_buckets_outside(works, [&](std::size_t k, bucket const& b) {
    works.state().show(works.queue(), k, whole, averaged);
    works.view().all_gather(works.backend(), b, whole);
  });
}
/// All ranks' shards of an array of the state, this rank's of which is `shard`, by wire index. In host memory.
template <class Works, class T>
void gather_shards(Works& works, T const* shard, std::span<T> whole) {
  for_buckets_outside(works, [&](std::size_t, bucket const& b) {
    works.backend().all_gather(works.queue(), sharded<T const>(std::span(shard + b.offset, b.share)),
                               replicated<T>(whole.subspan(b.begin, works.view().whole_of(b))));
  });
}
/// Replaces the numbers by their sums over all ranks. Throws where another rank sums something else.
template <class Works>
void sum_over_ranks(Works& works, std::span<double> numbers, double kind = sum_kind::by_library) {
  auto& backend = works.backend();
  std::vector<double> mine(1 + numbers.size(), kind), all(mine.size());
  std::copy(numbers.begin(), numbers.end(), mine.begin() + 1);
  all_reduce_and_wait(works.queue(), backend, std::span<double const>(mine), std::span<double>(all));
  if (all[0] != backend.size() * kind) raise_different_sums(all[0], backend.size(), works.queue().place);
  std::copy(all.begin() + 1, all.end(), numbers.begin());
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
