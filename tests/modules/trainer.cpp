// SPDX-License-Identifier: Apache-2.0
// A stranger's program, by `import acco` or by `#include`: what it prints must be the same.
#include <cstdio>
#include <vector>

#if defined(BY_IMPORT)
import acco;
#else
#include <acco/acco.hpp>
#include <acco/outer.hpp>
#endif

namespace {

template <class Schedule, class Rule>
void train(acco::threads_backend const& world, Schedule const& schedule, Rule const& rule) {
  const acco::warmup_cosine shape{.warmup = 3, .total = 30};
  acco::optimizer training{schedule,
                           rule,
                           acco::host_storage<float>{},
                           world,
                           acco::parameter_layout{}.add("weight", {30, 30}).add("bias", {100}).no_decay_for_vectors(),
                           acco::options{.clip_norm = 10.0, .learning_rate = acco::in_steps{shape}}};
  training.initialize(std::vector<float>(1000, 0.0F));
  for (int step = 0; step < 24; ++step) {
    const acco::round_report report = training.step([&](auto parameters, auto gradients) {
      double loss = 0;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const float error = parameters[i] - static_cast<float>(i % 7) - static_cast<float>(world.rank());
        gradients[i] += error;
        loss += static_cast<double>(error * error) / 2;
      }
      return acco::micro_batch_sums{.weight = 1, .loss_sum = loss};
    });
    if (world.rank() == 0) std::printf("%.17g\n", report.step_loss);
  }
  training.finish();
  if (world.rank() == 0)
    for (const float value : training.parameters()) std::printf("%.9g\n", static_cast<double>(value));
}

}  // namespace

int main() {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    train(world, acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded{acco::block_int8{}, acco::block_int4{}}},
          acco::gpa{acco::adamw{.learning_rate = 0.1}});
    train(world, acco::local_updates{.method = acco::diloco, .steps = 4}, acco::adamw{.learning_rate = 0.1});
  });
  try {
    acco::optimizer{acco::synchronous{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 0};
  } catch (acco::usage_error const& e) {
    std::printf("%s\n", e.what());
  }
}
