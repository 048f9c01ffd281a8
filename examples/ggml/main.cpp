// SPDX-License-Identifier: Apache-2.0
// Trains a two-layer model of ggml on two ranks, threads of this process.
//   ggml_mlp [--schedule synchronous|two_phase|two_phase+int4] [--steps N] [--check]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include <acco/attach/ggml.hpp>

#include "check.hpp"
#include "mlp.hpp"

int main(int count, char** words) try {
  mlp::settings s;
  bool check = false;
  for (int k = 1; k < count; ++k) {
    const std::string_view word = words[k];
    const bool last = k + 1 == count;
    if (word == "--check") {
      check = true;
    } else if (word == "--schedule" && !last) {
      s.schedule = words[++k];
    } else if (word == "--steps" && !last) {
      s.steps = std::stoi(words[++k]);
    } else {
      throw std::runtime_error("usage: ggml_mlp [--schedule synchronous|two_phase|two_phase+int4] [--steps N] [--check]");
    }
  }
  if (check) {
    mlp::check_all();
    return EXIT_SUCCESS;
  }
  const auto data = mlp::make_data(8192);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto net = mlp::train(s, world, data.get(), [&](acco::round_report const& report) {
      if (world.rank() == 0 && (report.step % 20 == 0 || report.step == 1))
        std::printf("step %4llu  loss %.4f\n", static_cast<unsigned long long>(report.step), report.step_loss);
    });
  });
  return EXIT_SUCCESS;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
