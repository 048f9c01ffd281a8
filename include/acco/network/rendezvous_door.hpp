// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens for the others.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/socket.h>

#include "acco/error.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

/// Ports that starts of this process without a name keep when all ranks have come. Any thread.
class kept_port {
 public:
  using doors = std::vector<net::socket_handle>;
  /// Until what is returned is destroyed, or this process listens there again. A forked child keeps none.
  [[nodiscard]] static std::shared_ptr<void> keep(std::uint16_t port, doors open) {
    for (net::socket_handle const& each : open) {
      const int off = 0;
      shutdown(each.get(), SHUT_RD);  // it listens no longer, and stays bound
      setsockopt(each.get(), SOL_SOCKET, SO_REUSEADDR, &off, sizeof off);
    }
    auto kept = std::make_shared<doors>(std::move(open));
    all& here = of_this_process();
    const std::lock_guard lock(here.mutex);
    std::erase_if(here.ports, [](auto const& each) { return each.second.expired(); });
    here.ports.emplace_back(port, kept);
    return kept;
  }
  static void give_up(std::uint16_t port) {
    all& here = of_this_process();
    const std::lock_guard lock(here.mutex);
    for (auto const& each : here.ports) {
      if (each.first == port) close(each.second);
    }
  }

 private:
  struct all {
    std::mutex mutex;
    std::vector<std::pair<std::uint16_t, std::weak_ptr<doors>>> ports;
  };
  static all& of_this_process() {
    static all here;
    [[maybe_unused]] static const int registered = pthread_atfork([] { here.mutex.lock(); }, [] { here.mutex.unlock(); },
                                                                  [] {
                                                                    for (auto const& each : here.ports) close(each.second);
                                                                    here.mutex.unlock();
                                                                  });
    return here;
  }
  static void close(std::weak_ptr<doors> const& which) {
    if (const auto kept = which.lock()) kept->clear();
  }
};

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
  kept_port::give_up(port);
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
                        code == EADDRINUSE
                            ? text("Another program uses it (another job, an earlier run that still lives, a second "
                                   "process with RANK=0, or a launcher's own store): end all ranks of this job, "
                                   "some of which may have met the other one's, and choose another MASTER_PORT")
                            : text("Choose an address and a port at which this user may listen"));
    }
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail

#include "acco/restore_macros.hpp"
