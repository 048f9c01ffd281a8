// SPDX-License-Identifier: Apache-2.0
// Ports for rank 0 of a test, below the range from which systems give ports away by themselves (32768 and above): no connection
// and no Gloo of another test takes one between the question and its use.
#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

inline std::uint16_t free_port() {
  static auto next = static_cast<std::uint32_t>(getpid()) * 61U;
  for (int tries = 0; tries < 10000; ++tries) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(10000 + next++ % 10000));
    const int one = socket(AF_INET, SOCK_STREAM, 0);
    const bool is_free = bind(one, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(one, 1) == 0;
    close(one);
    if (is_free) return ntohs(address.sin_port);
  }
  return 0;
}
