// SPDX-License-Identifier: Apache-2.0
// A test's own system calls, in the place of the real ones while the object lives.
#pragma once

#include <functional>
#include <utility>

#include <acco/checkpoint/disk.hpp>

class in_their_place {
 public:
  explicit in_their_place(std::function<acco::checkpoints::system_calls&(int rank)> calls)
      : before_(std::exchange(acco::checkpoints::calls_of_rank, std::move(calls))) {}
  in_their_place(in_their_place const&) = delete;
  in_their_place& operator=(in_their_place const&) = delete;
  ~in_their_place() { acco::checkpoints::calls_of_rank = std::move(before_); }

 private:
  std::function<acco::checkpoints::system_calls&(int rank)> before_;
};
