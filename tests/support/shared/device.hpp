// SPDX-License-Identifier: Apache-2.0
// Behind cases.hpp: what tests of device memory share (cmake/shared.cmake), over the runtime's stand-in.
#pragma once

#include <acco/cuda.hpp>

#include "support/shared/core.hpp"

namespace shared {
inline void device() {
  engine<adamw, cuda_storage<float>, threads_backend>::with<two_phase<>, synchronous<>, two_phase<pace, int4, coded_8_4>>();
  engine<adamw, cuda_storage<bfloat16>, threads_backend>::with<two_phase<>, synchronous<>>();
  engine<adamw, cuda_storage<half>, threads_backend>::with<two_phase<>>();
}
}  // namespace shared
