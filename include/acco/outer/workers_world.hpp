// SPDX-License-Identifier: Apache-2.0
// A world of workers, as an engine of local updates uses it: a channel of its own, those of its workers, and
// whether this rank takes part.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/backend_in_use.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/outer/slot_channel.hpp"
#include "acco/outer/split_backend.hpp"
#include "acco/outer/world_ranks.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/membership.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's. World rank r is rank r % ranks_a_worker of worker r / ranks_a_worker; it exchanges with the ranks of the
/// same place in the other workers. The trainer's thread calls all members; those that communicate are collective over
/// the world, and block.
template <class Backend>
class workers_world {
 public:
  /// `ranks_a_worker` divides the ranks of the world. `averages`: workers' slots, too. Says nothing to anybody.
  workers_world(Backend backend, int ranks_a_worker, double deadline, bool averages)
      : ranks_(std::make_shared<ranks_of<ranks_in_use, Backend>>(std::move(backend))),
        backend_(ranks_, &ranks_->held()),
        deadline_(deadline),
        names{{ranks_a_worker, 1}, {backend_->size() / ranks_a_worker, ranks_a_worker}, backend_->rank()},
        member(*ranks_),
        queue_(make_queue<host_queue>(*backend_)) {
    queue_.deadline = deadline;
    queue_.place.rank = backend_->rank();
    if (averages) slots_ = std::make_unique<slot_channel<Backend>>(between_workers(), deadline);
  }
  workers_world(workers_world const&) = delete;
  workers_world& operator=(workers_world const&) = delete;
  ~workers_world() {
    end();
    queue_.stop();
  }

  [[nodiscard]] int rank() const noexcept { return backend_->rank(); }
  [[nodiscard]] int size() const noexcept { return backend_->size(); }
  [[nodiscard]] split_backend<Backend> within_worker() const { return {backend_, names.inner, deadline_}; }
  [[nodiscard]] split_backend<Backend> between_workers() const { return {backend_, names.outer, deadline_}; }

  /// A channel of its own, and whether all ranks were constructed alike, and begin alike.
  void join(std::string const& construction, char const* phase, char const* begins) {
    queue_.place.phase = phase;
    member.join();
    description lines;
    lines.add("local_updates begin by", begins);
    member.together([&] { agree(queue_, *backend_, lines.lines() + construction, queue_.place); });
    if (slots_) slots_->member.join();
  }
  // Of all its channels, as `membership` has them.
  void take_part() noexcept {
    member.take_part();
    if (slots_) slots_->member.take_part();
  }
  void finish() noexcept {
    member.finish();
    if (slots_) slots_->member.finish();
  }
  void leave(std::string_view reason) noexcept {
    member.leave(reason);
    if (slots_) slots_->member.leave(reason);
  }
  void end() noexcept {
    member.end(false);
    if (slots_) slots_->member.end(false);
  }
  /// Means over the workers (slot_channel.hpp).
  template <class T>
  std::uint64_t average(std::span<T> values, double weight) {
    return names.of_exchange([&] { return slots_->average(values, weight); });
  }
  template <class T>
  void broadcast(std::span<T> values, int root) {
    if (!values.empty()) broadcast_and_wait(queue_, *backend_, values, root);
  }
  /// Rank 0's elements reach all ranks, but those that each rank has of its own. `values` are whole numbers of `T` an
  /// element.
  template <class T>
  void broadcast_common(parameter_layout const& layout, std::span<T> values) {
    const std::size_t width = values.size() / layout.size();
    layout.for_common([&](std::size_t begin, std::size_t count) { broadcast(values.subspan(begin * width, count * width), 0); });
  }
  /// What each rank brings, by rank.
  template <class T>
  void gather(T const& mine, std::span<T> all) {
    backend_->all_gather(queue_, sharded<T const>(std::span(&mine, 1)), replicated<T>(all));
    queue_.wait();
  }
  /// Takes part where others form the worlds of `within_worker`, and keeps its own.
  void keep_worker() { (void)backend_->split(size() + rank(), 0, deadline_); }

 private:
  std::shared_ptr<ranks_of<ranks_in_use, Backend>> ranks_;
  std::shared_ptr<Backend> backend_;  // theirs
  double deadline_;

 public:
  world_ranks names;
  membership member;

 private:
  host_queue queue_;
  std::unique_ptr<slot_channel<Backend>> slots_;
};

}  // namespace ACCO_SIMD_NAMESPACE
