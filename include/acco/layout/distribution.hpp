// SPDX-License-Identifier: Apache-2.0
// A buffer's type says how it is distributed over the ranks (after OneFlow's partial-value, split and broadcast
// signatures). Collectives are the only conversions between the three; the views own nothing.
#pragma once

#include <cstddef>
#include <span>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Every rank holds an addend of the whole; the value is the sum over ranks. Gradients before they are reduced.
template <class T>
class partial {
 public:
  using element_type = T;
  constexpr explicit partial(std::span<T> local) noexcept : local_(local) {}
  [[nodiscard]] constexpr std::span<T> local() const noexcept { return local_; }

 private:
  std::span<T> local_;
};

/// Every rank owns one slice of the whole. All slices have the same length; rank r's begins at r times that length.
template <class T>
class sharded {
 public:
  using element_type = T;
  constexpr explicit sharded(std::span<T> slice) noexcept : slice_(slice) {}
  [[nodiscard]] constexpr std::span<T> slice() const noexcept { return slice_; }

 private:
  std::span<T> slice_;
};

/// Every rank holds the same whole. Parameters after they were gathered.
template <class T>
class replicated {
 public:
  using element_type = T;
  constexpr explicit replicated(std::span<T> whole) noexcept : whole_(whole) {}
  [[nodiscard]] constexpr std::span<T> whole() const noexcept { return whole_; }

 private:
  std::span<T> whole_;
};

/// Asks `reduce_scatter` to add the reduced slice to what the destination holds, instead of overwriting it.
struct accumulate_t {
  explicit accumulate_t() = default;
};
inline constexpr accumulate_t accumulate{};

}  // namespace ACCO_NAMESPACE
