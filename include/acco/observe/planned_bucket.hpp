// SPDX-License-Identifier: Apache-2.0
// What a plan of encodings says of a bucket.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// A bucket of gradients whose encoding is planned (encoding/auto_encoding.hpp). The same on every rank.
struct planned_bucket {
  std::size_t begin = 0;      ///< where it begins, in trainable elements as they lie: in the layout's order but where a rule's
                              ///< matrices are placed whole
  std::size_t count = 0;      ///< elements
  char const* encoding = "";  ///< by which it travels now
  std::size_t bytes = 0;      ///< that a rank's whole bucket takes; 1 / N of them stays. Over two levels: its part of its
                              ///< group's sum, of which 1 / g stays
  double lost = 0;            ///< of its squares, all ranks' (of two levels all groups'), by that encoding, when it was measured
                              ///< last; 0: it was not yet
};

}  // namespace ACCO_NAMESPACE
