// SPDX-License-Identifier: Apache-2.0
// Matrix products: OpenBLAS (through CBLAS) where it was found, plain blocked loops otherwise. Row-major throughout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#if defined(TOY_GPT_OPENBLAS)
#include <cblas.h>
#endif

namespace toy_gpt {

enum class form { plain, transposed };

/// A matrix inside a larger row-major array: rows are `stride` numbers apart.
template <class Real>
struct matrix {
  Real* data;
  std::size_t stride;
};

/// In this thread numbers below 1e-38 are zeros: a model that diverges makes many, and processors are a hundred times
/// slower with them.
inline void flush_subnormal_numbers() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
}
/// One thread per rank: the ranks already fill the cores.
inline void use_one_thread_for_products() {
#if defined(TOY_GPT_OPENBLAS)
  openblas_set_num_threads(1);
#endif
}

inline std::string name_of_products() {
#if defined(TOY_GPT_OPENBLAS)
  const std::string kernels = openblas_get_corename();
  std::string
      // an OpenBLAS that is older than the processor uses the kernels of the oldest, at half of the speed or less
      better;
#if defined(__x86_64__) && defined(__GNUC__)
  if (kernels == "Prescott" || kernels == "Core2") {
    better = __builtin_cpu_supports("avx512vl") ? "SkylakeX" : __builtin_cpu_supports("avx2") ? "Haswell" : "";
  }
#endif
  if (!better.empty()) return "OpenBLAS, which does not know this processor: faster with OPENBLAS_CORETYPE=" + better;
  return "OpenBLAS, one thread a rank";
#else
  return "plain loops (install OpenBLAS for more speed)";
#endif
}

/// c (m x n) = a (m x k, or its transpose) b (k x n, or its transpose) * scale + c * keep, in plain loops that the
/// compiler vectorises over n.
template <class Real>
void multiply_plainly(form a_form, form b_form, std::size_t m, std::size_t n, std::size_t k, Real scale, matrix<Real const> a,
                      matrix<Real const> b, Real keep, matrix<Real> c) {
  constexpr std::size_t tall = 4, wide = 32, deep = 128;
  static thread_local std::vector<Real> panel;  // a block of b, in the order in which it is used
  panel.resize(deep * wide);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) c.data[i * c.stride + j] = keep == Real(0) ? Real(0) : c.data[i * c.stride + j] * keep;
  }
  for (std::size_t p0 = 0; p0 < k; p0 += deep) {
    const std::size_t depth = std::min(deep, k - p0);
    for (std::size_t j0 = 0; j0 < n; j0 += wide) {
      const std::size_t width = std::min(wide, n - j0);
      for (std::size_t p = 0; p < depth; ++p) {
        for (std::size_t j = 0; j < wide; ++j) {
          const std::size_t row = p0 + p;
          const std::size_t column = j0 + j;
          panel[p * wide + j] = j >= width              ? Real(0)
                                : b_form == form::plain ? b.data[row * b.stride + column]
                                                        : b.data[column * b.stride + row];
        }
      }
      for (std::size_t i0 = 0; i0 < m; i0 += tall) {
        const std::size_t height = std::min(tall, m - i0);
        Real sums[tall][wide] = {};
        for (std::size_t p = 0; p < depth; ++p) {
          Real const* const row = panel.data() + p * wide;
          for (std::size_t i = 0; i < height; ++i) {
            const Real factor =
                a_form == form::plain ? a.data[(i0 + i) * a.stride + p0 + p] : a.data[(p0 + p) * a.stride + i0 + i];
            for (std::size_t j = 0; j < wide; ++j) sums[i][j] += factor * row[j];
          }
        }
        for (std::size_t i = 0; i < height; ++i) {
          for (std::size_t j = 0; j < width; ++j) c.data[(i0 + i) * c.stride + j0 + j] += scale * sums[i][j];
        }
      }
    }
  }
}

/// The same through OpenBLAS where it was found.
template <class Real>
void multiply(form a_form, form b_form, std::size_t m, std::size_t n, std::size_t k, Real scale, matrix<Real const> a,
              matrix<Real const> b, Real keep, matrix<Real> c) {
#if defined(TOY_GPT_OPENBLAS)
  const auto op = [](form f) { return f == form::plain ? CblasNoTrans : CblasTrans; };
  const auto whole = [](std::size_t x) { return static_cast<int>(x); };
  if constexpr (sizeof(Real) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, op(a_form), op(b_form), whole(m), whole(n), whole(k), scale, a.data, whole(a.stride), b.data,
                whole(b.stride), keep, c.data, whole(c.stride));
  } else {
    cblas_dgemm(CblasRowMajor, op(a_form), op(b_form), whole(m), whole(n), whole(k), scale, a.data, whole(a.stride), b.data,
                whole(b.stride), keep, c.data, whole(c.stride));
  }
#else
  multiply_plainly(a_form, b_form, m, n, k, scale, a, b, keep, c);
#endif
}

}  // namespace toy_gpt
