// SPDX-License-Identifier: Apache-2.0
// Ranks as processes connected by Gloo over TCP (component `gloo`). Collectives are acco's own (exchange.hpp) over Gloo's
// point-to-point buffers: Gloo's thread moves the bytes and sleeps in between.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "acco/clock.hpp"
#include "acco/collective/backend.hpp"
#include "acco/error.hpp"
#include "acco/network/exchange_backend.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_files.hpp"
#include "acco/network/rendezvous_tcp.hpp"
#include "acco/network/socket.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

struct gloo_options {
  std::size_t piece_bytes = 0;  ///< of a rank's part that travels and is summed as one; 0: 512 KiB, less for more ranks
  double deadline = 600;        ///< seconds to wait for the other ranks at start-up
  std::string interface{};      ///< network interface to use, e.g. "eth0", or one of this host's addresses; default:
                                ///< GLOO_SOCKET_IFNAME, then the one that leads to MASTER_ADDR, then the one of this host's name
  // What follows is of the start-up from the environment: docs/security.md.
  std::string run{};  ///< names this run, the same on all its ranks; default: launch_environment::run
  rendezvous::authenticator
      secret{};          ///< all ranks prove that they know it, e.g. a shared_secret; default: nobody proves anything
  std::string listen{};  ///< interface or address at which rank 0 awaits the others (rendezvous::tcp_options)
};

/// Messages over a connected Gloo context. Gloo writes to sockets without guarding against SIGPIPE, which would end this process
/// silently when another rank dies: where the program has not chosen otherwise, the signal is ignored from now on. Gloo allocates
/// a few hundred bytes for each message; nothing else in a round over it does.
class gloo_transport {
 public:
  static constexpr std::size_t largest_message = std::size_t{1} << 30U;

  class request {
   public:
    request(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool incoming) noexcept
        : buffer_(std::move(buffer)), incoming_(incoming) {}

   private:
    friend gloo_transport;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
    bool incoming_;
  };

  explicit gloo_transport(std::shared_ptr<gloo::Context> context) : context_(std::move(context)), watchdog_([this] { watch(); }) {
    struct sigaction now{};
    if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  }
  gloo_transport(gloo_transport const&) = delete;
  gloo_transport& operator=(gloo_transport const&) = delete;
  ~gloo_transport() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    watchdog_.join();
  }

  [[nodiscard]] int rank() const noexcept { return context_->rank; }
  [[nodiscard]] int size() const noexcept { return context_->size; }

  [[nodiscard]] request send(int to, message_label label, void const* from, std::size_t bytes) {
    return translated([&] {
      auto buffer = context_->createUnboundBuffer(const_cast<void*>(from), bytes);
      buffer->send(to, slot(label, bytes));
      return request(std::move(buffer), false);
    });
  }
  [[nodiscard]] request receive(int from, message_label label, void* to, std::size_t bytes) {
    return translated([&] {
      auto buffer = context_->createUnboundBuffer(to, bytes);
      buffer->recv(from, slot(label, bytes));
      return request(std::move(buffer), true);
    });
  }

  /// Waits. Gloo's own time-out would close every connection before a word can be said, so a watchdog ends the wait instead.
  delivery complete(request& which, double seconds) {
    return translated([&] {
      bool arrived = false;
      {
        const watched_wait watched(*this, which, seconds);
        arrived = wait(which, std::chrono::hours(24 * 365));
      }
      if (arrived) return delivery::done;
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
    if (!farewells.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the words to leave this host
    {
      const std::lock_guard lock(mutex_);
      left_ = true;
      for (watched_wait* each : waits_) stop_waiting(each->which);
    }
    try {
      context_->closeConnections();
    } catch (std::exception const&) {  // they are closed
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  /// Every message has a slot of its own; the length is part of it, because Gloo ends the process where lengths differ.
  static std::uint64_t slot(message_label label, std::size_t bytes) noexcept {
    static_assert(message_channels <= 64 && collective_kinds <= 8);
    return std::uint64_t{label.channel & 0x3fU} << 58U | std::uint64_t{label.sequence & 0xffffU} << 42U |
           std::uint64_t{label.piece & 0xffU} << 34U | std::uint64_t{static_cast<std::uint32_t>(label.operation)} << 31U |
           (bytes & 0x7fffffffU);
  }
  static bool wait(request& which, std::chrono::milliseconds longest) {
    return which.incoming_ ? which.buffer_->waitRecv(nullptr, longest) : which.buffer_->waitSend(nullptr, longest);
  }
  static void stop_waiting(request& which) { which.incoming_ ? which.buffer_->abortWaitRecv() : which.buffer_->abortWaitSend(); }
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
      until = clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
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
  };
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      alarm_ = clock::now() + std::chrono::hours(1);
      for (watched_wait const* each : waits_) alarm_ = std::min(alarm_, each->until);
      changed_.wait_until(lock, alarm_);
      for (watched_wait* each : waits_) {
        if (clock::now() < each->until) continue;
        stop_waiting(each->which);
        each->until = clock::time_point::max();
      }
    }
  }

  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<watched_wait*> waits_;  // one a channel at most
  clock::time_point alarm_ = clock::time_point::max();
  bool left_ = false, ending_ = false;
  std::thread watchdog_;  // last: it uses everything above
};
static_assert(message_transport<gloo_transport>);

/// A handle on this process as a rank of a group connected by Gloo; cheap to copy. Bit-identical with every other backend.
class gloo_backend : public exchange_backend<gloo_transport> {
 public:
  static constexpr backend_traits traits = [] {
    backend_traits with_words = exchange_backend::traits;
    with_words.names_progress = true;
    return with_words;
  }();
  /// Another channel over the same connections: each optimizer takes one.
  [[nodiscard]] gloo_backend duplicate() const { return gloo_backend(exchange_backend::duplicate()); }

  static constexpr std::size_t usual_piece = std::size_t{512} << 10U;  // docs/performance.md

  /// Over a context that is already connected (`connectFullMesh`); nobody else may use it while the handle lives.
  explicit gloo_backend(std::shared_ptr<gloo::Context> context, gloo_options const& chosen = {})
      : exchange_backend(std::make_shared<exchange<gloo_transport>>(
            chosen.piece_bytes, usual_piece, std::make_shared<connections<gloo_transport>>(std::move(context)))) {}

  /// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers set them. Collective; blocks at most chosen.deadline.
  [[nodiscard]] static gloo_backend from_environment(gloo_options const& chosen = {}) {
    return gloo_backend(context_from_environment(chosen), chosen);
  }
  /// The same, for those who want the context only.
  [[nodiscard]] static std::shared_ptr<gloo::Context> context_from_environment(gloo_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    const double until = steady_seconds() + chosen.deadline;
    rendezvous::tcp_rendezvous meeting(mine, mine.address, mine.port,
                                       {.deadline = chosen.deadline,
                                        .run = chosen.run.empty() ? mine.run : chosen.run,
                                        .secret = chosen.secret,
                                        .listen = chosen.listen});
    gloo_options rest = chosen;
    rest.deadline = std::max(until - steady_seconds(), 0.01);  // 0 would be none, to Gloo
    auto context = connected(mine, meeting.own_address(), rest, meeting);
    context->setTimeout(milliseconds(chosen.deadline));
    return context;
  }

  /// Through a directory that all ranks see; `run` names this run and is the same on all its ranks (e.g. the job's number).
  [[nodiscard]] static gloo_backend from_files(rank_of mine, std::filesystem::path const& directory, std::string const& run,
                                               gloo_options const& chosen = {}) {
    struct {
      rank_of mine;
      std::filesystem::path const& directory;
      std::string const& run;
      double deadline;
      [[nodiscard]] rendezvous::contributions exchange(std::string const& brought) const {
        return rendezvous::through_files(mine, directory, run, brought, deadline);
      }
    } files{mine, directory, run, chosen.deadline};
    return gloo_backend(connected(mine, {}, chosen, files), chosen);
  }

  /// from_environment, then function(gloo_backend); an exception is printed. Returns the exit code.
  template <class Function>
  static int run(Function&& function, gloo_options const& chosen = {}) {
    try {
      function(from_environment(chosen));
      return 0;
    } catch (std::exception const& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  }

  [[nodiscard]] char const* progress_policy() const noexcept { return "Gloo: its own thread"; }

 private:
  explicit gloo_backend(exchange_backend other) : exchange_backend(std::move(other)) {}

  /// Gloo asks a store for the others' addresses; this one has exchanged them all by the first question. Before the addresses
  /// stand, in what each rank brings, the name of its host and whether only that host can reach them.
  template <class Meeting>
  class exchanged_addresses : public gloo::rendezvous::Store {
   public:
    exchanged_addresses(rank_of mine, Meeting& meeting, bool local) : mine_(mine), meeting_(meeting), local_(local) {}
    void set(std::string const& key, std::vector<char> const& data) override {
      if (key != std::to_string(mine_.rank)) return;
      const std::string addresses(data.begin(), data.end());
      const auto ranks = static_cast<std::size_t>(mine_.size), me = static_cast<std::size_t>(mine_.rank);
      // This Gloo writes one address for each other rank; each rank needs its own only.
      const std::size_t one = gloo::transport::tcp::Address(sockaddr_storage{}).bytes().size();
      constexpr bool can = requires { meeting_.exchange_parts(rendezvous::contributions{}); };
      const bool in_parts = can && ranks > 1 && data.size() == one * (ranks - 1);
      if (!in_parts) {
        all_ = meeting_.exchange(labelled(addresses));
      } else if constexpr (can) {
        rendezvous::contributions parts;
        for (std::size_t to = 0; to < ranks; ++to)
          parts.push_back(labelled(to == me ? std::string() : addresses.substr((to < me ? to : to - 1) * one, one)));
        all_ = meeting_.exchange_parts(parts);
      }
      check_reach();
      in_parts_ = in_parts;
    }
    std::vector<char> get(std::string const& key) override {
      const bool is_rank = key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_rank || all_.empty()) return {};
      const std::size_t from = std::stoul(key), me = static_cast<std::size_t>(mine_.rank), one = all_.at(from).size();
      std::string const& found = all_[from];
      if (!in_parts_ || from == me) return {found.begin(), found.end()};
      std::vector<char> whole(one * (all_.size() - 1));  // where this Gloo looks for it; one rank's at a time: n of them are n^2
      std::copy(found.begin(), found.end(), whole.begin() + static_cast<std::ptrdiff_t>((me < from ? me : me - 1) * one));
      return whole;
    }
    void wait(std::vector<std::string> const&) override {}
    void wait(std::vector<std::string> const&, std::chrono::milliseconds const&) override {}

   private:
    [[nodiscard]] std::string labelled(std::string const& addresses) const {
      std::string result;
      rendezvous::detail::put(result, static_cast<std::uint8_t>(local_));
      rendezvous::detail::put(result, net::this_host());
      return result + addresses;
    }
    /// Throws, on every rank alike, where somebody brings an address that leads another host to itself.
    void check_reach() {
      std::vector<std::string> hosts;
      int local = -1;
      for (std::string& each : all_) {
        rendezvous::detail::reader in{each};
        if (in.number<std::uint8_t>() != 0 && local < 0) local = static_cast<int>(hosts.size());
        hosts.push_back(in.bytes());
        each = std::string(in.rest);
      }
      for (std::size_t rank = 0; local >= 0 && rank < hosts.size(); ++rank) {
        if (hosts[rank] == hosts[static_cast<std::size_t>(local)]) continue;
        throw usage_error(
            {mine_.rank, -1, "start-up"},
            text("rank ", local, " can be reached only from its own host, and rank ", rank, " is on another one"),
            text("Its host's name, or the interface that was chosen, leads to a loopback address: choose a network with "
                 "gloo_options::interface or GLOO_SOCKET_IFNAME"),
            local);
      }
    }

    rank_of mine_;
    Meeting& meeting_;
    bool local_, in_parts_ = false;
    rendezvous::contributions all_;
  };

  template <class Meeting>
  static std::shared_ptr<gloo::Context> connected(rank_of mine, std::string const& address, gloo_options const& chosen,
                                                  Meeting& meeting) {
    const error_place where{mine.rank, -1, "start-up"};
    if (mine.rank < 0 || mine.rank >= mine.size)
      throw usage_error(where, text("there is no rank ", mine.rank, " of ", mine.size), text("Ranks are numbered from 0"));
    gloo::transport::tcp::attr attributes;
    char const* const named = std::getenv("GLOO_SOCKET_IFNAME");
    attributes.iface = !chosen.interface.empty() ? chosen.interface : named != nullptr ? named : "";
    if (attributes.iface.empty()) attributes.hostname = address.empty() ? host_name() : address;
    if (net::is_address(attributes.iface)) std::swap(attributes.hostname, attributes.iface);
    try {
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      auto context = std::make_shared<gloo::rendezvous::Context>(mine.rank, mine.size);
      context->setTimeout(milliseconds(chosen.deadline));
      exchanged_addresses<Meeting> store(mine, meeting, leads_home(attributes, chosen.deadline));
      context->connectFullMesh(store, device);
      return context;
    } catch (error const&) {
      throw;
    } catch (std::exception const& e) {  // several types of Gloo's
      throw peer_error(where, text("the ranks cannot be connected: ", std::string_view(e.what())),
                       text("Check that every rank is alive and can reach this host at ",
                            attributes.iface.empty() ? attributes.hostname : attributes.iface,
                            " (gloo_options::interface, or GLOO_SOCKET_IFNAME, chooses another network)"));
    }
  }
  /// Whether Gloo will listen at a loopback address.
  static bool leads_home(gloo::transport::tcp::attr const& chosen, double seconds) {
    const auto found = chosen.iface.empty() ? net::look_up(chosen.hostname, 0, net::after(seconds)).found
                                            : net::interfaces_called(chosen.iface, 0).found;
    return !found.empty() && found.front().loopback();
  }
  static std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e6) * 1000));
  }
  static std::string host_name() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
  }
};

}  // namespace ACCO_SIMD_NAMESPACE
