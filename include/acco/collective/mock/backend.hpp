// SPDX-License-Identifier: Apache-2.0
// The backend for tests: ranks of a deterministic world that take turns. Transfers complete when a script says so,
// buffers in flight are poisoned, calls and bytes are counted, and faults are injected. world.hpp has how.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "acco/collective/backend.hpp"
#include "acco/collective/mock/script.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"
#include "acco/function_view.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

class mock_backend;
class mock_ranks;
struct mock_channel;

/// The world itself: `run` executes one function per rank, and the counters stay readable afterwards.
class mock_world {
 public:
  explicit mock_world(int ranks, mock_options options = {});
  mock_world(mock_world const&) = delete;
  mock_world& operator=(mock_world const&) = delete;

  /// Runs function(mock_backend) on every rank, in turns: rank 0 until it waits or polls, then rank 1, and so on,
  /// always in the same order. A wait that no rank can end is an error that names who is missing. Rethrows like
  /// `threads_backend::run`. Once per world.
  template <class Function>
  void run(Function&& function) {
    const auto calls = [&function](mock_backend const& handle) { function(handle); };
    run_each(calls);
  }

  [[nodiscard]] int size() const noexcept;
  /// Over all channels.
  [[nodiscard]] mock_counters const& counters(int rank) const;

 private:
  void run_each(function_view<void(mock_backend const&)> function);

  std::shared_ptr<mock_ranks> ranks_;
};

/// A handle on one rank of a `mock_world`.
class mock_backend {
 public:
  static constexpr backend_traits traits{.accumulates = true,
                                         .passes = true,
                                         .tells_departures = true,
                                         .duplicates = true,
                                         .splits = true,
                                         .driven = true,
                                         .counts_bytes = true};

  /// A world that completes every transfer at once: `acco::mock_backend::run(3, [](acco::mock_backend world) { ... })`.
  template <class Function>
  static void run(int ranks, Function&& function) {
    mock_world(ranks).run(function);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept;
  /// Over all channels and parts of the world.
  [[nodiscard]] mock_counters const& counters() const;

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    enqueue(queue, collective::all_reduce, in.local(), out.whole(), false, 0,
            [out](mock_backend const& me, sources all) { me.sum<T>(all, 0, out.whole(), false); });
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
    enqueue(queue, collective::all_gather, in.slice(), out.whole(), false, 0, [out](mock_backend const& me, sources all) {
      const std::span<unsigned char> to = raw(out.whole());
      me.take(all, 0, to.size() / static_cast<std::size_t>(me.size()), to);
    });
  }
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const;
  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    enqueue(queue, collective::broadcast, std::span<T const>(whole.whole()), std::span<T>(), false, root,
            [whole, root](mock_backend const&, sources all) {
              const std::span<unsigned char> to = raw(whole.whole());
              std::copy_n(static_cast<unsigned char const*>(all[root]), to.size(), to.data());
            });
  }

  /// This rank leaves this channel; the dead are silent.
  void abort(std::string_view reason) const noexcept;
  void close() const noexcept;
  /// The same rank, over a channel of its own.
  [[nodiscard]] mock_backend duplicate() const;
  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank; errors name its ranks,
  /// scripts and counters those of the whole.
  [[nodiscard]] mock_backend split(int color, int key = 0, double deadline = 600) const;
  /// Of this channel.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept;
  [[nodiscard]] queue_driver driver() const;

 private:
  friend class mock_world;
  using sources = void const* const*;  // what the ranks have brought
  mock_backend(mock_ranks& world, int rank);

  template <class T>
  static std::span<unsigned char> raw(std::span<T> elements) {
    return {reinterpret_cast<unsigned char*>(const_cast<std::remove_const_t<T>*>(elements.data())), elements.size_bytes()};
  }

  template <class Gradient, class Sum, bool add>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    enqueue(queue, collective::reduce_scatter, in.local(), out.slice(), add, 0, [out](mock_backend const& me, sources all) {
      me.sum<Gradient>(all, static_cast<std::size_t>(me.rank()) * out.slice().size(), out.slice(), add);
    });
  }

  template <class In, class Out, class Finish>
  void enqueue(host_queue& queue, collective operation, std::span<In const> in, std::span<Out> out, bool adds, int root,
               Finish finish) const {
    queue.enqueue([me = *this, &queue, operation, in, out, adds, root, finish] {
      const auto finishes = [&](sources all) { finish(me, all); };
      return me.step(operation, raw(in), raw(out), adds, sizeof(In), root, queue.place, finishes);
    });
  }
  /// Goes on with this rank's collective; called again and again until it is done. `finish` writes the output.
  progress step(collective operation, std::span<unsigned char> in, std::span<unsigned char> out, bool adds, std::size_t element,
                int root, error_place const& where, function_view<void(sources)> finish) const;
  /// `each` bytes of every rank, from `offset` on, one behind the other.
  void take(sources all, std::size_t offset, std::size_t each, std::span<unsigned char> out) const;

  template <class From, class To>
  void sum(sources all, std::size_t offset, std::span<To> out, bool add) const {
    elementwise::sum_sources(
        size(), [&](int peer) { return static_cast<From const*>(all[peer]) + offset; }, out.data(), out.size(), add);
  }

  mock_ranks* world_;
  mock_channel* channel_;
  int rank_;
  mock_backend const* home_ = nullptr;  // the handle that the world keeps alive: what drivers point at
};
static_assert(collective_backend<mock_backend, host_queue>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
#if !ACCO_ENGINES_ARE_COMPILED
#include "acco/collective/mock/world.hpp"
#endif
