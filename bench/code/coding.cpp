// SPDX-License-Identifier: Apache-2.0
// How fast arrays of Gaussian numbers are encoded and decoded, beside memcpy of the same array in the same iteration.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <acco/code/bfloat16_wire.hpp>
#include <acco/code/block_dct_top.hpp>
#include <acco/code/block_gauss.hpp>
#include <acco/code/block_integer.hpp>
#include <acco/code/block_random.hpp>
#include <acco/code/block_sign.hpp>
#include <acco/code/block_stat2.hpp>
#include <acco/code/block_ternary.hpp>
#include <acco/code/block_top.hpp>
#include <acco/code/majority_vote.hpp>
#include <acco/code/rotated.hpp>
#include <acco/storage/coding.hpp>
#include <acco/storage/host.hpp>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Encoding, class T>
void coding(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<acco::host_buffer> memory;  // aligned as the library's own arrays are
  for (int k = 0; k < 4; ++k) memory.emplace_back(std::pmr::new_delete_resource(), count * sizeof(float), 0);
  T *const values = memory[0].as<T>(), *const held = memory[1].as<T>(), *const arrived = memory[2].as<T>();
  auto* const sums = memory[3].as<float>();
  std::mt19937 random;
  std::normal_distribution<float> gaussian;
  for (std::size_t i = 0; i < count; ++i) values[i] = T(gaussian(random)), held[i] = arrived[i] = T(sums[i] = 0.0F);
  std::vector<std::byte> encoded(acco::encoded_size<Encoding>(count));
  const acco::trainable_run all{0, 0, count};
  const acco::trainable_view<T> view{held, &all, 1};
  unsigned long long found = 0, first = 0;
  const acco::coding::refused bad{&found, &first};
  const Encoding e;
  double seconds[5] = {};
  const auto timed = [&seconds](int which, auto&& work) {
    const double begin = now();
    work();
    seconds[which] += now() - begin;
    benchmark::ClobberMemory();
  };
  for (auto _ : state) {
    timed(0, [&] { std::memcpy(static_cast<void*>(arrived), values, count * sizeof(T)); });
    timed(1, [&] { acco::coding::encode_values(e, values, 0, count, encoded.data(), bad); });
    timed(2, [&] {
      acco::coding::decode_sum(e, 1, [&](int) { return static_cast<std::byte const*>(encoded.data()); }, sums, count, false);
    });
    timed(3, [&] { acco::coding::encode_difference(e, values, view, 0, count, encoded.data(), bad); });
    timed(4, [&] { acco::coding::decode_onto(e, static_cast<std::byte const*>(encoded.data()), view, 0, count, arrived); });
  }
  char const* const names[] = {"memcpy", "encode", "decode", "encode difference", "decode onto"};
  for (int k = 0; k < 5; ++k)
    state.counters[std::string(names[k]) + ", ns"] =
        seconds[k] / static_cast<double>(count * static_cast<std::size_t>(state.iterations())) * 1e9;
}
BENCHMARK(coding<acco::block_int4<>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_int8<>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::bfloat16_wire, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_gauss4, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_gauss3, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_gauss2, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_stat2, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_ternary, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_sign, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::rotated<acco::block_gauss3>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::rotated<acco::block_int4<>>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::majority_vote, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_int4<>, acco::bfloat16>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_int8<>, acco::bfloat16>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
// those that choose among a block's numbers
BENCHMARK(coding<acco::block_top<16>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_top<16, 256, 2>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_top<64, 4096, 2>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_random<32>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_random<64, 4096>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_dct_top<16>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_dct_top<64, 4096, 2>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_dct2_top<64, 2>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
