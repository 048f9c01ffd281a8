// SPDX-License-Identifier: Apache-2.0
// DeMo, decoupled momentum (Peng, Quesnelle, Kingma, arXiv 2411.19870, Algorithm 1): every rank has a momentum of its
// own, and sends its largest components, which leave it.
#pragma once

#include "acco/code/block_dct_top.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// How its rounds travel: delta <- decay delta + rate g, q = C(delta), delta <- delta - q, and the update gets the mean
/// of all q, of each component over those that sent it. With `lion{.beta1 = 0, .beta2 = 0}` that is the released code's
/// step, theta <- theta - lr sign(q); with `sgd{}`, and a code that is sent `loosely`, the plain one.
template <parameter_wire Parameters = updated_by_all, encoding Code = block_dct2_top<32, 8, mean_over::senders>>
using demo_wire = coded<with_feedback<Code, decoupled_momentum>, Parameters>;

/// As published: all ranks get all codes, 32 components of each tile of 64 by 64. A rank receives N - 1 codes.
inline constexpr demo_wire<> demo;
/// Owners get the codes of their shares, and give changes back: a rank receives as much for any N.
inline constexpr demo_wire<block_int4<>> demo_sharded;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
