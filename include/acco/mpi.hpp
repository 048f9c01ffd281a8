// SPDX-License-Identifier: Apache-2.0
// Component `mpi`: ranks as processes of an MPI job.
#pragma once

#include "acco/network/mpi.hpp"  // IWYU pragma: export
