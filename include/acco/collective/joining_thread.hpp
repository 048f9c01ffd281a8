// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A thread whose destructor waits for its end: std::jthread, which libc++ has from version 20 on.
class joining_thread : std::thread {
 public:
  using std::thread::thread;
  joining_thread(joining_thread&&) = default;
  ~joining_thread() {
    if (joinable()) join();
  }
};

}  // namespace ACCO_SIMD_NAMESPACE
