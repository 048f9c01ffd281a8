// SPDX-License-Identifier: Apache-2.0
// A transport between ranks that are threads of this process: it counts, checks that sender and receiver agree, and
// delivers a long message only when both have asked for it, so that what would lock up over some network locks up here.
// A short one is sent whether or not somebody waits for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <acco/collective/threads.hpp>
#include <acco/network/message_backend.hpp>

namespace letters {

struct letter {
  acco::message_label label;
  int from, to;
  void* at;
  std::size_t bytes;
  bool incoming, done = false;
  std::vector<std::byte> copy{};  // of a short one
};
struct counts {
  std::uint64_t sent = 0, received = 0;
  std::size_t most_to = 0, most_from = 0;  // other ranks with a message under way at one time
  std::size_t most_operations = 0;         // operations with a message under way at one time
};

class office {
 public:
  explicit office(int ranks)
      : ranks_(ranks),
        counts_(static_cast<std::size_t>(ranks)),
        open_(static_cast<std::size_t>(ranks)),
        operations_(static_cast<std::size_t>(ranks)) {}
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// One bit of the `delivery`-th message from now on, from 0, arrives as another one; of messages that belong to
  /// operations, and of their checksums.
  void flip(std::uint64_t delivery, std::uint64_t bit) {
    const std::lock_guard lock(mutex_);
    flipped_ = deliveries_ + delivery;
    bit_ = bit;
  }
  [[nodiscard]] std::uint64_t deliveries() const noexcept { return deliveries_; }
  /// Who sent the message that was damaged, and to whom; -1: none was.
  struct way {
    int from = -1, to = -1;
  };
  [[nodiscard]] way damaged() const noexcept { return damaged_; }

  /// From now on what one rank sends to another is lost.
  void lose(int from, int to) {
    const std::lock_guard lock(mutex_);
    lost_.insert({from, to});
  }

  void post(std::shared_ptr<letter> const& each) {
    const std::lock_guard lock(mutex_);
    if (!each->incoming && lost_.contains({each->from, each->to})) {
      each->done = true;
      return;
    }
    const auto key = key_of(*each);
    auto& waiting = waiting_[key];
    const bool counts = each->label.operation != acco::collective::none;
    if (!each->incoming && each->bytes <= longest_at_once) {
      each->copy.assign(static_cast<std::byte*>(each->at), static_cast<std::byte*>(each->at) + each->bytes);
      each->at = each->copy.data();
      each->done = true;
    }
    if (counts) {
      if (!each->done) open(*each, 1);
      ++(each->incoming ? of(each->to).received : of(each->from).sent);
    }
    if (waiting.empty() || waiting.front()->incoming == each->incoming) return waiting.push_back(each);
    letter& other = *waiting.front();
    if (other.label.operation != each->label.operation || other.label.piece != each->label.piece || other.bytes != each->bytes)
      ++disagreements_;
    else
      deliver(each->incoming ? other : *each, each->incoming ? *each : other);
    for (letter* of : {&other, each.get()}) {
      if (counts && !of->done) open(*of, -1);
      of->done = true;
    }
    waiting.pop_front();
    if (waiting.empty()) waiting_.erase(key);
  }
  [[nodiscard]] bool done(letter const& each) {
    const std::lock_guard lock(mutex_);
    return each.done;
  }
  void forget(std::shared_ptr<letter> const& each) {
    const std::lock_guard lock(mutex_);
    if (!each->done) std::erase(waiting_[key_of(*each)], each);
  }

  [[nodiscard]] counts take_counts(int rank) {
    const std::lock_guard lock(mutex_);
    return std::exchange(of(rank), {});
  }
  [[nodiscard]] int disagreements() const noexcept { return disagreements_; }

 private:
  static constexpr std::size_t longest_at_once = 1024;
  static std::tuple<int, int, std::uint32_t, std::uint32_t> key_of(letter const& each) {
    return {each.from, each.to, each.label.channel, each.label.sequence};
  }
  void deliver(letter const& out, letter const& in) {
    std::memcpy(in.at, out.at, in.bytes);
    if (in.label.operation == acco::collective::none || in.bytes == 0 || deliveries_++ != flipped_) return;
    auto* const bytes = static_cast<unsigned char*>(in.at);
    bytes[bit_ / 8 % in.bytes] ^= static_cast<unsigned char>(1U << bit_ % 8);
    damaged_ = {in.from, in.to};
  }
  counts& of(int rank) { return counts_[static_cast<std::size_t>(rank)]; }
  void open(letter const& each, int more) {
    const int mine = each.incoming ? each.to : each.from, other = each.incoming ? each.from : each.to;
    auto& peers = open_[static_cast<std::size_t>(mine)][each.incoming ? 1 : 0];
    if ((peers[other] += more) == 0) peers.erase(other);
    std::size_t& most = each.incoming ? of(mine).most_from : of(mine).most_to;
    most = std::max(most, peers.size());
    auto& operations = operations_[static_cast<std::size_t>(mine)];
    if ((operations[each.label.sequence] += more) == 0) operations.erase(each.label.sequence);
    of(mine).most_operations = std::max(of(mine).most_operations, operations.size());
  }

  int ranks_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, std::deque<std::shared_ptr<letter>>> waiting_;
  std::vector<counts> counts_;
  std::vector<std::map<int, int>[2]> open_;
  std::vector<std::map<std::uint32_t, int>> operations_;
  std::set<std::pair<int, int>> lost_;
  std::uint64_t deliveries_ = 0, flipped_ = static_cast<std::uint64_t>(-1), bit_ = 0;
  way damaged_;
  std::atomic<int> disagreements_ = 0;
};

class transport {
 public:
  static constexpr std::size_t largest_message = std::size_t{1} << 20U;
  class request {
   public:
    request(office& in, std::shared_ptr<letter> what) : in_(&in), what_(std::move(what)) {}
    request(request&& other) noexcept : in_(other.in_), what_(std::move(other.what_)) {}
    request& operator=(request&& other) noexcept {
      std::swap(in_, other.in_);
      std::swap(what_, other.what_);
      return *this;
    }
    request(request const&) = delete;
    request& operator=(request const&) = delete;
    ~request() {
      if (what_ != nullptr) in_->forget(what_);
    }

   private:
    friend transport;
    office* in_;
    std::shared_ptr<letter> what_;
  };

  transport(office& in, int rank) : office_(in), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return office_.ranks(); }
  [[nodiscard]] double round_trip() const noexcept { return 0; }
  [[nodiscard]] request send(int to, acco::message_label label, void const* from, std::size_t bytes) {
    return post({label, rank_, to, const_cast<void*>(from), bytes, false});
  }
  [[nodiscard]] request receive(int from, acco::message_label label, void* to, std::size_t bytes) {
    return post({label, from, rank_, to, bytes, true});
  }
  acco::delivery complete(request& which, double) {
    asked_ = asked_ * 6364136223846793005U + 1442695040888963407U + static_cast<std::uint64_t>(rank_);
    if (asked_ >> 62U == 0 || !office_.done(*which.what_)) return acco::delivery::pending;  // not at the first question
    return acco::delivery::done;
  }
  bool arrived(request& which) { return office_.done(*which.what_); }
  void leave(acco::message_label label, void const* from, std::size_t bytes) noexcept {
    farewell_.assign(static_cast<std::byte const*>(from), static_cast<std::byte const*>(from) + bytes);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_) said_.push_back(send(peer, label, farewell_.data(), bytes));
    }
  }

 private:
  request post(letter what) {
    auto const shared = std::make_shared<letter>(what);
    office_.post(shared);
    return {office_, shared};
  }
  office& office_;
  int rank_;
  std::atomic<std::uint64_t> asked_ = 1;
  std::vector<std::byte> farewell_;
  std::list<request> said_;
};
static_assert(acco::message_transport<transport>);

using backend = acco::message_backend<transport>;

/// One rank's.
inline backend world(office& mail, int rank, std::size_t piece_bytes, acco::message_sum sum) {
  auto const all = std::make_shared<acco::connections<transport>>(mail, rank);
  all->set_sum(sum);
  return backend(std::make_shared<acco::message_collectives<transport>>(piece_bytes, piece_bytes, all));
}
/// function(backend, office) on every rank.
template <class Function>
void run_over(office& mail, std::size_t piece_bytes, acco::message_sum sum, Function&& function) {
  acco::threads_backend::run(
      mail.ranks(), [&](acco::threads_backend const& thread) { function(world(mail, thread.rank(), piece_bytes, sum), mail); });
}
template <class Function>
void run(int ranks, std::size_t piece_bytes, Function&& function) {
  office mail(ranks);
  run_over(mail, piece_bytes, nullptr, function);
}

}  // namespace letters
