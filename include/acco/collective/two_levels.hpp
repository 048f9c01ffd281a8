// SPDX-License-Identifier: Apache-2.0
// What a rank's two levels share: a backend inside its group, one between groups, memory for what has passed one and
// not yet the other, and what each level tells the other.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Memory between the levels. It grows, and what tasks may still use stays. The trainer's thread calls all members.
class level_scratch {
 public:
  /// Room for `count` numbers, the same for every operation: they run one after the other.
  template <class T>
  [[nodiscard]] std::span<T> room(std::size_t count) {
    if (count * sizeof(T) > largest_) add(count * sizeof(T));
    return {blocks_.empty() ? nullptr : reinterpret_cast<T*>(blocks_.back().get()), count};
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct release {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, alignment); }
  };
  void add(std::size_t bytes) {
    blocks_.emplace_back(static_cast<std::byte*>(::operator new(bytes, alignment)));
    largest_ = bytes;
    bytes_ += bytes;
  }

  std::vector<std::unique_ptr<std::byte, release>> blocks_;
  std::size_t largest_ = 0, bytes_ = 0;
};

template <class Inner, class Outer>
struct two_levels {
  static constexpr bool tell = traits_of<Inner>.tells_departures && traits_of<Outer>.tells_departures;
  Inner inner;
  Outer outer;
  level_scratch scratch{};
  char const* phase = nullptr;  ///< of the queue's place, while a level's name stands there

  [[nodiscard]] int rank() const { return inner.rank() * outer.size() + outer.rank(); }
  /// The levels number this rank otherwise.
  void abort([[maybe_unused]] std::string_view reason) const noexcept {
    if constexpr (tell) {
      const text told("(rank ", rank(), " of the whole) ", reason);
      inner.abort(told.view());
      outer.abort(told.view());
    }
  }
  /// Enqueues what `call` enqueues on one of the levels. Its errors name the level, and the other level hears of them.
  template <class Call>
  void on(host_queue& queue, char const* level, Call&& call) {
    queue.enqueue([q = &queue, both = this, level] { both->phase = std::exchange(q->place.phase, level); });
    call();
    queue.enqueue(end_of_level{&queue, this});
  }

 private:
  /// Behind the tasks of a level. Dropped after a failure: the other level's ranks cannot know of it.
  struct end_of_level {
    host_queue* queue;
    two_levels* both;
    void operator()() const noexcept { queue->place.phase = std::exchange(both->phase, nullptr); }
    void dropped() const noexcept {
      if (both->phase != nullptr) (*this)();
      if (!queue->failed()) return;
      try {
        queue->rethrow();
      } catch (std::exception const& e) {
        both->abort(text("it cannot go on: ", std::string_view(e.what())).view());
      } catch (...) {
        both->abort("it cannot go on: an exception that is not a std::exception");
      }
    }
  };
};

/// One of the levels, as a backend: `Inside` the group, or between groups.
template <class Levels, bool Inside>
class level_backend {
  static auto& level_of(Levels& both) noexcept {
    if constexpr (Inside) {
      return both.inner;
    } else {
      return both.outer;
    }
  }
  using level_type = std::remove_reference_t<decltype(level_of(std::declval<Levels&>()))>;
  static consteval backend_traits of_level() {
    constexpr backend_traits of = traits_of<level_type>;
    return {.accumulates = of.accumulates,
            .passes = of.passes,
            .counts_bytes = of.counts_bytes,
            .tasks_of_a_call = of.tasks_of_a_call + 2};
  }

 public:
  static constexpr backend_traits traits = of_level();

  explicit level_backend(std::shared_ptr<Levels> both) noexcept : both_(std::move(both)) {}

  [[nodiscard]] int rank() const { return level_of(*both_).rank(); }
  [[nodiscard]] int size() const { return level_of(*both_).size(); }
  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) {
    on(queue, [&](level_type& level) { level.all_reduce(queue, in, out); });
  }
  template <class Gradient, class Sum, class... Accumulate>
    requires requires(level_type& level, host_queue& queue, partial<Gradient const> in, sharded<Sum> out, Accumulate... add) {
      level.reduce_scatter(queue, in, out, add...);
    }
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, Accumulate... add) {
    on(queue, [&](level_type& level) { level.reduce_scatter(queue, in, out, add...); });
  }
  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) {
    on(queue, [&](level_type& level) { level.all_gather(queue, in, out); });
  }
  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) {
    on(queue, [&](level_type& level) { level.broadcast(queue, whole, root); });
  }
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out)
    requires(traits.passes)
  {
    on(queue, [&](level_type& level) { level.all_to_all(queue, in, out); });
  }
  [[nodiscard]] std::uint64_t bytes_sent() const
    requires(traits.counts_bytes)
  {
    return level_of(*both_).bytes_sent();
  }

 private:
  template <class Call>
  void on(host_queue& queue, Call&& call) {
    both_->on(queue, Inside ? "inside its group" : "between groups", [&] { call(level_of(*both_)); });
  }
  std::shared_ptr<Levels> both_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
