// SPDX-License-Identifier: Apache-2.0
// Overlap: steps of ranks in one process beside their limit, the larger of computation and communication. Ranks are
// threads that share a GPU, or threads with a GPU each over NCCL (ACCO_BENCH_NCCL). The computation is a load of an
// exact time on one thread, which takes nothing from the communication, or matrix products, which do. Times are of the
// GPU's own clock. One JSON object a line. `--backend threads|nccl`, `--ranks N`, `--parameters "27 24"` (powers of
// two), `--seconds S`: ends about then.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>

#include "rounds.hpp"

namespace {

using bench::arguments, bench::figure, bench::load, bench::step_times;

constexpr acco::fixed_pace two_micro_batches{.first = 2};

/// All schedules under one load; `seconds` is what a step's load takes alone.
template <class Ranks>
void measure(Ranks const& ranks, std::size_t parameters, char const* name, load what, double seconds, double communication) {
  const auto print = [&](char const* schedule, step_times const& one, double limit) {
    figure row("overlap");
    row.with("backend", Ranks::name).with("ranks", ranks.ranks).with("parameters", parameters).with("load", name);
    row.with("schedule", schedule)
        .with("ratio", communication / seconds)
        .with("step_ms", 1e3 * one.step)
        .with("limit_ms", 1e3 * limit);
    row.with("over", one.step / limit).with("hidden", one.hidden).with("load_alone_ms", 1e3 * seconds);
    row.with("load_meanwhile_ms", 1e3 * one.load).with("communication_alone_ms", 1e3 * communication);
    row.with("communication_meanwhile_ms", 1e3 * one.communication).print();
  };
  const acco::cuda_storage<bench::number> memory;
  const auto with = [&](auto schedule) {
    return ranks.run([&](auto world) { return bench::train(schedule, memory, world, parameters, what); });
  };
  print("delayed", with(acco::delayed{.pace = two_micro_batches}), std::max(seconds, communication));
  print("two_phase", with(acco::two_phase{.pace = acco::fixed_pace{1}}), std::max(seconds, 2 * communication));
  print("synchronous", with(acco::synchronous{.pace = two_micro_batches}), seconds + communication);
}

template <class Ranks>
void all_loads(Ranks const& ranks, arguments const& words) {
  const double until = acco::steady_seconds() + words.number("--seconds", 1e9);
  std::istringstream sizes(words.text("--parameters", bench::stand_in ? "10" : "27 24"));
  for (unsigned exponent = 0; sizes >> exponent;) {
    const std::size_t parameters = std::size_t{1} << exponent;
    const acco::synchronous alone{.pace = two_micro_batches};
    const double communication =
        ranks.run([&](auto world) { return bench::train(alone, acco::cuda_storage<bench::number>{}, world, parameters, {}); })
            .communication;
    const double product = ranks.run([](auto const&) { return bench::load_alone({.products = 4}); }) / (4 * bench::step_parts);
    for (const double ratio : {0.5, 0.8, 1.0, 1.5, 0.25}) {
      if (acco::steady_seconds() > until) {
        figure("left_out").with("parameters", parameters).with("ratio", ratio).with("why", "no time").print();
        continue;
      }
      const double part = communication / ratio / bench::step_parts;
      measure(ranks, parameters, "exact time", {.nanoseconds = static_cast<std::uint64_t>(part * 1e9)}, part * bench::step_parts,
              communication);
      const load products{.products = std::max<std::size_t>(1, static_cast<std::size_t>(part / product + 0.5))};
      const double seconds = ranks.run([&](auto const&) { return bench::load_alone(products); });
      measure(ranks, parameters, bench::products::name, products, seconds, communication);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen(count, words);
  const int gpus = bench::gpus();
  if (gpus == 0) return 0;
  try {
    if (chosen.text("--backend", "threads") == "threads") {
      all_loads(bench::threads_on_one_gpu{static_cast<int>(chosen.number("--ranks", 2))}, chosen);
    } else {
#if defined(ACCO_BENCH_NCCL)
      all_loads(bench::nccl_on_threads{static_cast<int>(chosen.number("--ranks", bench::stand_in ? 2 : gpus))}, chosen);
#else
      std::puts("skipped: compiled without NCCL");
#endif
    }
  } catch (std::exception const& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
