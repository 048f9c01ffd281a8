// SPDX-License-Identifier: Apache-2.0
#include "programs.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace toy_gpt {

/// Names the place that the command line left open, as far as one follows from the other or from the program.
void complete(settings& s) {
  if (place const* const found = find_place(s.backend, s.device); found != nullptr) {
    s.backend = found->backend;
    s.device = found->device;
  }
  if (s.backend.empty()) s.backend = "threads";
  if (s.device.empty()) s.device = s.backend == "nccl" ? "cuda" : "cpu";
}

/// What `s` asks for, the program that has it, what that needs, and how it is built and started.
std::string how_to_get(settings const& s) {
  const std::string kind = s.device == "cuda" ? "cuda" : s.backend;
  const std::string target = "toy_gpt_" + kind;
  struct {
    char const *asked, *is, *needs, *start;
  } words{"--device cuda", "training on NVIDIA GPUs is", "the CUDA toolkit, 12 or newer", ""};
  if (kind == "mpi")
    words = {"--backend mpi", "ranks as processes that mpirun starts are", "MPI (libopenmpi-dev or libmpich-dev)",
             "mpirun -n 2 "};
  if (kind == "gloo") {
    words = {"--backend gloo", "ranks as processes joined by Gloo are", "Gloo (libgloo-dev)",
             "(once a rank) RANK=0 WORLD_SIZE=2 MASTER_ADDR=HOST_OF_RANK_0 MASTER_PORT=29500 "};
  }
  const bool found = std::string_view(" " TOY_GPT_FOUND " ").find(" " + kind + " ") != std::string_view::npos;
  return words.asked + (": " + std::string(words.is)) + " the work of another program, " + target + ", which needs " +
         words.needs + (found ? "." : ", not found when this build was configured.") +
         "\n  build it:  " + (found ? "" : "cmake " TOY_GPT_BUILD " && ") + "cmake --build " TOY_GPT_BUILD " --target " + target +
         "\n  start it:  " + words.start + TOY_GPT_PROGRAMS "/" + target;
}

/// The same for toy_gpt_family, of which the settings of `label` are.
std::string how_to_get_family(std::string const& label) {
  return label + " is the work of another program, toy_gpt_family.\n  build it:  cmake --build " TOY_GPT_BUILD " --target " +
         "toy_gpt_family\n  start it:  " TOY_GPT_PROGRAMS "/toy_gpt_family";
}

/// The runner for the place that the settings name; throws where this program is without it.
std::unique_ptr<runner> make_runner(settings const& s, int& count, char**& words) {
  place const* const found = find_place(s.backend, s.device);
  if (found != nullptr) return found->make(s, count, words);
  if (s.backend == "nccl" && find_place("threads", "cuda") != nullptr)
    throw std::runtime_error(
        "--backend nccl: NCCL was not found when this program was built (libnccl-dev; NCCL_ROOT says where it is)");
  throw std::runtime_error(how_to_get(s));
}

}  // namespace toy_gpt
