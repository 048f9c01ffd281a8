// SPDX-License-Identifier: Apache-2.0
// What an encoding refused.
#pragma once

#include <algorithm>
#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::coding {

/// Numbers that were not finite: how many, and the index of the first.
struct refused {
  unsigned long long* found;
  unsigned long long* first;

  void note(std::size_t more, std::size_t index) const noexcept {
    *found += more;
    *first = std::min(*first, static_cast<unsigned long long>(index));
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::coding

#include "acco/restore_macros.hpp"
