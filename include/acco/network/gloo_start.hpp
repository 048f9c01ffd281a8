// SPDX-License-Identifier: Apache-2.0
// How ranks are connected by Gloo: over which network, and how each gets the others' addresses.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gloo/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <net/if.h>

#include "acco/clock.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/network/gloo_transport.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/message_sum.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/socket.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

struct gloo_options {
  /// Of a rank's part that travels and is summed as one, the same on every rank, at most 1 GiB; 0: 512 KiB, less for
  /// more ranks.
  std::size_t piece_bytes = 0;
  double deadline = 600;  ///< seconds to wait for the other ranks at start-up
  int connections = 0;    ///< to each other rank; 0: as the round trip asks, one on a local network
  acco::checksums checksums = acco::checksums::long_links;  ///< the most that a rank asks for counts
  message_sum sum = found_message_sum;                      ///< the same on every rank; null: there is none
  /// Network interface, e.g. "eth0", or one of this host's addresses; default: GLOO_SOCKET_IFNAME, then the one that
  /// leads to rank 0.
  std::string interface{};
  // What follows is of the start-up: docs/security.md.
  std::string run{};                   ///< names this run, the same on all its ranks; default: launch_environment::run
  rendezvous::authenticator secret{};  ///< all ranks prove that they know it, e.g.
                                       ///< a shared_secret; default: nobody does
  std::string listen{};                ///< interface or address at which rank 0 awaits
                                       ///< the others (rendezvous::tcp_options)
};

namespace gloo_start {

inline constexpr std::size_t usual_piece = std::size_t{512} << 10U;  // docs/performance.md

/// Bytes of an address. This Gloo writes one for each other rank; each rank needs its own only.
inline std::size_t address_size() { return gloo::transport::tcp::Address(sockaddr_storage{}).bytes().size(); }

/// Members of a part of a world that is split bring each other addresses, over the world. Collective over it: every
/// rank makes one call, whatever its part. Waits at most `deadline` seconds for any rank.
template <class Backend>
struct meeting_in_world {
  Backend world;
  split_result part;
  double deadline;
  [[nodiscard]] rendezvous::contributions deliver(rendezvous::contributions parts) const {
    auto queue = make_queue<host_queue>(world);
    queue.place = {world.rank(), -1, "split"};
    queue.deadline = deadline;
    const std::size_t one = address_size();
    std::vector<std::byte> out(one * static_cast<std::size_t>(world.size())), in(out.size());
    const auto at = [&](auto& all, std::size_t member) {
      return all.data() + static_cast<std::size_t>(part.members[member]) * one;
    };
    for (std::size_t to = 0; to < parts.size(); ++to) std::memcpy(at(out, to), parts[to].data(), parts[to].size());
    world.all_to_all(queue, out, in);
    queue.wait();
    for (std::size_t from = 0; from < parts.size(); ++from) parts[from].assign(reinterpret_cast<char const*>(at(in, from)), one);
    return parts;
  }
};

/// Gloo asks a store for the others' addresses; this one has brought them all by the first question.
template <class Meeting>
class known_addresses : public gloo::rendezvous::Store {
 public:
  known_addresses(rank_of mine, Meeting& meeting, double deadline)
      : mine_(mine), meeting_(meeting), deadline_(deadline), until_(steady_seconds() + deadline) {}
  void set(std::string const& key, std::vector<char> const& data) override {
    if (key != std::to_string(mine_.rank)) return;
    rendezvous::contributions parts(static_cast<std::size_t>(mine_.size));
    for (int to = 0; to < mine_.size; ++to) {
      if (to != mine_.rank) parts[static_cast<std::size_t>(to)].assign(data.data() + place(to, mine_.rank), address_size());
    }
    own_ = parts;
    all_ = meeting_.deliver(std::move(parts));
    for (std::size_t from = 0; from < own_.size(); ++from) {
      const int peer = static_cast<int>(from);
      if (peer == mine_.rank || all_[from].size() == address_size()) continue;
      throw mismatch_error({mine_.rank, -1, "start-up"},
                           text("rank ", peer, " brings ", all_[from].size(), " bytes, which are no address of this Gloo's"),
                           text("Build all ranks with the same Gloo; who is no rank of this run is kept out by "
                                "gloo_options::secret"),
                           peer);
    }
  }
  std::vector<char> get(std::string const& key) override {
    if (all_.empty() || key.find_first_not_of("0123456789") != std::string::npos) return {};
    connecting_ = std::stoi(key);
    if (steady_seconds() > until_)
      throw deadline_error({mine_.rank, -1, "start-up"},
                           text("ranks ", connecting_, " and above were not connected within ", deadline_, " s"),
                           text("Give the start-up more time, or look for a slow host"));
    // Where this Gloo looks for it, for one rank at a time: n of them are n^2.
    std::vector<char> whole(address_size() * (all_.size() - 1));
    std::string const& found = all_[static_cast<std::size_t>(connecting_)];
    if (connecting_ != mine_.rank) std::copy(found.begin(), found.end(), whole.data() + place(mine_.rank, connecting_));
    return whole;
  }
  void wait(std::vector<std::string> const&) override {}
  void wait(std::vector<std::string> const&, std::chrono::milliseconds const&) override {}
  /// The rank that Gloo is connecting this one with: it asks for their addresses one by one. -1: not yet any.
  [[nodiscard]] int connecting() const { return connecting_; }
  /// At which this rank and the other one have awaited each other.
  void tell_ends(addressed_context& context, int peer) const {
    std::string const &own = own_[static_cast<std::size_t>(peer)], &other = all_[static_cast<std::size_t>(peer)];
    context.set_ends(peer, {own.begin(), own.end()}, {other.begin(), other.end()});
  }

 private:
  /// Where the address for a rank stands in what another one writes.
  static std::size_t place(int to, int writer) { return address_size() * static_cast<std::size_t>(to < writer ? to : to - 1); }

  rank_of mine_;
  Meeting& meeting_;
  double deadline_, until_;
  int connecting_ = -1;
  rendezvous::contributions own_, all_;
};

[[nodiscard]] inline std::chrono::milliseconds milliseconds(double seconds) {
  // 0: for ever, to Gloo
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(std::max(1.0, seconds * 1000), 1e9)));
}

/// A context of all ranks that meet in `meeting`; `network` names the device in errors. Throws `peer_error` where Gloo
/// cannot connect them, within `deadline` seconds.
template <class Device, class Meeting>
[[nodiscard]] std::shared_ptr<addressed_context> meshed(rank_of mine, Device make_device, std::string const& network,
                                                        double deadline, Meeting& meeting) {
  known_addresses<Meeting> store(mine, meeting, deadline);
  try {
    auto device = make_device();
    auto context = std::make_shared<addressed_context>(mine.rank, mine.size);
    // while a pair connects Gloo waits five times as long (its pair.cc)
    context->setTimeout(milliseconds(deadline / 5));
    context->connectFullMesh(store, device);
    context->setTimeout(milliseconds(deadline));
    for (int peer = 0; peer < mine.size; ++peer) {
      if (peer != mine.rank) store.tell_ends(*context, peer);
    }
    return context;
  } catch (error const&) {
    throw;
  } catch (std::exception const& e) {  // several types of Gloo's
    const text with(store.connecting() < 0 ? text()
                                           : text("with rank ", store.connecting(), ", which may wait for another one: "));
    throw peer_error({mine.rank, -1, "start-up"}, text("the ranks cannot be connected: ", with, std::string_view(e.what())),
                     text("Check that every rank is alive and can reach this host at ", network,
                          " (gloo_options::interface, or GLOO_SOCKET_IFNAME, chooses another network)"),
                     store.connecting());
  }
}
/// Over the network that the options or the environment choose, else the one at `address`.
template <class Meeting>
[[nodiscard]] std::shared_ptr<addressed_context> connected(rank_of mine, std::string const& address, gloo_options const& chosen,
                                                           Meeting& meeting) {
  char const* const set = std::getenv("GLOO_SOCKET_IFNAME");
  std::string named = !chosen.interface.empty() ? chosen.interface : set != nullptr ? set : "";
  if (named.empty()) named = address;
  gloo::transport::tcp::attr network;
  if (if_nametoindex(named.c_str()) != 0) {  // one may be called 100
    network.iface = named;
  } else if (net::is_numeric(named)) {
    network.hostname = net::without_brackets(named);
  } else {
    throw usage_error({mine.rank, -1, "start-up"}, text("this host has no network interface called '", named, "'"),
                      text("gloo_options::interface, or GLOO_SOCKET_IFNAME, is one that `ip addr` lists, or an address of it"));
  }
  return meshed(mine, [&] { return gloo::transport::tcp::CreateDevice(network); }, named, chosen.deadline, meeting);
}
}  // namespace gloo_start
}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
