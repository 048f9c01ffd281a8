// SPDX-License-Identifier: Apache-2.0
// The queue of CUDA storage: a stream for each lane, beside the trainer's. Everything is enqueued; only `wait` waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "acco/clock.hpp"
#include "acco/cuda/clock.hpp"
#include "acco/cuda/memory.hpp"
#include "acco/cuda/pause.hpp"
#include "acco/cuda/runtime.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_queue.hpp"
#include "acco/storage/lane.hpp"
#include "acco/storage/storage_traits.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a backend does while the host waits for a stream: `look` is called every few hundred microseconds, at most, and
/// throws when a rank is missing for too long or a peer failed. Before it throws, the backend lets the stream run out.
struct cuda_watch {
  void (*look)(void* context, error_place const& where, double waited, double deadline) = nullptr;
  void* context = nullptr;
};

/// Warnings, one per setting and process, about environment variables that serialise streams; null: none.
inline void warn_of_cuda_settings(void (*warn)(char const* sentence)) {
  static std::atomic<bool> warned_of_connections = false, warned_of_blocking = false;
  if (warn == nullptr) return;
  char const* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (connections != nullptr && std::string_view(connections) == "1" && !warned_of_connections.exchange(true))
    warn("acco: CUDA_DEVICE_MAX_CONNECTIONS=1 lets streams wait for each other, so communication is not hidden. Unset it");
  char const* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && *blocking != '\0' && *blocking != '0' && !warned_of_blocking.exchange(true))
    warn("acco: CUDA_LAUNCH_BLOCKING makes the host wait for every kernel, so communication is not hidden. Unset it");
}

/// Who calls the runtime for the tasks of a queue.
enum class cuda_issue {
  at_once,  ///< the trainer's thread, which never waits for it
  thread,   ///< a thread of the queue's own: for backends whose ranks have to meet on the host, or that take their time
};

/// Works of a lane run in the order in which they are enqueued, on a stream of the queue's own; `after` orders the
/// lanes. One thread, the trainer's, calls all members; nothing is allocated once a round has shown how many host
/// functions and stamps it has.
class cuda_queue {
 public:
  static constexpr queue_traits traits{.works_elsewhere = true};

  /// `computation` is the trainer's stream; `priority` that of the queue's own.
  explicit cuda_queue(cudaStream_t computation, cuda_watch watch = {}, int priority = highest_priority,
                      cuda_issue issue = cuda_issue::at_once, unsigned ctas = 0)
      : max_ctas(ctas), computation_(computation), watch_(watch), priority_(priority), network_(priority), clock_(computation) {
    cuda_event now{true};
    now.record(network_.get());
    end_.record(network_.get());
    check_cuda(cudaStreamSynchronize(network_.get()), "cudaStreamSynchronize");
    clock_.anchor(now, steady_seconds());
    if (issue == cuda_issue::thread) {
      int device = 0;
      check_cuda(cudaGetDevice(&device), "cudaGetDevice");
      thread_.emplace();
      thread_->enqueue([device] { check_cuda(cudaSetDevice(device), "cudaSetDevice"); });
    }
  }
  cuda_queue(cuda_queue const&) = delete;
  cuda_queue& operator=(cuda_queue const&) = delete;
  ~cuda_queue() { stop(); }

  [[nodiscard]] cudaStream_t computation() const noexcept { return computation_; }
  /// The clock of the trainer's computation: of its stream.
  [[nodiscard]] cuda_clock& clock() noexcept { return clock_; }

  /// Who looks while the host waits. Set when idle.
  void watch(cuda_watch watch) noexcept { watch_ = watch; }
  [[nodiscard]] cuda_watch const& watch() const noexcept { return watch_; }

  /// Room for so many tasks a lane, marks included, and, if `lanes_overlap`, a stream for each lane: otherwise `on`
  /// changes nothing. Only when idle.
  void reserve(std::size_t tasks, bool lanes_overlap) {
    if (thread_) thread_->reserve(2 * tasks, false);
    if (!lanes_overlap || update_) return;
    update_.emplace(priority_);
    marks_ = std::vector<cuda_event>(tasks);
  }
  /// What is enqueued from now on goes to this lane; at first it is `network`.
  void on(lane which) noexcept { current_ = update_ ? which : lane::network; }
  /// All that is in the current lane so far.
  [[nodiscard]] queue_mark mark() {
    if (!update_) return {};
    issue([&event = marks_[marked_ % marks_.size()]](cudaStream_t stream) { event.record(stream); });
    return {current_, marked_++};
  }
  /// What is enqueued in the current lane from now on runs after all that the mark, one of this round, stands for.
  void after(queue_mark mark) {
    if (!update_ || mark.where == current_) return;
    issue([&event = marks_[mark.tasks % marks_.size()]](cudaStream_t stream) { event.hold(stream); });
  }

  /// Appends tasks: `call(stream)` enqueues them on the current lane's stream, by whichever thread does that. It
  /// captures at most 80 bytes of pointers, views and numbers. A thread's call that has a member `dropped() noexcept`
  /// is told when it will not be made.
  template <class Call>
  void issue(Call call) {
    unmarked_ = true;
    if (thread_) {
      thread_->enqueue(issued<Call>{call, stream()});
    } else {
      with_place([this] { return place; }, [&] { call(stream()); });
    }
  }

  /// Appends a host function (cudaLaunchHostFunc): it must not call the CUDA runtime, and delays the stream by some
  /// microseconds. What it throws, `wait` throws.
  template <class Task>
  void enqueue(Task task) {
    if (tasks_ == slots_.size()) slots_.emplace_back();
    slot& next = slots_[tasks_++];
    next.owner = this;
    next.put(task);
    const auto call = [](void* which) {
      slot& mine = *static_cast<slot*>(which);
      if (mine.owner->failed_.load(std::memory_order_acquire)) return;
      try {
        mine.run(mine.storage, 0);
      } catch (...) {
        mine.owner->error_ = std::current_exception();
        mine.owner->failed_.store(true, std::memory_order_release);
      }
    };
    issue([call, &next](cudaStream_t stream) { check_cuda(cudaLaunchHostFunc(stream, call, &next), "cudaLaunchHostFunc"); });
  }

  /// Enqueues tell(the time, `steady_seconds()`, at which the tasks before it were done); told by `wait`, in the order
  /// of the stamps.
  template <class Tell>
  void stamp(Tell tell) {
    if (stamped_ == stamps_.size()) stamps_.emplace_back();
    time_stamp& next = stamps_[stamped_++];
    next.put(tell);
    issue([&next](cudaStream_t stream) { next.event.record(stream); });
  }

  /// What is enqueued from now on runs after what the trainer has enqueued on its stream so far.
  void after_computation() {
    // the one before may not have been waited for yet
    cuda_event& computed = computed_[computations_++ % computed_.size()];
    computed.record(computation_);
    clock_.ends_with(computed);
    issue([&computed](cudaStream_t stream) { computed.hold(stream); });
  }
  /// What the trainer enqueues on its stream from now on runs after the tasks that were waited for.
  void before_computation() {
    close();
    done_.record(network_.get());
    done_.hold(computation_);
  }

  /// Whether all tasks are done. Never blocks.
  [[nodiscard]] bool idle() {
    if (thread_ && !thread_->idle()) return false;
    close();
    return cudaEventQuery(end_.get()) != cudaErrorNotReady;  // an error is thrown by wait
  }
  /// The trainer has enqueued a micro-batch that may not be the last of its part.
  void pass() { clock_.pass(); }
  /// Whether all tasks had ended when the computation came here, as far as the host can know without emptying the
  /// trainer's stream: it waits until the stream has come to the last micro-batch passed, which computes meanwhile.
  [[nodiscard]] bool over() {
    pause rest;
    while (!idle()) {
      if (clock_.at_last_micro_batch()) return idle();
      rest();
    }
    return true;
  }
  /// Blocks the host until all tasks are done: looks at once, then naps. Throws what a task threw or the watch saw.
  /// While the trainer's stream computes, nobody is late.
  void wait() {
    lateness late(clock_);
    pause rest;
    if (thread_) {
      for (; watch_.look != nullptr && !thread_->idle(); rest()) watch_.look(watch_.context, place, late.seconds(), deadline);
      with_place([this] { return place; }, [this] { thread_->wait(); });
    }
    close();
    bool waited = false;
    for (; !end_.passed(); rest()) {
      waited = true;
      if (watch_.look != nullptr) watch_.look(watch_.context, place, late.seconds(), deadline);
    }
    tasks_ = 0;
    write_stamps(waited ? std::optional(steady_seconds()) : std::nullopt);
    rethrow();
  }
  void poll() const noexcept {}

  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire) || (thread_ && thread_->failed()); }
  void rethrow() {
    if (thread_) with_place([this] { return place; }, [this] { thread_->rethrow(); });
    if (!failed()) return;
    const std::exception_ptr thrown = error_;
    std::rethrow_exception(thrown);
  }
  void recover() noexcept {
    error_ = nullptr;
    failed_.store(false, std::memory_order_release);
    if (thread_) thread_->recover();
  }
  /// Waits until the stream has run out; a backend that gave up has let it.
  void stop() noexcept {
    if (thread_) thread_->stop();
    if (update_) (void)cudaStreamSynchronize(update_->get());
    (void)cudaStreamSynchronize(network_.get());
  }

  /// Takes a buffer that its owner gives up while tasks may still use it; freed when the queue has run out, in the end.
  void keep(cuda_buffer&& given_up) noexcept {
    try {
      kept_.push_back(std::move(given_up));
    } catch (...) {  // no memory to remember it
      stop();
    }
  }

  /// Waits until nothing that was enqueued, on the trainer's stream too, uses anybody's memory: after a failure, when
  /// the backend has let the stream run out.
  void run_out() noexcept {
    try {
      if (thread_) thread_->wait();
    } catch (...) {  // what has been thrown already
    }
    if (update_) (void)cudaStreamSynchronize(update_->get());
    (void)cudaStreamSynchronize(network_.get());
    (void)cudaStreamSynchronize(computation_);
  }

  /// Memory that tasks of one lane may use while they run, at least `bytes` long; the same until a longer one is asked
  /// for, in the first round: then tasks that have the shorter one are issued first, and it is freed behind them.
  [[nodiscard]] void* scratch(std::size_t bytes, cuda_memory_resource* resource = default_cuda_memory()) {
    if (bytes > scratch_.bytes()) {
      if (thread_ && scratch_.bytes() != 0) thread_->wait();
      scratch_ = {};
      scratch_ = cuda_buffer(resource, stream(), bytes);
    }
    return scratch_.as<std::byte>();
  }

  /// Where the tasks stand, for messages; the deadline, in seconds, of any wait for another rank.
  error_place place{};
  double deadline = 600;
  /// Most thread blocks of the tasks' own kernels; 0: no limit.
  const unsigned max_ctas;

 private:
  /// Works for the queue's thread.
  template <class Call>
  struct issued {
    Call call;
    cudaStream_t stream;
    void operator()() { call(stream); }
    void dropped() noexcept {
      if constexpr (requires { call.dropped(); }) call.dropped();
    }
  };
  /// How long others have been waited for: while the trainer's stream computes, nobody is late.
  class lateness {
   public:
    explicit lateness(cuda_clock& clock) noexcept : clock_(clock) {}
    [[nodiscard]] double seconds() {
      const double now = steady_seconds();
      if (computing_) {
        computing_ = clock_.computing();
        from_ = now;
      }
      return now - from_;
    }

   private:
    cuda_clock& clock_;
    double from_ = steady_seconds();
    bool computing_ = true;  // as far as has been asked
  };

  /// A host function of a time, or of nothing.
  struct slot {
    static constexpr std::size_t bytes = 192;
    alignas(std::max_align_t) std::byte storage[bytes];
    void (*run)(void*, double);
    cuda_queue* owner;

    template <class Task>
    void put(Task task) {
      static_assert(std::is_trivially_copyable_v<Task> && sizeof(Task) <= bytes && alignof(Task) <= alignof(std::max_align_t),
                    "acco: a task captures at most 192 bytes of pointers, views and numbers");
      ::new (static_cast<void*>(storage)) Task(task);
      run = [](void* stored, [[maybe_unused]] double now) {
        Task& mine = *std::launder(static_cast<Task*>(stored));
        if constexpr (std::is_invocable_v<Task&, double>) {
          (void)mine(now);
        } else {
          (void)mine();
        }
      };
    }
  };
  struct time_stamp : slot {
    cuda_event event{true};
  };

  [[nodiscard]] cudaStream_t stream() const noexcept { return current_ == lane::update ? update_->get() : network_.get(); }
  /// The end of all tasks so far.
  void close() {
    if (!std::exchange(unmarked_, false)) return;
    if (update_) {
      end_.record(update_->get());
      end_.hold(network_.get());
    }
    end_.record(network_.get());
  }
  /// Times are those of the GPU's clock since the last stamp; where the host has just seen the end, its clock is right
  /// again.
  void write_stamps(std::optional<double> now) {
    if (stamped_ == 0) return;
    cuda_event& last = stamps_[stamped_ - 1].event;
    const double end = now ? *now : clock_.time_of(last);
    for (std::size_t k = 0; k < stamped_; ++k)
      stamps_[k].run(stamps_[k].storage, end - cuda_clock::between(stamps_[k].event, last));
    clock_.anchor(last, end);
    stamped_ = 0;
  }

  cudaStream_t computation_;
  cuda_watch watch_;
  int priority_;
  cuda_stream network_;
  std::optional<cuda_stream> update_;
  lane current_ = lane::network;
  std::vector<cuda_event> marks_;
  std::size_t marked_ = 0;
  // a round's start, and what a collective of the trainer's own asks for meanwhile
  std::array<cuda_event, 4> computed_;
  std::size_t computations_ = 0;
  cuda_event done_, end_;
  bool unmarked_ = false;  // tasks were enqueued since `end_` was recorded
  cuda_clock clock_;
  std::deque<time_stamp> stamps_ = std::deque<time_stamp>(4);  // tasks know where theirs are
  std::size_t stamped_ = 0;
  std::deque<slot> slots_ = std::deque<slot>(4);
  std::size_t tasks_ = 0;
  cuda_buffer scratch_;
  std::vector<cuda_buffer> kept_;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::optional<host_queue> thread_;  // last: its tasks use everything above
};

}  // namespace ACCO_SIMD_NAMESPACE
