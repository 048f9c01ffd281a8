// SPDX-License-Identifier: Apache-2.0
// Component `nccl`: ranks as processes (or threads) with a GPU each.
#pragma once

#include "acco/cuda/nccl.hpp"         // IWYU pragma: export
#include "acco/cuda/nccl_memory.hpp"  // IWYU pragma: export
