// SPDX-License-Identifier: Apache-2.0
// Which tensors are trained in a basis, how large that is, and how often it is renewed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/demand.hpp"

namespace ACCO_NAMESPACE {

/// Which of the tensors that can be projected are.
using tensor_choice = bool (*)(parameter_layout::tensor const&);

struct projection_settings {
  std::size_t rank = 0;
  std::uint64_t every = 0;
  double scale = 1;
  unsigned iterations = 1;
  tensor_choice projects = nullptr;

  /// Throws `usage_error` on settings that mean nothing.
  void check(error_place where) const {
    if (rank == 0) throw usage_error(where, text("galore::rank is 0"), text("Choose 1 or more; a quarter of the width is usual"));
    if (every == 0)
      throw usage_error(where, text("galore::every is 0"), text("Give the updates from one basis to the next, 200 say"));
    demand_positive("galore::scale", scale, where);
    if (iterations == 0 || iterations > 100)
      throw usage_error(where, text("galore::iterations is ", iterations), text("Choose 1 to 100; 2 is usual"));
    if (projects == nullptr)
      throw usage_error(where, text("galore::projects is null"), text("Leave it out: then every matrix is projected"));
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("rank", rank);
    visit("every", every);
    visit("scale", scale);
    visit("iterations", iterations);
  }
};

}  // namespace ACCO_NAMESPACE
