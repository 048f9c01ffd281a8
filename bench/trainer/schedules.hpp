// SPDX-License-Identifier: Apache-2.0
// Which of acco's named schedules the programs compile.
#pragma once

#include <acco/schedule/named.hpp>

namespace toy_gpt {

/// Every program, over every storage.
using shared_engine = acco::without<acco::named_schedules, "two_phase+bfloat16">;
/// toy_gpt_family: those whose rules are engines of their own, and those with feedback.
using of_family = acco::together<acco::decorated_schedules, acco::feedback_schedules>;
/// toy_gpt_family, with muon.
using with_muon = acco::only<acco::named_schedules, "synchronous", "delayed", "two_phase">;

}  // namespace toy_gpt
