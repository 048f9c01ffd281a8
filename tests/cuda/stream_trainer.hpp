// SPDX-License-Identifier: Apache-2.0
// A trainer whose work is on its stream, over the stand-in.
#pragma once

#include <cstddef>
#include <type_traits>

#include "cuda/cuda_world.hpp"

namespace stream_trainer {

/// What follows the first tensor lies at no multiple of 16 bytes.
inline acco::parameter_layout layout_of(std::size_t last) {
  acco::parameter_layout layout;
  layout.add("a", {701});
  layout.add("frozen", {33}, layout.add_group({.frozen = true}));
  layout.add("b", {last});
  return layout;
}
template <class Training>
auto micro_batch(Training& training, acco::cuda_stream& stream, int rank, std::size_t m) {
  emulated::of(stream.get()).enqueue([p = training.parameters(), g = training.gradients(), m, rank] {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto target = static_cast<float>((i + m * static_cast<std::size_t>(rank + 1)) % 7);
      g[i] = static_cast<std::remove_cvref_t<decltype(g[i])>>(static_cast<float>(g[i]) + static_cast<float>(p[i]) - target);
    }
  });
  return training.accumulated(1);
}

}  // namespace stream_trainer
