// SPDX-License-Identifier: Apache-2.0
// The codes of levels on a device.
#include <doctest/doctest.h>

#include "cuda/encoded.hpp"

TEST_CASE_TEMPLATE("levels and rotations are those of the host, bit by bit", Encoding, acco::block_gauss4, acco::block_gauss3,
                   acco::block_gauss2, acco::block_stat2, acco::loosely<acco::block_ternary>,
                   acco::without_feedback<acco::block_sign>, acco::rotated<acco::block_gauss3>,
                   acco::rotated<acco::block_int4<>>) {
  encoded_as_on_the_host<Encoding>();
}
