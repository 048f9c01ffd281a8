// SPDX-License-Identifier: Apache-2.0
// The backend for tests: ranks of a deterministic world (world.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/joining_thread.hpp"
#include "acco/collective/mock/world.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

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
    mock_world(ranks).run(std::forward<Function>(function));
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return channel_->of->size(); }
  /// Over all channels and parts of the world.
  [[nodiscard]] mock_counters const& counters() const { return world_->counters(mock_world::member(*channel_, rank_)); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    enqueue(queue, collective::all_reduce, in.local(), out.whole(), false, 0,
            [out](auto const& posts, int) { sum<T>(posts, 0, out.whole(), false); });
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
    enqueue(queue, collective::all_gather, in.slice(), out.whole(), false, 0, [out](auto const& posts, int) {
      unsigned char* to = reinterpret_cast<unsigned char*>(out.whole().data());
      for (auto const& post : posts) to = std::copy(post.data.begin(), post.data.end(), to);
    });
  }
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    enqueue(queue, collective::all_to_all, in, out, false, 0, [out](auto const& posts, int rank) {
      const std::size_t part = out.size() / posts.size();
      auto* to = reinterpret_cast<unsigned char*>(out.data());
      for (auto const& post : posts) to = std::copy_n(post.data.data() + static_cast<std::size_t>(rank) * part, part, to);
    });
  }
  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    enqueue(queue, collective::broadcast, std::span<T const>(whole.whole()), std::span<T>(), false, root,
            [whole, root](auto const& posts, int) {
              auto const& data = posts[static_cast<std::size_t>(root)].data;
              std::copy(data.begin(), data.end(), reinterpret_cast<unsigned char*>(whole.whole().data()));
            });
  }

  /// This rank leaves this channel; the dead are silent.
  void abort(std::string_view reason) const noexcept {
    if (!world_->state(mock_world::member(*channel_, rank_)).dead) mock_world::fail(*channel_, rank_, reason);
  }
  void close() const noexcept { mock_world::end_of(*channel_, rank_).left = "has finished, left,"; }
  /// The same rank, over a channel of its own.
  [[nodiscard]] mock_backend duplicate() const {
    mock_backend copy = *this;
    copy.channel_ = world_->open(*channel_->of, rank_);
    return copy;
  }
  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank; errors name its ranks,
  /// scripts and counters those of the whole.
  [[nodiscard]] mock_backend split(int color, int key = 0, double deadline = 600) const {
    const split_result mine = agree_on_split(*this, color, key, deadline);
    mock_backend copy = *this;
    copy.channel_ = world_->open(*world_->part(*channel_->of, mine.members), mine.rank);
    copy.rank_ = mine.rank;
    return copy;
  }
  /// Of this channel.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return mock_world::end_of(*channel_, rank_).sent; }
  [[nodiscard]] queue_driver driver() const {
    return {[](void* context) {
              auto* const me = static_cast<mock_backend*>(context);
              me->world_->wait(me->rank_);
            },
            [](void* context) {
              auto* const me = static_cast<mock_backend*>(context);
              me->world_->poll(me->rank_);
            },
            const_cast<mock_backend*>(home_)};
  }

 private:
  friend class mock_world;
  mock_backend(mock_world* world, int rank) : world_(world), channel_(world->open(*world->groups_.front(), rank)), rank_(rank) {}

  template <class T>
  static std::span<unsigned char> raw(std::span<T> elements) {
    return {reinterpret_cast<unsigned char*>(const_cast<std::remove_const_t<T>*>(elements.data())), elements.size_bytes()};
  }

  template <class Gradient, class Sum, bool add>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    enqueue(queue, collective::reduce_scatter, in.local(), out.slice(), add, 0, [out](auto const& posts, int rank) {
      sum<Gradient>(posts, static_cast<std::size_t>(rank) * out.slice().size(), out.slice(), add);
    });
  }

  template <class In, class Out, class Finish>
  void enqueue(host_queue& queue, collective operation, std::span<In const> in, std::span<Out> out, bool adds, int root,
               Finish finish) const {
    queue.enqueue([channel = channel_, rank = rank_, &queue, operation, in, out, adds, root, finish] {
      return channel->of->world->step(*channel, rank, operation, raw(in), raw(out), adds, sizeof(In), root, queue.place,
                                      [&](auto const& posts) { finish(posts, rank); });
    });
  }

  template <class From, class Posts, class To>
  static void sum(Posts const& posts, std::size_t offset, std::span<To> out, bool add) {
    elementwise::sum_sources(
        static_cast<int>(posts.size()),
        [&](int peer) {
          void const* const values = posts[static_cast<std::size_t>(peer)].data.data();
          return static_cast<From const*>(values) + offset;
        },
        out.data(), out.size(), add);
  }

  mock_world* world_;
  mock_world::channel* channel_;
  int rank_;
  mock_backend const* home_ = nullptr;  // the handle that the world keeps alive: what drivers point at
};
static_assert(collective_backend<mock_backend, host_queue>);

template <class Function>
void mock_world::run(Function&& function) {
  std::vector<mock_backend> handles;
  handles.reserve(ranks_.size());
  for (int rank = 0; rank < size(); ++rank) handles.push_back(mock_backend(this, rank));
  for (mock_backend& handle : handles) handle.home_ = &handle;
  std::exception_ptr cause, consequence;
  {
    std::vector<joining_thread> threads;
    for (mock_backend const& handle : handles) {
      threads.emplace_back([&, handle] {
        turns_.await(handle.rank_);
        const auto record = [&](std::exception_ptr& where, char const* what) {
          if (!where) where = std::current_exception();
          end(handle.rank_, true, what);
        };
        try {
          function(handle);
          end(handle.rank_, false);
        } catch (death const&) {
        } catch (peer_error const& e) {
          record(consequence, e.what());
        } catch (std::exception const& e) {
          record(cause, e.what());
        } catch (...) {
          record(cause, "an exception that is not a std::exception");
        }
        fruitless_ = 0;
        turns_.end(handle.rank_);
      });
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace ACCO_SIMD_NAMESPACE
