// SPDX-License-Identifier: Apache-2.0
// Component `cuda`: the memory of NVIDIA GPUs, and ranks as threads over it.
#pragma once

#include "acco/cuda/around.hpp"   // IWYU pragma: export
#include "acco/cuda/storage.hpp"  // IWYU pragma: export
#include "acco/cuda/threads.hpp"  // IWYU pragma: export
