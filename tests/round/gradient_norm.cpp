// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <acco/stage/gradient_norm.hpp>

TEST_CASE("the norm is that of the mean gradient; clipping brings it to the limit and leaves smaller ones alone") {
  CHECK(acco::gradient_norm(100.0, 5.0) == 2.0);
  CHECK(acco::clip_scale(2.0, 1.0) == 0.5);
  CHECK(acco::clip_scale(0.5, 1.0) == 1.0);
  CHECK(acco::clip_scale(2.0, 0.0) == 1.0);
  CHECK(acco::clip_scale(0.0, 1.0) == 1.0);
}
