// SPDX-License-Identifier: Apache-2.0
// The few calls of cuBLASLt that examples/toy_gpt makes, as plain loops on the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda_runtime_api.h"

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F };
enum cudaDataType { CUDA_R_32F };
enum cublasLtMatmulDescAttributes_t { CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB };
struct emulated_product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct emulated_layout {
  std::uint64_t rows, columns;
  std::int64_t stride;
};
using cublasLtHandle_t = void*;
using cublasLtMatmulDesc_t = emulated_product*;
using cublasLtMatrixLayout_t = emulated_layout*;

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t, cudaDataType) {
  *to = new emulated_product;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t which) {
  delete which;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t which, cublasLtMatmulDescAttributes_t what,
                                                     void const* value, std::size_t) {
  std::memcpy(what == CUBLASLT_MATMUL_DESC_TRANSA ? &which->a : &which->b, value, sizeof(cublasOperation_t));
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t stride) {
  *to = new emulated_layout{rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t which) {
  delete which;
  return CUBLAS_STATUS_SUCCESS;
}
/// d = alpha op(a) op(b) + beta c, columns first.
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, void const* alpha, void const* a,
                                     cublasLtMatrixLayout_t a_layout, void const* b, cublasLtMatrixLayout_t b_layout,
                                     void const* beta, void const* c, cublasLtMatrixLayout_t, void* d,
                                     cublasLtMatrixLayout_t d_layout, void const*, void*, std::size_t, cudaStream_t stream) {
  emulated::of(stream).enqueue([=, how = *product, la = *a_layout, lb = *b_layout, ld = *d_layout,
                                scale = *static_cast<float const*>(alpha), keep = *static_cast<float const*>(beta)] {
    const auto at = [](void const* from, emulated_layout const& layout, cublasOperation_t op, std::uint64_t i, std::uint64_t j) {
      const std::uint64_t row = op == CUBLAS_OP_N ? i : j, column = op == CUBLAS_OP_N ? j : i;
      return static_cast<float const*>(from)[column * static_cast<std::uint64_t>(layout.stride) + row];
    };
    const std::uint64_t depth = how.a == CUBLAS_OP_N ? la.columns : la.rows;
    for (std::uint64_t j = 0; j < ld.columns; ++j) {
      for (std::uint64_t i = 0; i < ld.rows; ++i) {
        float sum = 0;
        for (std::uint64_t k = 0; k < depth; ++k) sum += at(a, la, how.a, i, k) * at(b, lb, how.b, k, j);
        const std::uint64_t index = j * static_cast<std::uint64_t>(ld.stride) + i;
        static_cast<float*>(d)[index] = scale * sum + (keep == 0 ? 0 : keep * static_cast<float const*>(c)[index]);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
