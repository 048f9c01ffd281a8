// SPDX-License-Identifier: Apache-2.0
// Local updates that outlive their workers: where a process is killed, or hangs, the others go on without it.
//
//   outliving RANK RANKS DIRECTORY [STEP]   with STEP: this process kills itself in that step
//
// DIRECTORY is a new one for each job: where workers were lost, files of those that were left stay behind.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>
#include <acco/outer.hpp>

namespace {

constexpr std::size_t count = 1000;
constexpr unsigned steps = 8;

void train(acco::gloo_backend world, std::string const& directory, int killed_in) {
  const int person = world.rank();  // whose data these are, in every world
  acco::optimizer training{acco::local_updates{.method = acco::diloco, .steps = steps},
                           acco::sgd{.learning_rate = 0.1},
                           acco::host_storage<float>{},
                           world,
                           count,
                           acco::options{.deadline = 30}};
  training.initialize(std::vector<float>(count, 0.0F));
  int losses = 0, made = 0;
  // Another one may be lost while the others come together again.
  const auto outlive = [&](std::exception const& e) {
    const auto say = [&](std::exception const& another) { std::printf("worker %d: %s\n", person, another.what()); };
    say(e);
    for (bool again = true; again;) {
      try {  // a deadline_error ends this worker: too few are left, or it has come too late
        world = acco::gloo_backend::from_those_left({world.rank(), world.size()}, directory, "loss " + std::to_string(++losses),
                                                    {.grace = 5, .lost = 1}, {.deadline = 60});
      } catch (acco::peer_error const& another) {
        say(another);
        continue;
      }
      try {
        training.regroup(world);
        again = false;
      } catch (acco::peer_error const& another) {
        say(another);
      } catch (acco::deadline_error const& another) {
        say(another);
      }
    }
    std::printf("worker %d goes on as rank %d of %d\n", person, world.rank(), world.size());
  };
  bool finished = false;
  while (!finished) {
    try {
      if (training.steps() < 60 * steps) {
        if (++made == killed_in) std::raise(SIGKILL);
        training.step([&](auto parameters, auto gradients) {  // everybody has a parabola, and looks for that of all
          for (std::size_t i = 0; i < count; ++i) gradients[i] += parameters[i] - 3 + 0.1F * std::sin(static_cast<float>(person));
          return 1;
        });
      } else {
        training.finish();
        finished = true;
      }
    } catch (acco::peer_error const& e) {
      outlive(e);
    } catch (acco::deadline_error const& e) {
      outlive(e);
    }
  }
  std::printf("worker %d has finished among %d, after %.0f samples: %.4f\n", person, world.size(), training.samples(),
              static_cast<double>(training.parameters()[0]));
  if (std::abs(training.parameters()[count - 1] - 3) > 0.15F) throw std::runtime_error("the parabola was not found");
}

/// Files of this job's losses are not there before all of its processes have begun.
void check_that_it_is_new(std::string const& directory) {
  std::error_code none;  // is no directory yet
  for (auto const& each : std::filesystem::directory_iterator(directory, none)) {
    if (each.path().filename().string().starts_with("loss "))
      throw std::runtime_error(directory + " is of a job that has lost a worker. Give each job a new directory");
  }
}

}  // namespace

int main(int words, char** word) {
  if (words < 4) return std::fputs("outliving RANK RANKS DIRECTORY [STEP]\n", stderr), 2;
  try {
    const std::string directory = word[3];
    check_that_it_is_new(directory);
    train(acco::gloo_backend::from_files({std::atoi(word[1]), std::atoi(word[2])}, directory, "begin", {.deadline = 60}),
          directory, words > 4 ? std::atoi(word[4]) : 0);
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
