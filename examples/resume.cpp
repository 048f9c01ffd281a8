// SPDX-License-Identifier: Apache-2.0
// A training that survives: killed at any moment and started again, it goes on as if it had never stopped. Four ranks
// in one process fit a parabola; the number of its data is all that the trainer keeps.
//
//   ./resume run & sleep 1; kill -9 $!; ./resume run
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

int main(int count, char** words) {
  const std::string run = count > 1 ? words[1] : "run";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was told before it is killed stays
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 1e-3}, acco::host_storage<float>{}, world, 10'000};
    std::uint64_t next = 0;  // micro-batch of this rank
    if (acco::has_checkpoints(run)) {
      auto const found = training.restore(run);
      next = found.position<std::uint64_t>();
      if (world.rank() == 0) std::printf("going on behind step %llu\n", static_cast<unsigned long long>(found.step));
    } else {
      training.initialize(std::vector<float>(10'000, 0.0F));
    }
    while (training.samples() < 10'000) {
      double loss = 0;
      // the data: another one each time
      const double target = 3 + std::sin(static_cast<double>(4 * next++) + world.rank());
      for (std::size_t i = 0; i < training.layout().size(); ++i) {
        const double error = static_cast<double>(training.parameters()[i]) - target;
        loss += 0.5 * error * error;
        training.gradients()[i] += static_cast<float>(error);
      }
      auto const report = training.accumulated(1, loss);
      if (!report || !acco::commits(report->plan)) continue;
      if (report->step % 100 == 0) training.save(run, [&] { return next; });
      if (report->step % 100 == 0 && world.rank() == 0)
        std::printf("step %4llu  loss %.17g\n", static_cast<unsigned long long>(report->step), report->step_loss);
    }
    training.finish();
    if (world.rank() == 0) std::printf("parameters[0] = %.9g\n", static_cast<double>(training.parameters()[0]));
  });
}
