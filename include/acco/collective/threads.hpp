// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process. Sums in rank order, in at least fp32; waits sleep, have a deadline, and name who is missing.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// Where the ranks of one process meet: each brings a `post` (what it calls, and where its data lie), and goes on when all have
/// come. The first failure is final: from then on every wait throws, and names the rank that failed.
class meeting_point {
 public:
  struct post {
    collective operation = collective::none;
    std::size_t count = 0;    ///< elements of the whole
    std::size_t element = 0;  ///< bytes each
    int root = 0;
    void const* data = nullptr;
    void* ready =
        nullptr;  ///< of a queue that orders other memory: when the data may be read, when this rank has read the others'
    void* read = nullptr;
  };

  explicit meeting_point(int ranks)
      : posts_(static_cast<std::size_t>(ranks)), came_(static_cast<std::size_t>(ranks), false), gone_(came_) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(posts_.size()); }
  [[nodiscard]] post const& of(int rank) const noexcept { return posts_[static_cast<std::size_t>(rank)]; }

  /// Brings this rank's post and waits for the others'; throws `mismatch_error` if they call something else.
  void arrive(int rank, post mine, error_place where, double deadline) {
    where.rank = rank;
    posts_[static_cast<std::size_t>(rank)] = mine;  // read by the others only after they have passed the lock below
    wait_for_all(rank, mine.operation, where, deadline);
    for (int peer = 0; peer < size(); ++peer) {
      post const& other = of(peer);
      if (other.operation == mine.operation && other.count == mine.count && other.element == mine.element &&
          other.root == mine.root)
        continue;
      throw mismatch_error(
          where,
          text("this rank calls ", name_of(mine.operation), " of ", mine.count, " elements of ", mine.element, " bytes, rank ",
               peer, " calls ", name_of(other.operation), " of ", other.count, " elements of ", other.element, " bytes"),
          text("Every rank must make the same calls in the same order, one optimizer at a time"), peer);
    }
  }

  /// Waits until every rank is done reading the others' data. Whoever has arrived will depart, whatever fails meanwhile: so this
  /// wait cannot fail, and no rank frees a buffer that another one reads.
  void depart() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = departures_;
    if (++departed_ == size()) {
      departed_ = 0;
      ++departures_;
      lock.unlock();
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return departures_ != mine; });
  }

  /// Records that a rank failed or left; wakes everyone. Only the first record counts.
  void fail(int rank, std::string_view reason) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (failed_rank_ >= 0) return;
      failed_rank_ = rank;
      reason_ = text(reason);
    }
    changed_.notify_all();
  }

  /// A rank's function has returned: whoever waits for it from now on will wait in vain, and is told so.
  void leave(int rank) noexcept {
    {
      const std::lock_guard lock(mutex_);
      gone_[static_cast<std::size_t>(rank)] = true;
    }
    changed_.notify_all();
  }

 private:
  void wait_for_all(int rank, collective operation, error_place where, double deadline) {
    std::unique_lock lock(mutex_);
    if (failed_rank_ >= 0) throw_failure(where, operation);
    const std::uint64_t mine = generation_;
    came_[static_cast<std::size_t>(rank)] = true;
    if (++arrived_ == size()) {
      arrived_ = 0;
      std::fill(came_.begin(), came_.end(), false);
      ++generation_;
      lock.unlock();
      changed_.notify_all();
      return;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                              std::chrono::duration<double>(std::min(deadline, 1e9)));
    for (;;) {
      if (generation_ != mine) return;  // complete: a later failure does not concern this wait
      if (failed_rank_ >= 0) throw_failure(where, operation);
      for (int peer = 0; peer < size(); ++peer) {
        if (!gone_[static_cast<std::size_t>(peer)] || came_[static_cast<std::size_t>(peer)]) continue;
        failed_rank_ = peer;
        reason_ = text("it has returned and did not come to ", name_of(operation));
        lock.unlock();
        changed_.notify_all();
        throw peer_error(where, text("rank ", peer, " has returned and will not come to this ", name_of(operation)),
                         text("Let every rank process the same rounds, or call finish() on the ranks that have no more data"),
                         peer);
      }
      if (changed_.wait_until(lock, until) == std::cv_status::timeout && generation_ == mine && failed_rank_ < 0) {
        auto const [who, missing] = ranks_where(size(), [&](int peer) { return !came_[static_cast<std::size_t>(peer)]; });
        failed_rank_ = missing;
        reason_ = text("it did not come to ", name_of(operation), " within ", deadline, " s");
        lock.unlock();
        changed_.notify_all();
        throw deadline_error(where, text("rank ", who, " did not come to ", name_of(operation), " within ", deadline, " s"),
                             text("Check that it is alive and processes the same rounds, or raise options::deadline"), missing);
      }
    }
  }
  [[noreturn]] void throw_failure(error_place where, collective operation) const {
    throw peer_error(where, text(name_of(operation), " is impossible because rank ", failed_rank_, " failed: ", reason_),
                     text("Look at rank ", failed_rank_, "'s own error first"), failed_rank_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<post> posts_;
  std::vector<bool> came_, gone_;
  std::uint64_t generation_ = 0, departures_ = 0;
  int arrived_ = 0, departed_ = 0;
  int failed_rank_ = -1;
  text reason_;
};

/// A handle on one rank of an in-process world; cheap to copy. All copies of one rank's handle speak for that rank. Works on host
/// memory; on device memory with collective/threads_cuda.hpp.
class threads_backend {
 public:
  static constexpr bool meets_on_host = true;

  /// Runs `function(threads_backend)` on `ranks` threads and returns when all have ended. An exception on one rank ends the waits
  /// of all others with an error that names it; `run` rethrows the exception that came first and was not such a consequence.
  template <class Function>
  static void run(int ranks, Function&& function) {
    const std::vector<threads_backend> handles = world(ranks);
    std::mutex mutex;
    std::exception_ptr cause, consequence;
    {
      std::vector<std::jthread> threads;
      threads.reserve(handles.size());
      for (threads_backend const& handle : handles) {
        threads.emplace_back([&, handle] {
          const auto record = [&](std::exception_ptr& where, char const* what) {
            const std::lock_guard lock(mutex);
            if (!where) where = std::current_exception();
            handle.point_->fail(handle.rank_, what);
          };
          try {
            function(handle);
            handle.point_->leave(handle.rank_);
          } catch (peer_error const& e) {
            record(consequence, e.what());
          } catch (std::exception const& e) {
            record(cause, e.what());
          } catch (...) {
            record(cause, "an exception that is not a std::exception");
          }
        });
      }
    }
    if (cause) std::rethrow_exception(cause);
    if (consequence) std::rethrow_exception(consequence);
  }

  /// The handles of a new world, for programs that start their threads themselves.
  [[nodiscard]] static std::vector<threads_backend> world(int ranks) {
    if (ranks < 1) throw usage_error({}, text("a world of ", ranks, " ranks was asked for"), text("Use at least one rank"));
    const auto point = std::make_shared<meeting_point>(ranks);
    std::vector<threads_backend> handles;
    handles.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) handles.push_back(threads_backend(point, rank));
    return handles;
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return point_->size(); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    exchange(queue, collective::all_reduce, in.local(), 0,
             [out](meeting_point const& point, int) { sum<T>(point, 0, out.whole(), false); });
  }

  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    reduce_scatter_into<Gradient, Sum, false>(queue, in, out);
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    reduce_scatter_into<Gradient, Sum, true>(queue, in, out);
  }

  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) const {
    exchange(queue, collective::all_gather, in.slice(), 0, [out](meeting_point const& point, int) {
      for (int peer = 0; peer < point.size(); ++peer) {
        auto const& post = point.of(peer);
        T* const to = out.whole().data() + static_cast<std::size_t>(peer) * post.count;
        if (post.data != to && post.count != 0) std::memcpy(static_cast<void*>(to), post.data, post.count * sizeof(T));
      }
    });
  }

  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    exchange(queue, collective::all_to_all, in, 0, [out](meeting_point const& point, int rank) {
      const std::size_t part = out.size() / static_cast<std::size_t>(point.size());
      for (int peer = 0; peer < point.size() && part != 0; ++peer) {
        std::memcpy(out.data() + static_cast<std::size_t>(peer) * part,
                    static_cast<std::byte const*>(point.of(peer).data) + static_cast<std::size_t>(rank) * part, part);
      }
    });
  }

  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    exchange(queue, collective::broadcast, whole.whole(), root, [whole, root](meeting_point const& point, int rank) {
      if (rank != root && !whole.whole().empty())
        std::memcpy(static_cast<void*>(whole.whole().data()), point.of(root).data, whole.whole().size_bytes());
    });
  }

  /// The same over queues of other memory, whose header defines how ranks `meet` there.
  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out) const
    requires requires(meeting_point& p) { meet(queue, p, 0, in, out); }
  {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    meet(queue, *point_, rank_, in, out, std::false_type{});
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    meet(queue, *point_, rank_, in, out, std::true_type{});
  }
  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out) const {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue, class T>
  void broadcast(Queue& queue, replicated<T> whole, int root) const {
    meet(queue, *point_, rank_, whole, root);
  }

  /// This rank leaves although a round is in flight: the others must not wait for it.
  void abandon(std::string_view reason) const noexcept { point_->fail(rank_, reason); }

 private:
  threads_backend(std::shared_ptr<meeting_point> point, int rank) : point_(std::move(point)), rank_(rank) {}

  template <class Gradient, class Sum, bool add>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    exchange(queue, collective::reduce_scatter, in.local(), 0, [out](meeting_point const& point, int rank) {
      sum<Gradient>(point, static_cast<std::size_t>(rank) * out.slice().size(), out.slice(), add);
    });
  }

  /// Meet, read the others' data with `work`, and part when all have read.
  template <class T, class Work>
  void exchange(host_queue& queue, collective operation, std::span<T> mine, int root, Work work) const {
    queue.enqueue([point = point_.get(), &queue, operation, mine, root, work, rank = rank_] {
      point->arrive(rank, {operation, mine.size(), sizeof(T), root, mine.data()}, queue.place, queue.deadline);
      work(*point, rank);
      point->depart();
    });
  }

  template <class From, class To>
  static void sum(meeting_point const& point, std::size_t offset, std::span<To> out, bool add) {
    elementwise::sum_sources(
        point.size(), [&](int peer) { return static_cast<From const*>(point.of(peer).data) + offset; }, out.data(), out.size(),
        add);
  }

  std::shared_ptr<meeting_point> point_;
  int rank_;
};
static_assert(collective_backend<threads_backend, host_queue>);

}  // namespace ACCO_NAMESPACE
