// SPDX-License-Identifier: Apache-2.0
// The stand-in's CUB: what the kernels use of it, with results where CUB promises them and garbage elsewhere. Sums are
// added in the order in which CUB 3.0 adds them.
#pragma once

#include <cstring>
#include <functional>

#include <cuda_runtime.h>

namespace emulated {
/// What CUB leaves to a thread that gets no result.
template <class T>
T nobodys() {
  T value;
  std::memset(&value, 0xff, sizeof value);
  return value;
}
}  // namespace emulated

namespace cub {

/// Lane 0 gets the result.
template <class T, int Lanes = 32>
class WarpReduce {
  static_assert(Lanes == 32, "the stand-in reduces over whole warps");

 public:
  struct TempStorage {};
  explicit WarpReduce(TempStorage&) {}
  T Sum(T mine) const { return Reduce(mine, std::plus<>()); }
  template <class Combine>
  T Reduce(T mine, Combine combine) const {
    return emulated::block_runner::mine().together(~0U, emulated::as_bits(mine), "cub::WarpReduce",
                                                   [&combine](std::uint64_t const* all) {
                                                     if (threadIdx.x % Lanes != 0) return emulated::nobodys<T>();
                                                     T x[Lanes];
                                                     for (int k = 0; k < Lanes; ++k) x[k] = emulated::from_bits<T>(all[k]);
                                                     for (int by = 1; by < Lanes; by *= 2) {
                                                       for (int k = 0; k + by < Lanes; ++k) x[k] = combine(x[k], x[k + by]);
                                                     }
                                                     return x[0];
                                                   });
  }
};

}  // namespace cub
