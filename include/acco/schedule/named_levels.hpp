// SPDX-License-Identifier: Apache-2.0
// Schedules by name whose estimates travel in codes of few levels: for programs that ask for them.
#pragma once

#include "acco/code/block_gauss.hpp"
#include "acco/code/block_sign.hpp"
#include "acco/code/block_stat2.hpp"
#include "acco/code/block_ternary.hpp"
#include "acco/schedule/all.hpp"
#include "acco/schedule/any_pace.hpp"
#include "acco/type_list.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Beside `named_schedules`, which every program compiles that names none:
/// `acco::make<acco::together<acco::named_schedules, acco::level_schedules>>("two_phase+gauss2", ...)`.
using level_schedules = type_list<named<"two_phase+gauss4", two_phase<any_pace, block_gauss4>>,    //
                                  named<"two_phase+gauss3", two_phase<any_pace, block_gauss3>>,    //
                                  named<"two_phase+gauss2", two_phase<any_pace, block_gauss2>>,    //
                                  named<"two_phase+stat2", two_phase<any_pace, block_stat2>>,      //
                                  named<"two_phase+ternary", two_phase<any_pace, block_ternary>>,  //
                                  named<"two_phase+sign", two_phase<any_pace, block_sign>>>;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
