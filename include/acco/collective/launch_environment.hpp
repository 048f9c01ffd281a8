// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>

#include "acco/error.hpp"

namespace ACCO_NAMESPACE {

/// Which rank this process is, of how many.
struct rank_of {
  int rank = 0;
  int size = 1;
};

/// The environment that launchers set, under the names of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
struct launch_environment : rank_of {
  std::string address;
  std::uint16_t port = 0;

  /// Reads it. Throws `usage_error` that names what is missing or no number.
  [[nodiscard]] static launch_environment read() {
    launch_environment found;
    found.size = number("WORLD_SIZE", 1, 1 << 20);
    found.rank = number("RANK", 0, found.size - 1);
    found.address = word("MASTER_ADDR");
    found.port = static_cast<std::uint16_t>(number("MASTER_PORT", 1, 65535));
    return found;
  }

 private:
  static std::string word(char const* name) {
    char const* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
      throw usage_error(
          {}, text("the environment variable ", name, " is not set"),
          text("Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every process, or start with a launcher that does"));
    }
    return value;
  }
  static int number(char const* name, int least, int most) {
    const std::string value = word(name);
    int read = 0;
    auto const [end, code] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (code != std::errc() || end != value.data() + value.size() || read < least || read > most) {
      throw usage_error({}, text("the environment variable ", name, " is '", value, "'"),
                        text("It must be a number from ", least, " to ", most));
    }
    return read;
  }
};

}  // namespace ACCO_NAMESPACE
