// SPDX-License-Identifier: Apache-2.0
// How contexts of Gloo's are connected: on threads of their own, while the caller looks whether a rank was lost. Gloo
// itself would wait for such a rank until its deadline; who closes its pairs ends the wait.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <sys/socket.h>

#include "acco/clock.hpp"
#include "acco/collective/joining_thread.hpp"
#include "acco/error.hpp"
#include "acco/network/gloo_transport.hpp"
#include "acco/network/launch_environment.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::gloo_start {

/// Bytes of an address.
inline std::size_t address_size() { return gloo::transport::tcp::Address(sockaddr_storage{}).bytes().size(); }

[[nodiscard]] inline std::chrono::milliseconds milliseconds(double seconds) {
  // 0: for ever, to Gloo
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(std::max(1.0, seconds * 1000), 1e9)));
}

/// A context whose addresses travel as its maker likes, and which can connect beside others.
class mesh_context : public addressed_context {
 public:
  mesh_context(rank_of mine, std::shared_ptr<gloo::transport::Device> device, double deadline)
      : addressed_context(mine.rank, mine.size),
        deadline_(deadline),
        until_(steady_seconds() + deadline),
        own_(static_cast<std::size_t>(mine.size)) {
    device_ = std::move(device);
    transportContext_ = device_->createContext(rank, size);
    // while a pair connects Gloo waits five times as long (its pair.h)
    transportContext_->setTimeout(milliseconds(deadline / 5));
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      auto& pair = transportContext_->createPair(peer);
      pair->setLocalRank(0);
      own_[static_cast<std::size_t>(peer)] = pair->address().bytes();
    }
  }
  /// at(peer): where its address is.
  template <class At>
  void write_addresses(At&& at) const {
    for (int peer = 0; peer < size; ++peer) {
      auto const& bytes = own_[static_cast<std::size_t>(peer)];
      if (peer != rank) std::memcpy(at(peer), bytes.data(), std::min(bytes.size(), address_size()));
    }
  }
  /// With one rank after another; blocks. at(peer): the address that it has written.
  template <class At>
  void connect(At&& at) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      connecting_ = peer;
      if (given_up_) break;
      if (steady_seconds() > until_)
        throw deadline_error({rank, -1, "start-up"},
                             text("ranks ", peer, " and above were not connected within ", deadline_, " s"),
                             text("Give the start-up more time, or look for a slow host"));
      auto const* const first = reinterpret_cast<char const*>(at(peer));
      const std::vector<char> other(first, first + address_size());
      getPair(peer)->connect(other);
      set_ends(peer, own_[static_cast<std::size_t>(peer)], other);
    }
    setTimeout(milliseconds(deadline_));
    transportContext_->setTimeout(milliseconds(deadline_));
  }
  /// The rank with which it connects: it is connected with those before. -1: not yet any.
  [[nodiscard]] int connecting() const noexcept { return connecting_; }
  /// Ends `connect`, whose result is nothing then. Any thread: a pair has a lock, which it lets go while it waits. Ends
  /// that pair only, which is waited for: Gloo resets what it closes so, and a rank whose Gloo accepts a connection that
  /// was reset is ended by it.
  void give_up() noexcept {
    given_up_ = true;
    try {
      for (int of = connecting_, last = -1; of != last; of = connecting_) {
        getPair(of)->close();
        last = of;
      }
    } catch (std::exception const&) {  // it is closed
    }
  }

 private:
  double deadline_, until_;
  std::vector<std::vector<char>> own_;  // by rank: where it is awaited
  std::atomic<int> connecting_ = -1;
  std::atomic<bool> given_up_ = false;
};

/// There is no world yet that would know who is lost.
struct nobody_looks {
  void operator()(int) const noexcept {}
};

/// Connects contexts, all at once: each takes round trips. look(first), five times a second: ranks from `first` on are
/// not all connected; what it throws ends it. The first failure does, too: `with` tells with which rank.
template <class At, class Look>
void connect(std::span<std::shared_ptr<mesh_context> const> all, At&& at, Look&& look, int& with) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t under_way = all.size();
  std::exception_ptr failure;
  std::vector<joining_thread> threads;
  try {
    threads.reserve(all.size());
    for (std::size_t k = 0; k < all.size(); ++k) {
      threads.emplace_back([&, k] {
        std::exception_ptr its;
        try {
          all[k]->connect([&](int peer) { return at(k, peer); });
        } catch (...) {
          its = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        --under_way;
        if (its != nullptr && failure == nullptr) {
          failure = std::move(its);
          with = all[k]->connecting();
        }
        changed.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return under_way == 0 || failure != nullptr; })) {
      lock.unlock();
      int first = all.front()->size;
      for (auto const& each : all) first = std::min(first, each->connecting());
      look(first);
      lock.lock();
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  } catch (...) {
    for (auto const& each : all) each->give_up();
    throw;
  }
}

/// A connection that broke may be that of a rank which has left because of another one: within a second it is known, by
/// look(), which throws then.
template <class Look>
void look_for_a_second(Look&& look) {
  for (int k = 0; k < 10; ++k) {
    look();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::gloo_start

#include "acco/restore_macros.hpp"
