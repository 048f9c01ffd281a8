// SPDX-License-Identifier: Apache-2.0
// Collectives over messages between two ranks: what the network backends share. Every rank sends each other rank its part
// directly, all at once, so both directions of every link are busy; a rank sends (N-1)/N of the whole for a reduce-scatter or an
// all-gather, as in a ring, but sums arrive unrounded and are added in rank order: results do not depend on backend or piece
// size.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/distribution.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/observe/clock.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// Names a message: sender and receiver compute it alike, and a message is received by no other label.
struct message_label {
  std::uint32_t sequence;  ///< the number of the operation, the same on every rank
  collective operation;
  std::uint32_t piece;
};

/// How far a message is.
enum class delivery {
  done,
  pending,  ///< ask again: the transport makes progress only when asked
  expired,  ///< the transport waited, and the deadline passed
};

/// What a transport throws when a message cannot be delivered any more.
struct delivery_failure : std::exception {
  explicit delivery_failure(text const& why) noexcept : reason(why) {}
  [[nodiscard]] char const* what() const noexcept override { return reason.c_str(); }
  text reason;
};

/// The concept of a transport: `rank()`, `size()`, a movable `request`, `send` and `receive` that start a message of up to
/// `largest_message` bytes, `complete(request, seconds)` that tells or waits how far it is, `arrived(request)` after which
/// nothing else need work any more, and `leave(label, from, bytes)` that sends a last message to all, ends the connections and
/// wakes whoever waits in `complete`. `send`, `receive`, `complete` throw `delivery_failure`. One thread at a time calls all but
/// `leave`. A request that is destroyed forgets its message.
template <class Transport>
concept message_transport =
    requires(Transport& t, typename Transport::request& r, void const* from, void* to, std::size_t bytes, message_label label) {
      { t.rank() } -> std::convertible_to<int>;
      { t.size() } -> std::convertible_to<int>;
      { t.send(0, label, from, bytes) } -> std::same_as<typename Transport::request>;
      { t.receive(0, label, to, bytes) } -> std::same_as<typename Transport::request>;
      { t.complete(r, 1.0) } -> std::same_as<delivery>;
      { t.arrived(r) } -> std::same_as<bool>;
      t.leave(label, from, bytes);
      { Transport::waits } -> std::convertible_to<bool>;  // whether `complete` waits
      { Transport::largest_message } -> std::convertible_to<std::size_t>;
    };

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
      : transport_(std::forward<Arguments>(arguments)...) {
    const std::size_t others = std::max(static_cast<std::size_t>(size()), std::size_t{2}) - 1;
    const std::size_t chosen =
        piece_bytes != 0 ? piece_bytes : std::min(usual_piece, std::max(usual_piece / others, std::size_t{32} << 10U));
    piece_bytes_ = std::max(chosen / smallest_piece, std::size_t{1}) * smallest_piece;
    const auto ranks = static_cast<std::size_t>(size());
    for (channel& each : channels_) {
      each.transfers.reserve(2 * ranks * (piece_bytes_ / Transport::largest_message + 1));
      each.arrivals = std::make_unique<std::byte[]>(arrival_bytes());
    }
    farewells_.resize(ranks);
    incoming_farewells_.reserve(ranks);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      incoming_farewells_.push_back(
          {transport_.receive(peer, farewell_label, &farewells_[static_cast<std::size_t>(peer)], sizeof(farewell)), peer});
    }
  }
  exchange(exchange const&) = delete;
  exchange& operator=(exchange const&) = delete;
  ~exchange() {
    if (std::uncaught_exceptions() > 0) abandon("an exception left its training loop");
  }

  [[nodiscard]] int rank() const noexcept { return transport_.rank(); }
  [[nodiscard]] int size() const noexcept { return transport_.size(); }
  [[nodiscard]] Transport& transport() noexcept { return transport_; }
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

  /// Sends every rank its slice of encoded blocks; on_piece(first block, how many, source) is called when that stretch has come
  /// from all ranks, and has left this one; source(r) points to the blocks of rank r. Norms do not depend on pieces here either.
  template <encoding Encoding, class OnPiece>
  progress pass_encoded(host_queue const& queue, std::span<std::byte const> in, OnPiece&& on_piece) {
    const std::size_t blocks = in.size() / Encoding::block_bytes / static_cast<std::size_t>(size());
    return pass(queue, collective::all_to_all, slices{in.data(), Encoding::block_bytes, blocks, blocks, piece_blocks<Encoding>()},
                std::forward<OnPiece>(on_piece));
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
    return pass(queue, collective::all_to_all, slices{in.data(), 1, part, part, piece_bytes_},
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
    guarded(queue, collective::all_gather, [&] {
      if (!std::exchange(gathering_, true)) {
        gather_ = {next_sequence_++, collective::all_gather, 0};
        since_ = 0;
      }
      T* const mine = whole.data() + static_cast<std::size_t>(rank()) * own.size() + offset;
      if (count != 0 && own.data() + offset != mine)
        std::memcpy(static_cast<void*>(mine), own.data() + offset, count * sizeof(T));
      for_peers([&](int to, int from) {
        T* const theirs = whole.data() + static_cast<std::size_t>(from) * own.size() + offset;
        start(gathered_, gather_, from, to, theirs, mine, count * sizeof(T));
      });
      ++gather_.piece;
      if (!gathered_.transfers.empty()) settle(queue, gathered_, collective::all_gather, false);
    });
  }

  /// Until every piece has arrived.
  progress gather_rest(host_queue const& queue) {
    bool done = false;
    guarded(queue, collective::all_gather, [&] { done = settle(queue, gathered_, collective::all_gather, true); });
    if (done) gathering_ = false;
    return answer(done);
  }

  /// whole = the root's. The root sends each rank one part, and the ranks pass the parts on: no link carries it all N-1 times.
  progress broadcast(host_queue const& queue, std::span<std::byte> whole, int root) {
    bool done = false;
    guarded(queue, collective::broadcast, [&] { done = broadcast_parts(queue, whole, root); });
    return answer(done);
  }

  /// Tells the other ranks that this one ends, and why; then ends all connections. Any thread; later calls do nothing.
  void abandon(std::string_view reason, int blamed = -1) noexcept {
    if (abandoned_.exchange(true)) return;
    try {
      farewell mine{blamed < 0 ? rank() : blamed, {}};
      const std::size_t length = std::min(reason.size(), sizeof mine.reason - 1);
      std::memcpy(mine.reason, reason.data(), length);
      transport_.leave(farewell_label, &mine, sizeof mine);
    } catch (...) {  // they will learn it from the closed connection, or at their deadline
    }
  }

 private:
  struct farewell {
    std::int32_t blamed = -1;
    char reason[508] = {};
  };
  struct transfer {
    typename Transport::request request;
    int peer;
    bool incoming = true;
  };
  /// Messages that belong together, completed in order.
  struct channel {
    std::vector<transfer> transfers;
    std::size_t settled = 0;
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
  static constexpr std::size_t channel_count = 4;  // pieces of a reduction under way
  static constexpr std::size_t smallest_piece = elementwise::square_block * sizeof(double);
  static constexpr message_label farewell_label{0xffffffff, collective::none, 0};

  [[nodiscard]] std::size_t arrival_bytes() const noexcept {
    return size() > 1 ? (static_cast<std::size_t>(size()) - 1) * piece_bytes_ : 0;
  }

  /// Calls visit(to, from) for all other ranks, in an order in which no rank is everybody's first.
  template <class Visit>
  void for_peers(Visit&& visit) const {
    for (int step = 1; step < size(); ++step) visit((rank() + step) % size(), (rank() + size() - step) % size());
  }

  /// Starts one message in each direction.
  void start(channel& into, message_label label, int from, int to, void* arriving, void const* leaving, std::size_t bytes) {
    receive(into, label, from, arriving, bytes);
    send(into, label, to, leaving, bytes);
  }
  /// In parts where it is longer than the transport can carry.
  void receive(channel& into, message_label label, int from, void* to, std::size_t bytes) {
    busy_peer_ = from;
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      into.transfers.push_back({transport_.receive(from, label, static_cast<std::byte*>(to) + at, part), from, true});
    }
  }
  void send(channel& into, message_label label, int to, void const* from, std::size_t bytes) {
    busy_peer_ = to;
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      into.transfers.push_back({transport_.send(to, label, static_cast<std::byte const*>(from) + at, part), to, false});
    }
  }

  /// The sum over ranks of what lies at `in`, for rank r at r * stride, into `out`.
  template <class From, class To, class OnPiece>
  progress reduce(host_queue const& queue, collective operation, std::span<From const> in, std::size_t stride, std::span<To> out,
                  bool add, OnPiece&& on_piece) {
    const slices what{std::as_bytes(in).data(), sizeof(From), stride, out.size(), piece_elements<From>()};
    return pass(queue, operation, what, [&](std::size_t offset, std::size_t count, auto bytes_of) {
      const auto source = [&](int from) { return reinterpret_cast<From const*>(bytes_of(from)); };
      elementwise::sum_sources(size(), source, out.data() + offset, count, add);
      on_piece(offset, count, source);
    });
  }

  /// Sends every rank its slice, and calls on_piece(offset, count, source) for every stretch that has come from all ranks.
  template <class OnPiece>
  progress pass(host_queue const& queue, collective operation, slices const& what, OnPiece&& on_piece) {
    bool done = true;
    guarded(queue, operation, [&] {
      const std::size_t pieces = (what.count + what.piece - 1) / what.piece;
      if (!std::exchange(reducing_, true)) {
        reduction_ = {next_sequence_++, operation, 0};
        reduced_ = 0;
        since_ = 0;
      }
      for (;;) {
        for (; reduction_.piece < pieces && reduction_.piece < reduced_ + channel_count; ++reduction_.piece) {
          channel& into = channels_[reduction_.piece % channel_count];
          const std::size_t offset = reduction_.piece * what.piece;
          const std::size_t count = std::min(what.piece, what.count - offset);
          for_peers([&](int to, int from) {
            start(into, reduction_, from, to, arrivals(into, from, what), what.at(to, offset), count * what.unit);
          });
        }
        if (reduced_ == pieces) break;
        channel& next = channels_[reduced_ % channel_count];
        done = settle(queue, next, operation, true);
        if (!done) return;
        const std::size_t offset = reduced_ * what.piece;
        on_piece(offset, std::min(what.piece, what.count - offset), [&](int from) {
          return from == rank() ? what.at(from, offset) : static_cast<std::byte const*>(arrivals(next, from, what));
        });
        ++reduced_;
      }
      reducing_ = false;
    });
    return answer(done);
  }
  [[nodiscard]] std::byte* arrivals(channel const& where, int from, slices const& what) const noexcept {
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
      leaving ? send(gathered_, spread_, peer, bytes.data(), bytes.size())
              : receive(gathered_, spread_, peer, bytes.data(), bytes.size());
    };
    if (spreading_ == 0) {
      spread_ = {next_sequence_++, collective::broadcast, 0};
      since_ = 0;
      if (rank() == root) {
        for_peers([&](int to, int) {
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
      if (!settle(queue, gathered_, collective::broadcast, true)) return false;
      ++spread_.piece;
      for_peers([&](int to, int from) {
        if (rank() == root) return;
        if (from != root) pass(from, part(from), false);
        if (to != root) pass(to, part(rank()), true);
      });
      spreading_ = 2;
    }
    if (!settle(queue, gathered_, collective::broadcast, true)) return false;
    spreading_ = 0;
    return true;
  }

  /// What to tell the queue.
  progress answer(bool done) noexcept {
    const bool moved = std::exchange(moved_, false);
    return done ? progress::done : moved ? progress::advanced : progress::pending;
  }

  /// Completes the channel's messages in order: whether none is left. With `all` the caller needs them and the deadline runs,
  /// else only what is there already is taken.
  bool settle(host_queue const& queue, channel& of, collective operation, bool all) {
    while (of.settled < of.transfers.size()) {
      transfer& next = of.transfers[of.settled];
      busy_peer_ = next.peer;
      if (!all && Transport::waits) return false;
      const delivery how_far = transport_.complete(next.request, queue.deadline);
      if (how_far == delivery::done) {
        since_ = 0;
        moved_ = true;
        ++of.settled;
        continue;
      }
      if (how_far == delivery::pending) {
        if (!all) return false;
        const double at = steady_seconds();
        since_ = since_ == 0 ? at : since_ + std::max(0.0, at - asked_ - 0.1);  // time in which nobody asked does not count
        asked_ = at;
        if (at - since_ < queue.deadline) {
          hear_farewells(queue, operation, at);
          return false;
        }
      }
      throw_expired(queue, of, operation);
    }
    of.transfers.clear();
    of.settled = 0;
    return true;
  }

  [[noreturn]] void throw_expired(host_queue const& queue, channel& of, collective operation) {
    const int first = of.transfers[of.settled].peer;
    abandon(text("rank ", first, " did not come to ", name_of(operation), " within ", queue.deadline, " s").view(), first);
    std::vector<bool> missing(static_cast<std::size_t>(size()), false);
    missing[static_cast<std::size_t>(first)] = true;
    for (std::size_t k = of.settled + 1; k < of.transfers.size(); ++k) {
      transfer& each = of.transfers[k];
      if (each.incoming && !transport_.arrived(each.request)) missing[static_cast<std::size_t>(each.peer)] = true;
    }
    auto const [who, lowest] = ranks_where(size(), [&](int peer) { return missing[static_cast<std::size_t>(peer)]; });
    throw deadline_error(
        queue.place, text("rank ", who, " did not come to ", name_of(operation), " within ", queue.deadline, " s"),
        text("Check that it is alive, that the network between the ranks carries data, and that it makes the same "
             "calls (acco::debug finds the first that differs); or raise options::deadline"),
        lowest);
  }

  /// Whether another rank has told that it ends; looked at every few milliseconds.
  void hear_farewells(host_queue const& queue, collective operation, double at) {
    if (at - heard_ < 0.0005 * size()) return;
    heard_ = at;
    for (transfer& each : incoming_farewells_) {
      if (transport_.complete(each.request, queue.deadline) == delivery::done) throw_farewell(queue, operation, each.peer);
    }
  }
  [[noreturn]] void throw_farewell(host_queue const& queue, collective operation, int from) {
    farewell const& word = farewells_[static_cast<std::size_t>(from)];
    const std::string_view reason(word.reason, strnlen(word.reason, sizeof word.reason));
    const int blamed = word.blamed >= 0 && word.blamed < size() ? word.blamed : from;
    throw peer_error(queue.place,
                     blamed == from ? text(name_of(operation), " is impossible because rank ", from, " failed: ", reason)
                                    : text(name_of(operation), " is impossible: rank ", from, " tells that ", reason),
                     text("Look at rank ", blamed, "'s own error first"), blamed);
  }

  /// Runs part of an operation; translates what goes wrong, and tells the other ranks.
  template <class Work>
  void guarded(host_queue const& queue, collective operation, Work&& work) {
    if (abandoned_) throw_abandoned(queue, operation);
    try {
      try {
        work();
      } catch (delivery_failure const& failure) {
        if (abandoned_) throw_abandoned(queue, operation);
        for (transfer& each : incoming_farewells_) {
          if (each.peer == busy_peer_ && said_farewell(each)) throw_farewell(queue, operation, each.peer);
        }
        abandon(text("it lost the connection to rank ", busy_peer_).view(), busy_peer_);
        throw peer_error(
            queue.place,
            text(name_of(operation), " failed: the connection to rank ", busy_peer_, " is lost (", failure.reason, ")"),
            text("Rank ", busy_peer_, " was killed or ended, or its host or network is down: look at its own output first"),
            busy_peer_);
      }
    } catch (error const& e) {
      abandon(e.what(), e.peer());
      throw;
    } catch (std::exception const& e) {
      abandon(e.what());
      throw;
    }
  }
  /// Whether the rank whose connection failed has said why.
  bool said_farewell(transfer& from) {
    try {
      return transport_.complete(from.request, 0.1) == delivery::done;
    } catch (delivery_failure const&) {
      return false;
    }
  }
  [[noreturn]] void throw_abandoned(host_queue const& queue, collective operation) const {
    throw peer_error(queue.place, text(name_of(operation), " is impossible because this rank has left the group"),
                     text("Look at this rank's first error"), rank());
  }

  Transport transport_;
  std::size_t piece_bytes_;
  std::uint32_t next_sequence_ = 0;
  channel channels_[channel_count];
  channel gathered_;
  message_label reduction_{}, gather_{}, spread_{};
  std::size_t reduced_ = 0;  // pieces of the reduction that are summed
  bool reducing_ = false, gathering_ = false;
  bool moved_ = false;  // messages have been completed since the queue was last told
  int spreading_ = 0;   // step of a broadcast
  double since_ = 0;    // when the wait for another rank began; 0: no wait
  double asked_ = 0;    // when the transport was last asked
  double heard_ = 0;    // when farewells were last looked for
  int busy_peer_ = -1;  // whose message is being worked at
  std::atomic<bool> abandoned_ = false;
  std::vector<farewell> farewells_;
  std::vector<transfer> incoming_farewells_;
};

}  // namespace ACCO_NAMESPACE
