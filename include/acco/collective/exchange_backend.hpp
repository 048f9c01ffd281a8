// SPDX-License-Identifier: Apache-2.0
// A collective backend over an exchange: each operation is one task, which is asked again until its messages have arrived.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/exchange.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// What `mpi_backend` and `gloo_backend` are made of.
template <class Transport>
class exchange_backend {
 public:
  explicit exchange_backend(std::shared_ptr<exchange<Transport>> group) : group_(std::move(group)) {}

  [[nodiscard]] int rank() const noexcept { return group_->rank(); }
  [[nodiscard]] int size() const noexcept { return group_->size(); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    queue.enqueue([group = group_.get(), &queue, in, out] { return group->all_reduce(queue, in.local(), out.whole()); });
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
    queue.enqueue(
        [group = group_.get(), &queue, in, out] { group->gather_piece(queue, in.slice(), out.whole(), 0, in.slice().size()); });
    queue.enqueue([group = group_.get(), &queue] { return group->gather_rest(queue); });
  }
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    queue.enqueue([group = group_.get(), &queue, in, out] { return group->all_to_all(queue, in, out); });
  }
  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    queue.enqueue([group = group_.get(), &queue, whole, root] {
      return group->broadcast(queue, std::as_writable_bytes(whole.whole()), root);
    });
  }

  /// This rank leaves although a round is in flight: the others must not wait for it.
  void abandon(std::string_view reason) const noexcept { group_->abandon(reason); }

  /// The same operations in pieces, to be called by tasks: a round reduces, updates and gathers different pieces at the same
  /// time.
  [[nodiscard]] exchange<Transport>& pieces() const noexcept { return *group_; }
  /// What the backend itself allocated for messages.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return group_->buffer_bytes(); }

 protected:
  [[nodiscard]] exchange<Transport>& group() const noexcept { return *group_; }

 private:
  template <bool add, class Gradient, class Sum>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    queue.enqueue([group = group_.get(), &queue, in, out] {
      return group->reduce_scatter(queue, in.local(), out.slice(), add, [](auto&&...) {});
    });
  }

  std::shared_ptr<exchange<Transport>> group_;
};

}  // namespace ACCO_NAMESPACE
