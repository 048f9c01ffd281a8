// SPDX-License-Identifier: Apache-2.0
// Behind cases.hpp: what tests of device memory share (cmake/shared.cmake), over the runtime's stand-in.
#pragma once

#include <acco/cuda.hpp>

#include "cuda/cuda_world.hpp"
#include "support/shared/core.hpp"

namespace shared {
inline void device() {
  engine<adamw, cuda_storage<float>, threads_backend>::with<two_phase<>, synchronous<>, two_phase<pace, int4, coded_8_4>>();
  engine<adamw, cuda_storage<bfloat16>, threads_backend>::with<two_phase<>, synchronous<>>();
  engine<adamw, cuda_storage<half>, threads_backend>::with<two_phase<>>();
  engine<adamw, worlds::managed_storage<float>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                                       two_phase<pace, int4>, two_phase<pace, int4, coded_8_4>,
                                                                       two_phase<elastic_pace>>();
  engine<adamw, worlds::managed_storage<bfloat16>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>,
                                                                          weight_prediction<>>();
}
}  // namespace shared
