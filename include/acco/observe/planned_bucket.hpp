// SPDX-License-Identifier: Apache-2.0
// What a report says of a bucket whose code is planned.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// A bucket of gradients that are `planned` (code/planned.hpp). The same on every rank.
struct planned_bucket {
  std::size_t begin = 0;  ///< its first trainable element, in the layout's order but where a rule's matrices, or tiles,
                          ///< lie whole
  std::size_t count = 0;  ///< elements
  char const* code = "";  ///< by which it travels in this round
  std::size_t bytes = 0;  ///< of a rank's codes of it, of which the part (N - 1) / N leaves
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
