// SPDX-License-Identifier: Apache-2.0
// Worlds of two levels: fast groups of ranks, and slow links between them. Beside acco.hpp, which does not include it.
#pragma once

#include "acco/collective/make_hierarchical.hpp"  // IWYU pragma: export
