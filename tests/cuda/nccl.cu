// SPDX-License-Identifier: Apache-2.0
// NCCL on one GPU: a world of one rank, and a round as a CUDA graph.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/cuda/nccl.hpp>
#include <acco/cuda/storage.hpp>

#include "cuda/cuda_world.hpp"

TEST_CASE_TEMPLATE("one rank over NCCL trains as one rank alone does", T, float, acco::bfloat16) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_nccl_" + std::to_string(getpid()));
  const auto world = acco::nccl_backend::from_files({0, 1}, directory, "run", {.deadline = 60});
  std::filesystem::remove_all(directory);
  const auto train = [](auto backend) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::adamw{.learning_rate = 0.01},
                             worlds::managed_storage<T>{},
                             backend,
                             1003,
                             acco::options{.clip_norm = 1}};
    training.initialize(std::vector<T>(1003, T(1.0F)));
    for (int m = 0; m < 8; ++m) {
      worlds::managed_storage<T>::settle();
      auto const p = training.parameters();
      auto const g = training.gradients();
      for (std::size_t i = 0; i < p.size(); ++i) g[i] = T(static_cast<float>(p[i]) * static_cast<float>(i % 5));
      training.accumulated(1);
    }
    training.finish();
    return training.state_digest();
  };
  CHECK(train(world) == train(acco::solo_backend{}));
}

TEST_CASE("the works of a round can be captured into a CUDA graph and run again") {
  using storage = worlds::managed_storage<float>;
  const storage memory;
  acco::cuda_stream stream;
  constexpr std::size_t count = 4096;
  auto arrays = [&] { return memory.allocate(count * sizeof(float), 0); };
  auto gradient = arrays(), master = arrays(), first = arrays(), second = arrays(), out = arrays();
  storage::settle();
  for (auto* each : {&gradient, &master, &first, &second, &out})
    std::fill_n(each->as<float>(), count, each == &gradient ? 1.0F : 0.0F);
  auto numbers = memory.allocate(sizeof(acco::region_update), 0);
  auto constants = memory.allocate(sizeof(acco::adamw::constants), 0);
  storage::settle();
  *numbers.as<acco::region_update>() = {1.0, true};
  *constants.as<acco::adamw::constants>() = acco::adamw{.learning_rate = 0.1, .weight_decay = 0}.prepare({}, {});
  auto blocks = memory.allocate(sizeof(acco::update_block), 0);
  storage::settle();
  *blocks.as<acco::update_block>() = {0, count, 0};
  const acco::update_table<acco::adamw, float, float> table{master.as<float>(),
                                                            {first.as<float>(), second.as<float>()},
                                                            gradient.as<float>(),
                                                            constants.as<acco::adamw::constants>(),
                                                            nullptr,
                                                            numbers.as<acco::region_update>(),
                                                            blocks.as<acco::update_block>()};

  acco::cuda_queue queue(stream.get());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  queue.issue([](cudaStream_t on) {
    acco::check_cuda(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  });
  storage::apply<acco::adamw, acco::update::commit>(queue, &table, 0, 1, out.as<float>());
  acco::solo_backend{}.all_gather(queue, acco::sharded<float const>({out.as<float>(), count}),
                                  acco::replicated<float>({out.as<float>(), count}));
  queue.issue([&graph](cudaStream_t on) { acco::check_cuda(cudaStreamEndCapture(on, &graph), "cudaStreamEndCapture"); });
  CHECK(out.as<float>()[0] == 0.0F);  // captured, not run
  acco::check_cuda(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
  for (int k = 0; k < 2; ++k)
    queue.issue([&ready](cudaStream_t on) { acco::check_cuda(cudaGraphLaunch(ready, on), "cudaGraphLaunch"); });
  queue.wait();
  CHECK(out.as<float>()[count - 1] < -0.1F);
  acco::check_cuda(cudaGraphExecDestroy(ready), "cudaGraphExecDestroy");
  acco::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}
