// SPDX-License-Identifier: Apache-2.0
// Everything that needs only the standard library.
#pragma once

#include "acco/any_optimizer.hpp"                    // IWYU pragma: export
#include "acco/bfloat16.hpp"                         // IWYU pragma: export
#include "acco/code/bfloat16_wire.hpp"               // IWYU pragma: export
#include "acco/code/block_gauss.hpp"                 // IWYU pragma: export
#include "acco/code/block_integer.hpp"               // IWYU pragma: export
#include "acco/code/block_sign.hpp"                  // IWYU pragma: export
#include "acco/code/block_stat2.hpp"                 // IWYU pragma: export
#include "acco/code/block_ternary.hpp"               // IWYU pragma: export
#include "acco/code/demo.hpp"                        // IWYU pragma: export
#include "acco/code/encoding.hpp"                    // IWYU pragma: export
#include "acco/code/rotated.hpp"                     // IWYU pragma: export
#include "acco/collective/around/debug.hpp"          // IWYU pragma: export
#include "acco/collective/around/rate_limited.hpp"   // IWYU pragma: export
#include "acco/collective/around/traced.hpp"         // IWYU pragma: export
#include "acco/collective/backend.hpp"               // IWYU pragma: export
#include "acco/collective/mock/backend.hpp"          // IWYU pragma: export
#include "acco/collective/redistribution.hpp"        // IWYU pragma: export
#include "acco/collective/solo.hpp"                  // IWYU pragma: export
#include "acco/collective/threads.hpp"               // IWYU pragma: export
#include "acco/error.hpp"                            // IWYU pragma: export
#include "acco/layout/distribution.hpp"              // IWYU pragma: export
#include "acco/layout/parameter_layout.hpp"          // IWYU pragma: export
#include "acco/layout/partition.hpp"                 // IWYU pragma: export
#include "acco/layout/update_regions.hpp"            // IWYU pragma: export
#include "acco/observe/memory_table.hpp"             // IWYU pragma: export
#include "acco/observe/round_report.hpp"             // IWYU pragma: export
#include "acco/observe/trace.hpp"                    // IWYU pragma: export
#include "acco/optimizer.hpp"                        // IWYU pragma: export
#include "acco/options.hpp"                          // IWYU pragma: export
#include "acco/rule/all.hpp"                         // IWYU pragma: export
#include "acco/rule/check.hpp"                       // IWYU pragma: export
#include "acco/rule/muon.hpp"                        // IWYU pragma: export
#include "acco/rule/rules.hpp"                       // IWYU pragma: export
#include "acco/rule/update_rule.hpp"                 // IWYU pragma: export
#include "acco/schedule/all.hpp"                     // IWYU pragma: export
#include "acco/schedule/any_pace.hpp"                // IWYU pragma: export
#include "acco/schedule/auto_pace.hpp"               // IWYU pragma: export
#include "acco/schedule/learning_rate.hpp"           // IWYU pragma: export
#include "acco/schedule/learning_rate_function.hpp"  // IWYU pragma: export
#include "acco/schedule/pace.hpp"                    // IWYU pragma: export
#include "acco/schedule/schedule.hpp"                // IWYU pragma: export
#include "acco/storage/host.hpp"                     // IWYU pragma: export
#include "acco/type_list.hpp"                        // IWYU pragma: export
#include "acco/version.hpp"                          // IWYU pragma: export
