// SPDX-License-Identifier: Apache-2.0
// Every schedule, travelling in full. Tests, benchmarks, the C interface and the site's reference go through this list;
// acco/make.hpp has what they become with predictors and encodings.
#pragma once

#include "acco/schedule/delayed.hpp"            // IWYU pragma: export
#include "acco/schedule/synchronous.hpp"        // IWYU pragma: export
#include "acco/schedule/two_phase.hpp"          // IWYU pragma: export
#include "acco/schedule/weight_prediction.hpp"  // IWYU pragma: export
#include "acco/type_list.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// In the order of the C interface's numbers.
using all_schedules = type_list<synchronous<>, delayed<>, weight_prediction<>, two_phase<>>;

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
