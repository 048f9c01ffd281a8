// SPDX-License-Identifier: Apache-2.0
// A load like a training's: matrix products, by cuBLASLt where it is linked (ACCO_BENCH_CUBLASLT), else by a kernel of
// 30 lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#if defined(ACCO_BENCH_CUBLASLT)
#include <cublasLt.h>
#endif

#include "measure.hpp"

namespace bench {

/// c = a b for square matrices of floats: a thread has 4 x 4 sums in registers, neighbours share what they load in the
/// cache.
struct own_product {
  static constexpr std::size_t tile = 4;
  float const *a, *b;
  float* c;
  std::size_t width;  // a multiple of the tile
  __device__ void operator()(std::size_t i) const {
    const std::size_t tiles = width / tile, row = i / tiles * tile, column = i % tiles * tile;
    float sums[tile][tile] = {};
    for (std::size_t k = 0; k < width; ++k) {
      float right[tile];
      for (std::size_t x = 0; x < tile; ++x) right[x] = b[k * width + column + x];
      for (std::size_t y = 0; y < tile; ++y) {
        const float left = a[(row + y) * width + k];
        for (std::size_t x = 0; x < tile; ++x) sums[y][x] += left * right[x];
      }
    }
    for (std::size_t y = 0; y < tile; ++y) {
      for (std::size_t x = 0; x < tile; ++x) c[(row + y) * width + column + x] = sums[y][x];
    }
  }
};

/// Products of a rank, on its stream.
class products {
 public:
#if defined(ACCO_BENCH_CUBLASLT)
  static constexpr char const* name = "cuBLASLt";
  static constexpr std::size_t width = stand_in ? 16 : 4096;
#else
  static constexpr char const* name = "own kernel";
  static constexpr std::size_t width = stand_in ? 16 : 1024;
#endif

  explicit products(cudaStream_t stream)
      : stream_(stream), numbers_(acco::default_cuda_memory(), stream, 3 * width * width * sizeof(number)) {
    launch(stream, 3 * width * width, fill<number>{numbers_.as<number>()});
#if defined(ACCO_BENCH_CUBLASLT)
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    check(cublasLtMatrixLayoutCreate(&square_, element, width, width, static_cast<std::int64_t>(width)),
          "cublasLtMatrixLayoutCreate");
#endif
  }
  products(products const&) = delete;
  products& operator=(products const&) = delete;
  ~products() {
    (void)cudaStreamSynchronize(stream_);
#if defined(ACCO_BENCH_CUBLASLT)
    (void)cublasLtMatrixLayoutDestroy(square_);
    (void)cublasLtMatmulDescDestroy(product_);
    (void)cublasLtDestroy(handle_);
#endif
  }

  void enqueue() {
    number* const a = numbers_.as<number>();
    number *const b = a + width * width, *const c = b + width * width;
#if defined(ACCO_BENCH_CUBLASLT)
    const float one = 1, zero = 0;
    check(cublasLtMatmul(handle_, product_, &one, a, square_, b, square_, &zero, c, square_, c, square_, nullptr, nullptr, 0,
                         stream_),
          "cublasLtMatmul");
#else
    launch(stream_, width * width / (own_product::tile * own_product::tile), own_product{a, b, c, width});
#endif
  }

 private:
#if defined(ACCO_BENCH_CUBLASLT) && !defined(ACCO_STAND_IN)
  using number = acco::bfloat16;
  static constexpr auto element = CUDA_R_16BF;
#else
  using number = float;
#if defined(ACCO_BENCH_CUBLASLT)
  static constexpr auto element = CUDA_R_32F;
#endif
#endif

  cudaStream_t stream_;
  acco::cuda_buffer numbers_;
#if defined(ACCO_BENCH_CUBLASLT)
  static void check(cublasStatus_t code, char const* call) {
    if (code != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error(std::string(call) + " failed with status " + std::to_string(static_cast<int>(code)));
  }
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t square_ = nullptr;
#endif
};

}  // namespace bench
