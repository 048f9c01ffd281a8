// SPDX-License-Identifier: Apache-2.0
// The queue of host storage: tasks in order, run by one communication thread, or by whoever waits (a backend's driver).
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

#include "acco/error.hpp"
#include "acco/observe/clock.hpp"

namespace ACCO_NAMESPACE {

/// A task's answer.
enum class progress {
  done,
  pending,   ///< transfers are under way: ask again later
  advanced,  ///< transfers are under way, and some have ended since the last question: ask again sooner
};

/// How a backend that makes progress in the caller's thread is waited for: `wait` is called whenever the queue cannot go on by
/// itself; `poll` whenever the trainer passes by. Both may throw.
struct queue_driver {
  void (*wait)(void* context);
  void (*poll)(void* context);
  void* context;
};

/// Tasks run in the order of `enqueue`, one at a time. A task that throws ends the queue: the tasks behind it are dropped, and
/// `wait` and `rethrow` throw what it threw. `enqueue`, `wait`, `poll` belong to the one thread that owns the queue (the
/// trainer's). Nothing is allocated after construction: a task is a trivially copyable function object of at most 96 bytes.
class host_queue {
 public:
  /// Tasks run on a thread of the queue's own.
  host_queue() : thread_([this] { work(); }) {}
  /// Tasks run inside `wait` and `poll`, where the driver decides how long to rest whatever a task answers; with an empty driver,
  /// on a thread of the queue's own.
  explicit host_queue(queue_driver driver) : driver_(driver) {
    if (driver_.wait == nullptr) thread_ = std::thread([this] { work(); });
  }
  host_queue(host_queue const&) = delete;
  host_queue& operator=(host_queue const&) = delete;
  ~host_queue() { stop(); }

  /// Appends a task: a function object returning void or `progress`.
  template <class Task>
  void enqueue(Task task) {
    static_assert(std::is_trivially_copyable_v<Task> && std::is_trivially_destructible_v<Task>,
                  "acco: a task captures pointers, views and numbers only");
    static_assert(sizeof(Task) <= slot::bytes && alignof(Task) <= alignof(std::max_align_t),
                  "acco: a task holds at most 96 bytes");
    slot& next = next_slot();
    ::new (static_cast<void*>(next.storage)) Task(task);
    next.run = [](void* storage) {
      Task& stored = *std::launder(static_cast<Task*>(storage));
      if constexpr (std::is_void_v<decltype(stored())>) {
        stored();
        return progress::done;
      } else {
        return stored();
      }
    };
    submit();
  }

  /// Enqueues *to = the time, `steady_seconds()`, at which the tasks before it are done.
  void stamp(double* to) {
    enqueue([to] { *to = steady_seconds(); });
  }

  /// Order between the trainer's computation and the tasks: on the host there is nothing to do. What is enqueued from now on runs
  /// after what the trainer has computed so far; and the reverse.
  void after_computation() const noexcept {}
  void before_computation() const noexcept {}

  /// Whether every task has ended. Never blocks.
  [[nodiscard]] bool idle() const noexcept { return finished() == submitted_; }

  /// Blocks until every task has ended; throws what a task threw.
  void wait() {
    wait_until(submitted_);
    rethrow();
  }

  /// Lets a driven queue go as far as it can without blocking; nothing to do when a thread runs the tasks.
  void poll() {
    if (driver_.poll == nullptr || idle()) return;
    advance();
    if (!idle()) driver_.poll(driver_.context);
  }

  /// Whether a task has thrown.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Throws what a task threw, if one did.
  void rethrow() {
    if (!failed()) return;
    const std::exception_ptr thrown = error_;
    std::rethrow_exception(thrown);
  }
  /// Forgets the failure, so that further tasks run. Only when idle.
  void recover() noexcept {
    error_ = nullptr;
    failed_.store(false, std::memory_order_release);
  }

  /// Drops the tasks that have not begun and ends the thread. A task that is blocked in a backend must be released there first.
  void stop() noexcept {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    more_.notify_one();
    thread_.join();
  }

  /// Where the tasks stand, for the messages of errors; the deadline, in seconds, of any wait for another rank. Set when the
  /// queue is idle, or by a task.
  error_place place{};
  double deadline = 600;

 private:
  static constexpr std::size_t capacity = 64;
  struct slot {
    static constexpr std::size_t bytes = 96;
    alignas(std::max_align_t) std::byte storage[bytes];
    progress (*run)(void*);
  };

  [[nodiscard]] std::uint64_t finished() const noexcept { return finished_.load(std::memory_order_acquire); }

  slot& next_slot() {
    if (submitted_ - finished() == capacity) wait_until(submitted_ - capacity + 1);
    return ring_[submitted_ % capacity];
  }
  /// The next slot holds a task.
  void submit() {
    ++submitted_;
    if (thread_.joinable()) {
      bool asleep = false;
      {
        const std::lock_guard lock(mutex_);
        available_ = submitted_;
        asleep = std::exchange(asleep_, false);
      }
      if (asleep) more_.notify_one();
    } else {
      available_ = submitted_;
    }
  }

  progress run_next() noexcept {
    slot& next = ring_[finished_.load(std::memory_order_relaxed) % capacity];
    if (failed_.load(std::memory_order_relaxed)) return progress::done;
    try {
      return next.run(next.storage);
    } catch (...) {
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
      return progress::done;
    }
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    constexpr std::chrono::nanoseconds shortest{1000}, longest{1'000'000};
    std::chrono::nanoseconds nap = shortest;
    for (;;) {
      while (!stopping_ && available_ == finished_.load(std::memory_order_relaxed)) {
        asleep_ = true;
        more_.wait(lock);
      }
      if (stopping_) return;
      lock.unlock();
      const progress result = run_next();
      if (result != progress::done) {  // look again: a few times for each transfer, so that looking costs little
        std::this_thread::sleep_for(nap);
        nap = result == progress::advanced ? std::max(nap / 2, shortest) : std::min(nap * 2 + shortest, longest);
        lock.lock();
        continue;
      }
      nap = shortest;
      lock.lock();
      if (finished_.fetch_add(1, std::memory_order_release) + 1 == awaited_) done_.notify_one();
    }
  }

  /// Runs tasks in the calling thread until one is pending.
  void advance() {
    while (!idle() && run_next() == progress::done) finished_.fetch_add(1, std::memory_order_release);
  }

  void wait_until(std::uint64_t count) {
    if (finished() >= count) return;
    if (thread_.joinable()) {
      std::unique_lock lock(mutex_);
      awaited_ = count;  // wakes this thread once, not after every task
      done_.wait(lock, [&] { return finished_.load(std::memory_order_relaxed) >= count; });
      return;
    }
    for (advance(); finished() < count; advance()) driver_.wait(driver_.context);
  }

  queue_driver driver_{};
  std::array<slot, capacity> ring_;
  std::uint64_t submitted_ = 0;  // the owner's count
  std::uint64_t available_ = 0;  // the same, as the thread sees it
  std::atomic<std::uint64_t> finished_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::uint64_t awaited_ = 0;  // how many finished tasks the owner waits for
  bool asleep_ = false, stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace ACCO_NAMESPACE
