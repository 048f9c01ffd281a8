// SPDX-License-Identifier: Apache-2.0
// How fast arrays are encoded and decoded, beside memcpy of the same array in the same iteration.
#include <chrono>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include <acco/encoding/bfloat16_wire.hpp>
#include <acco/encoding/block_dct_top.hpp>
#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_integer.hpp>
#include <acco/encoding/block_random.hpp>
#include <acco/encoding/block_sign.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/storage/coding.hpp>
#include <acco/storage/low_rank.hpp>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Encoding, class T>
void coding(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<T> values(count), held(count), arrived(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(static_cast<float>(i % 1000) - 500.0F);
  std::vector<float> sums(count);
  std::vector<std::byte> encoded(acco::encoded_size<Encoding>(count));
  const acco::trainable_run all{0, 0, count};
  const acco::trainable_view<T> view{held.data(), &all, 1};
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
    timed(0, [&] { std::memcpy(static_cast<void*>(arrived.data()), values.data(), count * sizeof(T)); });
    timed(1, [&] { acco::coding::encode_values(e, values.data(), 0, count, encoded.data(), bad); });
    timed(2, [&] {
      acco::coding::decode_sum(
          e, 1, [&](int) { return static_cast<std::byte const*>(encoded.data()); }, sums.data(), count, false);
    });
    timed(3, [&] { acco::coding::encode_difference(e, values.data(), view, 0, count, encoded.data(), bad); });
    timed(4,
          [&] { acco::coding::decode_onto(e, static_cast<std::byte const*>(encoded.data()), view, 0, count, arrived.data()); });
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
BENCHMARK(coding<acco::rotated_gauss3, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_top<16>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_ternary, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_random<32>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_dct_top<16>, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_sign, float>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_int4<>, acco::bfloat16>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);
BENCHMARK(coding<acco::block_int8<>, acco::bfloat16>)->Arg(16 << 20)->MinTime(1.5)->Unit(benchmark::kMillisecond);

/// The steps of PowerSGD on one rank, of a square matrix, in nanoseconds an element of it.
void power_sgd(benchmark::State& state) {
  const auto side = static_cast<std::size_t>(state.range(0)), rank = static_cast<std::size_t>(state.range(1));
  const acco::low_rank_matrix m{side, side, rank, 0, 0, 0, 1};
  const acco::low_rank_piece all{0, 0, m.size(), 0};
  std::vector<float> gradients(m.size()), arrived(m.size()), kept(m.size()), thin[4];
  for (auto& each : thin) each.resize(rank * side);
  for (std::size_t i = 0; i < m.size(); ++i) gradients[i] = static_cast<float>(i * i % 1000) - 500.0F;
  const acco::low_rank_view<float> view{&m, 1, kept.data(), thin[0].data(), thin[1].data(), thin[2].data(), thin[3].data()};
  acco::low_rank::forget(view);
  double seconds[5] = {};
  const auto timed = [&seconds](int which, auto&& work) {
    const double begin = now();
    work();
    seconds[which] += now() - begin;
    benchmark::ClobberMemory();
  };
  for (auto _ : state) {
    timed(0, [&] { std::memcpy(arrived.data(), gradients.data(), m.size() * sizeof(float)); });
    timed(1, [&] { acco::low_rank::begin(view, &all, 1, gradients.data(), 1, true); });
    thin[2] = thin[1];
    timed(2, [&] { acco::low_rank::turn(view, true); });
    thin[3] = thin[1];
    timed(3, [&] { acco::low_rank::write(view, &all, 1, arrived.data(), m.size(), false); });
    timed(4, [&] { acco::low_rank::end(view, 1, 1, 1); });
  }
  char const* const names[] = {"memcpy", "g + e, p Q", "orthonormal, p' P", "P Q'", "e"};
  for (int k = 0; k < 5; ++k)
    state.counters[std::string(names[k]) + ", ns"] =
        seconds[k] / static_cast<double>(m.size() * static_cast<std::size_t>(state.iterations())) * 1e9;
}
BENCHMARK(power_sgd)->Args({4096, 1})->Args({4096, 4})->Args({4096, 32})->MinTime(1.5)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
