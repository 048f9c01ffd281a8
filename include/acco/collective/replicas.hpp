// SPDX-License-Identifier: Apache-2.0
// Every rank has all of the state, and updates it alike: nothing is sharded, so no parameters travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/elementwise_works.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A backend whose ranks do not share the state out among themselves: each of them owns all of it (below).
template <class Backend>
concept replicates = requires { requires Backend::replicates; };
/// Over how many owners an optimizer on this backend divides its state, and which of them this rank is.
template <has_rank Backend>
[[nodiscard]] constexpr int owners(Backend const& backend) {
  return replicates<Backend> ? 1 : backend.size();
}
template <has_rank Backend>
[[nodiscard]] constexpr int owner(Backend const& backend) {
  return replicates<Backend> ? 0 : backend.rank();
}

/// A world of replicas: give it to an optimizer in place of `world`, and masters and the rule's slots are whole on every rank,
/// which gets all ranks' gradients, sums them in the order of the ranks, and makes the update itself. Parameters do not travel.
/// This is data-parallel training as it was before ZeRO, and the published form of DeMo (Peng et al., arXiv 2411.19870, Algorithm
/// 1: all ranks gather the codes of all).
///  - Encoded gradients are gathered: a rank sends its codes to N-1 others, and receives theirs, (N-1) times what it encodes;
///    sharded it would be (N-1) / N times, and the changes of parameters as much again.
///  - Gradients in full are all-reduced, in their own type, which is to be the type of sums.
///  - `coded::parameters` is `full`, and what is estimated from a rank's own gradients (`own_slice`) is refused: it would be
///    another update on every rank.
///
/// All ranks make the same operations on the same bits, so their parameters stay the same; `options::compare_every` compares
/// them. A checkpoint is refused: its parts are slices.
template <class Backend>
class replicas {
  static_assert(!two_levels<Backend>, "acco: replicas are of one level: give it a world that is not hierarchical");
  static_assert(!replicates<Backend>, "acco: these are replicas already");
  static consteval backend_traits of(backend_traits of_backend) {
    of_backend.accumulates = false;
    of_backend.passes = true;
    of_backend.sums_in_element_type = false;
    of_backend.splits = false;
    return of_backend;
  }

 public:
  static constexpr backend_traits traits = of(traits_of<Backend>);
  static constexpr bool replicates = true;

  explicit replicas(Backend world) : world_(std::move(world)) {}

  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }

  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out) {
    world_.all_reduce(queue, in, out);
  }
  /// The one slice is the whole.
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out) {
    static_assert(std::is_same_v<Gradient, Sum>,
                  "acco: over replicas gradients that are not encoded are summed in their own type: let `commit` be an encoding, "
                  "acco::coded<acco::bfloat16_wire, acco::full> say");
    world_.all_reduce(queue, in, replicated<Sum>(out.slice()));
  }
  /// A slice that is the whole is there already.
  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out) {
    if (in.slice().size() != out.whole().size()) return world_.all_gather(queue, in, out);
    if (in.slice().data() != out.whole().data()) enqueue_convert(queue, in.slice().data(), out.whole().data(), in.slice().size());
  }
  template <class Queue, class T>
  void broadcast(Queue& queue, replicated<T> whole, int root) {
    world_.broadcast(queue, whole, root);
  }
  /// Every rank's part is for all: `out` gets the parts of all ranks.
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) {
    world_.all_gather(queue, sharded<std::byte const>(in), replicated<std::byte>(out));
  }

  void abandon(std::string_view reason) const noexcept
    requires(traits.tells_departures)
  {
    world_.abandon(reason);
  }
  void retire() const noexcept
    requires(traits.tells_departures)
  {
    world_.retire();
  }
  [[nodiscard]] replicas duplicate() const
    requires(traits.duplicates)
  {
    return replicas(world_.duplicate());
  }
  void share(bool same_everywhere) const
    requires(traits.shares_device)
  {
    world_.share(same_everywhere);
  }
  [[nodiscard]] auto driver() const
    requires(traits.driven)
  {
    return world_.driver();
  }
  [[nodiscard]] auto watch() const
    requires(traits.watched)
  {
    return world_.watch();
  }
  [[nodiscard]] std::uint64_t bytes_sent() const
    requires(traits.counts_bytes)
  {
    return world_.bytes_sent();
  }
  [[nodiscard]] std::size_t buffer_bytes() const
    requires(traits.allocates_messages)
  {
    return world_.buffer_bytes();
  }
  [[nodiscard]] char const* progress_policy() const
    requires(traits.names_progress)
  {
    return world_.progress_policy();
  }

 private:
  Backend world_;
};

}  // namespace ACCO_SIMD_NAMESPACE
