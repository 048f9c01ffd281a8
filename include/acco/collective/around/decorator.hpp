// SPDX-License-Identifier: Apache-2.0
// The common part of decorators: any backend in, a backend out, something done before and after each collective. They
// stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a decorator is told about a collective: which, and how many bytes the whole has.
struct collective_call {
  collective operation;
  std::size_t whole_bytes;
};

/// What an `Around` keeps for its work in a queue, of a type for each type of queue: made when the first queue of that
/// type is met. A copy begins with nothing.
class memory_by_queue {
 public:
  memory_by_queue() = default;
  memory_by_queue(memory_by_queue const&) noexcept {}
  memory_by_queue(memory_by_queue&&) noexcept = default;
  memory_by_queue& operator=(memory_by_queue const&) = delete;
  memory_by_queue& operator=(memory_by_queue&&) noexcept = default;
  ~memory_by_queue() = default;

  template <class Memory, class Queue>
  Memory& of(Queue& queue) {
    for (kept* each = first_.get(); each != nullptr; each = each->next.get()) {
      if (each->type == &type_of<Memory>) return static_cast<kept_as<Memory>*>(each)->memory;
    }
    auto made = std::make_unique<kept_as<Memory>>(queue);
    Memory& memory = made->memory;
    made->next = std::exchange(first_, nullptr);
    first_ = std::move(made);
    return memory;
  }

 private:
  template <class Memory>
  static inline char type_of = 0;  // its address tells types apart; not const, so that no linker folds two
  struct kept {
    explicit kept(void const* of) noexcept : type(of) {}
    kept(kept const&) = delete;
    kept& operator=(kept const&) = delete;
    virtual ~kept() = default;
    void const* type;
    std::unique_ptr<kept> next;
  };
  template <class Memory>
  struct kept_as final : kept {
    template <class Queue>
    explicit kept_as(Queue& queue) : kept(&type_of<Memory>), memory(queue) {}
    Memory memory;
  };
  std::unique_ptr<kept> first_;
};

/// Of two levels each is decorated for itself. `Around` has `before(queue, backend, call)` and `after(queue, backend,
/// call)`, which enqueue their work. Traits and members of the backend are passed on; an `Around` that waits in the
/// thread that issues tasks says so with a member `static constexpr bool meets_on_host = true`; one that enqueues more
/// than a work before and one after says how many all are, with `static constexpr std::size_t tasks(std::size_t
/// of_backend)`.
template <class Backend, class Around>
class decorated_backend {
  static constexpr bool waits_where_issued = requires { requires Around::meets_on_host; };
  static consteval backend_traits decorated(backend_traits of_backend) {
    if (waits_where_issued) of_backend.meets_on_host = true;
    of_backend.has_levels = false;
    of_backend.tasks_of_a_call = tasks(of_backend.tasks_of_a_call);
    return of_backend;
  }
  static consteval std::size_t tasks(std::size_t of_backend) {
    static_assert(
        requires { Around::tasks(of_backend); } || !(
                                                       requires { &Around::tasks; } || requires { &Around::works; }),
        "acco: the decorator's `tasks` is not a public `static constexpr std::size_t tasks(std::size_t of_backend)`");
    if constexpr (requires { Around::tasks(of_backend); }) {
      return Around::tasks(of_backend);
    } else {
      return of_backend + 2;
    }
  }

 public:
  static constexpr backend_traits traits = decorated(traits_of<Backend>);

  decorated_backend(Backend backend, Around around) : backend_(std::move(backend)), around_(std::move(around)) {}

  [[nodiscard]] int rank() const { return backend_.rank(); }
  [[nodiscard]] int size() const { return backend_.size(); }

  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out)
    requires requires(Backend& b) { b.all_reduce(queue, in, out); }
  {
    around(queue, {collective::all_reduce, in.local().size_bytes()}, [&] { backend_.all_reduce(queue, in, out); });
  }
  template <class Queue, class Gradient, class Sum, class... Accumulate>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out, Accumulate... add)
    requires requires(Backend& b) { b.reduce_scatter(queue, in, out, add...); }
  {
    around(queue, {collective::reduce_scatter, in.local().size_bytes()},
           [&] { backend_.reduce_scatter(queue, in, out, add...); });
  }
  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out)
    requires requires(Backend& b) { b.all_gather(queue, in, out); }
  {
    around(queue, {collective::all_gather, out.whole().size_bytes()}, [&] { backend_.all_gather(queue, in, out); });
  }
  template <class Queue, class T>
  void broadcast(Queue& queue, replicated<T> whole, int root)
    requires requires(Backend& b) { b.broadcast(queue, whole, root); }
  {
    around(queue, {collective::broadcast, whole.whole().size_bytes()}, [&] { backend_.broadcast(queue, whole, root); });
  }
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out)
    requires requires(Backend& b) { b.all_to_all(queue, in, out); }
  {
    around(queue, {collective::all_to_all, in.size()}, [&] { backend_.all_to_all(queue, in, out); });
  }

  void abort(std::string_view reason) const noexcept
    requires(traits.tells_departures)
  {
    backend_.abort(reason);
  }
  void close() const noexcept
    requires(traits.tells_departures)
  {
    backend_.close();
  }
  [[nodiscard]] decorated_backend duplicate() const
    requires(traits.duplicates)
  {
    return {backend_.duplicate(), around_};
  }
  [[nodiscard]] decorated_backend split(int color, int key = 0, double deadline = 600) const
    requires(traits.splits)
  {
    return {backend_.split(color, key, deadline), around_};
  }
  void share(bool same_everywhere) const
    requires(traits.shares_device)
  {
    backend_.share(same_everywhere);
  }
  [[nodiscard]] auto driver() const
    requires(traits.driven)
  {
    return backend_.driver();
  }
  [[nodiscard]] auto watch() const
    requires(traits.watched)
  {
    return backend_.watch();
  }
  [[nodiscard]] std::uint64_t bytes_sent() const
    requires(traits.counts_bytes)
  {
    return backend_.bytes_sent();
  }
  [[nodiscard]] std::size_t buffer_bytes() const
    requires(traits.allocates_messages)
  {
    return backend_.buffer_bytes();
  }
  [[nodiscard]] char const* progress_policy() const
    requires(traits.names_progress)
  {
    return backend_.progress_policy();
  }

 private:
  template <class Queue, class Call>
  void around(Queue& queue, collective_call call, Call&& inner) {
    around_.before(queue, backend_, call);
    inner();
    around_.after(queue, backend_, call);
  }

  Backend backend_;
  Around around_;
};

}  // namespace ACCO_SIMD_NAMESPACE
