// SPDX-License-Identifier: Apache-2.0
// The queue of host storage: tasks in two lanes, each in order, run by a thread a lane, or by whoever waits (a
// backend's driver).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_clock.hpp"
#include "acco/storage/lane.hpp"
#include "acco/storage/progress.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// How a backend that makes progress in the caller's thread is waited for: `wait` is called whenever the queue cannot
/// go on by itself; `poll` whenever the trainer passes by. Both may throw.
struct queue_driver {
  void (*wait)(void* context);
  void (*poll)(void* context);
  void* context;
};

/// Tasks of a lane run in the order of `enqueue`, one at a time; the lanes run beside each other, where `after` does
/// not order them. A task that throws ends the queue: the tasks behind it, in both lanes, are dropped, and `wait` and
/// `rethrow` throw what it threw. All members but those of tasks belong to the one thread that owns the queue (the
/// trainer's); one that has begun beside others is still asked until it ends. A task is a trivially copyable function
/// object of at most 192 bytes; `reserve` makes room, after which nothing is allocated. One that has a member
/// `dropped() noexcept` is told when it will not run.
class host_queue {
 public:
  /// Tasks run on threads of the queue's own; at first on one.
  host_queue() : host_queue(queue_driver{}) {}
  /// Tasks run inside `wait` and `poll`, where the driver decides how long to rest whatever a task answers; with an
  /// empty driver, on threads of the queue's own.
  explicit host_queue(queue_driver driver);
  host_queue(host_queue const&) = delete;
  host_queue& operator=(host_queue const&) = delete;
  ~host_queue();

  /// Room for so many tasks a lane, and, if `lanes_overlap`, a thread for each lane: otherwise `on` changes nothing.
  /// Only when idle.
  void reserve(std::size_t tasks, bool lanes_overlap);

  /// What is enqueued from now on goes to this lane; at first it is `network`.
  void on(lane which) noexcept { current_ = overlaps_ ? which : lane::network; }
  /// All that is in the current lane so far.
  [[nodiscard]] queue_mark mark() const noexcept { return {current_, of(current_).submitted}; }
  /// What is enqueued in the current lane from now on runs after all that the mark stands for.
  void after(queue_mark mark) noexcept {
    if (mark.where != current_) of(current_).needs = std::max(of(current_).needs, mark.tasks);
  }

  /// The next task needs none of those in front of it in its lane that have begun. It may begin beside them; they end
  /// in order.
  void beside(bool next = true) noexcept { of(current_).beside = next; }
  /// Of a task of the network lane that is being asked.
  [[nodiscard]] acco::patience patience() const noexcept { return of(lane::network).patience; }

  /// Appends a task to the current lane: a function object returning void or `progress`.
  template <class Task>
  void enqueue(Task task) {
    static_assert(std::is_trivially_copyable_v<Task> && std::is_trivially_destructible_v<Task>,
                  "acco: a task captures pointers, views and numbers only");
    static_assert(sizeof(Task) <= slot::bytes && alignof(Task) <= alignof(std::max_align_t),
                  "acco: a task holds at most 192 bytes");
    lane_state& mine = of(current_);
    if (mine.submitted - mine.done() == mine.ring.size()) wait_for(mine, mine.submitted - mine.ring.size() + 1);
    slot& next = mine.ring[mine.submitted % mine.ring.size()];
    ::new (static_cast<void*>(next.storage)) Task(task);
    next.needs = mine.needs;
    next.beside = std::exchange(mine.beside, false);
    next.holds = false;
    next.state = asked::never;
    next.run = [](void* storage, bool drop) {
      Task& stored = *std::launder(static_cast<Task*>(storage));
      if (drop) {
        if constexpr (requires { stored.dropped(); }) stored.dropped();
        return progress::done;
      }
      if constexpr (std::is_void_v<decltype(stored())>) {
        stored();
        return progress::done;
      } else {
        return stored();
      }
    };
    submit(mine);
  }

  /// Enqueues tell(the time, `steady_seconds()`, at which the tasks before it are done).
  template <class Tell>
  void stamp(Tell tell) {
    enqueue([tell] { tell(steady_seconds()); });
  }

  /// Order between the trainer's computation and the tasks: on the host there is nothing to do. What is enqueued from
  /// now on runs after what the trainer has computed so far; and the reverse.
  void after_computation() const noexcept {}
  void before_computation() const noexcept {}

  /// Whether every task has ended. Never blocks.
  [[nodiscard]] bool idle() const noexcept {
    return lanes_[0].done() == lanes_[0].submitted && lanes_[1].done() == lanes_[1].submitted;
  }

  /// The clock of the trainer's computation: of its thread.
  [[nodiscard]] host_clock& clock() noexcept { return clock_; }
  /// A micro-batch that may not be the last of its part has been computed; whether every task had ended when the
  /// computation came here: that is now.
  void pass() const noexcept {}
  [[nodiscard]] bool over() const noexcept { return idle(); }

  /// Blocks until every task has ended; throws what a task threw. A task that ends no deadline of its own is given up
  /// after twice the deadline.
  void wait();

  /// Lets a driven queue go as far as it can without blocking; nothing to do when threads run the tasks.
  void poll();

  /// Whether a task has thrown.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Throws what a task threw, if one did.
  void rethrow();
  /// Forgets the failure, so that further tasks run. Only when idle.
  void recover() noexcept;

  /// Drops the tasks that have not begun and ends the threads. A task that is blocked in a backend must be released
  /// there first.
  void stop() noexcept;

  /// Where the tasks stand, for the messages of errors; the deadline, in seconds, of any wait for another rank. Set
  /// when the queue is idle, or by a task.
  error_place place{};
  double deadline = 600;

 private:
  static constexpr std::size_t usual_capacity = 64;
  enum class asked { never, once, begun, over };
  struct slot {
    static constexpr std::size_t bytes = 192;
    alignas(std::max_align_t) std::byte storage[bytes];
    progress (*run)(void*, bool drop);
    std::uint64_t needs;  // tasks of the other lane that must have ended
    bool beside, holds;   // holds: it may have transfers under way that it did not wait for, so it is never dropped
    asked state;
  };
  struct lane_state {
    std::vector<slot> ring;
    std::uint64_t submitted = 0;  // the owner's count
    std::uint64_t needs = 0;      // of the task that is enqueued next
    std::uint64_t available = 0;  // `submitted`, as the thread sees it
    std::uint64_t called = 0;     // tasks that have been asked
    bool beside = false;          // of the task that is enqueued next
    acco::patience patience = acco::patience::rest;
    std::uint64_t awaited = 0;  // how many finished tasks the owner waits for
    std::atomic<std::uint64_t> finished = 0;
    bool asleep = false;
    std::condition_variable more;
    std::thread thread;
    [[nodiscard]] std::uint64_t done() const noexcept { return finished.load(std::memory_order_acquire); }
    [[nodiscard]] slot& at(std::uint64_t task) noexcept { return ring[task % ring.size()]; }
    [[nodiscard]] slot& next() noexcept { return at(finished.load(std::memory_order_relaxed)); }
  };

  [[nodiscard]] lane_state& of(lane which) noexcept { return lanes_[static_cast<std::size_t>(which)]; }
  [[nodiscard]] lane_state const& of(lane which) const noexcept { return lanes_[static_cast<std::size_t>(which)]; }
  [[nodiscard]] lane_state& other_than(lane_state const& mine) noexcept { return lanes_[&mine == &lanes_[0] ? 1 : 0]; }

  void start(lane_state& mine);
  /// The next slot holds a task.
  void submit(lane_state& mine);

  /// Whether the lane has a task that may run now.
  [[nodiscard]] bool ready(lane_state& mine) noexcept {
    return mine.available != mine.finished.load(std::memory_order_relaxed) && mine.next().needs <= other_than(mine).done();
  }
  /// Runs the lane's next task, and begins those that may begin beside it; `available`: as many tasks are there.
  progress run_next(lane_state& mine, std::uint64_t available) noexcept;
  progress ask(lane_state& mine, std::uint64_t task, acco::patience how) noexcept;

  void work(lane_state& mine) noexcept;

  /// Runs tasks in the calling thread until none can go on; now one lane goes first, now the other: what orders them is
  /// `after`.
  void advance();

  void wait_for(lane_state& mine, std::uint64_t count);
  [[nodiscard]] std::uint64_t all_done() const noexcept { return lanes_[0].done() + lanes_[1].done(); }
  [[noreturn]] void throw_stuck() const;

  queue_driver driver_{};
  host_clock clock_;
  bool overlaps_ = false, update_first_ = true;
  lane current_ = lane::network;
  std::array<lane_state, 2> lanes_;
  std::atomic<bool> failed_ = false, ended_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool stopping_ = false;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE host_queue::host_queue(queue_driver driver) : driver_(driver) {
  for (lane_state& each : lanes_) each.ring.resize(usual_capacity);
  if (driver_.wait == nullptr) start(lanes_[0]);
}
ACCO_ONCE host_queue::~host_queue() { stop(); }
ACCO_ONCE void host_queue::reserve(std::size_t tasks, bool lanes_overlap) {
  for (lane_state& each : lanes_) {
    const std::lock_guard lock(mutex_);
    std::vector<slot> larger(std::max(tasks, each.ring.size()));
    each.ring.swap(larger);
    each.submitted = each.available = each.needs = each.called = 0;
    each.finished.store(0, std::memory_order_release);
    each.awaited = 0;
  }
  overlaps_ = lanes_overlap;
  if (overlaps_ && driver_.wait == nullptr && !lanes_[1].thread.joinable()) start(lanes_[1]);
  on(lane::network);
}
ACCO_ONCE void host_queue::wait() {
  for (lane_state& each : lanes_) wait_for(each, each.submitted);
  ended_.store(false, std::memory_order_relaxed);
  rethrow();
}
ACCO_ONCE void host_queue::poll() {
  if (driver_.poll == nullptr || idle()) return;
  advance();
  if (!idle()) driver_.poll(driver_.context);
}
ACCO_ONCE void host_queue::rethrow() {
  if (!failed()) return;
  const std::exception_ptr thrown = error_;
  std::rethrow_exception(thrown);
}
ACCO_ONCE void host_queue::recover() noexcept {
  error_ = nullptr;
  failed_.store(false, std::memory_order_release);
}
ACCO_ONCE void host_queue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (lane_state& each : lanes_) {
    each.more.notify_one();
    if (each.thread.joinable()) each.thread.join();
  }
  for (lane_state& each : lanes_) {
    for (; each.done() != each.submitted; each.finished.fetch_add(1, std::memory_order_release))
      (void)each.next().run(each.next().storage, true);
  }
}
ACCO_ONCE void host_queue::start(lane_state& mine) {
  mine.thread = std::thread([this, &mine] { work(mine); });
}
ACCO_ONCE void host_queue::submit(lane_state& mine) {
  ++mine.submitted;
  if (driver_.wait != nullptr) {
    mine.available = mine.submitted;
    return;
  }
  bool asleep = false;
  {
    const std::lock_guard lock(mutex_);
    mine.available = mine.submitted;
    asleep = std::exchange(mine.asleep, false);
  }
  if (asleep) mine.more.notify_one();
}
ACCO_ONCE progress host_queue::run_next(lane_state& mine, std::uint64_t available) noexcept {
  const std::uint64_t first = mine.finished.load(std::memory_order_relaxed);
  for (;;) {
    // the last one that was asked, where some of it is still to begin; else the one behind it
    const auto candidate = [&] {
      return mine.called > first + 1 && mine.at(mine.called - 1).state == asked::once ? mine.called - 1
                                                                                      : std::max(mine.called, first + 1);
    };
    const bool others = candidate() < available && mine.at(candidate()).beside;
    const progress result = ask(mine, first, others ? acco::patience::glance : acco::patience::rest);
    if (result == progress::done) return result;
    for (std::uint64_t k = candidate(); mine.at(k - 1).state >= asked::begun && k < available; k = candidate()) {
      slot const& each = mine.at(k);
      if (!each.beside || each.needs > other_than(mine).done()) break;
      (void)ask(mine, k, acco::patience::none);
      if (each.state == asked::once) break;
    }
    if (result == progress::pending || !others) return result;
  }
}
ACCO_ONCE progress host_queue::ask(lane_state& mine, std::uint64_t task, acco::patience how) noexcept {
  slot& next = mine.at(task);
  if (next.state == asked::over) return progress::done;
  mine.patience = how;
  mine.called = std::max(mine.called, task + 1);
  if (next.state == asked::never) next.state = asked::once;
  const auto keep = [&](progress answer) {
    if (answer == progress::begun) next.state = asked::begun;
    if (answer == progress::done) next.state = asked::over;
    return answer;
  };
  const bool drop = !next.holds && (failed_.load(std::memory_order_acquire) || ended_.load(std::memory_order_acquire));
  next.holds = next.holds || (!drop && how != acco::patience::rest);
  try {
    const progress result = next.run(next.storage, drop);
    if (result != progress::ended) return keep(result);
    ended_.store(true, std::memory_order_release);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) error_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
  }
  return keep(progress::done);
}
ACCO_ONCE void host_queue::work(lane_state& mine) noexcept {
  lane_state& other = other_than(mine);
  std::unique_lock lock(mutex_);
  constexpr std::chrono::nanoseconds shortest{1000}, longest{1'000'000};
  std::chrono::nanoseconds nap = shortest;
  for (;;) {
    while (!stopping_ && !ready(mine)) {
      mine.asleep = true;
      mine.more.wait(lock);
    }
    mine.asleep = false;
    if (stopping_) return;
    const std::uint64_t available = mine.available;
    lock.unlock();
    const progress result = run_next(mine, available);
    if (result != progress::done) {  // look again: a few times for each transfer, so that looking costs little
      std::this_thread::sleep_for(nap);
      nap = result == progress::advanced ? std::max(nap / 2, shortest) : std::min(nap * 2 + shortest, longest);
      lock.lock();
      continue;
    }
    nap = shortest;
    lock.lock();
    if (mine.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == mine.awaited) done_.notify_one();
    if (other.asleep && ready(other)) other.more.notify_one();
  }
}
ACCO_ONCE void host_queue::advance() {
  for (bool moved = true; moved; update_first_ = !update_first_) {
    moved = false;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      lane_state& each = lanes_[update_first_ ? 1 - k : k];
      while (ready(each) && run_next(each, each.available) == progress::done) {
        each.finished.fetch_add(1, std::memory_order_release);
        moved = true;
      }
    }
  }
}
ACCO_ONCE void host_queue::wait_for(lane_state& mine, std::uint64_t count) {
  if (mine.done() >= count) return;
  if (driver_.wait != nullptr) {
    for (advance(); mine.done() < count; advance()) driver_.wait(driver_.context);
    return;
  }
  std::unique_lock lock(mutex_);
  mine.awaited = count;  // wakes this thread once, not after every task
  for (std::uint64_t seen = all_done(); mine.done() < count;) {
    if (done_.wait_for(lock, std::chrono::duration<double>(std::min(std::max(0.0, 2 * deadline + 1), 1e9))) ==
        std::cv_status::no_timeout)
      continue;
    if (mine.done() < count && all_done() == seen) throw_stuck();
    seen = all_done();
  }
  mine.awaited = 0;
}
ACCO_ONCE void host_queue::throw_stuck() const {
  throw deadline_error(place, text("a task of this rank's queue has not ended within twice the deadline of ", deadline, " s"),
                       text("The backend waits without a deadline: let each of its operations give up after queue.deadline "
                            "seconds"));
}
#endif

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
