// SPDX-License-Identifier: Apache-2.0
// Where acco/nccl.hpp was until version 0.1; will go.
#pragma once

#include "acco/nccl.hpp"  // IWYU pragma: export
