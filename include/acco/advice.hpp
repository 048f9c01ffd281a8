// SPDX-License-Identifier: Apache-2.0
// Which schedule for a link, before anything trains: what docs/links.md is about. Arithmetic; beside acco.hpp, which
// does not include it.
#pragma once

#include "acco/advice/advise.hpp"         // IWYU pragma: export
#include "acco/advice/link.hpp"           // IWYU pragma: export
#include "acco/advice/memory.hpp"         // IWYU pragma: export
#include "acco/advice/virtual_clock.hpp"  // IWYU pragma: export
#include "acco/advice/way.hpp"            // IWYU pragma: export
