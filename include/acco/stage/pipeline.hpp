// SPDX-License-Identifier: Apache-2.0
// How a round's stages wait for each other, bucket by bucket, in the two lanes of a queue: here and nowhere else. Which
// stages there are, and in which order, `round_tasks::enqueue` says (round/tasks.hpp), of a message its wire (wire/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "acco/storage/lane.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Enqueues the stages of a round, each behind the one before it. A lane keeps the order in which tasks were enqueued;
/// between the lanes a stage waits, for each bucket, for that bucket of the stage before. Called by the trainer's
/// thread.
template <class Queue>
class pipeline {
 public:
  explicit pipeline(Queue& queue) : queue_(queue) {}

  /// Between rounds; allocates.
  void resize(std::size_t buckets) { behind_.resize(buckets); }

  /// The first stage of a round: work(), behind all that was enqueued before.
  template <class Work>
  void begin(lane where, Work&& work) {
    queue_.on(where);
    work();
    std::fill(behind_.begin(), behind_.end(), queue_.mark());
  }
  /// work(k) for each bucket k, behind bucket k of the stage before. Buckets do not wait for each other: their first
  /// task begins while the bucket's before is under way, where the queue can.
  template <class Work>
  void each(lane where, Work&& work) {
    queue_.on(where);
    for (std::size_t k = 0; k < behind_.size(); ++k) {
      queue_.after(behind_[k]);
      constexpr bool can = requires { queue_.beside(true); };
      if constexpr (can) queue_.beside(k != 0 && where == lane::network);
      work(k);
      if constexpr (can) queue_.beside(false);  // where there was no task
      behind_[k] = queue_.mark();
    }
  }
  /// work(), behind all buckets of the stage before, and in front of all of the next.
  template <class Work>
  void once(lane where, Work&& work) {
    queue_.on(where);
    queue_.after(behind_.back());  // a stage's buckets stand in one lane, in order
    work();
    std::fill(behind_.begin(), behind_.end(), queue_.mark());
  }
  /// work(), behind what stands in its lane: no stage waits for it but the end.
  template <class Work>
  void beside(lane where, Work&& work) {
    queue_.on(where);
    work();
  }
  /// The last stage, in the network lane: work(), behind everything.
  template <class Work>
  void end(Work&& work) {
    queue_.on(lane::update);
    const queue_mark updated = queue_.mark();
    queue_.on(lane::network);
    queue_.after(updated);
    work();
  }

 private:
  Queue& queue_;
  std::vector<queue_mark> behind_;  // the last work of each bucket
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
