// SPDX-License-Identifier: Apache-2.0
#include <acco/collective/solo.hpp>

#include "conformance/backend.hpp"

namespace {
struct solo {
  template <class Function>
  static void run(int, Function&& function) {
    function(acco::solo_backend{});
  }
};
}  // namespace

TEST_CASE("solo_backend conforms") { conformance::backend_suite<solo>({1}); }
