// SPDX-License-Identifier: Apache-2.0
// Collectives over messages between two ranks: what the network backends share. Every rank sends each other rank its
// part directly, to at most 16 at a time (message_steps.hpp), so both directions of every link are busy; a rank sends
// (N-1)/N of the whole for a reduce-scatter or an all-gather, as in a ring, but sums arrive unrounded and are added in
// rank order: results do not depend on backend, piece size or the way that messages take. A sum of a few numbers is
// made by every rank itself, of addends that the ranks pass on, in few messages.
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
#include <vector>

#include "acco/clock.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/function_view.hpp"
#include "acco/network/message_channel.hpp"
#include "acco/network/message_steps.hpp"
#include "acco/network/message_window.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's end of a channel of some ranks. Operations are called by tasks of a queue, which begin them in the same
/// order on every rank, and which keep how far each is: it must be called again with the same arguments until it is
/// `progress::done`. One begins beside those that have begun: all share the messages under way. The first failure is
/// final: it is told to all other ranks, with its cause.
template <class Transport>
class message_collectives {
 public:
  /// How far an operation is; of one that has not begun, as it was made.
  struct operation {
    message_label label{};
    std::size_t first = 0, started = 0, finished = 0;  // its stages: where in the ring of those under way, how many
    bool under_way = false, second_half = false;
    bool tells = true;  // that all of it is under way, once
    message_sums* sums = nullptr;
  };

  /// A first channel over the connections. Messages are pieces (`message_window::piece_bytes`): while one is summed the
  /// next ones travel. `deadline`: seconds to wait for the other ranks where they must agree on a channel.
  message_collectives(std::size_t piece_bytes, std::size_t usual_piece, std::shared_ptr<connections<Transport>> const& all,
                      double deadline = 600)
      : message_collectives(piece_bytes, usual_piece, all, deadline, all->open()) {}
  /// Another channel over the same connections: the one that they have opened.
  message_collectives(message_collectives const& other, std::uint32_t opened)
      : message_collectives(other.piece_bytes_, other.piece_bytes_, other.channel_.shared(), other.deadline_, opened) {
    chosen_piece_bytes_ = other.chosen_piece_bytes_;
    window_.as_wide_as(other.window_);
    make_batches();
  }
  message_collectives(message_collectives const&) = delete;
  message_collectives& operator=(message_collectives const&) = delete;
  ~message_collectives() { under_way_ == 0 ? channel_.close() : channel_.give_up(); }

  [[nodiscard]] int rank() const noexcept { return channel_.rank(); }
  [[nodiscard]] int size() const noexcept { return channel_.size(); }
  [[nodiscard]] connections<Transport>& shared() const noexcept { return *channel_.shared(); }
  [[nodiscard]] double deadline() const noexcept { return deadline_; }
  [[nodiscard]] std::size_t chosen_piece_bytes() const noexcept { return chosen_piece_bytes_; }
  /// Bytes for arriving addends and a sum of them under way, which the first operation that sums takes; and mailboxes.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return arrival_bytes() + sum_bytes() + channel_.mail_bytes(); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return channel_.sent(); }

  /// out = (or +=) this rank's slice of the sum.
  template <class From, class To>
  progress reduce_scatter(operation& of, host_queue const& queue, std::span<From const> in, std::span<To> out, bool add) {
    return reduce(of, queue, collective::reduce_scatter, in, out.size(), out, add);
  }
  /// out = the sum of all ranks' numbers. For small arrays: every rank gets all of them from every other.
  template <class T>
  progress all_reduce(operation& of, host_queue const& queue, std::span<T const> in, std::span<T> out) {
    const bool few = in.size_bytes() <= most_relayed && in.size_bytes() * ranks() <= message_window::least * stage_bytes();
    if (hops_.count() > 1 && few && !in.empty()) return relay(of, queue, in, out);
    return reduce(of, queue, collective::all_reduce, in, 0, out, false);
  }

  /// Part r of `in` goes to rank r, part r of `out` comes from rank r.
  progress all_to_all(operation& of, host_queue const& queue, std::span<std::byte const> in, std::span<std::byte> out) {
    const std::size_t part = in.size() / ranks();
    return in_pieces(
        of, queue, collective::all_to_all, part, piece_bytes_,
        [&](int from, std::size_t offset) { return out.data() + static_cast<std::size_t>(from) * part + offset; },
        [&](int to, std::size_t offset) { return in.data() + static_cast<std::size_t>(to) * part + offset; });
  }

  /// Every rank gets all ranks' `own`, in their order.
  template <class T>
  progress all_gather(operation& of, host_queue const& queue, std::span<T const> own, std::span<T> whole) {
    const auto bytes = std::as_bytes(own);
    std::byte* const all = std::as_writable_bytes(whole).data();
    return in_pieces(
        of, queue, collective::all_gather, bytes.size(), piece_elements<T>() * sizeof(T),
        [&](int from, std::size_t offset) { return all + static_cast<std::size_t>(from) * bytes.size() + offset; },
        [&](int, std::size_t offset) { return bytes.data() + offset; });
  }

  /// whole = the root's, which sends each rank one part; the ranks pass them on: no link carries it all N-1 times.
  progress broadcast(operation& of, host_queue const& queue, std::span<std::byte> whole, int root) {
    const std::size_t longest = (whole.size() + ranks() - 1) / ranks(), pieces = (longest + piece_bytes_ - 1) / piece_bytes_;
    const auto piece = [&](int its, std::size_t number) {
      const std::size_t end = std::min((static_cast<std::size_t>(its) + 1) * longest, whole.size());
      const std::size_t begin = std::min(static_cast<std::size_t>(its) * longest + number * piece_bytes_, end);
      return whole.subspan(begin, std::min(piece_bytes_, end - begin));
    };
    const auto receive = [&](batch& into, std::size_t number, int from, int its) {
      channel_.receive(into, label(of, number), from, piece(its, number).data(), piece(its, number).size());
    };
    const auto send = [&](batch& into, std::size_t number, int to, int its) {
      channel_.send(into, label(of, number), to, piece(its, number).data(), piece(its, number).size());
    };
    return operate(of, queue, collective::broadcast, pieces, [&] {
      const direct_steps steps(rank(), size(), pieces);
      const auto nothing = [](batch&, std::size_t) {};
      const auto spread = [&](batch& into, std::size_t step) {
        auto const [to, from, gives, takes] = steps.at(step);
        if (to == root) return;
        send(into, gives, to, to);
        send(into, gives, to, root);
      };
      const auto take = [&](batch& into, std::size_t number) {
        receive(into, number, root, rank());
        receive(into, number, root, root);
      };
      const auto pass_on = [&](batch& into, std::size_t step) {
        auto const [to, from, gives, takes] = steps.at(step);
        if (from != root && from != rank()) receive(into, takes, from, from);
        if (to != root && to != rank()) send(into, gives, to, rank());
      };
      if (rank() == root) return in_stages(of, queue, steps.count(), usual_, spread, nothing);
      if (!of.second_half) {
        const progress first = in_stages(of, queue, pieces, {1, true}, take, nothing);
        if (first == progress::begun) return progress::pending;  // half of it
        if (first != progress::done) return first;
        of.second_half = true;
        of.started = of.finished = 0;
        of.tells = true;
      }
      return in_stages(of, queue, steps.count(), usual_, pass_on, nothing);
    });
  }

  /// Tells the other ranks that this one ends, and why; then ends all connections. Any thread; later calls do nothing.
  void abort(std::string_view reason, int blamed = -1) noexcept { channel_.abort(reason, blamed); }

 private:
  using batch = typename message_channel<Transport>::batch;
  struct grouping {
    std::size_t steps;  // of a stage: their messages are completed together
    bool wide;          // as many stages under way as the window has; else one
  };
  using work_on_step = function_view<void(batch& messages, std::size_t step)>;
  static constexpr grouping one_by_one{1, false};
  static constexpr std::size_t most_relayed = 4096;  // what is more travels longer than a message takes to begin
  static constexpr std::size_t widest = sizeof(double) / sizeof(std::uint16_t);  // a sum's bytes for an addend's

  message_collectives(std::size_t piece_bytes, std::size_t usual_piece, std::shared_ptr<connections<Transport>> all,
                      double deadline, std::uint32_t channel)
      : channel_(std::move(all), channel),
        chosen_piece_bytes_(piece_bytes),
        deadline_(deadline),
        hops_(size()),
        crowded_(size() - 1 > most_peers),
        usual_{crowded_ ? most_peers / message_window::least : static_cast<std::size_t>(size()), true},
        piece_bytes_(message_window::piece_bytes(piece_bytes, usual_piece, size())),
        window_(stage_bytes(), crowded_ ? 0 : shared().transport().round_trip()) {
    make_batches();
  }
  /// As many as the window has stages.
  void make_batches() {
    batches_.resize(window_.stages());
    const std::size_t messages = 2 * std::max(usual_.steps, std::size_t{8});
    for (batch& each : batches_) channel_.reserve(each, messages, piece_bytes_);
    arrivals_.reset();
  }

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  /// A piece from each rank of the stages under way.
  [[nodiscard]] std::size_t arrival_bytes() const noexcept { return window_.stages() * stage_bytes(); }
  [[nodiscard]] std::size_t stage_bytes() const noexcept { return stage_pieces() * piece_bytes_; }
  [[nodiscard]] std::size_t stage_pieces() const noexcept { return crowded_ ? usual_.steps : ranks() - 1; }
  /// Of a piece whose addends come one after another.
  [[nodiscard]] std::size_t sum_bytes() const noexcept { return crowded_ ? widest * piece_bytes_ : 0; }
  template <class T>
  [[nodiscard]] std::size_t piece_elements() const noexcept {
    return piece_bytes_ / sizeof(T);
  }
  [[nodiscard]] static message_label label(operation const& of, std::size_t piece) noexcept {
    message_label result = of.label;
    result.piece = static_cast<std::uint32_t>(piece);
    return result;
  }
  /// Where a piece of T arrives: the place-th of its stage.
  template <class T>
  [[nodiscard]] T* arrivals(batch const& stage, std::size_t place) const noexcept {
    const auto index = static_cast<std::size_t>(&stage - batches_.data());
    return static_cast<T*>(static_cast<void*>(arrivals_.get() + (index * stage_pieces() + place) * piece_bytes_));
  }
  void make_room() {
    if (arrivals_ != nullptr) return;
    arrivals_ = std::make_unique<std::byte[]>(arrival_bytes());
    sums_ = std::make_unique<std::byte[]>(sum_bytes());
  }

  /// The sum over ranks of what lies at `in`, for rank r at r * stride, into `out`.
  template <class From, class To>
  progress reduce(operation& of, host_queue const& queue, collective kind, std::span<From const> in, std::size_t stride,
                  std::span<To> out, bool add) {
    make_room();
    const auto part = [&](int its, std::size_t offset) { return in.data() + static_cast<std::size_t>(its) * stride + offset; };
    const std::size_t most = piece_elements<From>();
    if (crowded_) {  // pieces so small that the ranks' different beginnings cost little
      const std::size_t least = std::min(message_window::smallest_piece / sizeof(From), most);
      return reduce_in_order(of, queue, kind, part, std::clamp((out.size() + 7) / 8, least, most), out, add);
    }
    const direct_steps steps(rank(), size(), (out.size() + most - 1) / most);
    const auto size_of = [&](std::size_t piece) { return std::min(most, out.size() - piece * most); };
    const auto place = [&](int from) { return static_cast<std::size_t>(from < rank() ? from : from - 1); };
    return operate(of, queue, kind, steps.pieces(), [&] {
      return in_stages(
          of, queue, steps.count(), usual_,
          [&](batch& into, std::size_t step) {
            auto const [to, from, gives, takes] = steps.at(step);
            if (to == rank()) return;
            channel_.receive(into, label(of, takes), from, arrivals<From>(into, place(from)), size_of(takes) * sizeof(From));
            channel_.send(into, label(of, gives), to, part(to, gives * most), size_of(gives) * sizeof(From));
          },
          [&](batch& stage, std::size_t step) {
            const std::size_t piece = steps.at(step).takes;
            if (step != piece * ranks()) return;  // once for all ranks
            const auto source = [&](int from) -> From const* {
              return from == rank() ? part(from, piece * most) : arrivals<From>(stage, place(from));
            };
            elementwise::sum_sources(size(), source, out.data() + piece * most, size_of(piece), add);
          });
    });
  }

  /// The same, where addends come in rank order, a few at a time.
  template <class Part, class To>
  progress reduce_in_order(operation& of, host_queue const& queue, collective kind, Part const& part, std::size_t most,
                           std::span<To> out, bool add) {
    using From = std::remove_cvref_t<decltype(*part(0, 0))>;
    using total = elementwise::wider<From, To>;
    const ordered_steps steps(rank(), size(), (out.size() + most - 1) / most);
    const auto size_of = [&](std::size_t piece) { return std::min(most, out.size() - piece * most); };
    return operate(of, queue, kind, steps.pieces(), [&] {
      return in_stages(
          of, queue, steps.count(), usual_,
          [&](batch& into, std::size_t step) {
            auto const [to, from, gives, takes] = steps.at(step);
            if (from != rank() && takes != message_step::nothing)
              channel_.receive(into, label(of, takes), from, arrivals<From>(into, step % usual_.steps),
                               size_of(takes) * sizeof(From));
            if (to != rank() && gives != message_step::nothing)
              channel_.send(into, label(of, gives), to, part(to, gives * most), size_of(gives) * sizeof(From));
          },
          [&](batch& stage, std::size_t step) {
            auto const [to, from, gives, takes] = steps.at(step);
            if (takes == message_step::nothing) return;
            const std::size_t n = size_of(takes);
            From const* const addend = from == rank() ? part(from, takes * most) : arrivals<From>(stage, step % usual_.steps);
            auto* const sums = reinterpret_cast<total*>(sums_.get());
            from == 0 ? elementwise::convert(addend, sums, n) : elementwise::add(addend, sums, n);
            if (from + 1 < size()) return;
            To* const to_here = out.data() + takes * most;
            add ? elementwise::add(sums, to_here, n) : elementwise::convert(sums, to_here, n);
          });
    });
  }

  /// out = the sum of all ranks' numbers, whose addends are passed on.
  template <class T>
  progress relay(operation& of, host_queue const& queue, std::span<T const> in, std::span<T> out) {
    make_room();
    T* const blocks = static_cast<T*>(static_cast<void*>(arrivals_.get()));  // this rank's, the next one's, ...
    const auto block = [&](int distance) { return blocks + static_cast<std::size_t>(distance) * in.size(); };
    return operate(of, queue, collective::all_reduce, 0, [&] {
      return in_stages(
          of, queue, hops_.count(), one_by_one,
          [&](batch& into, std::size_t step) {
            if (step == 0) std::memcpy(block(0), in.data(), in.size_bytes());
            const auto hop = hops_[step];
            for (int k = 1; k < hop.radix; ++k) {
              const std::size_t bytes = static_cast<std::size_t>(hop.blocks(k, size())) * in.size_bytes();
              const int away = hop.distance(k);
              if (bytes == 0) break;
              channel_.receive(into, of.label, (rank() + away) % size(), block(away), bytes);
              channel_.send(into, of.label, (rank() + size() - away) % size(), blocks, bytes);
            }
          },
          [&](batch&, std::size_t step) {
            if (step + 1 != hops_.count()) return;
            const auto source = [&](int from) -> T const* { return block((from + size() - rank()) % size()); };
            elementwise::sum_sources(size(), source, out.data(), out.size(), false);
          });
    });
  }

  /// An operation in which every rank gives every rank `bytes` bytes, in pieces; its own it copies.
  template <class To, class From>
  progress in_pieces(operation& of, host_queue const& queue, collective kind, std::size_t bytes, std::size_t piece,
                     To const& arriving, From const& leaving) {
    const direct_steps steps(rank(), size(), (bytes + piece - 1) / piece);
    return operate(of, queue, kind, steps.pieces(), [&] {
      return in_stages(
          of, queue, steps.count(), usual_,
          [&](batch& into, std::size_t step) {
            auto const [to, from, gives, takes] = steps.at(step);
            const std::size_t offset = gives * piece, count = std::min(piece, bytes - offset);
            if (to != rank()) {
              channel_.receive(into, label(of, takes), from, arriving(from, offset), count);
              channel_.send(into, label(of, gives), to, leaving(to, offset), count);
            } else if (leaving(to, offset) != arriving(to, offset)) {
              std::memcpy(arriving(to, offset), leaving(to, offset), count);
            }
          },
          [](batch&, std::size_t) {});
    });
  }

  /// Begins an operation or goes on with it: advance() tells how far it is.
  progress operate(operation& of, host_queue const& queue, collective kind, std::size_t pieces,
                   function_view<progress()> advance) {
    progress result = progress::pending;
    channel_.guarded(queue, kind, [&] {
      if (!std::exchange(of.under_way, true)) {
        if (queue.patience() != patience::none && started_ != finished_)  // behind all others none is under way
          throw usage_error(queue.place, text(name_of(kind), " is impossible: messages of tasks that were dropped are under way"),
                            text("Make a new backend: a queue that ended in the middle of its tasks takes it along"));
        of.label = channel_.next_operation(kind, pieces);
        of.sums = channel_.new_sums();
        ++under_way_;
      }
      result = advance();
      if (result != progress::done) return;
      --under_way_;
      if (of.sums != nullptr) of.sums->in_use = false;
      if (started_ != finished_) return;
      if (came_ != 0 && window_.ended(came_ - 1, steady_seconds() - first_came_)) make_batches();
      came_ = 0;
    });
    return channel_.moved() && result == progress::pending ? progress::advanced : result;
  }
  /// Starts stages of steps, as long as not too many are under way, of all operations. Finishes them in order.
  progress in_stages(operation& of, host_queue const& queue, std::size_t steps, grouping by, work_on_step start,
                     work_on_step finish) {
    const std::size_t stages = (steps + by.steps - 1) / by.steps, most = by.wide ? batches_.size() : 1;
    const patience how = queue.patience();
    const auto messages = [&](std::size_t stage) -> batch& { return batches_[(of.first + stage) % batches_.size()]; };
    const auto run = [&](std::size_t stage, work_on_step const& work) {
      for (std::size_t at = stage * by.steps; at < std::min((stage + 1) * by.steps, steps); ++at) work(messages(stage), at);
    };
    for (;;) {
      if (of.started == 0) of.first = started_;
      for (; of.started < stages && started_ - finished_ < most; ++of.started, ++started_) {
        messages(of.started).sums = of.sums;
        run(of.started, start);
        if (!by.wide || of.started + 1 == stages) channel_.send_sums(messages(of.started), of.label);
      }
      if (of.finished == stages) return progress::done;
      const bool all = by.wide && of.started == stages;
      if (how == patience::none) return all ? progress::begun : progress::pending;
      if (how == patience::glance && all && std::exchange(of.tells, false)) return progress::begun;
      if (!channel_.settle(queue, messages(of.finished), of.label, how == patience::glance)) return progress::pending;
      run(of.finished++, finish);
      ++finished_;
      if (++came_ == 1) first_came_ = steady_seconds();
      if (how == patience::glance && of.finished != stages) return progress::advanced;
    }
  }

  message_channel<Transport> channel_;
  std::size_t chosen_piece_bytes_;
  double deadline_;
  relay_hops hops_;
  bool crowded_;  // more ranks than are talked to at a time
  grouping usual_;
  std::size_t piece_bytes_;
  message_window window_;
  std::unique_ptr<std::byte[]> arrivals_, sums_;
  std::vector<batch> batches_;
  std::size_t under_way_ = 0;                          // operations
  std::size_t started_ = 0, finished_ = 0, came_ = 0;  // stages, of all of them; that ended since one was under way
  double first_came_ = 0;                              // the first of them: when, in steady_seconds
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
