// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own, gone with it.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

class scratch {
 public:
  explicit scratch(std::filesystem::path const& parent = std::filesystem::temp_directory_path()) {
    static std::atomic<int> count = 0;
    path_ = (parent / ("acco-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++))).string();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  scratch(scratch const&) = delete;
  scratch& operator=(scratch const&) = delete;
  ~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] std::string run(std::string const& name = "run") const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Where files are in memory, if this machine has such a place: for tests that make many.
inline std::filesystem::path in_memory() {
  return ::access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
}

inline std::string content(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write(std::string const& path, std::string const& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
