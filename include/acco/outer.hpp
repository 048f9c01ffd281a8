// SPDX-License-Identifier: Apache-2.0
// Local updates: what docs/local_updates.md is about. Beside acco.hpp, which does not include it.
#pragma once

#include "acco/outer/exchange_settings.hpp"  // IWYU pragma: export
#include "acco/outer/local_updates.hpp"      // IWYU pragma: export
#include "acco/outer/outer_rules.hpp"        // IWYU pragma: export
#include "acco/outer/sparse_exchange.hpp"    // IWYU pragma: export
