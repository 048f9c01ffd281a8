// SPDX-License-Identifier: Apache-2.0
// The update on a GPU: commit and predict of each rule beside a device-to-device copy that moves as many bytes, in the same run;
// and the host's time to enqueue a round. Prints a table; `--largest N` sets the largest number of parameters (default 2^28).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/cuda.hpp>

namespace {

using acco::check_cuda;

/// Median seconds of 15 runs of `work(queue)` on the queue's stream.
template <class Work>
double seconds(acco::cuda_queue& queue, Work&& work) {
  std::vector<double> all;
  for (int k = 0; k < 18; ++k) {
    double begin = 0, end = 0;
    queue.stamp([to = &begin](double now) { *to = now; });
    work(queue);
    queue.stamp([to = &end](double now) { *to = now; });
    queue.wait();
    if (k >= 3) all.push_back(end - begin);
  }
  std::nth_element(all.begin(), all.begin() + 7, all.end());
  return all[7];
}

template <class Rule, acco::update kind, class Parameter>
void measure(char const* name, Rule const& rule, std::size_t count) {
  using storage = acco::cuda_storage<Parameter>;
  const storage memory;
  acco::cuda_queue queue(nullptr);
  const auto array = [&](std::size_t bytes) {
    auto buffer = memory.allocate(bytes, 0);
    check_cuda(cudaMemset(buffer.template as<char>(), 0, bytes), "cudaMemset");
    return buffer;
  };
  const auto master = array(4 * count), gradient = array(4 * count), out = array(sizeof(Parameter) * count);
  acco::update_table<Rule, float, float> table{master.template as<float>(), {}, gradient.template as<float>()};
  std::vector<acco::cuda_buffer> slots;
  for (auto& slot : table.slots) slot = slots.emplace_back(array(4 * count)).template as<float>();
  acco::cuda_numbers<acco::rule_constants<Rule>> constants(memory, 1);
  acco::cuda_numbers<acco::region_update> decided(memory, 1);
  constants[0] = rule.prepare({.count = 10}, {});
  decided[0] = {1.0, true};
  const std::size_t cut = (count + acco::update_block::most - 1) / acco::update_block::most;
  acco::cuda_numbers<acco::update_block> blocks(memory, cut);
  for (std::size_t k = 0; k < cut; ++k) {
    const std::size_t begin = k * acco::update_block::most;
    blocks[k] = {begin, static_cast<std::uint32_t>(std::min(acco::update_block::most, count - begin)), 0};
  }
  constants.upload(queue);
  decided.upload(queue);
  blocks.upload(queue);
  table.now = table.next = constants.there();
  table.decided = decided.there();
  table.blocks = blocks.there();

  const double update = seconds(
      queue, [&](acco::cuda_queue& q) { storage::template apply<Rule, kind>(q, &table, 0, cut, out.template as<Parameter>()); });
  constexpr std::size_t reads = 8 + 4 * Rule::slot_count;
  constexpr std::size_t writes = sizeof(Parameter) + (kind == acco::update::predict ? 0 : 4 + 4 * Rule::slot_count);
  const std::size_t half = (reads + writes) * count / 2;
  const auto from = array(half), to = array(half);
  const double copy = seconds(queue, [&](acco::cuda_queue& q) {
    q.issue([&](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(to.template as<char>(), from.template as<char>(), half, cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync");
    });
  });
  std::printf("| %s | %s | %zu | %.1f | %.0f | %.0f | %.3f |\n", name, sizeof(Parameter) == 2 ? "bfloat16" : "float", count,
              1e6 * update, static_cast<double>(2 * half) / update * 1e-9, static_cast<double>(2 * half) / copy * 1e-9,
              copy / update);
  std::fflush(stdout);
}

template <class Parameter>
void all_rules(std::size_t count) {
  measure<acco::adamw, acco::update::commit, Parameter>("adamw commit", acco::adamw{}, count);
  measure<acco::adamw, acco::update::predict, Parameter>("adamw predict", acco::adamw{}, count);
  measure<acco::sgd, acco::update::commit, Parameter>("sgd commit", acco::sgd{.momentum = 0.9}, count);
  measure<acco::sgd, acco::update::predict, Parameter>("sgd predict", acco::sgd{.momentum = 0.9}, count);
  measure<acco::lion, acco::update::commit, Parameter>("lion commit", acco::lion{}, count);
  measure<acco::lion, acco::update::predict, Parameter>("lion predict", acco::lion{}, count);
}

}  // namespace

int main(int count, char** words) {
  std::size_t largest = std::size_t{1} << 28U;
  for (int k = 1; k + 1 < count; ++k) {
    if (std::strcmp(words[k], "--largest") == 0) largest = std::strtoull(words[k + 1], nullptr, 10);
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 0;
  }
  std::puts("| rule | out | parameters | us | GB/s | copy, GB/s | of copy |\n|---|---|---|---|---|---|---|");
  for (std::size_t n = std::size_t{1} << 20U; n <= largest; n *= 16) {
    all_rules<float>(n);
    all_rules<acco::bfloat16>(n);
  }
  // The host's time to enqueue a round: accumulated() of a small model whose round before is done.
  acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::cuda_storage<float>{}, acco::solo_backend{}, 1 << 20};
  training.initialize(std::vector<float>(1 << 20, 1.0F));
  std::vector<double> times;
  for (int k = 0; k < 500; ++k) {
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const double begin = acco::steady_seconds();
    training.accumulated(1);
    times.push_back(acco::steady_seconds() - begin);
  }
  std::nth_element(times.begin(), times.begin() + 250, times.end());
  std::printf("\nhost time of a boundary (landing one round, enqueuing the next), median of 500: %.1f us\n", 1e6 * times[250]);
  return 0;
}
