// SPDX-License-Identifier: Apache-2.0
// Forward and backward of one micro-batch of toy_gpt's default model on one core. The peer is bench/peers/torch_gpt.py.
#include <vector>

#include <benchmark/benchmark.h>

#include "gpt.hpp"

namespace {
void micro_batch(benchmark::State& state) {
  toy_gpt::use_one_thread_for_products();
  const toy_gpt::shape shape;
  toy_gpt::gpt<float> model(shape);
  const auto parameters = model.initial(1);
  std::vector<float> gradients(parameters.size());
  toy_gpt::batch data{static_cast<std::size_t>(state.range(0)), {}, {}};
  for (std::size_t i = 0; i < data.sequences * shape.context; ++i) {
    data.inputs.push_back(static_cast<unsigned char>(i * 7));
    data.targets.push_back(static_cast<unsigned char>(i * 3));
  }
  for (auto _ : state) benchmark::DoNotOptimize(model.add_gradients(data, parameters, gradients));
  state.counters["micro-batches/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(toy_gpt::name_of_products());
}
BENCHMARK(micro_batch)->Arg(8)->Unit(benchmark::kMillisecond)->MinTime(3.0)->Repetitions(3);
}  // namespace

BENCHMARK_MAIN();
