// SPDX-License-Identifier: Apache-2.0
// Compiled twice, with FLAGS = with_no_flags and with_other_flags. Uses much of the library, with ALL more of it.
#include "trainer.hpp"

#include <vector>

#include <acco/acco.hpp>

namespace trainer::FLAGS {

acco::any_optimizer<float> make(acco::adamw const& rule, acco::options const& chosen) {
  return acco::optimizer{acco::two_phase{.estimate = acco::block_int4<>{}, .pace = acco::fixed_pace{1}},
                         rule,
                         acco::host_storage<float>{},
                         acco::solo_backend{},
                         2000,
                         chosen};
}
float train(acco::any_optimizer<float>& training) {
  training.initialize(std::vector<float>(training.layout().size(), 1.0F));
  for (int m = 0; m < 10; ++m) {
    for (float& gradient : training.gradients()) gradient += 1;
    training.accumulated(1);
  }
  training.finish();
  return training.parameters()[0];
}
#if defined(ALL)
float train_on_two_ranks() {
  float result = 0;
  acco::trace trace;
  acco::mock_world(2).run([&](acco::mock_backend const& world) {
    acco::optimizer training{acco::delayed{.commit = acco::bfloat16_wire{}}, acco::lion{},
                             acco::host_storage<acco::bfloat16, float>{}, acco::debug(acco::traced(world, trace)), 500};
    training.initialize(std::vector<acco::bfloat16>(500, acco::bfloat16(1.0F)));
    training.accumulated(1);
    training.finish();
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                             acco::rate_limited(world, {.bytes_per_second = 1e12}), 500};
    const float end = train(training);
    if (world.rank() == 0) result = end;
  });
  return result;
}
#endif

}  // namespace trainer::FLAGS
