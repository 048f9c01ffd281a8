// SPDX-License-Identifier: Apache-2.0
// Games: what docs/games.md is about. Beside acco.hpp, which does not include it.
#pragma once

#include "acco/encoding/stochastic_integer.hpp"    // IWYU pragma: export
#include "acco/game/compressed_extragradient.hpp"  // IWYU pragma: export
#include "acco/game/game_layout.hpp"               // IWYU pragma: export
#include "acco/game/masha.hpp"                     // IWYU pragma: export
