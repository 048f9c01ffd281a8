// SPDX-License-Identifier: Apache-2.0
// The list of tests that every backend passes, on device memory.
#include "cuda/cuda_world.hpp"

using this_world = worlds::cuda;
#include "conformance/cases.hpp"
