// SPDX-License-Identifier: Apache-2.0
// A collective backend over messages: each operation is one task, which is asked again until its messages have
// arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/network/message_collectives.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What `mpi_backend` and `gloo_backend` are made of.
template <class Transport>
class message_backend {
  using operation = typename message_collectives<Transport>::operation;

 public:
  static constexpr backend_traits traits{.accumulates = true,
                                         .passes = true,
                                         .tells_departures = true,
                                         .duplicates = true,
                                         .duplicates_together = true,
                                         .counts_bytes = true,
                                         .allocates_messages = true};

  explicit message_backend(std::shared_ptr<message_collectives<Transport>> collectives) : collectives_(std::move(collectives)) {}

  [[nodiscard]] int rank() const noexcept { return collectives_->rank(); }
  [[nodiscard]] int size() const noexcept { return collectives_->size(); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    queue.enqueue([of = collectives_.get(), at = operation(), &queue, in, out]() mutable {
      return of->all_reduce(at, queue, in.local(), out.whole());
    });
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    reduce_scatter_into<false>(queue, in, out);
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    reduce_scatter_into<true>(queue, in, out);
  }
  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) const {
    queue.enqueue([of = collectives_.get(), at = operation(), &queue, in, out]() mutable {
      return of->all_gather(at, queue, in.slice(), out.whole());
    });
  }
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    queue.enqueue(
        [of = collectives_.get(), at = operation(), &queue, in, out]() mutable { return of->all_to_all(at, queue, in, out); });
  }
  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    queue.enqueue([of = collectives_.get(), at = operation(), &queue, whole, root]() mutable {
      return of->broadcast(at, queue, std::as_writable_bytes(whole.whole()), root);
    });
  }

  /// This rank leaves for a reason: all channels over the same connections end with it, on every rank.
  void abort(std::string_view reason) const noexcept { collectives_->abort(reason); }
  /// In peace: who still waits for it learns it when this process closes its connections, or at the deadline.
  void close() const noexcept {}
  /// The same ranks over the same connections, with operations of its own. When `message_channels` have been opened the
  /// ranks agree over this handle on one that is closed on all of them, which waits for them; throws `usage_error`
  /// where there is none, on every rank alike.
  [[nodiscard]] message_backend duplicate() const { return another_over(*this); }
  /// Of this channel.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return collectives_->bytes_sent(); }

  /// What the backend itself allocated for messages.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return collectives_->buffer_bytes(); }

 protected:
  [[nodiscard]] message_collectives<Transport>& collectives() const noexcept { return *collectives_; }
  /// `duplicate()` of a backend that is this one, and knows how to wait.
  template <class Backend>
  [[nodiscard]] message_backend another_over(Backend const& whole) const {
    auto& all = collectives_->shared();
    std::vector<typename connections<Transport>::channel_states> of_ranks;
    if (all.reopens()) {
      const auto mine = all.states();
      of_ranks.resize(static_cast<std::size_t>(size()));
      auto queue = make_queue<host_queue>(whole);
      queue.place = {rank(), -1, "initialize"};
      queue.deadline = collectives_->deadline();
      all_gather(queue, sharded(std::span(&mine, 1)), replicated(std::span(of_ranks)));
      queue.wait();
    }
    return message_backend(std::make_shared<message_collectives<Transport>>(*collectives_, all.open(of_ranks)));
  }

 private:
  template <bool add, class Gradient, class Sum>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    queue.enqueue([of = collectives_.get(), at = operation(), &queue, in, out]() mutable {
      return of->reduce_scatter(at, queue, in.local(), out.slice(), add);
    });
  }

  std::shared_ptr<message_collectives<Transport>> collectives_;
};

}  // namespace ACCO_SIMD_NAMESPACE
