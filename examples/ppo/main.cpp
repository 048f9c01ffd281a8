// SPDX-License-Identifier: Apache-2.0
// Reinforcement learning on ranks that are threads of this process, or processes connected by Gloo: PPO balances a
// pole, or drives a route. docs/reinforcement_learning.md explains it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cart_pole.hpp"
#include "check.hpp"
#include "ppo.hpp"
#include "route.hpp"

#if defined(EXAMPLE_GLOO)
#include <acco/gloo.hpp>
#endif

namespace {

constexpr char const* usage =
    "usage: ppo [--task cart_pole|route] [--schedule synchronous|delayed|two_phase|two_phase+int4] [--collect committed|in_use]\n"
    "           [--ranks N] [--environments N] [--steps N] [--epochs N] [--minibatches N] [--iterations N] [--seed N]\n"
    "           [--compare | --check | --gloo]";

struct flags {
  ppo::settings with;
  std::string task = "cart_pole", how;
  std::size_t ranks = 2, seed = 1;
};

std::size_t count_of(std::string const& word) {
  std::size_t end = 0;
  unsigned long long value = 0;
  try {
    value = std::stoull(word, &end);
  } catch (std::exception const&) {
  }
  if (end != word.size() || value == 0) throw std::runtime_error("'" + word + "' is no count\n" + usage);
  return value;
}

flags read(int count, char** words) {
  flags f;
  const std::map<std::string_view, std::size_t*> numbers{
      {"--ranks", &f.ranks},        {"--environments", &f.with.environments}, {"--steps", &f.with.steps},
      {"--epochs", &f.with.epochs}, {"--minibatches", &f.with.minibatches},   {"--iterations", &f.with.iterations},
      {"--seed", &f.seed}};
  std::string by = "committed";
  const std::map<std::string_view, std::string*> texts{{"--task", &f.task}, {"--schedule", &f.with.schedule}, {"--collect", &by}};
  for (int k = 1; k < count; ++k) {
    const std::string_view word = words[k];
    const bool last = k + 1 == count;
    if (word == "--compare" || word == "--check" || word == "--gloo") {
      f.how = word;
    } else if (auto const number = numbers.find(word); number != numbers.end() && !last) {
      *number->second = count_of(words[++k]);
    } else if (auto const text = texts.find(word); text != texts.end() && !last) {
      *text->second = words[++k];
    } else {
      throw std::runtime_error(usage);
    }
  }
  if (by != "committed" && by != "in_use") throw std::runtime_error(usage);
  if (f.task != "cart_pole" && f.task != "route") throw std::runtime_error(usage);
  f.with.by = by == "in_use" ? ppo::collecting::in_use : ppo::collecting::committed;
  f.with.seed = f.seed;
  return f;
}

template <class Task, class Backend>
void run(ppo::settings const& s, Backend const& world) {
  auto const trained = ppo::trainer<Task, Backend>(s, world).train([&](ppo::iteration const& now) {
    if (world.rank() == 0) std::printf("%7zu samples  mean return %8.4f\n", now.samples, now.mean_return);
  });
  if (world.rank() == 0)
    std::printf("%s, %s: %.4f of %.0f in episodes not seen before\n", Task::name, s.schedule.c_str(),
                ppo::evaluate<Task>(trained.actor, s.hidden), Task::best);
}

/// Each schedule, collecting either way, at equal samples.
template <class Task>
void compare(flags const& f) {
  constexpr std::uint64_t seeds = 5;
  std::printf("%s, %zu ranks, %zu samples, mean of %d seeds\n", Task::name, f.ranks, f.with.iterations * f.with.batch(),
              static_cast<int>(seeds));
  std::printf("%-16s %-10s %18s %12s %10s\n", "schedule", "collect", "last 5 iterations", "new episodes", "(worst)");
  for (char const* schedule : {"synchronous", "two_phase", "two_phase+int4", "delayed"}) {
    for (const auto by : {ppo::collecting::committed, ppo::collecting::in_use}) {
      double last = 0, unseen = 0, worst = Task::best;
      for (std::uint64_t seed = f.seed; seed < f.seed + seeds; ++seed) {
        auto s = f.with;
        s.schedule = schedule;
        s.by = by;
        s.seed = seed;
        auto const trained = ppo::train_on_threads<Task>(s, static_cast<int>(f.ranks));
        const std::size_t count = std::min<std::size_t>(5, trained.history.size());
        for (std::size_t k = 0; k < count; ++k)
          last += (trained.history.end() - 1 - static_cast<std::ptrdiff_t>(k))->mean_return / static_cast<double>(count * seeds);
        const double reached = ppo::evaluate<Task>(trained.actor, s.hidden);
        unseen += reached / seeds;
        worst = std::min(worst, reached);
      }
      std::printf("%-16s %-10s %18.3f %12.3f %10.3f\n", schedule, by == ppo::collecting::in_use ? "in_use" : "committed", last,
                  unseen, worst);
      std::fflush(stdout);
    }
  }
}

template <class Task>
void start(flags const& f) {
  if (f.how != "--gloo") f.with.check(static_cast<int>(f.ranks));  // there the trainer does
  if (f.how == "--compare") return compare<Task>(f);
  if (f.how == "--gloo") {
#if defined(EXAMPLE_GLOO)
    return run<Task>(f.with, acco::gloo_backend::from_environment({.deadline = 60}));
#else
    throw std::runtime_error(
        "built without Gloo: apt-get install libgloo-dev: with CMake configure again, else compile with -DEXAMPLE_GLOO and "
        "-lgloo");
#endif
  }
  acco::threads_backend::run(static_cast<int>(f.ranks), [&](acco::threads_backend const& world) { run<Task>(f.with, world); });
}

}  // namespace

int main(int count, char** words) try {
  auto const f = read(count, words);
  if (f.how == "--check") {
    ppo::check_all();
  } else if (f.task == "route") {
    start<ppo::route>(f);
  } else {
    start<ppo::cart_pole>(f);
  }
  return EXIT_SUCCESS;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
