// SPDX-License-Identifier: Apache-2.0
// Stretches of state that tasks of a queue copy to the host, or digest.
#pragma once

#include <cstddef>

#include "acco/number/digest.hpp"
#include "acco/number/int8_place.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// `bytes` from an array of the storage's to host memory.
struct staged_range {
  void const* from;
  std::byte* to;
  std::size_t bytes;
};

/// `count` elements of an array of the storage's, whose parts go to the sum of this number.
template <class T>
struct digest_range {
  pointer_to<T const> values;
  std::size_t count;
  digest_key key;
  std::size_t sum;
};

}  // namespace ACCO_SIMD_NAMESPACE
