// SPDX-License-Identifier: Apache-2.0
// Collectives over messages between two ranks: what the network backends share. Every rank sends each other rank its part
// directly, all at once, so both directions of every link are busy; a rank sends (N-1)/N of the whole for a reduce-scatter or an
// all-gather, as in a ring, but sums arrive unrounded and are added in rank order: results do not depend on backend or piece
// size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "acco/collective/redistribution.hpp"
#include "acco/function_view.hpp"
#include "acco/network/message_group.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's end of a group of ranks. Operations are called by tasks of a queue, one operation at a time, in the same order on
/// every rank. An operation that returns `progress::pending` must be called again with the same arguments. The first failure is
/// final: it is told to all other ranks, with its cause.
template <class Transport>
class exchange {
 public:
  /// A new channel over the connections. Messages are pieces of about `piece_bytes`: while one is summed the next ones travel. 0:
  /// `usual_piece` divided by the number of other ranks, but not below 32 KiB. More bytes under way than that do not make a link
  /// faster; where several ranks send to one, its link drops what it cannot hold.
  exchange(std::size_t piece_bytes, std::size_t usual_piece, std::shared_ptr<connections<Transport>> all)
      : group_(std::move(all)), chosen_piece_bytes_(piece_bytes) {
    const std::size_t others = std::max(static_cast<std::size_t>(size()), std::size_t{2}) - 1;
    const std::size_t chosen =
        piece_bytes != 0 ? piece_bytes : std::min(usual_piece, std::max(usual_piece / others, std::size_t{32} << 10U));
    piece_bytes_ = std::max(chosen / smallest_piece, std::size_t{1}) * smallest_piece;
    for (piece_channel& each : channels_) group_.reserve(each, 2 * static_cast<std::size_t>(size()), piece_bytes_);
  }
  /// Another channel over the same connections.
  exchange(exchange const& other, std::in_place_t) : exchange(other.piece_bytes_, other.piece_bytes_, other.group_.shared()) {
    chosen_piece_bytes_ = other.chosen_piece_bytes_;
  }
  exchange(exchange const&) = delete;
  exchange& operator=(exchange const&) = delete;

  [[nodiscard]] int rank() const noexcept { return group_.rank(); }
  [[nodiscard]] int size() const noexcept { return group_.size(); }
  [[nodiscard]] Transport& transport() const noexcept { return group_.shared()->transport(); }
  /// As given to the constructor.
  [[nodiscard]] std::size_t chosen_piece_bytes() const noexcept { return chosen_piece_bytes_; }
  /// Memory for arriving addends, in bytes; taken by the first operation that sums.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return channel_count * arrival_bytes(); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return group_.sent(); }

  /// out = (or +=) this rank's slice of the sum.
  template <class From, class To>
  progress reduce_scatter(host_queue const& queue, std::span<From const> in, std::span<To> out, bool add) {
    return reduce(queue, collective::reduce_scatter, in, out.size(), out, add);
  }
  /// out = the sum of all ranks' numbers. For small arrays: every rank sends all of them to every other.
  template <class T>
  progress all_reduce(host_queue const& queue, std::span<T const> in, std::span<T> out) {
    return reduce(queue, collective::all_reduce, in, 0, out, false);
  }

  /// Part r of `in` goes to rank r, part r of `out` comes from rank r.
  progress all_to_all(host_queue const& queue, std::span<std::byte const> in, std::span<std::byte> out) {
    const std::size_t part = in.size() / ranks();
    return in_pieces(
        queue, collective::all_to_all, part, piece_bytes_,
        [&](piece_channel& into, std::size_t offset, std::size_t count) {
          const auto at = [&](int rank) { return static_cast<std::size_t>(rank) * part + offset; };
          if (count != 0) std::memcpy(out.data() + at(rank()), in.data() + at(rank()), count);
          group_.for_peers([&](int to, int from) {
            group_.start(into, operation_, from, to, out.data() + at(from), in.data() + at(to), count);
          });
        },
        [](piece_channel&, std::size_t, std::size_t) {});
  }

  /// Every rank gets all ranks' `own`, in their order.
  template <class T>
  progress all_gather(host_queue const& queue, std::span<T const> own, std::span<T> whole) {
    return in_pieces(
        queue, collective::all_gather, own.size(), piece_elements<T>(),
        [&](piece_channel& into, std::size_t offset, std::size_t count) {
          const auto at = [&](int rank) { return whole.data() + static_cast<std::size_t>(rank) * own.size() + offset; };
          if (count != 0 && own.data() + offset != at(rank()))
            std::memcpy(static_cast<void*>(at(rank())), own.data() + offset, count * sizeof(T));
          group_.for_peers([&](int to, int from) {
            group_.start(into, operation_, from, to, at(from), own.data() + offset, count * sizeof(T));
          });
        },
        [](piece_channel&, std::size_t, std::size_t) {});
  }

  /// whole = the root's. The root sends each rank one part, and the ranks pass the parts on: no link carries it all N-1 times.
  progress broadcast(host_queue const& queue, std::span<std::byte> whole, int root) {
    bool done = false;
    group_.guarded(queue, collective::broadcast, [&] { done = broadcast_parts(queue, whole, root); });
    return group_.answer(done);
  }

  /// Tells the other ranks that this one ends, and why; then ends all connections. Any thread; later calls do nothing.
  void abandon(std::string_view reason, int blamed = -1) noexcept { group_.abandon(reason, blamed); }

 private:
  using channel = typename message_group<Transport>::channel;
  struct piece_channel : channel {
    std::unique_ptr<std::byte[]> arrivals;  // one piece from every rank
  };
  using work_on_piece = function_view<void(piece_channel& channel, std::size_t offset, std::size_t count)>;
  static constexpr std::size_t channel_count = 4;  // pieces under way
  static constexpr std::size_t smallest_piece = std::size_t{8} << 10U;

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] std::size_t arrival_bytes() const noexcept { return (ranks() - 1) * piece_bytes_; }
  template <class T>
  [[nodiscard]] std::size_t piece_elements() const noexcept {
    return piece_bytes_ / sizeof(T);
  }
  /// Where a piece of T from another rank arrives.
  template <class T>
  [[nodiscard]] T* arrivals(piece_channel const& where, int from) const noexcept {
    const int index = from < rank() ? from : from - 1;
    return reinterpret_cast<T*>(where.arrivals.get()) + static_cast<std::size_t>(index) * piece_elements<T>();
  }

  /// The sum over ranks of what lies at `in`, for rank r at r * stride, into `out`.
  template <class From, class To>
  progress reduce(host_queue const& queue, collective operation, std::span<From const> in, std::size_t stride, std::span<To> out,
                  bool add) {
    if (channels_[0].arrivals == nullptr) {
      for (piece_channel& each : channels_) each.arrivals = std::make_unique<std::byte[]>(arrival_bytes());
    }
    const auto part = [&](int of, std::size_t offset) { return in.data() + static_cast<std::size_t>(of) * stride + offset; };
    return in_pieces(
        queue, operation, out.size(), piece_elements<From>(),
        [&](piece_channel& into, std::size_t offset, std::size_t count) {
          group_.for_peers([&](int to, int from) {
            group_.start(into, operation_, from, to, arrivals<From>(into, from), part(to, offset), count * sizeof(From));
          });
        },
        [&](piece_channel& of, std::size_t offset, std::size_t count) {
          const auto source = [&](int from) -> From const* {
            return from == rank() ? part(from, offset) : arrivals<From>(of, from);
          };
          elementwise::sum_sources(size(), source, out.data() + offset, count, add);
        });
  }

  /// An operation over `count` units, `piece` of them a message: starts pieces as long as a channel is free, finishes them in
  /// order.
  progress in_pieces(host_queue const& queue, collective operation, std::size_t count, std::size_t piece, work_on_piece start,
                     work_on_piece finish) {
    bool done = true;
    group_.guarded(queue, operation, [&] {
      const std::size_t pieces = (count + piece - 1) / piece;
      if (!std::exchange(under_way_, true)) {
        operation_ = group_.next_operation(operation);
        finished_ = 0;
      }
      const auto of = [&](std::size_t index, work_on_piece const& work) {
        work(channels_[index % channel_count], index * piece, std::min(piece, count - index * piece));
      };
      for (;;) {
        for (; operation_.piece < pieces && operation_.piece < finished_ + channel_count; ++operation_.piece)
          of(operation_.piece, start);
        if (finished_ == pieces) break;
        done = group_.settle(queue, channels_[finished_ % channel_count], operation);
        if (!done) return;
        of(finished_++, finish);
      }
      under_way_ = false;
    });
    return group_.answer(done);
  }

  bool broadcast_parts(host_queue const& queue, std::span<std::byte> whole, int root) {
    const std::size_t longest = (whole.size() + ranks() - 1) / ranks();
    const auto part = [&](int of) {
      const std::size_t begin = std::min(static_cast<std::size_t>(of) * longest, whole.size());
      return whole.subspan(begin, std::min(longest, whole.size() - begin));
    };
    channel& spread = channels_[0];
    const auto pass = [&](int peer, std::span<std::byte> bytes, bool leaving) {
      leaving ? group_.send(spread, operation_, peer, bytes.data(), bytes.size())
              : group_.receive(spread, operation_, peer, bytes.data(), bytes.size());
    };
    if (spreading_ == 0) {
      operation_ = group_.next_operation(collective::broadcast);
      if (rank() == root) {
        group_.for_peers([&](int to, int) {
          pass(to, part(to), true);
          pass(to, part(root), true);
        });
      } else {
        pass(root, part(rank()), false);
        pass(root, part(root), false);
      }
      spreading_ = 1;
    }
    if (spreading_ == 1) {
      if (!group_.settle(queue, spread, collective::broadcast)) return false;
      ++operation_.piece;
      group_.for_peers([&](int to, int from) {
        if (rank() == root) return;
        if (from != root) pass(from, part(from), false);
        if (to != root) pass(to, part(rank()), true);
      });
      spreading_ = 2;
    }
    if (!group_.settle(queue, spread, collective::broadcast)) return false;
    spreading_ = 0;
    return true;
  }

  message_group<Transport> group_;
  std::size_t chosen_piece_bytes_, piece_bytes_;
  piece_channel channels_[channel_count];
  message_label operation_{};  // under way
  std::size_t finished_ = 0;   // pieces of it
  bool under_way_ = false;
  int spreading_ = 0;  // step of a broadcast
};

}  // namespace ACCO_SIMD_NAMESPACE
