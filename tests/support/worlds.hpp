// SPDX-License-Identifier: Apache-2.0
// The worlds in which a test of multi-rank behaviour runs: each has a name and `run(ranks, function(backend))`. A world
// whose ranks are processes also has `share(values by rank)`, which gives every process what the others found.
#pragma once

#include <utility>
#include <vector>

#include <acco/acco.hpp>

namespace worlds {

/// The storage that goes with a world: host memory, unless the world says otherwise.
template <class World>
struct storage_of {
  template <class... T>
  using type = acco::host_storage<T...>;
};
template <class World>
  requires requires { typename World::template storage<float>; }
struct storage_of<World> {
  template <class... T>
  using type = typename World::template storage<T...>;
};

/// Arrays that this world's ranks work on and the host can look at.
template <class World, class T>
struct array_of {
  using type = std::vector<T>;
};
template <class World, class T>
  requires requires { typename World::template array<T>; }
struct array_of<World, T> {
  using type = typename World::template array<T>;
};
template <class World, class T>
using array = typename array_of<World, T>::type;

/// The queue of one rank.
template <class World, class Backend>
auto queue_of(Backend const& backend) {
  if constexpr (requires { World::queue(backend); }) {
    return World::queue(backend);
  } else {
    return acco::make_queue<acco::host_queue>(backend);
  }
}

template <class World>
inline constexpr bool on_host = !requires { typename World::template storage<float>; };
/// Before the host touches what memory of another kind may still be worked on.
template <class World>
void settle() {
  if constexpr (!on_host<World>) World::template storage<float>::settle();
}

struct threads {
  static constexpr char const* name = "threads";
  static constexpr int most_ranks = 7;
  using backend = acco::threads_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, function);
  }
};
/// Transfers complete at once, as late as possible, or at random moments; poisoned while in flight.
struct mock_at_once {
  static constexpr char const* name = "mock, at once";
  using backend = acco::mock_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::mock_world(ranks).run(function);
  }
};
struct mock_late {
  static constexpr char const* name = "mock, as late as possible";
  using backend = acco::mock_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::mock_world(ranks, {.delay = acco::complete_when_waited_for{}}).run(function);
  }
};
struct mock_random {
  static constexpr char const* name = "mock, at random";
  using backend = acco::mock_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::mock_world(ranks, {.delay = acco::complete_at_random{.seed = 7}}).run(function);
  }
};
struct decorated {
  static constexpr char const* name = "debug over rate_limited over threads";
  using backend = decltype(acco::debug(acco::rate_limited(std::declval<acco::threads_backend>(), {})));
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      function(acco::debug(acco::rate_limited(world, {.bytes_per_second = 1e9, .latency = 1e-5})));
    });
  }
};
/// A backend whose reduce-scatter cannot add to its destination.
class plain_backend {
 public:
  static constexpr acco::backend_traits traits{.passes = true};

  explicit plain_backend(acco::threads_backend world) : world_(std::move(world)) {}
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }
  template <class T>
  void all_reduce(acco::host_queue& queue, acco::partial<T const> in, acco::replicated<T> out) {
    world_.all_reduce(queue, in, out);
  }
  template <class G, class S>
  void reduce_scatter(acco::host_queue& queue, acco::partial<G const> in, acco::sharded<S> out) {
    world_.reduce_scatter(queue, in, out);
  }
  template <class T>
  void all_gather(acco::host_queue& queue, acco::sharded<T const> in, acco::replicated<T> out) {
    world_.all_gather(queue, in, out);
  }
  void all_to_all(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) {
    world_.all_to_all(queue, in, out);
  }
  template <class T>
  void broadcast(acco::host_queue& queue, acco::replicated<T> whole, int root) {
    world_.broadcast(queue, whole, root);
  }

 private:
  acco::threads_backend world_;
};
struct plain {
  static constexpr char const* name = "a backend without accumulating reduce_scatter";
  using backend = plain_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { function(plain_backend(world)); });
  }
};

}  // namespace worlds
