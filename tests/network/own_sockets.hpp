// SPDX-License-Identifier: Apache-2.0
// The sockets of this process, and what the kernel tells of them.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <sys/socket.h>

namespace own {

[[nodiscard]] inline std::vector<int> sockets() {
  std::vector<int> result;
  for (auto const& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    if (std::filesystem::read_symlink(each.path(), closed).string().starts_with("socket:"))
      result.push_back(std::stoi(each.path().filename().string()));
  }
  return result;
}

/// Bytes a second.
[[nodiscard]] inline unsigned pace_of(int socket) {
  unsigned result = 0;
  socklen_t length = sizeof result;
  return getsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &result, &length) == 0 ? result : 0;
}

}  // namespace own
