// SPDX-License-Identifier: Apache-2.0
// How ranks are connected by Gloo: over which network, and how each gets the others' addresses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gloo/transport/tcp/device.h>
#include <net/if.h>

#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/network/gloo_mesh.hpp"
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

/// A context of all ranks that meet in `meeting`; `network` names the device in errors. Throws `peer_error` where Gloo
/// cannot connect them, within `deadline` seconds; or what `look` throws (`connect`).
template <class Device, class Meeting, class Look = nobody_looks>
[[nodiscard]] std::shared_ptr<addressed_context> meshed(rank_of mine, Device make_device, std::string const& network,
                                                        double deadline, Meeting& meeting, Look&& look = {}) {
  int with = -1;
  try {
    const auto context = std::make_shared<mesh_context>(mine, make_device(), deadline);
    rendezvous::contributions parts(static_cast<std::size_t>(mine.size));
    context->write_addresses([&](int to) {
      auto& its = parts[static_cast<std::size_t>(to)];
      its.resize(address_size());
      return its.data();
    });
    parts = meeting.deliver(std::move(parts));
    for (int peer = 0; peer < mine.size; ++peer) {
      auto const& its = parts[static_cast<std::size_t>(peer)];
      if (peer == mine.rank || its.size() == address_size()) continue;
      throw mismatch_error({mine.rank, -1, "start-up"},
                           text("rank ", peer, " brings ", its.size(), " bytes, which are no address of this Gloo's"),
                           text("Build all ranks with the same Gloo; who is no rank of this run is kept out by "
                                "gloo_options::secret"),
                           peer);
    }
    connect(
        std::span(&context, 1), [&](std::size_t, int from) { return parts[static_cast<std::size_t>(from)].data(); }, look, with);
    return context;
  } catch (error const&) {
    throw;
  } catch (std::exception const& e) {  // several types of Gloo's
    const text whom(with < 0 ? text() : text("with rank ", with, ", which may wait for another one: "));
    throw peer_error({mine.rank, -1, "start-up"}, text("the ranks cannot be connected: ", whom, std::string_view(e.what())),
                     text("Check that every rank is alive and can reach this host at ", network,
                          " (gloo_options::interface, or GLOO_SOCKET_IFNAME, chooses another network)"),
                     with);
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
