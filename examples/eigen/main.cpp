// SPDX-License-Identifier: Apache-2.0
// A character model whose matrices are Eigen's, with its gradients written by hand, on two ranks: threads of this
// process, or processes connected by Gloo.
//   eigen_char_mlp [--schedule synchronous|delayed|two_phase|two_phase+int4] [--steps N] [--data FILE] [--gloo] [--check]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>
#include <acco/attach/eigen.hpp>

#if defined(EXAMPLE_GLOO)
#include <acco/gloo.hpp>
#endif

#include "char_mlp.hpp"
#include "check.hpp"

namespace {

template <class Backend>
void run(char_mlp::settings const& s, Backend const& world, char_mlp::symbols const& text) {
  const auto trained = char_mlp::train(s, world, text, [&](acco::round_report const& report) {
    if (world.rank() == 0 && (report.step % 20 == 0 || report.step == 1))
      std::printf("step %4llu  loss %.4f\n", static_cast<unsigned long long>(report.step), report.step_loss);
  });
  if (world.rank() == 0)
    std::printf("%s: loss %.4f of unseen batches\n", s.schedule.c_str(), char_mlp::validation_loss(trained, text));
}

}  // namespace

int main(int count, char** words) try {
  char_mlp::settings s;
  std::string data = EXAMPLE_REPOSITORY;
  bool check = false, gloo = false;
  for (int k = 1; k < count; ++k) {
    const std::string_view word = words[k];
    const bool last = k + 1 == count;
    if (word == "--check") {
      check = true;
    } else if (word == "--gloo") {
      gloo = true;
    } else if (word == "--schedule" && !last) {
      s.schedule = words[++k];
    } else if (word == "--steps" && !last) {
      s.steps = std::stoi(words[++k]);
    } else if (word == "--data" && !last) {
      data = words[++k];
    } else {
      throw std::runtime_error(
          "usage: eigen_char_mlp [--schedule synchronous|delayed|two_phase|two_phase+int4] [--steps N] [--data FILE] [--gloo] "
          "[--check]");
    }
  }
  const auto text = char_mlp::read_text(data);
  if (check) {
    char_mlp::check_all(text);
  } else if (gloo) {
#if defined(EXAMPLE_GLOO)
    run(s, acco::gloo_backend::from_environment({.deadline = 60}), text);
#else
    throw std::runtime_error("built without Gloo: apt-get install libgloo-dev, and configure again");
#endif
  } else {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) { run(s, world, text); });
  }
  return EXIT_SUCCESS;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
