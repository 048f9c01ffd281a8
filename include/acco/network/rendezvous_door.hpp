// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens for the others.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/network/socket.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

/// The addresses. One in digits means the same on every host, so nobody dials another one; a name may mean another
/// address there than here.
inline std::vector<net::endpoint> doors_for(std::string const& address, std::uint16_t port, std::string const& listen,
                                            error_place where, net::clock::time_point until) {
  std::vector<net::endpoint> all{net::endpoint::any(AF_INET, port), net::endpoint::any(AF_INET6, port)};
  if (listen.empty()) {
    if (!net::is_numeric(address) && address != "localhost") return all;
    net::lookup here = net::look_up(address, port, until);
    if (here.code != 0) return all;
    return std::move(here.found);
  }
  if (net::is_numeric(listen)) return net::look_up(listen, port, until).found;
  net::interfaces named = net::interfaces_called(listen, port);
  if (named.found.empty()) {
    throw usage_error(
        where, text("rank 0 cannot listen at '", listen, "': no network interface of this host has that name and an address"),
        text("Give one of ", named.names, ", an address in digits, or nothing"));
  }
  return std::move(named.found);
}

/// Opens them: those that this host has, at least one.
inline std::vector<net::socket_handle> open_doors(std::string const& address, std::uint16_t port, std::string const& listen,
                                                  error_place where, net::clock::time_point until) {
  std::vector<net::endpoint> wanted = doors_for(address, port, listen, where, until);
  // A rank of this host that dialled before anybody listened may hold the port as its own for an instant.
  const auto patience = std::min(until, net::after(1));
  for (bool elsewhere = false;;) {
    std::vector<net::socket_handle> doors;
    int code = 0;
    for (net::endpoint const& each : wanted) {
      net::opened door = net::listen_at(each);
      if (door.code == 0) {
        doors.push_back(std::move(door.socket));
      } else if (code == 0 || (door.code != EADDRNOTAVAIL && door.code != EAFNOSUPPORT)) {
        code = door.code;
      }
    }
    const bool absent = code == EADDRNOTAVAIL || code == EAFNOSUPPORT;  // this host has no such address
    if (!doors.empty() && (code == 0 || absent)) return doors;
    if (doors.empty() && absent && listen.empty() && !elsewhere) {  // MASTER_ADDR leads here through somebody who translates it
      wanted = {net::endpoint::any(AF_INET, port), net::endpoint::any(AF_INET6, port)};
      elsewhere = true;
    } else if (code == EADDRINUSE && net::clock::now() < patience) {
      doors.clear();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else {
      throw usage_error(where, text("rank 0 cannot listen at port ", port, ": ", std::strerror(code)),
                        code == EADDRINUSE ? text("Another program uses it (a second process with RANK=0, an earlier run that "
                                                  "still lives, or a launcher's own store): start one rank 0 only, or choose "
                                                  "another MASTER_PORT")
                                           : text("Choose an address and a port at which this user may listen"));
    }
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail
