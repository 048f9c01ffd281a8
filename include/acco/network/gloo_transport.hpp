// SPDX-License-Identifier: Apache-2.0
// Messages over Gloo's point-to-point buffers: Gloo's thread moves the bytes and sleeps in between.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/socket.h>

#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/network/gloo_mail.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/network/socket.hpp"
#include "acco/network/unshared_sockets.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A context that knows its connections' ends, as Gloo writes addresses (`Address::bytes`).
struct addressed_context : gloo::rendezvous::Context {
  using Context::Context;
  /// Where this rank awaited the other one, and was awaited by it: one of them has dialled.
  struct ends {
    std::string own, other;
  };
  void set_ends(int peer, std::vector<char> const& own, std::vector<char> const& other) {
    awaited.resize(static_cast<std::size_t>(size));
    awaited[static_cast<std::size_t>(peer)] = {gloo::transport::tcp::Address(own).str(),
                                               gloo::transport::tcp::Address(other).str()};
  }
  std::vector<ends> awaited;  // by rank
};

/// Messages over connected Gloo contexts of the same ranks. Where there are several, the link is long: pieces of an
/// array take turns among them, because one TCP connection does not fill it, and short messages leave at once
/// (gloo_mail.hpp), each in a copy. Gloo writes to sockets without guarding against SIGPIPE, which would end this
/// process silently when another rank dies: where the program has not chosen otherwise, the signal is ignored from now
/// on. Gloo allocates a few hundred bytes for each message; nothing else in a round over it does. Its connections are
/// not kept open by child processes that are forked or started from now on.
class gloo_transport {
 public:
  static constexpr std::size_t largest_message = std::size_t{1} << 30U;
  static constexpr std::uint32_t channels_with_mail = 8;

  class request {
   public:
    request(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool incoming) noexcept
        : buffer_(std::move(buffer)), incoming_(incoming) {}
    request(gloo_mailbox& from, std::uint64_t slot, void* to, std::size_t bytes) noexcept
        : incoming_(true), mail_(&from), message_(from.ask()), slot_(slot), to_(to), bytes_(bytes) {}

   private:
    friend gloo_transport;
    [[nodiscard]] gloo::transport::UnboundBuffer& buffer() const { return mail_ != nullptr ? mail_->buffer(message_) : *buffer_; }
    std::unique_ptr<std::byte[]> copy_;  // of a short message that leaves; behind the buffer in time
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
    bool incoming_;
    gloo_mailbox* mail_ = nullptr;  // of a short message that arrives: where, as what
    std::uint64_t message_ = 0, slot_ = 0;
    void* to_ = nullptr;
    std::size_t bytes_ = 0;
  };

  explicit gloo_transport(std::shared_ptr<gloo::Context> context) : gloo_transport(std::move(context), {}) {}
  explicit gloo_transport(std::shared_ptr<addressed_context> const& context) : gloo_transport(context, context->awaited) {}
  gloo_transport(gloo_transport const&) = delete;
  gloo_transport& operator=(gloo_transport const&) = delete;
  ~gloo_transport() {
    if (hangs_up_ && !left_) hang_up(last::front, longest_silence());
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    watchdog_.join();
  }

  /// Its end is that of the connections; else they are left as they are.
  void hang_up_at_end() noexcept { hangs_up_ = true; }
  /// Messages are under way that nobody waits for any more: it ends at once.
  void give_up() noexcept { hangs_up_ = false; }
  /// More connections to the same ranks, as many on every rank. Before any other member is called.
  void add(std::shared_ptr<addressed_context> more) {
    unshared_.emplace_back(sockets_of(*more, more->awaited));
    contexts_.push_back(std::move(more));
  }
  /// Bytes a second that leave over each connection, at most. Behind the last `add`.
  void pace(double most) {
#ifdef SO_MAX_PACING_RATE
    if (!(most < 4e9)) return;  // the kernel counts in 32 bits
    const auto rate = static_cast<unsigned>(most);
    std::vector<net::socket_handle> open;
    for (auto const& each : unshared_) each.copy_open(open);
    for (auto const& each : open) (void)::setsockopt(each.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
#endif
  }

  [[nodiscard]] int rank() const noexcept { return contexts_.front()->rank; }
  [[nodiscard]] int size() const noexcept { return contexts_.front()->size; }
  /// As the kernel saw it at the start.
  [[nodiscard]] double round_trip() const noexcept { return round_trip_; }
  [[nodiscard]] std::size_t connections_a_rank() const noexcept { return contexts_.size(); }
  /// Of a channel's mailboxes.
  [[nodiscard]] std::size_t mail_bytes(std::uint32_t channel) const noexcept {
    if (longest_mail() == 0 || channel >= channels_with_mail) return 0;
    return static_cast<std::size_t>(size() - 1) * gloo_mailbox::memory(longest_mail());
  }
  [[nodiscard]] std::shared_ptr<gloo::transport::Device> device() const { return contexts_.front()->getDevice(); }

  [[nodiscard]] request send(int to, message_label label, void const* from, std::size_t bytes) {
    return translated([&] {
      const bool at_once = is_short(label, bytes);
      auto copy = at_once ? gloo_mailbox::written(slot(label, bytes), from, bytes) : nullptr;
      auto buffer = at_once ? contexts_.front()->createUnboundBuffer(copy.get(), gloo_mailbox::room(bytes))
                            : of(label, rank(), to).createUnboundBuffer(const_cast<void*>(from), bytes);
      buffer->send(to, at_once ? mail_slot(label) : slot(label, bytes));
      request result(std::move(buffer), false);
      result.copy_ = std::move(copy);
      return result;
    });
  }
  [[nodiscard]] request receive(int from, message_label label, void* to, std::size_t bytes) {
    return translated([&] {
      if (is_short(label, bytes)) return request(mail(from, label), slot(label, bytes), to, bytes);
      auto buffer = of(label, from, rank()).createUnboundBuffer(to, bytes);
      buffer->recv(from, slot(label, bytes));
      return request(std::move(buffer), true);
    });
  }

  /// Waits. Gloo's own time-out would close every connection before a word can be said, so a watchdog ends the wait
  /// instead.
  delivery complete(request& which, double seconds) {
    return translated([&] {
      bool arrived = false;
      {
        const watched_wait watched(*this, which, seconds);
        arrived = wait(which, std::chrono::hours(24 * 365));
      }
      if (arrived) {
        if (which.mail_ != nullptr) which.mail_->take(which.message_, which.slot_, which.to_, which.bytes_);
        return delivery::done;
      }
      const std::lock_guard lock(mutex_);
      if (left_) throw delivery_failure{text("this rank leaves")};
      return delivery::expired;
    });
  }
  /// Ends every connection if it has not.
  bool arrived(request& which) {
    try {
      return wait(which, std::chrono::milliseconds(0));
    } catch (std::exception const&) {
      return false;
    }
  }

  void leave(message_label label, void const* from, std::size_t bytes) noexcept {
    std::vector<request> farewells;
    for (int peer = 0; peer < size(); ++peer) {
      try {
        if (peer != rank()) farewells.push_back(send(peer, label, from, bytes));
      } catch (delivery_failure const&) {  // it is gone
      }
    }
    // for the words to leave this host
    if (!farewells.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    {
      const std::lock_guard lock(mutex_);
      left_ = true;
      for (watched_wait* each : waits_) stop_waiting(each->which);
    }
    if (hangs_up_ && round_trip_ > 0.005) hang_up(last::others, longest_silence());  // and arrive
    end_connections();
  }

 private:
  using clock = std::chrono::steady_clock;

  gloo_transport(std::shared_ptr<gloo::Context> context, std::vector<addressed_context::ends> const& awaited)
      : contexts_{std::move(context)} {
    std::vector<int> const sockets = sockets_of(*contexts_.front(), awaited);
    unshared_.emplace_back(sockets);
    for (const int each : sockets) round_trip_ = std::max(round_trip_, net::round_trip(each));
    struct sigaction now{};
    if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    watchdog_ = std::thread([this] { watch(); });  // nothing throws behind it
  }

  /// Gloo's own end of a connection resets it, and a rank whose Gloo accepts one that was reset is ended by it: copies of
  /// the sockets let them end softly, where they are known.
  void end_connections() noexcept {
    std::vector<net::socket_handle> open;
    try {
      for (auto const& each : unshared_) each.copy_open(open);
    } catch (std::exception const&) {  // those that are left end as Gloo ends them
    }
    for (auto const& each : contexts_) {
      try {
        each->closeConnections();
      } catch (std::exception const&) {  // they are closed
      }
    }
    constexpr linger softly{};
    for (auto const& each : open) (void)::setsockopt(each.get(), SOL_SOCKET, SO_LINGER, &softly, sizeof softly);
  }
  /// Every second connection carries pieces to higher ranks, the others to lower ones: a receiver's word, which travels
  /// against them, does not wait behind pieces. What is of no operation takes the first one: farewells are asked for
  /// before there are more.
  gloo::Context& of(message_label label, int from, int to) noexcept {
    const std::size_t up = from < to ? 1 : 0, some = (contexts_.size() + up) / 2;
    if (some == 0 || label.operation == collective::none) return *contexts_.front();
    return *contexts_[2 * ((label.before + label.piece) % some) + 1 - up];
  }
  /// 32 KiB; less where there are so many ranks that a channel's mailboxes would have more than 8 MiB. 0: no mail.
  [[nodiscard]] std::size_t longest_mail() const noexcept {
    if (contexts_.size() == 1) return 0;
    return std::clamp((std::size_t{512} << 10U) / static_cast<std::size_t>(size() - 1), std::size_t{1} << 10U,
                      std::size_t{32} << 10U);
  }
  /// Not the pieces of a long array, of which more are to be under way than a mailbox has rooms. A mailbox lasts as
  /// long as the connections, so only the first channels have some.
  [[nodiscard]] bool is_short(message_label label, std::size_t bytes) const noexcept {
    return label.operation != collective::none && label.piece == 0 && label.channel < channels_with_mail &&
           bytes <= longest_mail();
  }
  gloo_mailbox& mail(int from, message_label label) {
    auto& all = mail_[label.channel];
    all.resize(static_cast<std::size_t>(size()));
    auto& its = all[static_cast<std::size_t>(from)];
    if (its == nullptr) its = std::make_unique<gloo_mailbox>(*contexts_.front(), from, mail_slot(label), longest_mail());
    return *its;
  }
  /// Gloo tells the address of each connection, and not its socket. The kernel gives one address to several connections
  /// that were dialled, in this world or another: it is the one that leads to where this rank was awaited, or, where
  /// that is not known, the only one.
  static std::vector<int> sockets_of(gloo::Context& context, std::vector<addressed_context::ends> const& awaited) {
    std::multimap<std::string, std::size_t> peers;
    for (int peer = 0; peer < context.size; ++peer) {
      if (peer != context.rank) peers.emplace(context.getPair(peer)->address().str(), peer);
    }
    std::vector<std::vector<int>> sure(static_cast<std::size_t>(context.size)), perhaps(sure);
    std::error_code no_proc;
    for (auto const& each : std::filesystem::directory_iterator("/proc/self/fd", no_proc)) {
      const int socket = std::atoi(each.path().filename().c_str());
      const std::string own = end_of(socket, getsockname), other = end_of(socket, getpeername);
      auto const [begin, end] = peers.equal_range(own);
      for (auto its = begin; its != end; ++its) {
        const std::size_t peer = its->second;
        const bool known = peer < awaited.size();
        if (known && awaited[peer].other == other) sure[peer].push_back(socket);
        if (!known || awaited[peer].own == own) perhaps[peer].push_back(socket);
      }
    }
    std::vector<int> result;
    for (std::size_t peer = 0; peer < sure.size(); ++peer) {
      auto const& its = sure[peer].empty() ? perhaps[peer] : sure[peer];
      if (its.size() == 1) result.push_back(its.front());
    }
    return result;
  }
  /// As Gloo writes it.
  static std::string end_of(int socket, int (*which)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage found{};
    socklen_t length = sizeof found;
    if (which(socket, reinterpret_cast<sockaddr*>(&found), &length) != 0) return {};
    const bool internet = found.ss_family == AF_INET || found.ss_family == AF_INET6;
    return internet ? gloo::transport::tcp::Address(found).str() : std::string();
  }
  /// What was sent last may be on its way: Gloo would only close the connections. Waits for so long without progress.
  /// `front` carries what tells others that this rank is gone.
  enum class last { front, others };
  /// Seconds: two packets may be lost behind each other. A host that is gone keeps its peers no longer from their steps.
  [[nodiscard]] double longest_silence() const noexcept { return std::max(1.0, 8 * round_trip_); }
  void hang_up(last which, double seconds) noexcept {
    try {
      std::vector<net::socket_handle> front, others;
      for (auto const& each : unshared_) each.copy_open(&each == &unshared_.front() ? front : others);
      net::hang_up(which == last::front ? others : front, seconds);
      net::hang_up(which == last::front ? front : others, seconds);
    } catch (std::exception const&) {  // they end as Gloo ends them
    }
  }
  static constexpr std::uint64_t sum_of_a_message = 0x7fffffff;  // in place of a length: none is as long
  static_assert(largest_message < sum_of_a_message);
  /// Every message has a slot of its own; the length is part of it, because Gloo ends the process where lengths differ.
  static std::uint64_t slot(message_label label, std::size_t bytes) noexcept {
    static_assert(message_channels <= 64 && collective_kinds <= 8);
    return std::uint64_t{label.channel & 0x3fU} << 58U | std::uint64_t{label.sequence & 0xffffU} << 42U |
           std::uint64_t{label.piece & 0xffU} << 34U | std::uint64_t{static_cast<std::uint32_t>(label.operation)} << 31U |
           (label.is_sum ? sum_of_a_message : bytes & 0x7fffffffU);
  }
  static std::uint64_t mail_slot(message_label label) noexcept { return slot({0xfffd, collective::none, 0, label.channel}, 0); }
  static bool wait(request& which, std::chrono::milliseconds longest) {
    return which.incoming_ ? which.buffer().waitRecv(nullptr, longest) : which.buffer().waitSend(nullptr, longest);
  }
  static void stop_waiting(request& which) { which.incoming_ ? which.buffer().abortWaitRecv() : which.buffer().abortWaitSend(); }
  template <class Work>
  static std::invoke_result_t<Work&> translated(Work&& work) {
    try {
      return work();
    } catch (delivery_failure const&) {
      throw;
    } catch (std::exception const& e) {  // several types of Gloo's
      const std::string_view what(e.what());
      const std::size_t words = what.find("] ");  // after "[file:line] "
      throw delivery_failure{text(words == std::string_view::npos ? what : what.substr(words + 2))};
    }
  }

  /// While it lives the watchdog knows of the wait; also where Gloo ends the wait with an exception.
  struct watched_wait {
    watched_wait(gloo_transport& in, request& what, double seconds) : owner(in), which(what) {
      const std::lock_guard lock(owner.mutex_);
      if (owner.left_) throw delivery_failure{text("this rank leaves")};
      until = steady_after(seconds);
      owner.waits_.push_back(this);
      if (until < owner.alarm_) owner.changed_.notify_one();
    }
    watched_wait(watched_wait const&) = delete;
    watched_wait& operator=(watched_wait const&) = delete;
    ~watched_wait() {
      const std::lock_guard lock(owner.mutex_);
      std::erase(owner.waits_, this);
    }
    gloo_transport& owner;
    request& which;
    clock::time_point until;
    bool seen = false;  // by the watchdog
  };
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      alarm_ = clock::now() + std::chrono::hours(1);
      for (watched_wait* each : waits_) {
        // Gloo tells that a wait was stopped before it tells that the message has come: it begins first
        if (!std::exchange(each->seen, true)) each->until = std::max(each->until, clock::now() + std::chrono::microseconds(50));
        alarm_ = std::min(alarm_, each->until);
      }
      changed_.wait_until(lock, alarm_);
      for (watched_wait* each : waits_) {
        if (!each->seen || clock::now() < each->until) continue;
        stop_waiting(each->which);
        each->until = clock::time_point::max();
      }
    }
  }

  std::vector<std::shared_ptr<gloo::Context>> contexts_;
  std::list<net::unshared_sockets> unshared_;
  std::vector<std::unique_ptr<gloo_mailbox>> mail_[channels_with_mail];  // by channel, whose thread opens them, and rank
  double round_trip_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<watched_wait*> waits_;  // one a channel at most
  clock::time_point alarm_ = clock::time_point::max();
  bool left_ = false, ending_ = false;
  std::atomic<bool> hangs_up_ = false;
  std::thread watchdog_;  // last: it uses everything above
};
static_assert(message_transport<gloo_transport>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
