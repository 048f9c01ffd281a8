// SPDX-License-Identifier: Apache-2.0
// Commit and predict of every rule, in ns/parameter and GB/s, each iteration beside two limits over the same number of
// bytes: a memcpy, and a trivial in-place loop over arrays of the same shape. The shares are medians of ratios taken
// within one iteration, because machines are noisy.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <acco/acco.hpp>

namespace {

using clock = std::chrono::steady_clock;

template <class Work>
double seconds(Work&& work) {
  const auto from = clock::now();
  work();
  return std::chrono::duration<double>(clock::now() - from).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// `count` parameters; P is what the ranks get, G what was reduced to (always float masters).
template <class Rule, acco::update kind, class P>
void update(benchmark::State& state) {
  constexpr std::size_t count = std::size_t{1} << 24U;
  const acco::host_storage<P, float> storage;
  const auto array = [&](std::size_t bytes, std::size_t stagger) {
    auto buffer = storage.allocate(bytes, stagger);
    std::fill_n(buffer.template as<unsigned char>(), bytes, static_cast<unsigned char>(0));
    return buffer;
  };
  const auto master = array(4 * count, 0), gradient = array(4 * count, 1), out = array(sizeof(P) * count, 2),
             first = array(4 * count, 3), second = array(4 * count, 4);
  const auto constants = Rule{}.prepare({.count = 10}, {});
  constexpr acco::region_update decided{0.5, true};
  acco::update_table<Rule, float, float> a{.master = master.template as<float>(),
                                           .slots = {},
                                           .gradient = gradient.template as<float>(),
                                           .now = &constants,
                                           .next = &constants,
                                           .decided = &decided};
  const acco::host_buffer* slots[] = {&first, &second};
  for (std::size_t k = 0; k < Rule::slot_count; ++k) a.slots[k] = slots[k]->template as<float>();

  constexpr bool writes_state = kind != acco::update::predict;
  constexpr std::size_t bytes_each = 8 + 4 * Rule::slot_count + sizeof(P) + (writes_state ? 4 + 4 * Rule::slot_count : 0);
  const std::size_t bytes = bytes_each * count;
  const auto from = array(bytes / 2, 5), to = array(bytes / 2, 6);  // a copy of n bytes moves 2 n
  std::vector<double> of_copy, of_loop, copies;
  for (auto _ : state) {
    const double t = seconds([&] {
      for (std::size_t i = 0; i < count; i += acco::update_block::most)
        acco::elementwise::apply<Rule, kind>(a, {i, acco::update_block::most, 0}, out.template as<P>());
    });
    const double copy = seconds([&] {
      std::memcpy(to.template as<char>(), from.template as<char>(), bytes / 2);
      benchmark::DoNotOptimize(to.template as<char>());
      benchmark::ClobberMemory();
    });
    const double loop = seconds([&] {  // reads and writes the bytes of one array in place, with this file's flags
      float* const p = to.template as<float>();
      for (std::size_t i = 0; i < bytes / 8; ++i) p[i] = p[i] * 0.999F + 1e-9F;
      benchmark::ClobberMemory();
    });
    state.SetIterationTime(t);
    of_copy.push_back(copy / t);
    of_loop.push_back(loop / t);
    copies.push_back(copy);
  }
  state.counters["ns/parameter"] = benchmark::Counter(
      static_cast<double>(count) * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["copy_GB/s"] = static_cast<double>(bytes) / median(copies) * 1e-9;
  state.counters["of_copy"] = median(of_copy);
  state.counters["of_loop"] = median(of_loop);
}

template <class Rule, acco::update kind, class P>
void add(std::string const& kind_and_type) {
  benchmark::RegisterBenchmark((Rule::name + ("/" + kind_and_type)).c_str(), update<Rule, kind, P>)
      ->UseManualTime()
      ->MinTime(1.0);
}

}  // namespace

int main(int count, char** words) {
  using acco::bfloat16;
  using kind = acco::update;
  acco::for_each(acco::all_rules{}, []<class Rule>(Rule const&) {
    add<Rule, kind::commit, float>("commit/float");
    add<Rule, kind::predict, float>("predict/float");
  });
  add<acco::adamw, kind::commit_and_predict, float>("commit_and_predict/float");
  add<acco::adamw, kind::commit, bfloat16>("commit/bfloat16");
  add<acco::adamw, kind::predict, bfloat16>("predict/bfloat16");
  benchmark::Initialize(&count, words);
  benchmark::RunSpecifiedBenchmarks();
}
