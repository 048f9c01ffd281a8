// SPDX-License-Identifier: Apache-2.0
// The exchange of SparseLoCo (Sarfi, Therien, Lidin, Belilovsky, arXiv 2508.15706), with outer state that is sharded.
#pragma once

#include "acco/code/block_top.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// As the `exchange` of `local_updates{.method = local_sgd, .steps = 30}`: of every 4096 numbers of a worker's change
/// the 64 largest travel, in two bits each. Of what is lost 0.95 is added to the next change, which takes the place of
/// outer momentum. In the paper workers send all their changes to each other. Here the owner of a part sends what that
/// part has come to: of every 4096 numbers the 128 that are farthest from what workers hold, in two bits each. 0.0028
/// bytes a parameter and step, both ways together.
inline constexpr coded sparse_exchange{.gradients = with_feedback{block_top<64, 4096, 2>{}, error_feedback{.decay = 0.95}},
                                       .parameters = loosely<block_top<128, 4096, 2>>{}};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
