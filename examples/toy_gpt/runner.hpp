// SPDX-License-Identifier: Apache-2.0
// Where ranks live: one file for each backend makes a runner, which trains the ranks of this process.
#pragma once

#include <memory>
#include <string>

#include <acco/observe/trace.hpp>

#include "settings.hpp"
#include "text.hpp"
#include "train.hpp"

namespace toy_gpt {

/// One training run: what it needs, and what rank 0 (or this process's rank) gives back.
struct job {
  settings const& chosen;
  corpus const& text;
  std::string const& source;
  acco::trace* trace;
  round_sink sink;
  summary result;
  std::string sample;
};

class runner {
 public:
  runner() = default;
  runner(runner const&) = delete;
  runner& operator=(runner const&) = delete;
  virtual ~runner() = default;
  /// The lowest rank in this process, and how many ranks there are in all.
  [[nodiscard]] virtual int first_rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void train(job& one) = 0;
  /// After an error was printed: ends what the other processes would wait for.
  virtual void give_up() noexcept {}
};

std::unique_ptr<runner> make_threads_runner(settings const& s);
std::unique_ptr<runner> make_cuda_runner(settings const& s);
std::unique_ptr<runner> make_gloo_runner(settings const& s);
std::unique_ptr<runner> make_mpi_runner(settings const& s, int& count, char**& words);

/// The runner that --backend names; throws where this program was built without it.
inline std::unique_ptr<runner> make_runner(settings const& s, [[maybe_unused]] int& count, [[maybe_unused]] char**& words) {
  if (s.device == "cuda") {
#ifdef TOY_GPT_CUDA
    return make_cuda_runner(s);
#else
    throw std::runtime_error("--device cuda: the CUDA toolkit was not found when this program was built");
#endif
  }
  if (s.backend == "gloo") {
#ifdef TOY_GPT_GLOO
    return make_gloo_runner(s);
#else
    throw std::runtime_error("--backend gloo: Gloo was not found when this program was built (libgloo-dev)");
#endif
  }
  if (s.backend == "mpi") {
#ifdef TOY_GPT_MPI
    return make_mpi_runner(s, count, words);
#else
    throw std::runtime_error("--backend mpi: MPI was not found when this program was built (libopenmpi-dev or libmpich-dev)");
#endif
  }
  return make_threads_runner(s);
}

}  // namespace toy_gpt
