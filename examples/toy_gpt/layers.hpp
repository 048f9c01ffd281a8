// SPDX-License-Identifier: Apache-2.0
// The layers of a GPT, forward and backward, each written out. `rows` is batch times context: a layer treats every
// position alike. Backward functions ADD to the gradients of parameters; the gradient of an input is overwritten unless
// the comment says otherwise.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "matrix.hpp"

namespace toy_gpt {

/// e^x. For float: a polynomial without branches that the compiler vectorises; relative error below 4e-7 (1 + |x|),
/// range clamped to [-87, 87].
inline float exponential(float x) {
  constexpr float magic = 12582912.0F;  // adding it rounds to an integer
  x = x < -87.0F ? -87.0F : x;
  x = x > 87.0F ? 87.0F : x;
  const float z = x * 1.44269504F;
  const float rounded = z + magic;
  const auto exponent = std::bit_cast<std::uint32_t>(rounded) - 0x4B400000U;
  const float f = z - (rounded - magic);
  const float p =
      1.0F + f * (0.693147182F +
                  f * (0.240226462F + f * (0.0555041019F + f * (0.00961813331F + f * (0.00133336118F + f * 0.000154034764F)))));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (exponent << 23U));  // unsigned: x may be NaN
}
inline double exponential(double x) { return std::exp(x); }

// --- linear: out = in W^T + b
// ------------------------------------------------------------------------------------------------------------

template <class Real>
void linear_forward(Real const* in, Real const* weight, Real const* bias, Real* out, std::size_t rows, std::size_t in_width,
                    std::size_t out_width) {
  for (std::size_t r = 0; r < rows && bias != nullptr; ++r) std::copy_n(bias, out_width, out + r * out_width);
  multiply<Real>(form::plain, form::transposed, rows, out_width, in_width, 1, {in, in_width}, {weight, in_width},
                 bias != nullptr ? 1 : 0, {out, out_width});
}

template <class Real>
void linear_backward(Real const* in, Real const* weight, Real const* d_out, Real* d_in, Real* d_weight, Real* d_bias,
                     std::size_t rows, std::size_t in_width, std::size_t out_width) {
  multiply<Real>(form::plain, form::plain, rows, in_width, out_width, 1, {d_out, out_width}, {weight, in_width}, 0,
                 {d_in, in_width});
  multiply<Real>(form::transposed, form::plain, out_width, in_width, rows, 1, {d_out, out_width}, {in, in_width}, 1,
                 {d_weight, in_width});
  for (std::size_t r = 0; r < rows && d_bias != nullptr; ++r) {
    for (std::size_t j = 0; j < out_width; ++j) d_bias[j] += d_out[r * out_width + j];
  }
}

// --- layer normalisation: out = (in - mean) / deviation * gain + bias
// ----------------------------------------------------------------------

template <class Real>
void normalise_forward(Real const* in, Real const* gain, Real const* bias, Real* out, Real* mean, Real* inverse, std::size_t rows,
                       std::size_t width) {
  for (std::size_t r = 0; r < rows; ++r) {
    Real const* const x = in + r * width;
    Real sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (std::size_t j = 0; j < width; ++j) sum += x[j];
    const Real m = sum / static_cast<Real>(width);
#pragma omp simd reduction(+ : squares)
    for (std::size_t j = 0; j < width; ++j) squares += (x[j] - m) * (x[j] - m);
    const Real s = 1 / std::sqrt(squares / static_cast<Real>(width) + Real(1e-5));
    for (std::size_t j = 0; j < width; ++j) out[r * width + j] = (x[j] - m) * s * gain[j] + bias[j];
    mean[r] = m;
    inverse[r] = s;
  }
}

/// Adds to d_in: the residual stream joins here.
template <class Real>
void normalise_backward(Real const* in, Real const* gain, Real const* mean, Real const* inverse, Real const* d_out, Real* d_in,
                        Real* d_gain, Real* d_bias, std::size_t rows, std::size_t width) {
  for (std::size_t r = 0; r < rows; ++r) {
    Real const* const x = in + r * width;
    Real const* const d = d_out + r * width;
    const Real m = mean[r], s = inverse[r];
    Real sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (std::size_t j = 0; j < width; ++j) {
      sum += d[j] * gain[j];
      along += d[j] * gain[j] * (x[j] - m) * s;
    }
    sum /= static_cast<Real>(width);
    along /= static_cast<Real>(width);
    for (std::size_t j = 0; j < width; ++j) {
      const Real normal = (x[j] - m) * s;
      d_gain[j] += d[j] * normal;
      d_bias[j] += d[j];
      d_in[r * width + j] += s * (d[j] * gain[j] - sum - normal * along);
    }
  }
}

// --- GELU, the tanh form of GPT-2: x times the logistic function of 2 sqrt(2/pi) (x + 0.044715 x^3)
// -----------------------------------------

template <class Real>
void gelu_forward(Real const* in, Real* gate, Real* out, std::size_t count) {
  constexpr Real two_root = Real(1.5957691216057308);
  for (std::size_t i = 0; i < count; ++i) {
    const Real x = in[i];
    const Real g = 1 / (1 + exponential(-two_root * (x + Real(0.044715) * x * x * x)));
    gate[i] = g;
    out[i] = x * g;
  }
}

/// In place: d becomes the gradient of the input.
template <class Real>
void gelu_backward(Real const* in, Real const* gate, Real* d, std::size_t count) {
  constexpr Real two_root = Real(1.5957691216057308);
  for (std::size_t i = 0; i < count; ++i) {
    const Real x = in[i], g = gate[i];
    d[i] *= g + x * g * (1 - g) * two_root * (1 + 3 * Real(0.044715) * x * x);
  }
}

// --- causal self-attention -------------------------------------------------------------------------------------------
// qkv has, in each row, queries, keys and values of all heads (3 width numbers); share is batch x heads x context x
// context.

template <class Real>
void attention_forward(Real const* qkv, Real* share, Real* out, std::size_t batch, std::size_t context, std::size_t width,
                       std::size_t heads) {
  const std::size_t size = width / heads;
  const Real scale = 1 / std::sqrt(static_cast<Real>(size));
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t h = 0; h < heads; ++h) {
      Real const* const q = qkv + b * context * 3 * width + h * size;
      Real* const s = share + (b * heads + h) * context * context;
      multiply<Real>(form::plain, form::transposed, context, context, size, scale, {q, 3 * width}, {q + width, 3 * width}, 0,
                     {s, context});
      for (std::size_t i = 0; i < context; ++i) {  // softmax over the past and the present
        Real* const row = s + i * context;
        Real largest = row[0], sum = 0;
#pragma omp simd reduction(max : largest)
        for (std::size_t j = 0; j <= i; ++j) largest = row[j] > largest ? row[j] : largest;
#pragma omp simd reduction(+ : sum)
        for (std::size_t j = 0; j <= i; ++j) {
          row[j] = exponential(row[j] - largest);
          sum += row[j];
        }
        const Real factor = 1 / sum;
        for (std::size_t j = 0; j <= i; ++j) row[j] *= factor;
        for (std::size_t j = i + 1; j < context; ++j) row[j] = 0;
      }
      multiply<Real>(form::plain, form::plain, context, size, context, 1, {s, context}, {q + 2 * width, 3 * width}, 0,
                     {out + b * context * width + h * size, width});
    }
  }
}

/// `d_share` is scratch of context x context.
template <class Real>
void attention_backward(Real const* qkv, Real const* share, Real const* d_out, Real* d_qkv, Real* d_share, std::size_t batch,
                        std::size_t context, std::size_t width, std::size_t heads) {
  const std::size_t size = width / heads;
  const Real scale = 1 / std::sqrt(static_cast<Real>(size));
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t at = b * context * 3 * width + h * size;
      Real const* const q = qkv + at;
      Real* const d_q = d_qkv + at;
      Real const* const s = share + (b * heads + h) * context * context;
      Real const* const d = d_out + b * context * width + h * size;
      multiply<Real>(form::plain, form::transposed, context, context, size, 1, {d, width}, {q + 2 * width, 3 * width}, 0,
                     {d_share, context});
      multiply<Real>(form::transposed, form::plain, context, size, context, 1, {s, context}, {d, width}, 0,
                     {d_q + 2 * width, 3 * width});
      for (std::size_t i = 0; i < context; ++i) {  // through the softmax; zero where the future is
        Real const* const row = s + i * context;
        Real* const d_row = d_share + i * context;
        Real along = 0;
#pragma omp simd reduction(+ : along)
        for (std::size_t j = 0; j < context; ++j) along += row[j] * d_row[j];
        for (std::size_t j = 0; j < context; ++j) d_row[j] = row[j] * (d_row[j] - along);
      }
      multiply<Real>(form::plain, form::plain, context, size, context, scale, {d_share, context}, {q + width, 3 * width}, 0,
                     {d_q, 3 * width});
      multiply<Real>(form::transposed, form::plain, context, size, context, scale, {d_share, context}, {q, 3 * width}, 0,
                     {d_q + width, 3 * width});
    }
  }
}

// --- cross-entropy: turns logits into their gradient, in place; returns the sum of the losses
// ---------------------------------------------------

template <class Real>
double cross_entropy(Real* logits, std::span<unsigned char const> targets, std::size_t vocabulary, Real gradient_scale) {
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    Real* const row = logits + r * vocabulary;
    Real largest = row[0], sum = 0;
#pragma omp simd reduction(max : largest)
    for (std::size_t j = 0; j < vocabulary; ++j) largest = row[j] > largest ? row[j] : largest;
    const Real target = row[targets[r]];
#pragma omp simd reduction(+ : sum)
    for (std::size_t j = 0; j < vocabulary; ++j) {
      row[j] = exponential(row[j] - largest);
      sum += row[j];
    }
    loss += static_cast<double>(std::log(sum) + largest - target);
    const Real factor = gradient_scale / sum;
    for (std::size_t j = 0; j < vocabulary; ++j) row[j] *= factor;
    row[targets[r]] -= gradient_scale;
  }
  return loss;
}

}  // namespace toy_gpt
