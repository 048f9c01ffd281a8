// SPDX-License-Identifier: Apache-2.0
// Trains a character model of LibTorch on two ranks: threads of this process, or processes under mpiexec.
//   torch_char_gpt [--schedule synchronous|two_phase|two_phase+int4] [--steps N] [--data FILE] [--mpi] [--check]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "char_gpt.hpp"  // first: so acco/attach/torch.hpp is known to include what it needs

#if defined(EXAMPLE_MPI)
#include <acco/mpi.hpp>
#endif

#include "check.hpp"

namespace {

template <class Backend>
void run(char_gpt::settings const& s, Backend const& world, torch::Tensor const& text) {
  auto net = char_gpt::train(s, world, text, [&](acco::round_report const& report) {
    if (world.rank() == 0 && (report.step % 10 == 0 || report.step == 1))
      std::printf("step %4llu  loss %.4f\n", static_cast<unsigned long long>(report.step), report.step_loss);
  });
  if (world.rank() != 0) return;
  const torch::NoGradGuard no_graph;
  const auto validation = char_gpt::draw(text, 64, 1000, 0);
  std::printf("%s: loss %.4f of unseen batches\n", s.schedule.c_str(), char_gpt::mean_loss(net, validation).item().toDouble());
}

}  // namespace

int main(int count, char** words) try {
  char_gpt::settings s;
  std::string data = EXAMPLE_REPOSITORY;
  bool check = false, mpi = false;
  for (int k = 1; k < count; ++k) {
    const std::string_view word = words[k];
    const bool last = k + 1 == count;
    if (word == "--check") {
      check = true;
    } else if (word == "--mpi") {
      mpi = true;
    } else if (word == "--schedule" && !last) {
      s.schedule = words[++k];
    } else if (word == "--steps" && !last) {
      s.steps = std::stoi(words[++k]);
    } else if (word == "--data" && !last) {
      data = words[++k];
    } else {
      throw std::runtime_error(
          "usage: torch_char_gpt [--schedule synchronous|two_phase|two_phase+int4] [--steps N] [--data FILE] [--mpi] [--check]");
    }
  }
  torch::set_num_threads(1);
  const auto text = char_gpt::read_text(data);
  if (check) {
    char_gpt::check_all(text);
  } else if (mpi) {
#if defined(EXAMPLE_MPI)
    return acco::mpi_backend::run(count, words, [&](acco::mpi_backend const& world) { run(s, world, text); });
#else
    throw std::runtime_error("built without MPI: apt-get install libopenmpi-dev, and configure again");
#endif
  } else {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) { run(s, world, text); });
  }
  return EXIT_SUCCESS;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
