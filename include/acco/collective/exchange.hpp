// SPDX-License-Identifier: Apache-2.0
// Collectives over messages between two ranks: what the network backends share. Every rank sends each other rank its part
// directly, all at once, so both directions of every link are busy; a rank sends (N-1)/N of the whole for a reduce-scatter or an
// all-gather, as in a ring, but sums arrive unrounded and are added in rank order: results do not depend on backend or piece
// size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "acco/collective/message_group.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/function_view.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// One rank's end of a group of ranks. Operations are called by tasks of a queue, one operation at a time (an all-gather may
/// overlap the reduce-scatter before it), in the same order on every rank. An operation that returns `progress::pending` must be
/// called again with the same arguments. The first failure is final: it is told to all other ranks, with its cause.
template <class Transport>
class exchange {
 public:
  /// Numbers are summed in pieces of about `piece_bytes`; while one is summed the next ones travel. 0: `usual_piece` divided by
  /// the number of other ranks, but not below 32 KiB. More bytes under way than that do not make a link faster; where several
  /// ranks send to one, its link drops what it cannot hold.
  template <class... Arguments>
  exchange(std::size_t piece_bytes, std::size_t usual_piece, Arguments&&... arguments)
      : group_(std::forward<Arguments>(arguments)...) {
    const std::size_t others = std::max(static_cast<std::size_t>(size()), std::size_t{2}) - 1;
    const std::size_t chosen =
        piece_bytes != 0 ? piece_bytes : std::min(usual_piece, std::max(usual_piece / others, std::size_t{32} << 10U));
    piece_bytes_ = std::max(chosen / smallest_piece, std::size_t{1}) * smallest_piece;
    for (piece_channel& each : channels_) {
      group_.reserve(each, 2 * static_cast<std::size_t>(size()), piece_bytes_);
      each.arrivals = std::make_unique<std::byte[]>(arrival_bytes());
    }
  }
  exchange(exchange const&) = delete;
  exchange& operator=(exchange const&) = delete;
  ~exchange() {  // the others hear of it before messages are given up
    if (std::uncaught_exceptions() > 0) abandon("an exception left its training loop");
  }

  [[nodiscard]] int rank() const noexcept { return group_.rank(); }
  [[nodiscard]] int size() const noexcept { return group_.size(); }
  [[nodiscard]] Transport& transport() noexcept { return group_.transport(); }
  /// Memory for arriving addends, in bytes.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return channel_count * arrival_bytes(); }

  /// How many numbers are a piece: whole blocks, so that norms do not depend on it either.
  template <class T>
  [[nodiscard]] std::size_t piece_elements() const noexcept {
    return std::max(piece_bytes_ / sizeof(T) / elementwise::square_block, std::size_t{1}) * elementwise::square_block;
  }

  /// out = (or +=) this rank's slice of the sum; `on_piece(offset, count, source)` is called when that stretch of it is final and
  /// the same stretch of every slice of `in` has left this rank; source(r) points to what rank r brought.
  template <class From, class To, class OnPiece>
  progress reduce_scatter(host_queue const& queue, std::span<From const> in, std::span<To> out, bool add, OnPiece&& on_piece) {
    return reduce(queue, collective::reduce_scatter, in, out.size(), out, add, std::forward<OnPiece>(on_piece));
  }

  /// Sends every rank its slice of encoded blocks. fill(first block, how many) is called before that stretch of every slice
  /// leaves; on_piece(first block, how many, source) when it has come from all ranks, and has left this one; source(r) points to
  /// the blocks of rank r. Norms do not depend on pieces here either.
  template <encoding Encoding, class Fill, class OnPiece>
  progress pass_encoded(host_queue const& queue, std::span<std::byte const> in, Fill&& fill, OnPiece&& on_piece) {
    const std::size_t blocks = in.size() / Encoding::block_bytes / static_cast<std::size_t>(size());
    return pass(queue, collective::all_to_all, slices{in.data(), Encoding::block_bytes, blocks, blocks, piece_blocks<Encoding>()},
                fill, on_piece);
  }
  template <encoding Encoding>
  [[nodiscard]] std::size_t piece_blocks() const {
    constexpr std::size_t group = std::max(elementwise::square_block / Encoding::block_size, std::size_t{1});
    static_assert(group * Encoding::block_bytes <= smallest_piece, "acco: the blocks of 1024 numbers fit into 8 KiB");
    return std::max(piece_bytes_ / Encoding::block_bytes / group, std::size_t{1}) * group;
  }

  /// Part r of `in` goes to rank r, part r of `out` comes from rank r.
  progress all_to_all(host_queue const& queue, std::span<std::byte const> in, std::span<std::byte> out) {
    const std::size_t part = in.size() / static_cast<std::size_t>(size());
    return pass(queue, collective::all_to_all, slices{in.data(), 1, part, part, piece_bytes_}, filled_already,
                [&](std::size_t offset, std::size_t count, auto source) {
                  for (int from = 0; from < size(); ++from)
                    std::memcpy(out.data() + static_cast<std::size_t>(from) * part + offset, source(from), count);
                });
  }

  /// out = the sum of all ranks' numbers. For small arrays: every rank sends all of them to every other.
  template <class T>
  progress all_reduce(host_queue const& queue, std::span<T const> in, std::span<T> out) {
    return reduce(queue, collective::all_reduce, in, 0, out, false, [](auto&&...) {});
  }

  /// Starts to send a stretch of this rank's slice and to receive the same stretch of all others.
  template <class T>
  void gather_piece(host_queue const& queue, std::span<T const> own, std::span<T> whole, std::size_t offset, std::size_t count) {
    group_.guarded(queue, collective::all_gather, [&] {
      if (!std::exchange(gathering_, true)) gather_ = group_.next_operation(collective::all_gather);
      T* const mine = whole.data() + static_cast<std::size_t>(rank()) * own.size() + offset;
      if (count != 0 && own.data() + offset != mine)
        std::memcpy(static_cast<void*>(mine), own.data() + offset, count * sizeof(T));
      group_.for_peers([&](int to, int from) {
        T* const theirs = whole.data() + static_cast<std::size_t>(from) * own.size() + offset;
        group_.start(gathered_, gather_, from, to, theirs, mine, count * sizeof(T));
      });
      ++gather_.piece;
      if (!gathered_.transfers.empty()) group_.settle(queue, gathered_, collective::all_gather, false);
    });
  }

  /// Until every piece has arrived.
  progress gather_rest(host_queue const& queue) {
    bool done = false;
    group_.guarded(queue, collective::all_gather, [&] { done = group_.settle(queue, gathered_, collective::all_gather, true); });
    if (done) gathering_ = false;
    return group_.answer(done);
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
  /// What is passed: for rank r `count` units of `unit` bytes from r * stride on, `piece` units at a time.
  struct slices {
    std::byte const* in;
    std::size_t unit, stride, count, piece;
    [[nodiscard]] std::byte const* at(int rank, std::size_t offset) const noexcept {
      return in + (static_cast<std::size_t>(rank) * stride + offset) * unit;
    }
  };
  /// Where a piece that has come from all ranks lies, by the rank that brought it.
  struct piece_source {
    exchange const* all;
    piece_channel const* channel;
    slices const* what;
    std::size_t offset;
    [[nodiscard]] std::byte const* operator()(int from) const noexcept {
      return from == all->rank() ? what->at(from, offset) : all->arrivals(*channel, from, *what);
    }
  };
  using fill_piece = function_view<void(std::size_t offset, std::size_t count)>;
  using take_piece = function_view<void(std::size_t offset, std::size_t count, piece_source source)>;
  static constexpr std::size_t channel_count = 4;  // pieces of a reduction under way
  static constexpr std::size_t smallest_piece = elementwise::square_block * sizeof(double);
  static constexpr auto filled_already = [](std::size_t, std::size_t) {};

  [[nodiscard]] std::size_t arrival_bytes() const noexcept {
    return size() > 1 ? (static_cast<std::size_t>(size()) - 1) * piece_bytes_ : 0;
  }

  template <class T>
  struct numbers_in {
    piece_source bytes;
    [[nodiscard]] T const* operator()(int from) const noexcept { return reinterpret_cast<T const*>(bytes(from)); }
  };

  /// The sum over ranks of what lies at `in`, for rank r at r * stride, into `out`.
  template <class From, class To, class OnPiece>
  progress reduce(host_queue const& queue, collective operation, std::span<From const> in, std::size_t stride, std::span<To> out,
                  bool add, OnPiece&& on_piece) {
    const slices what{std::as_bytes(in).data(), sizeof(From), stride, out.size(), piece_elements<From>()};
    return pass(queue, operation, what, filled_already, [&](std::size_t offset, std::size_t count, piece_source bytes) {
      const numbers_in<From> source{bytes};
      elementwise::sum_sources(size(), source, out.data() + offset, count, add);
      on_piece(offset, count, source);
    });
  }

  /// Sends every rank its slice: calls fill(offset, count) before a stretch leaves, and on_piece(offset, count, source) when it
  /// has come from all ranks.
  progress pass(host_queue const& queue, collective operation, slices const& what, fill_piece fill, take_piece on_piece) {
    bool done = true;
    group_.guarded(queue, operation, [&] {
      const std::size_t pieces = (what.count + what.piece - 1) / what.piece;
      if (!std::exchange(reducing_, true)) {
        reduction_ = group_.next_operation(operation);
        reduced_ = 0;
      }
      for (;;) {
        for (; reduction_.piece < pieces && reduction_.piece < reduced_ + channel_count; ++reduction_.piece) {
          piece_channel& into = channels_[reduction_.piece % channel_count];
          const std::size_t offset = reduction_.piece * what.piece;
          const std::size_t count = std::min(what.piece, what.count - offset);
          fill(offset, count);
          group_.for_peers([&](int to, int from) {
            group_.start(into, reduction_, from, to, arrivals(into, from, what), what.at(to, offset), count * what.unit);
          });
        }
        if (reduced_ == pieces) break;
        piece_channel& next = channels_[reduced_ % channel_count];
        done = group_.settle(queue, next, operation, true);
        if (!done) return;
        const std::size_t offset = reduced_ * what.piece;
        on_piece(offset, std::min(what.piece, what.count - offset), piece_source{this, &next, &what, offset});
        ++reduced_;
      }
      reducing_ = false;
    });
    return group_.answer(done);
  }
  [[nodiscard]] std::byte* arrivals(piece_channel const& where, int from, slices const& what) const noexcept {
    const int index = from < rank() ? from : from - 1;
    return where.arrivals.get() + static_cast<std::size_t>(index) * what.piece * what.unit;
  }

  bool broadcast_parts(host_queue const& queue, std::span<std::byte> whole, int root) {
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t longest = (whole.size() + ranks - 1) / ranks;
    const auto part = [&](int of) {
      const std::size_t begin = std::min(static_cast<std::size_t>(of) * longest, whole.size());
      return whole.subspan(begin, std::min(longest, whole.size() - begin));
    };
    const auto pass = [&](int peer, std::span<std::byte> bytes, bool leaving) {
      leaving ? group_.send(gathered_, spread_, peer, bytes.data(), bytes.size())
              : group_.receive(gathered_, spread_, peer, bytes.data(), bytes.size());
    };
    if (spreading_ == 0) {
      spread_ = group_.next_operation(collective::broadcast);
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
      if (!group_.settle(queue, gathered_, collective::broadcast, true)) return false;
      ++spread_.piece;
      group_.for_peers([&](int to, int from) {
        if (rank() == root) return;
        if (from != root) pass(from, part(from), false);
        if (to != root) pass(to, part(rank()), true);
      });
      spreading_ = 2;
    }
    if (!group_.settle(queue, gathered_, collective::broadcast, true)) return false;
    spreading_ = 0;
    return true;
  }

  message_group<Transport> group_;
  std::size_t piece_bytes_;
  piece_channel channels_[channel_count];
  channel gathered_;
  message_label reduction_{}, gather_{}, spread_{};
  std::size_t reduced_ = 0;  // pieces of the reduction that are summed
  bool reducing_ = false, gathering_ = false;
  int spreading_ = 0;  // step of a broadcast
};

}  // namespace ACCO_NAMESPACE
