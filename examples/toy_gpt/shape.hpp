// SPDX-License-Identifier: Apache-2.0
// What a model is made for, and what it is fed.
#pragma once

#include <cstddef>
#include <vector>

namespace toy_gpt {

struct shape {
  std::size_t context = 64, layers = 4, width = 128, heads = 4;
  static constexpr std::size_t vocabulary = 256;  // bytes
};

/// `sequences` inputs of `context` bytes and, shifted by one, what should follow.
struct batch {
  std::size_t sequences = 0;
  std::vector<unsigned char> inputs, targets;
};

}  // namespace toy_gpt
