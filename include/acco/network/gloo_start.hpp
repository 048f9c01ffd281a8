// SPDX-License-Identifier: Apache-2.0
// How ranks are connected by Gloo: whose network, whose addresses, and that no address leads another host to itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <net/if.h>
#include <unistd.h>

#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

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

namespace gloo_start {

/// Gloo asks a store for the others' addresses; this one has exchanged them all by the first question. Before the addresses
/// stand, in what each rank brings, the name of its host and whether only that host can reach them.
template <class Meeting>
class exchanged_addresses : public gloo::rendezvous::Store {
 public:
  exchanged_addresses(rank_of mine, Meeting& meeting, bool local, double deadline)
      : mine_(mine), meeting_(meeting), local_(local), deadline_(deadline), until_(steady_seconds() + deadline) {}
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
    connecting_ = std::stoi(key);
    if (steady_seconds() > until_) {
      throw deadline_error({mine_.rank, -1, "start-up"},
                           text("ranks ", connecting_, " and above were not connected within ", deadline_, " s"),
                           text("Give the start-up more time, or look for a slow host"));
    }
    const std::size_t from = std::stoul(key), me = static_cast<std::size_t>(mine_.rank), one = all_.at(from).size();
    std::string const& found = all_[from];
    if (!in_parts_ || from == me) return {found.begin(), found.end()};
    std::vector<char> whole(one * (all_.size() - 1));  // where this Gloo looks for it; one rank's at a time: n of them are n^2
    std::copy(found.begin(), found.end(), whole.begin() + static_cast<std::ptrdiff_t>((me < from ? me : me - 1) * one));
    return whole;
  }
  void wait(std::vector<std::string> const&) override {}
  void wait(std::vector<std::string> const&, std::chrono::milliseconds const&) override {}
  /// The rank that Gloo is connecting this one with: it asks for their addresses one by one. -1: not yet any.
  [[nodiscard]] int connecting() const { return connecting_; }

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
  double deadline_, until_;
  int connecting_ = -1;
  rendezvous::contributions all_;
};

/// Whether Gloo will listen at a loopback address.
[[nodiscard]] inline bool leads_home(gloo::transport::tcp::attr const& chosen, double seconds) {
  const auto found = chosen.iface.empty() ? net::look_up(chosen.hostname, 0, net::after(seconds)).found
                                          : net::interfaces_called(chosen.iface, 0).found;
  return !found.empty() && found.front().loopback();
}
[[nodiscard]] inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e6) * 1000));
}
[[nodiscard]] inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

/// While a pair connects Gloo waits five times as long as its time-out says (its pair.cc, waitUntilConnected).
inline constexpr double times_gloo_waits = 5;

/// A context of all ranks that meet in `meeting`; `network` names the device in errors, `local` tells whether only this host can
/// reach it. Throws `peer_error` where Gloo cannot connect them, within `deadline` seconds.
template <class Device, class Meeting>
[[nodiscard]] std::shared_ptr<gloo::Context> meshed(rank_of mine, Device make_device, std::string const& network, bool local,
                                                    double deadline, Meeting& meeting) {
  exchanged_addresses<Meeting> store(mine, meeting, local, deadline);
  try {
    auto device = make_device();
    auto context = std::make_shared<gloo::rendezvous::Context>(mine.rank, mine.size);
    context->setTimeout(std::max(milliseconds(deadline / times_gloo_waits), std::chrono::milliseconds(1)));  // 0: for ever
    context->connectFullMesh(store, device);
    context->setTimeout(milliseconds(deadline));
    return context;
  } catch (error const&) {
    throw;
  } catch (std::exception const& e) {  // several types of Gloo's
    std::string with;
    if (store.connecting() >= 0) with = "with rank " + std::to_string(store.connecting()) + ", which may wait for another one: ";
    throw peer_error({mine.rank, -1, "start-up"}, text("the ranks cannot be connected: ", with, std::string_view(e.what())),
                     text("Check that every rank is alive and can reach this host at ", network,
                          " (gloo_options::interface, or GLOO_SOCKET_IFNAME, chooses another network)"));
  }
}
/// Over the network that the options or the environment choose, else the one at `address`, else the one of this host's name.
template <class Meeting>
[[nodiscard]] std::shared_ptr<gloo::Context> connected(rank_of mine, std::string const& address, gloo_options const& chosen,
                                                       Meeting& meeting) {
  const error_place where{mine.rank, -1, "start-up"};
  if (mine.rank < 0 || mine.rank >= mine.size)
    throw usage_error(where, text("there is no rank ", mine.rank, " of ", mine.size), text("Ranks are numbered from 0"));
  gloo::transport::tcp::attr attributes;
  char const* const named = std::getenv("GLOO_SOCKET_IFNAME");
  attributes.iface = !chosen.interface.empty() ? chosen.interface : named != nullptr ? named : "";
  if (attributes.iface.empty()) attributes.hostname = address.empty() ? host_name() : address;
  const bool is_interface = if_nametoindex(attributes.iface.c_str()) != 0;  // one may be called 100
  if (!is_interface && net::is_numeric(attributes.iface)) {
    attributes.hostname = net::without_brackets(attributes.iface);
    attributes.iface.clear();
  }
  if (!is_interface && !attributes.iface.empty()) {
    throw usage_error(where, text("this host has no network interface called '", std::string_view(attributes.iface), "'"),
                      text("gloo_options::interface, or GLOO_SOCKET_IFNAME, is one that `ip addr` lists, or an address of it"));
  }
  return meshed(
      mine, [&] { return gloo::transport::tcp::CreateDevice(attributes); },
      attributes.iface.empty() ? attributes.hostname : attributes.iface, leads_home(attributes, chosen.deadline), chosen.deadline,
      meeting);
}
}  // namespace gloo_start
}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
