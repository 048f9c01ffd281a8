// SPDX-License-Identifier: Apache-2.0
// Training in bases of few directions: what docs/galore.md is about. Beside acco.hpp, which does not include it.
#pragma once

#include "acco/projected/galore.hpp"  // IWYU pragma: export
