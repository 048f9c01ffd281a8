// SPDX-License-Identifier: Apache-2.0
// A second translation unit that instantiates the same templates: everything in the headers must be inline.
#include <vector>

#include <acco/acco.hpp>

double rate_from_the_other_unit() {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{},
                           acco::solo_backend{}, 1};
  training.initialize(std::vector<float>(1, 1.0F));
  training.finish();
  return 1e-2 * training.parameters()[0];
}
