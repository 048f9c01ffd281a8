// SPDX-License-Identifier: Apache-2.0
// Data that lies beside the tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

/// A file or folder, by its path in `tests`. Not found by __FILE__: an object that comes out of a compiler cache may
/// have been compiled in another checkout, and name that one's.
inline std::filesystem::path test_data(std::string const& path) {
  char const* const tests = std::getenv("ACCO_TESTS");
  if (tests == nullptr) throw std::runtime_error("set ACCO_TESTS to the folder `tests` of the sources, as ctest does");
  return std::filesystem::path(tests) / path;
}
