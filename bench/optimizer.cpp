// SPDX-License-Identifier: Apache-2.0
// What the engine itself costs: accumulated() that ends no round, through the trainer's plain type and of the engine
// directly; and a round of 1000 parameters beside the bare collectives of such a round.
#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include <acco/acco.hpp>

namespace {

constexpr std::size_t count = 1000;
const acco::options as_released{.check_habits = acco::habit_checks::off};  // as where NDEBUG is defined

void accumulated_without_round(benchmark::State& state) {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1U << 30U}},
                           acco::adamw{},
                           acco::host_storage<float>{},
                           acco::solo_backend{},
                           count,
                           as_released};
  training.initialize(std::vector<float>(count, 1.0F));
  for (auto _ : state) benchmark::DoNotOptimize(training.accumulated(1.0, 2.0));
}
BENCHMARK(accumulated_without_round);

/// The same without the plain type between: what its checks and its indirect call cost is the difference.
void accumulated_of_the_engine(benchmark::State& state) {
  using storage = acco::host_storage<float>;
  using schedule = acco::schedule_of<acco::two_phase<>, storage>;
  acco::round_engine<storage> direct(std::make_unique<schedule>(acco::two_phase{.pace = acco::fixed_pace{1U << 30U}}),
                                     std::make_unique<acco::rule_of<acco::adamw, storage>>(acco::adamw{}), storage{},
                                     std::make_unique<acco::backend_of<acco::solo_backend, storage>>(acco::solo_backend{}),
                                     acco::parameter_layout(count), as_released);
  direct.initialize(std::vector<float>(count, 1.0F));
  for (auto _ : state) benchmark::DoNotOptimize(direct.accumulated(1.0, 2.0));
}
BENCHMARK(accumulated_of_the_engine);

/// Both spans of a micro-batch, as every trainer asks for them.
void spans(benchmark::State& state) {
  acco::any_optimizer<float> training = acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}},
                                                        acco::adamw{},
                                                        acco::host_storage<float>{},
                                                        acco::solo_backend{},
                                                        count,
                                                        as_released};
  training.initialize(std::vector<float>(count, 1.0F));
  for (auto _ : state) {
    benchmark::DoNotOptimize(training.parameters().data());
    benchmark::DoNotOptimize(training.gradients().data());
  }
}
BENCHMARK(spans);

/// Microseconds of a synchronous round and of its bare collectives, alternating, on `ranks` threads; medians.
template <class World>
void round_overhead(benchmark::State& state, World run) {
  for (auto _ : state) {
    run([&](auto backend) {
      using clock = std::chrono::steady_clock;
      acco::optimizer training{acco::synchronous{}, acco::adamw{}, acco::host_storage<float>{}, backend, count, as_released};
      training.initialize(std::vector<float>(count, 1.0F));
      acco::host_queue queue;
      const auto ranks = static_cast<std::size_t>(backend.size());
      const std::size_t slice = (count + ranks - 1) / ranks;
      std::vector<float> gradients(slice * ranks), reduced(slice), parameters(slice * ranks);
      double mine[3] = {}, all[3] = {};
      const std::span<float const> own(parameters.data() + slice * static_cast<std::size_t>(backend.rank()), slice);
      std::vector<double> rounds, bare;
      constexpr int repeats = 3000;
      for (int i = 0; i < repeats; ++i) {
        const auto a = clock::now();
        training.accumulated(1);
        const auto b = clock::now();
        backend.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(all));
        backend.reduce_scatter(queue, acco::partial<float const>(gradients), acco::sharded<float>(reduced));
        backend.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(all));
        backend.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(parameters));
        queue.wait();
        const auto c = clock::now();
        rounds.push_back(std::chrono::duration<double, std::micro>(b - a).count());
        bare.push_back(std::chrono::duration<double, std::micro>(c - b).count());
      }
      if (backend.rank() != 0) return;
      std::nth_element(rounds.begin(), rounds.begin() + repeats / 2, rounds.end());
      std::nth_element(bare.begin(), bare.begin() + repeats / 2, bare.end());
      state.counters["round_us"] = rounds[repeats / 2];
      state.counters["collectives_us"] = bare[repeats / 2];
      state.counters["overhead_us"] = rounds[repeats / 2] - bare[repeats / 2];
    });
  }
}
void round_solo(benchmark::State& state) {
  round_overhead(state, [](auto body) { body(acco::solo_backend{}); });
}
void round_two_threads(benchmark::State& state) {
  round_overhead(state, [](auto body) { acco::threads_backend::run(2, body); });
}
BENCHMARK(round_solo)->Iterations(3)->Unit(benchmark::kMillisecond);
BENCHMARK(round_two_threads)->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
