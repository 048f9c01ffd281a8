// SPDX-License-Identifier: Apache-2.0
// Overlap on one GPU: ranks as threads, each computing for an exact time on one multiprocessor, so that computation and
// communication do not compete for them. Prints the step beside its limit, the larger of computation and communication.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <acco/acco.hpp>
#include <acco/cuda.hpp>

namespace {

__global__ void compute(std::uint64_t nanoseconds) {  // multiprocessors do not run at the clock that the driver tells
  const std::uint64_t begin = acco::cuda_kernels::global_nanoseconds();
  while (acco::cuda_kernels::global_nanoseconds() - begin < nanoseconds) {
  }
}

struct result {
  double step = 0, communication = 0, hidden = 0;
};

/// Seconds of a step, and of its communication; every micro-batch takes so many nanoseconds.
template <class Schedule>
result measure(Schedule schedule, int ranks, std::size_t parameters, std::uint64_t nanoseconds) {
  result found;
  acco::threads_backend::run(ranks, [&](auto world) {
    acco::cuda_stream stream;
    acco::optimizer training{schedule, acco::adamw{}, acco::cuda_storage<acco::bfloat16>{.computation = stream.get()}, world,
                             parameters};
    training.initialize(std::vector<acco::bfloat16>(parameters, acco::bfloat16(1.0F)));
    constexpr std::uint64_t warm = 5, counted = 30;
    double from = 0;
    acco::round_totals before;
    while (training.steps() < warm + counted) {
      const std::uint64_t steps = training.steps();
      if (nanoseconds > 0) compute<<<1, 1, 0, stream.get()>>>(nanoseconds);
      training.accumulated(1);
      if (steps < warm && training.steps() == warm) {
        from = acco::steady_seconds();
        before = training.totals();
      }
    }
    const double seconds = acco::steady_seconds() - from;
    acco::round_totals const& after = training.totals();
    if (world.rank() == 0) {
      const double communication = after.communication_seconds - before.communication_seconds;
      found.step = seconds / counted;
      found.communication = communication / counted;
      found.hidden = communication > 0 ? 1 - (after.exposed_seconds - before.exposed_seconds) / communication : 0;
    }
    training.finish();
  });
  return found;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 0;
  }
  constexpr int ranks = 2;
  constexpr std::size_t parameters = std::size_t{1} << 26U;
  const acco::fixed_pace two{.first = 2};
  const double communication = measure(acco::synchronous{.pace = two}, ranks, parameters, 0).step;
  std::printf("%d ranks, %zu parameters: communication of a synchronous step %.2f ms\n", ranks, parameters, 1e3 * communication);
  std::puts("| T_comm / T_comp | schedule | step, ms | limit, ms | over | hidden |\n|---|---|---|---|---|---|");
  for (const double ratio : {0.25, 0.5, 1.0}) {
    const double computation = communication / ratio;
    const auto nanoseconds = static_cast<std::uint64_t>(computation / 2 * 1e9);
    const auto print = [&](char const* name, result const& r, double limit) {
      std::printf("| %.2f | %s | %.2f | %.2f | %.3f | %.0f %% |\n", ratio, name, 1e3 * r.step, 1e3 * limit, r.step / limit,
                  100 * r.hidden);
    };
    print("synchronous", measure(acco::synchronous{.pace = two}, ranks, parameters, nanoseconds), computation + communication);
    print("delayed", measure(acco::delayed{.pace = two}, ranks, parameters, nanoseconds), std::max(computation, communication));
    print("two_phase", measure(acco::two_phase{}, ranks, parameters, nanoseconds), std::max(computation, 2 * communication));
  }
  return 0;
}
