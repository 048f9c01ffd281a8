// SPDX-License-Identifier: Apache-2.0
// Where acco/mpi.hpp was until version 0.1; will go.
#pragma once

#include "acco/mpi.hpp"  // IWYU pragma: export
