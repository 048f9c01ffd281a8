// SPDX-License-Identifier: Apache-2.0
// --device cuda: ranks as threads that share the GPUs of this process, or as processes over NCCL.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include <acco/cuda.hpp>
#ifdef TOY_GPT_NCCL
#include <acco/nccl.hpp>
#endif

#include "gpt_cuda.cuh"
#include "optimizer.hpp"
#include "train.hpp"

namespace toy_gpt {

/// The model on this thread's GPU, on a stream of its own.
template <class Parameter>
class cuda_model {
 public:
  using parameter = Parameter;
  using gradient = Parameter;

  explicit cuda_model(settings const& s) : model_(s.model, stream_.get()), nvtx_(s.nvtx) {
    const std::size_t count = layout().size();
    committed_ = {acco::default_cuda_memory(), stream_.get(), count * sizeof(Parameter)};
    if (!direct_parameters) parameters_ = {acco::default_cuda_memory(), stream_.get(), 4 * count};
    gradients_ = {acco::default_cuda_memory(), stream_.get(), 4 * count};
  }
  ~cuda_model() {
    if (round_ != 0) nvtxRangeEnd(round_);
  }
  [[nodiscard]] acco::parameter_layout const& layout() const { return model_.layout(); }
  [[nodiscard]] std::vector<float> initial(std::uint64_t seed) const { return gpt<float>(shape_of()).initial(seed); }
  /// The memory that works beside this model.
  [[nodiscard]] acco::cuda_storage<Parameter> storage() const {
    acco::cuda_storage<Parameter> memory;
    memory.computation = stream_.get();
    return memory;
  }
  void between_layers(std::function<void()>) {}
  void begin_round(std::size_t index) {
    if (!nvtx_) return;
    if (round_ != 0) nvtxRangeEnd(round_);
    round_ = nvtxRangeStartA(("round " + std::to_string(index)).c_str());
  }

  double add_gradients(batch const& data, std::span<Parameter const> parameters, std::span<Parameter> gradients) {
    if (nvtx_) nvtxRangePushA("micro-batch");
    double loss = 0;
    if constexpr (std::is_same_v<Parameter, float>) {
      loss = model_.add_gradients(data, floats(parameters), gradients.data());
    } else {
      float* const sums = gradients_.as<float>();
      acco::check_cuda(cudaMemsetAsync(sums, 0, 4 * gradients.size(), stream_.get()), "cudaMemsetAsync");
      loss = model_.add_gradients(data, floats(parameters), sums);
      namespace kernels = acco::cuda_kernels;
      kernels::launch_elements({stream_.get()}, gradients.size(),
                               kernels::convert_body<float, Parameter, true>{sums, gradients.data()},
                               kernels::head_of({sums, gradients.data()}));
    }
    if (nvtx_) nvtxRangePop();
    return loss;
  }
  void work_in_vain(batch const& data, std::span<Parameter const> parameters) {
    model_.add_gradients(data, floats(parameters), gradients_.as<float>());
  }
  double loss(batch const& data, std::span<Parameter const> parameters) { return model_.loss(data, floats(parameters)); }
  std::span<float const> on_host(std::span<Parameter const> parameters) {
    on_host_.resize(parameters.size());
    acco::check_cuda(
        cudaMemcpyAsync(on_host_.data(), floats(parameters), 4 * parameters.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "cudaMemcpyAsync");
    acco::check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    return on_host_;
  }
  std::span<Parameter> room() { return {committed_.template as<Parameter>(), layout().size()}; }

 private:
  static constexpr bool direct_parameters = std::is_same_v<Parameter, float>;
  [[nodiscard]] shape shape_of() const { return model_.dimensions(); }
  /// The parameters as floats.
  float const* floats(std::span<Parameter const> parameters) {
    if constexpr (direct_parameters) {
      return parameters.data();
    } else {
      namespace kernels = acco::cuda_kernels;
      kernels::launch_elements({stream_.get()}, parameters.size(),
                               kernels::convert_body<Parameter, float, false>{parameters.data(), parameters_.as<float>()},
                               kernels::head_of({parameters.data(), parameters_.as<float>()}));
      return parameters_.as<float>();
    }
  }

  acco::cuda_stream stream_;
  gpt_on_gpu model_;
  bool nvtx_;
  nvtxRangeId_t round_ = 0;
  acco::cuda_buffer committed_, parameters_, gradients_;
  std::vector<float> on_host_;
};

namespace {

/// Trains one rank over `world` on this thread's GPU.
template <class Parameter, class World>
void train_on_device(World const& world, job& one, summary& result) {
  cuda_model<Parameter> model(one.chosen);
  auto training = make_training(one.chosen, model.storage(), world, model.layout(), options_of(one.chosen));
  train_rank(one, world.rank(), model, training, result);
}
template <class World>
void train_over_devices(World const& world, job& one, summary& result) {
  if (one.chosen.dtype == "bfloat16") {
    train_on_device<acco::bfloat16>(world, one, result);
  } else {
    train_on_device<float>(world, one, result);
  }
}

int gpus() {
  int count = 0;
  acco::check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) throw std::runtime_error("--device cuda: this process sees no GPU");
  return count;
}

class cuda_threads_runner : public runner {
 public:
  explicit cuda_threads_runner(int ranks) : ranks_(ranks), gpus_(gpus()) {}
  [[nodiscard]] int first_rank() const override { return 0; }
  [[nodiscard]] int size() const override { return ranks_; }
  void train(job& one) override {
    std::vector<summary> results(static_cast<std::size_t>(ranks_));
    acco::threads_backend::run(ranks_, [&](acco::threads_backend const& world) {
      acco::check_cuda(cudaSetDevice(world.rank() % gpus_), "cudaSetDevice");
      train_over_devices(world, one, results[static_cast<std::size_t>(world.rank())]);
    });
    one.result = results[0];
  }

 private:
  int ranks_, gpus_;
};

#ifdef TOY_GPT_NCCL
class nccl_runner : public runner {
 public:
  explicit nccl_runner(settings const& s) : world_(made(s)) {}
  [[nodiscard]] int first_rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  void train(job& one) override { train_over_devices(world_, one, one.result); }

 private:
  static acco::nccl_backend made(settings const& s) {
    char const* const local = std::getenv("LOCAL_RANK");
    const int mine = local != nullptr ? std::atoi(local) : acco::launch_environment::read().rank;
    acco::check_cuda(cudaSetDevice(mine % gpus()), "cudaSetDevice");
    return acco::nccl_backend::from_environment({.deadline = s.deadline});
  }
  acco::nccl_backend world_;
};
#endif

const registered_place threads("threads", "cuda",
                               [](settings const& s, int&, char**&) { return std::make_unique<cuda_threads_runner>(s.ranks); });
#ifdef TOY_GPT_NCCL
const registered_place nccl("nccl", "cuda", [](settings const& s, int&, char**&) { return std::make_unique<nccl_runner>(s); });
#endif

}  // namespace
}  // namespace toy_gpt
