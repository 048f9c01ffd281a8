// SPDX-License-Identifier: Apache-2.0
// The global gradient norm, and the scale by which clipping multiplies the gradient.
#pragma once

#include "acco/number/real.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Norm of the mean gradient, from the sum over all ranks of the squares of the *summed* gradient, each trainable
/// element counted once.
constexpr double gradient_norm(double sum_of_squares, double weight) { return square_root(sum_of_squares) / weight; }

/// min(1, clip_norm / norm); 1 where clip_norm is 0 (no clipping).
constexpr double clip_scale(double norm, double clip_norm) { return clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1.0; }

}  // namespace ACCO_SIMD_NAMESPACE
