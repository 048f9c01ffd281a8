// SPDX-License-Identifier: Apache-2.0
// Where acco/cuda.hpp was until version 0.1; will go.
#pragma once

#include "acco/cuda.hpp"  // IWYU pragma: export
