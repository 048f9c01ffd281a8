// SPDX-License-Identifier: Apache-2.0
// Ranks as processes connected by Gloo over TCP (component `gloo`). Collectives are acco's own (exchange.hpp) over Gloo's
// point-to-point buffers: Gloo's thread moves the bytes and sleeps in between.
#pragma once

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
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "acco/collective/backend.hpp"
#include "acco/collective/exchange_backend.hpp"
#include "acco/collective/launch_environment.hpp"
#include "acco/collective/message_transport.hpp"
#include "acco/collective/rendezvous.hpp"
#include "acco/collective/rendezvous_files.hpp"
#include "acco/collective/rendezvous_tcp.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

struct gloo_options {
  std::size_t piece_bytes = 0;  ///< of a rank's part that travels, is summed and updated as one; 0: 512 KiB, less for more ranks
  double deadline = 600;        ///< seconds to wait for the other ranks at start-up
  std::string interface{};      ///< network interface to use, e.g. "eth0"; default: GLOO_SOCKET_IFNAME, then
                                ///< the one that leads to MASTER_ADDR, then the one of this host's name
};

/// Messages over a connected Gloo context. Gloo writes to sockets without guarding against SIGPIPE, which would end this process
/// silently when another rank dies: where the program has not chosen otherwise, the signal is ignored from now on. Gloo allocates
/// a few hundred bytes for each message; nothing else in a round over it does.
class gloo_transport {
 public:
  static constexpr bool waits = true;
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
      if (waited_for_ != nullptr) stop_waiting(*waited_for_);
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
    return std::uint64_t{label.sequence & 0xfffffU} << 44U | std::uint64_t{label.piece & 0x3ffU} << 34U |
           std::uint64_t{static_cast<std::uint32_t>(label.operation)} << 31U | (bytes & 0x7fffffffU);
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
  class watched_wait {
   public:
    watched_wait(gloo_transport& in, request& which, double seconds) : in_(in) {
      const std::lock_guard lock(in_.mutex_);
      if (in_.left_) throw delivery_failure{text("this rank leaves")};
      in_.waited_for_ = &which;
      in_.until_ =
          clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
      if (in_.until_ < in_.alarm_) in_.changed_.notify_one();
    }
    watched_wait(watched_wait const&) = delete;
    watched_wait& operator=(watched_wait const&) = delete;
    ~watched_wait() {
      const std::lock_guard lock(in_.mutex_);
      in_.waited_for_ = nullptr;
    }

   private:
    gloo_transport& in_;
  };
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      alarm_ = waited_for_ != nullptr ? until_ : clock::now() + std::chrono::hours(1);
      changed_.wait_until(lock, alarm_);
      if (waited_for_ != nullptr && clock::now() >= until_) {
        stop_waiting(*waited_for_);
        waited_for_ = nullptr;
      }
    }
  }

  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  request* waited_for_ = nullptr;
  clock::time_point until_{}, alarm_ = clock::time_point::max();
  bool left_ = false, ending_ = false;
  std::thread watchdog_;  // last: it uses everything above
};
static_assert(message_transport<gloo_transport>);

/// A handle on this process as a rank of a group connected by Gloo; cheap to copy. Bit-identical with every other backend.
class gloo_backend : public exchange_backend<gloo_transport> {
 public:
  static constexpr std::size_t usual_piece = std::size_t{512} << 10U;  // docs/performance.md

  /// Over a context that is already connected (`connectFullMesh`); nobody else may use it while the handle lives.
  explicit gloo_backend(std::shared_ptr<gloo::Context> context, gloo_options const& chosen = {})
      : exchange_backend(std::make_shared<exchange<gloo_transport>>(chosen.piece_bytes, usual_piece, std::move(context))) {}

  /// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers set them. Collective; blocks at most chosen.deadline.
  [[nodiscard]] static gloo_backend from_environment(gloo_options const& chosen = {}) {
    return gloo_backend(context_from_environment(chosen), chosen);
  }
  /// The same, for those who want the context only.
  [[nodiscard]] static std::shared_ptr<gloo::Context> context_from_environment(gloo_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    const error_place where{mine.rank, -1, "start-up"};
    const std::string address = rendezvous::address_towards(mine.address, mine.port, where);
    return connected(mine, address, chosen, [&](std::string const& brought) {
      return rendezvous::over_tcp(mine, mine.address, mine.port, brought, chosen.deadline);
    });
  }

  /// Through a directory that all ranks see; `run` names this run and is the same on all its ranks (e.g. the job's number).
  [[nodiscard]] static gloo_backend from_files(rank_of mine, std::filesystem::path const& directory, std::string const& run,
                                               gloo_options const& chosen = {}) {
    return gloo_backend(connected(mine, {}, chosen,
                                  [&](std::string const& brought) {
                                    return rendezvous::through_files(mine, directory, run, brought, chosen.deadline);
                                  }),
                        chosen);
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
  /// Gloo asks a store for the others' addresses; this one has exchanged them all by the first question.
  template <class Exchange>
  class exchanged_addresses : public gloo::rendezvous::Store {
   public:
    exchanged_addresses(rank_of mine, Exchange const& exchange) : mine_(mine), exchange_(exchange) {}
    void set(std::string const& key, std::vector<char> const& data) override {
      if (key == std::to_string(mine_.rank)) all_ = exchange_(std::string(data.begin(), data.end()));
    }
    std::vector<char> get(std::string const& key) override {
      const bool is_rank = key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_rank || all_.empty()) return {};
      std::string const& found = all_.at(static_cast<std::size_t>(std::stoul(key)));
      return {found.begin(), found.end()};
    }
    void wait(std::vector<std::string> const&) override {}
    void wait(std::vector<std::string> const&, std::chrono::milliseconds const&) override {}

   private:
    rank_of mine_;
    Exchange const& exchange_;
    rendezvous::contributions all_;
  };

  template <class Exchange>
  static std::shared_ptr<gloo::Context> connected(rank_of mine, std::string const& address, gloo_options const& chosen,
                                                  Exchange const& exchange) {
    const error_place where{mine.rank, -1, "start-up"};
    if (mine.rank < 0 || mine.rank >= mine.size)
      throw usage_error(where, text("there is no rank ", mine.rank, " of ", mine.size), text("Ranks are numbered from 0"));
    gloo::transport::tcp::attr attributes;
    char const* const named = std::getenv("GLOO_SOCKET_IFNAME");
    attributes.iface = !chosen.interface.empty() ? chosen.interface : named != nullptr ? named : "";
    if (attributes.iface.empty()) attributes.hostname = address.empty() ? host_name() : address;
    try {
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      auto context = std::make_shared<gloo::rendezvous::Context>(mine.rank, mine.size);
      context->setTimeout(std::chrono::milliseconds(static_cast<std::int64_t>(std::min(chosen.deadline, 1e6) * 1000)));
      exchanged_addresses<Exchange> store(mine, exchange);
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
  static std::string host_name() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
  }
};

}  // namespace ACCO_NAMESPACE
