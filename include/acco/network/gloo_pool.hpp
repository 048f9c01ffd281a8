// SPDX-License-Identifier: Apache-2.0
// Several connections to each rank over a long link: one TCP connection has as much under way as its buffers hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/error.hpp"
#include "acco/network/connections.hpp"
#include "acco/network/gloo_mesh.hpp"
#include "acco/network/gloo_start.hpp"
#include "acco/network/gloo_transport.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/message_steps.hpp"
#include "acco/network/message_window.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::gloo_pool {

inline constexpr double long_round_trip = 0.005;  // seconds

/// Connections to each other rank over a round trip of so many seconds: one in each direction for each 10 ms, because
/// Linux gives one about 3 MiB of buffers, so some 2.4 Gbit/s at 10 ms; one below 5 ms; 256 to all of them together.
[[nodiscard]] inline int connections_for(double round_trip, int ranks) noexcept {
  if (round_trip < long_round_trip) return 1;
  const int most = std::clamp(256 / std::max(ranks - 1, 1), 1, 32);
  return std::min(2 + 2 * static_cast<int>(std::min(round_trip / 0.01, 15.0)), most);
}

inline constexpr int most_connections = 64;

/// What all ranks want: as many connections as the longest round trip asks for, or the most that a rank has chosen; and
/// whether messages carry checksums.
struct agreement {
  int connections;
  message_sum sum;
};
template <class Backend>
[[nodiscard]] agreement agreed(Backend const& world, host_queue& queue, double round_trip, gloo_options const& chosen) {
  const auto piece_of = [&](std::size_t bytes) {
    return message_window::piece_bytes(bytes, gloo_start::usual_piece, world.size());
  };
  const double mine[] = {round_trip, static_cast<double>(chosen.connections), static_cast<double>(chosen.checksums),
                         chosen.sum == nullptr ? 0.0 : 1.0, static_cast<double>(piece_of(chosen.piece_bytes))};
  std::vector<double> all(std::size(mine) * static_cast<std::size_t>(world.size()));
  world.all_gather(queue, sharded(std::span<double const>(mine)), replicated(std::span(all)));
  queue.wait();
  double longest = 0;
  int most = 0, without = -1;
  auto sums = checksums::none;
  for (std::size_t k = 0; k < all.size(); k += std::size(mine)) {
    const int wanted = static_cast<int>(all[k + 1]), rank = static_cast<int>(k / std::size(mine));
    if (wanted < 0 || wanted > most_connections) {
      throw usage_error({world.rank(), -1, "start-up"}, text("gloo_options::connections is ", wanted, " on rank ", rank),
                        text("Give 1 to ", most_connections, ", or 0: as the round trip asks"), rank);
    }
    if (all[k + 4] != mine[4]) {
      throw mismatch_error({world.rank(), -1, "start-up"},
                           text("messages have pieces of ", piece_of(chosen.piece_bytes), " bytes here, and of ",
                                static_cast<std::size_t>(all[k + 4]), " on rank ", rank),
                           text("Give gloo_options::piece_bytes the same value on every rank, or leave it 0"), rank);
    }
    longest = std::max(longest, all[k]);
    most = std::max(most, wanted);
    sums = std::max(sums, static_cast<checksums>(static_cast<int>(all[k + 2])));
    if (all[k + 3] == 0) without = rank;
  }
  const int connections = most > 0 ? most : connections_for(longest, world.size());
  if (sums == checksums::always) return {connections, required_message_sum(world.rank(), chosen.sum, without)};
  return {connections, sums == checksums::long_links && longest >= long_round_trip && without < 0 ? chosen.sum : nullptr};
}

/// Opens as many connections; which checksums messages have. Collective over `world`, before anything else travels over
/// it; blocks at most `deadline` seconds for any rank. Throws `peer_error`, or on every rank `usage_error`. `all`: what
/// `world` is made of.
template <class Backend, class Transport>
[[nodiscard]] message_sum widen(Backend const& world, connections<Transport>& all, gloo_options const& chosen, double deadline) {
  gloo_transport& transport = all.transport();
  auto queue = make_queue<host_queue>(world);
  queue.place = {world.rank(), -1, "start-up"};
  queue.deadline = deadline;
  const auto [wanted, sum] = agreed(world, queue, transport.round_trip(), chosen);
  if (wanted <= 1 || world.size() == 1) return sum;
  const auto ranks = static_cast<std::size_t>(world.size());

  const std::size_t one = gloo_start::address_size(), more = static_cast<std::size_t>(wanted) - 1;
  std::vector<std::byte> out(one * more * ranks), in(out.size());
  const auto at = [&](std::vector<std::byte>& of, int peer, std::size_t k) {
    return of.data() + (static_cast<std::size_t>(peer) * more + k) * one;
  };
  std::vector<std::shared_ptr<gloo_start::mesh_context>> made;
  const auto look = [&](int first) { all.require(queue.place, "start-up", [&](int peer) { return peer >= first; }); };
  int with = -1;
  try {
    for (std::size_t k = 0; k < more; ++k) {
      made.push_back(
          std::make_shared<gloo_start::mesh_context>(rank_of{world.rank(), world.size()}, transport.device(), deadline));
      made.back()->write_addresses([&](int its) { return at(out, its, k); });
    }
    world.all_to_all(queue, out, in);
    queue.wait();
    gloo_start::connect(std::span(made), [&](std::size_t k, int its) { return at(in, its, k); }, look, with);
  } catch (error const&) {
    throw;
  } catch (std::exception const& e) {  // several types of Gloo's
    if (with >= 0) gloo_start::look_for_a_second([&] { look(0); });
    all.abort(e.what(), with);
    throw peer_error({world.rank(), -1, "start-up"},
                     text("the ranks cannot be connected: ", wanted,
                          " times each: ", with < 0 ? text() : text("with rank ", with, ", which may wait for another one: "),
                          std::string_view(e.what())),
                     text("Check that every rank is alive, and how many files a process may open (ulimit -n); or choose fewer "
                          "(gloo_options::connections)"),
                     with);
  }
  world.all_to_all(queue, out, in);  // who is connected, and ends in peace, is not lost to those that are not yet
  queue.wait();
  for (auto& each : made) transport.add(std::move(each));
  const int in_use = std::min(world.size() - 1, most_peers) * ((wanted + 1) / 2);  // at a time, in one direction
  transport.pace(message_window::pace(transport.round_trip()) / in_use);
  return sum;
}

}  // namespace ACCO_SIMD_NAMESPACE::gloo_pool

#include "acco/restore_macros.hpp"
