// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints with a library of then, and what their trainings come to as that library itself goes on from them:
// make.sh.
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/old/trainings.hpp"

namespace {
using namespace old_trainings;

/// `body(training, rank)` of each rank; rank 0's outcome.
template <class Make, class Body>
outcome on(int count, Make const& make, Body const& body) {
  outcome found;
  acco::threads_backend::run(count, [&](acco::threads_backend const& world) {
    auto training = make(world);
    outcome const of_this = body(training, world.rank());
    if (world.rank() == 0) found = of_this;
  });
  return found;
}
}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder = arguments[1];
  for_each(
      [&](traits const& is, auto schedule, auto rule, auto storage, acco::parameter_layout const& layout, acco::options options) {
        using parameter = typename decltype(storage)::parameter_type;
        const std::string run = (folder / is.name).string();
        const auto make = [&](acco::threads_backend const& world) {
          return acco::optimizer{schedule, rule, storage, world, layout, options};
        };
        const auto whole = on(ranks, make, [&](auto& training, int rank) {
          training.initialize(problem::converted<parameter>(problem::initial(layout.size())));
          outcome const seen = train(training, rank, ranks, is, 0, run);
          if (!training.saved()->complete()) throw std::runtime_error(training.saved()->problem);
          return seen;
        });
        options.check_habits = acco::habit_checks::off;
        const auto go_on = [&](int count) {
          return on(count, make, [&](auto& training, int rank) {
            auto const found = training.restore(run, acco::changes::none);
            outcome seen{told_by(found)};
            outcome const rest = train(training, rank, count, is, after(found.trainers.front()));
            seen.numbers.insert(seen.numbers.end(), rest.numbers.begin(), rest.numbers.end());
            return seen;
          });
        };
        const outcome told = go_on(ranks);
        write(run + "/after.txt", told);
        // What is kept is what it says that it is.
        if (!std::equal(told.numbers.rbegin(), told.numbers.rend() - 5, whole.numbers.rbegin()) &&
            std::string(is.name) != "norm_limit")
          throw std::runtime_error(std::string(is.name) + ": the restored training is another one");
        for (const int other : {1, 3, 4}) {
          if ((go_on(other) == told) != is.any_ranks)
            throw std::runtime_error(std::string(is.name) + ": other bits, or the same, on other ranks");
        }
        std::printf("%s: %zu numbers\n", is.name, told.numbers.size());
      });
}
