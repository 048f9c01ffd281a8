// SPDX-License-Identifier: Apache-2.0
// Ports for rank 0 of a test, which nobody else is given until this process and its children have ended. Each is held
// by two sockets. One is bound for TCP and does not listen, with SO_REUSEADDR: rank 0, which sets that too, can listen
// there, and the system gives the port to no connection and to no bind that asks for any. One is bound for UDP,
// without: no other test of this project takes the port.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/// Whether the port is held now. The sockets are never closed, and stay open in what this process starts.
inline bool hold_port(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  const auto bound = [&](int one) { return bind(one, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0; };
  const int lock = socket(AF_INET, SOCK_DGRAM, 0), holder = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bound(lock) && bound(holder)) return true;
  close(lock);
  close(holder);
  return false;
}
/// Below the range from which systems give ports away by themselves (32768 and above): old connections are not in the
/// way.
inline std::uint16_t free_port() {
  static std::atomic<std::uint32_t> next = static_cast<std::uint32_t>(getpid()) * 61U;  // where the search begins
  for (int tries = 0; tries < 10000; ++tries) {
    const auto port = static_cast<std::uint16_t>(10000 + next++ % 10000);
    if (hold_port(port)) return port;
  }
  throw std::runtime_error("no port from 10000 to 19999 is free");
}
