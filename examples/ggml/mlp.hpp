// SPDX-License-Identifier: Apache-2.0
// A two-layer model of ggml, data that it learns, and the loop that trains it with acco.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml-opt.h>
#include <ggml.h>

#include <acco/acco.hpp>
#include <acco/attach/ggml.hpp>
#include <acco/make.hpp>

namespace mlp {

constexpr std::int64_t inputs = 16, hidden = 32, classes = 4, batch = 8;

/// What ggml-opt makes, as ggml-cpp.h has the rest.
template <auto Free>
struct frees {
  template <class Thing>
  void operator()(Thing* thing) const {
    Free(thing);
  }
};
using data_set = std::unique_ptr<ggml_opt_dataset, frees<ggml_opt_dataset_free>>;
using opt_context = std::unique_ptr<ggml_opt_context, frees<ggml_opt_free>>;
using opt_result = std::unique_ptr<ggml_opt_result, frees<ggml_opt_result_free>>;

/// Points, and the class of each: which of four sums of two coordinates, one of them bent, is the largest.
inline data_set make_data(std::int64_t points) {
  data_set data(ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, inputs, classes, points, 1));
  auto* x = static_cast<float*>(ggml_opt_dataset_data(data.get())->data);
  auto* y = static_cast<float*>(ggml_opt_dataset_labels(data.get())->data);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (std::int64_t point = 0; point < points; ++point, x += inputs, y += classes) {
    for (std::int64_t k = 0; k < inputs; ++k) x[k] = normal(random);
    const auto score = [x](std::int64_t k) { return std::sin(3 * x[k]) + x[k + classes]; };
    std::int64_t best = 0;
    for (std::int64_t k = 1; k < classes; ++k) best = score(k) > score(best) ? k : best;
    for (std::int64_t k = 0; k < classes; ++k) y[k] = k == best ? 1.0F : 0.0F;
  }
  return data;
}

/// One rank's model, its scheduler, and its graph. The same weights whenever it is made.
struct model {
  model() {
    ggml_backend_cpu_set_n_threads(backend.get(), 1);  // of this rank
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (ggml_tensor* each : parameters) ggml_set_param(each);
    memory.reset(ggml_backend_alloc_ctx_tensors(weights.get(), backend.get()));
    for (ggml_tensor* each : parameters) {
      auto* values = static_cast<float*>(each->data);
      const float scale = ggml_n_dims(each) > 1 ? 1 / std::sqrt(static_cast<float>(each->ne[0])) : 0.0F;
      for (std::int64_t k = 0; k < ggml_nelements(each); ++k) values[k] = scale * normal(random);
    }
  }
  [[nodiscard]] ggml_tensor* tensor(char const* name, std::int64_t fast, std::int64_t slow) const {
    return ggml_set_name(slow == 0 ? ggml_new_tensor_1d(weights.get(), GGML_TYPE_F32, fast)
                                   : ggml_new_tensor_2d(weights.get(), GGML_TYPE_F32, fast, slow),
                         name);
  }
  [[nodiscard]] ggml_opt_params params(ggml_opt_loss_type loss = GGML_OPT_LOSS_TYPE_CROSS_ENTROPY) const {
    ggml_opt_params of = ggml_opt_default_params(scheduler.get(), loss);
    of.ctx_compute = graph.get(), of.inputs = x, of.outputs = y;
    return of;
  }

  static constexpr std::size_t graph_size = GGML_DEFAULT_GRAPH_SIZE;
  ggml_backend_ptr backend{ggml_backend_cpu_init()};
  ggml_backend_t backends = backend.get();
  ggml_backend_sched_ptr scheduler{ggml_backend_sched_new(&backends, nullptr, 1, graph_size, false, true)};
  ggml_context_ptr weights{ggml_init({.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})};
  ggml_context_ptr graph{
      ggml_init({.mem_size = graph_size * ggml_tensor_overhead() + 3 * ggml_graph_overhead_custom(graph_size, true),
                 .mem_buffer = nullptr,
                 .no_alloc = true})};
  ggml_tensor* x = tensor("x", inputs, batch);
  std::array<ggml_tensor*, 4> parameters{tensor("hidden.weight", inputs, hidden), tensor("hidden.bias", hidden, 0),
                                         tensor("output.weight", hidden, classes), tensor("output.bias", classes, 0)};
  ggml_tensor* h = ggml_relu(graph.get(), ggml_add(graph.get(), ggml_mul_mat(graph.get(), parameters[0], x), parameters[1]));
  ggml_tensor* y = ggml_add(graph.get(), ggml_mul_mat(graph.get(), parameters[2], h), parameters[3]);
  ggml_backend_buffer_ptr memory;
};

struct settings {
  std::string schedule = "two_phase";
  int steps = 200;
  acco::adamw rule{.learning_rate = 3e-3, .weight_decay = 0.01};
};
constexpr std::int64_t micro_batches = 4;  // of a step, on each rank, under every schedule

template <class Backend>
acco::any_optimizer<float> make_optimizer(settings const& s, Backend const& world, acco::parameter_layout const& layout) {
  using schedules = acco::only<acco::named_schedules, "synchronous", "two_phase", "two_phase+int4">;
  const auto pace = s.schedule.starts_with("two_phase") ? acco::fixed_pace{3, 1} : acco::fixed_pace{micro_batches};
  return acco::make<schedules>(s.schedule, pace, s.rule, acco::host_storage<float>{}, world, layout,
                               acco::options{.deadline = 120});
}

/// Trains on one rank, which takes every `world.size()`-th batch; calls each_step(report) after every step. Afterwards
/// the model holds the committed weights.
template <class Backend, class EachStep>
std::unique_ptr<model> train(settings const& s, Backend const& world, ggml_opt_dataset_t data, EachStep&& each_step) {
  auto net = std::make_unique<model>();
  const std::int64_t batches = ggml_opt_dataset_ndata(data) / batch;
  // [attach]
  const ggml_opt_params params = net->params();
  acco::attach::ggml_training training{params, make_optimizer(s, world, acco::attach::layout_of(params))};
  std::int64_t number = world.rank();
  for (int step = 0; step < s.steps; ++step) {
    const auto report = training.step([&] {
      ggml_opt_dataset_get_batch(data, net->x, ggml_opt_labels(training.context()), number % batches);
      number += world.size();
    });
    each_step(report);
  }
  training.finish();
  // [attach]
  return net;
}

}  // namespace mlp
