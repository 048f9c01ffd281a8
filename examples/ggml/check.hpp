// SPDX-License-Identifier: Apache-2.0
// What the test `examples/ggml/check` asks of the attachment, against ggml's own AdamW.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mlp.hpp"

namespace mlp {

inline void demand(bool holds, std::string const& what) {
  if (!holds) throw std::runtime_error("check failed: " + what);
}

/// Calls action, and demands an acco::usage_error with these words.
template <class Action>
void require_refused(std::string_view words, Action&& action) {
  try {
    action();
  } catch (acco::usage_error const& e) {
    demand(std::string_view(e.what()).find(words) != std::string_view::npos,
           "an error says '" + std::string(words) + "', not '" + e.what() + "'");
    return;
  }
  throw std::runtime_error("check failed: nothing was refused with '" + std::string(words) + "'");
}

inline std::vector<float> weights_of(model const& net) {
  std::vector<float> all;
  for (ggml_tensor const* each : net.parameters) {
    auto const* values = static_cast<float const*>(each->data);
    all.insert(all.end(), values, values + ggml_nelements(each));
  }
  return all;
}

inline double distance(std::vector<float> const& a, std::vector<float> const& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  return largest;
}

constexpr int ranks = 2;

struct outcome {
  std::vector<float> weights;
  std::vector<double> losses;  // of the steps
};

/// ggml alone: its own AdamW, over the batches of all ranks, in one process.
inline outcome train_by_ggml(settings const& s, ggml_opt_dataset_t data, double weight_decay) {
  const model net;
  ggml_opt_optimizer_params rule = ggml_opt_get_default_optimizer_params(nullptr);
  rule.adamw = {.alpha = static_cast<float>(s.rule.learning_rate),
                .beta1 = static_cast<float>(s.rule.beta1),
                .beta2 = static_cast<float>(s.rule.beta2),
                .eps = static_cast<float>(s.rule.epsilon),
                .wd = static_cast<float>(weight_decay)};
  ggml_opt_params params = net.params();
  params.opt_period = ranks * micro_batches;
  params.get_opt_pars = ggml_opt_get_constant_optimizer_params;
  params.get_opt_pars_ud = &rule;
  const opt_context context(ggml_opt_init(params));
  outcome trained;
  std::int64_t number = 0;
  for (int step = 0; step < s.steps; ++step) {
    double loss = 0;  // ggml's losses are divided by opt_period
    for (std::int64_t k = 0; k < ranks * micro_batches; ++k) {
      ggml_opt_alloc(context.get(), true);
      ggml_opt_dataset_get_batch(data, net.x, ggml_opt_labels(context.get()), number++ % (ggml_opt_dataset_ndata(data) / batch));
      ggml_opt_eval(context.get(), nullptr);
      float part = 0;
      ggml_backend_tensor_get(ggml_opt_loss(context.get()), &part, 0, sizeof(part));
      loss += static_cast<double>(part);
    }
    trained.losses.push_back(loss);
  }
  trained.weights = weights_of(net);
  return trained;
}

inline outcome train_on_threads(settings const& s, ggml_opt_dataset_t data) {
  outcome all[ranks];
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto& mine = all[world.rank()];
    const auto net = train(s, world, data, [&](acco::round_report const& report) { mine.losses.push_back(report.step_loss); });
    mine.weights = weights_of(*net);
  });
  demand(all[0].weights == all[1].weights, "both ranks hold the same weights");
  demand(all[0].losses.size() == static_cast<std::size_t>(s.steps), "a report for every step");
  return all[0];
}

/// Synchronous ranks make the updates of ggml's AdamW; a wrong decay would be seen.
inline void check_against_ggml(ggml_opt_dataset_t data) {
  const settings s{.schedule = "synchronous"};
  // ggml adds gradients in another order, and keeps its bias corrections as float.
  const double tolerance = 1e-6, tolerance_of_weights = 5e-6;
  const auto ours = train_on_threads(s, data), its = train_by_ggml(s, data, s.rule.weight_decay);
  double apart = 0;
  for (std::size_t k = 0; k < its.losses.size(); ++k) apart = std::max(apart, std::abs(ours.losses[k] - its.losses[k]));
  const double weights_apart = distance(ours.weights, its.weights);
  const double moved = distance(ours.weights, weights_of(model()));
  const double wrong = distance(ours.weights, train_by_ggml(s, data, s.rule.weight_decay / 2).weights);
  std::printf(
      "synchronous and ggml's AdamW in %d steps: loss %.6f and %.6f, largest difference of a step's %.1e,\n"
      "of a weight at the end %.1e, of weights that moved by up to %.2f; with half the weight decay: %.1e\n",
      s.steps, ours.losses.back(), its.losses.back(), apart, weights_apart, moved, wrong);
  demand(apart < tolerance, "the losses are those of ggml's AdamW");
  demand(weights_apart < tolerance_of_weights, "the weights are those of ggml's AdamW");
  demand(moved > 100 * tolerance_of_weights, "they have moved");
  demand(wrong > 100 * tolerance_of_weights, "half the weight decay would have been seen");
}

/// The mean loss of the last steps stays close under two_phase, with exact and with coarse estimates.
inline void check_schedules(ggml_opt_dataset_t data) {
  const auto last = [](outcome const& of) { return std::accumulate(of.losses.end() - 50, of.losses.end(), 0.0) / 50; };
  const auto measure = train_on_threads({.schedule = "synchronous"}, data);
  demand(measure.losses.front() > 1.3 && last(measure) < 0.95, "something was learned");
  for (char const* schedule : {"two_phase", "two_phase+int4"}) {
    const auto trained = train_on_threads({.schedule = schedule}, data);
    std::printf("loss of the last 50 of 200 steps: synchronous %.5f, %s %.5f\n", last(measure), schedule, last(trained));
    demand(std::abs(last(trained) / last(measure) - 1) < 0.01, std::string(schedule) + " learns like synchronous");
    demand(distance(trained.weights, measure.weights) > 1e-4, std::string(schedule) + " is another schedule");
  }
}

/// One rank, sgd at a rate of 1: each step moves a weight by its mean gradient.
inline acco::any_optimizer<float> alone(acco::parameter_layout const& layout, unsigned pace = 1) {
  return acco::optimizer{acco::synchronous{.pace = acco::fixed_pace{pace}}, acco::sgd{.learning_rate = 1, .momentum = 0},
                         acco::host_storage<float>{}, acco::solo_backend{}, layout};
}

inline void check_layout() {
  const model net;
  net.parameters[1]->flags &= ~GGML_TENSOR_FLAG_PARAM;  // not trained
  auto layout = acco::attach::layout_of(net.params());
  layout.move_to(layout.index_of("output.bias"), layout.add_group({.frozen = true}));
  demand(layout.tensor_count() == 3 && layout.size() == inputs * hidden + hidden * classes + classes, "what is marked");
  const auto shape = layout["hidden.weight"].shape;
  demand(shape.size() == 2 && shape[0] == hidden && shape[1] == inputs, "the slowest dimension first");
  demand(layout["output.bias"].shape.size() == 1 && layout["output.bias"].shape[0] == classes, "a vector");
  const auto before = weights_of(net);
  acco::attach::ggml_training training{net.params(), alone(layout)};
  training.step([&] {
    ggml_set_f32(net.x, 1);
    ggml_set_f32(ggml_opt_labels(training.context()), 0.5F);
  });
  training.finish();
  const auto after = weights_of(net);
  const auto stays = [&](std::int64_t begin, std::int64_t count) {
    return std::equal(after.begin() + begin, after.begin() + begin + count, before.begin() + begin);
  };
  demand(stays(inputs * hidden, hidden), "what is not marked stays");
  demand(stays(ggml_nelements(net.parameters[0]) + hidden + hidden * classes, classes), "what the layout freezes stays");
  demand(!stays(0, inputs * hidden), "the rest is trained");
}

/// Means are over datapoints, sums stay sums, and what does not count is not divided by. The outputs' gradient by their
/// bias is 1 each, so that every number is known.
inline void check_weights() {
  const auto bias_after = [](ggml_opt_loss_type loss, auto&& fill, unsigned pace = 1) {
    const model net;
    const auto params = net.params(loss);
    acco::attach::ggml_training training{params, alone(acco::attach::layout_of(params), pace)};
    const auto report = training.step([&] {
      ggml_set_f32(net.x, 0);  // the hidden units are 0, the outputs their bias, which is 0
      return fill();
    });
    demand(report.step_loss == 0, "a loss of 0");
    training.finish();
    return static_cast<float const*>(net.parameters[3]->data)[0];
  };
  const auto all = [] {};
  demand(bias_after(GGML_OPT_LOSS_TYPE_SUM, all) == -1, "a sum over 8 datapoints, by 8");
  demand(bias_after(GGML_OPT_LOSS_TYPE_MEAN, all) == -0.25F, "a mean over 8 datapoints of 4 outputs");
  demand(bias_after(GGML_OPT_LOSS_TYPE_SUM, [] { return 4; }) == -2, "of which 4 count");
  demand(bias_after(GGML_OPT_LOSS_TYPE_MEAN, [] { return 4; }) == -0.5F, "of which 4 count");
  int call = 0;
  demand(bias_after(GGML_OPT_LOSS_TYPE_SUM, [&] { return call++ % 2 == 0 ? 8 : 0; }, 2) == -1, "a micro-batch without samples");
  require_refused("accumulated got a weight of -1", [&] { bias_after(GGML_OPT_LOSS_TYPE_SUM, [] { return -1.0; }); });
}

/// What ggml does between micro-batches changes nothing: evaluations, and results that it adds up.
inline void check_between(ggml_opt_dataset_t data) {
  const auto train_with = [&](bool evaluates) {
    const model net;
    const auto params = net.params();
    acco::attach::ggml_training first{
        params, acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{2, 1}}, acco::adamw{}, acco::host_storage<float>{},
                                acco::solo_backend{}, acco::attach::layout_of(params)}};
    acco::attach::ggml_training training(std::move(first));  // may be moved
    auto draw = [&, k = std::int64_t(0)]() mutable {
      ggml_opt_dataset_get_batch(data, net.x, ggml_opt_labels(training.context()), k++);
    };
    std::vector<double> losses;
    for (int k = 0; k < 30; ++k) {
      const opt_result result(ggml_opt_result_init()), apart(ggml_opt_result_init());
      if (const auto report = training.micro_batch(draw, evaluates ? result.get() : nullptr)) losses.push_back(report->step_loss);
      if (!evaluates) continue;
      ggml_opt_alloc(training.context(), false);
      ggml_opt_eval(training.context(), apart.get());
      double loss = 0, again = 0;
      std::int64_t points = 0;
      ggml_opt_result_loss(result.get(), &loss, nullptr);
      ggml_opt_result_loss(apart.get(), &again, nullptr);
      ggml_opt_result_ndata(result.get(), &points);
      demand(points == batch && loss > 0.5 && loss < 2.5, "ggml's results are of this micro-batch");
      demand(std::abs(loss - again) < 0.1, "and of this batch");
    }
    training.finish();
    return std::pair(losses, weights_of(net));
  };
  demand(train_with(true) == train_with(false), "evaluations between micro-batches change nothing");
}

/// A buffer that the host cannot address: what a GPU's would be. ggml keeps repacked weights in such, where it does.
inline ggml_backend_buffer_type_t memory_out_of_reach() {
  ggml_backend_dev_t const device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  auto* const ask = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  for (ggml_backend_buffer_type_t* each = ask == nullptr ? nullptr : ask(device); each != nullptr && *each != nullptr; ++each)
    if (!ggml_backend_buft_is_host(*each)) return *each;
  return nullptr;
}

inline void check_refusals() {
  const model good;
  const auto layout_of = [](ggml_opt_params const& params) { (void)acco::attach::layout_of(params); };
  auto no_graph = good.params();
  no_graph.ctx_compute = nullptr;
  require_refused("ggml_opt_params has no ctx_compute", [&] { layout_of(no_graph); });

  const model unmarked;
  for (ggml_tensor* each : unmarked.parameters) each->flags &= ~GGML_TENSOR_FLAG_PARAM;
  require_refused("the outputs are computed from no tensor that is trained", [&] { layout_of(unmarked.params()); });
  const model nameless;
  ggml_set_name(nameless.parameters[1], "");
  require_refused("parameter 2 of the model has no name", [&] { layout_of(nameless.params()); });

  const auto with_first = [](ggml_type type, ggml_backend_buffer_type_t memory, std::string_view words) {
    const ggml_context_ptr context(ggml_init({4 * ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor* const w = ggml_set_name(ggml_new_tensor_2d(context.get(), type, 32, 2), "w");
    ggml_set_param(w);
    ggml_backend_buffer_ptr buffer;
    if (memory != nullptr) buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), memory));
    require_refused(words, [&] { (void)acco::attach::parameters_of(w); });
  };
  with_first(GGML_TYPE_F16, ggml_backend_cpu_buffer_type(), "parameter 'w' is f16");
  with_first(GGML_TYPE_Q8_0, ggml_backend_cpu_buffer_type(), "parameter 'w' is q8_0");
  with_first(GGML_TYPE_F32, nullptr, "parameter 'w' has no memory yet");
  if (ggml_backend_buffer_type_t const far = memory_out_of_reach()) {
    with_first(GGML_TYPE_F32, far,
               "parameter 'w' lies in " + std::string(ggml_backend_buft_name(far)) + ", which the host cannot address");
  } else {
    std::printf("this ggml has no memory that the host cannot address: no such weights were tried\n");
  }

  acco::parameter_layout other;
  other.add("hidden.weight", {inputs, hidden});
  require_refused("the layout of the optimizer is not that of the model",
                  [&] { acco::attach::ggml_training(good.params(), alone(other)); });
  for (const int way : {0, 1, 2, 3}) {
    const bool with_optimizer = way == 1, sum = way == 2, no_samples = way == 3;
    const model net;
    auto params = net.params();
    if (sum) params.loss_type = GGML_OPT_LOSS_TYPE_SUM;
    acco::attach::ggml_training training{params, alone(acco::attach::layout_of(params), 3)};
    const auto fill = [&] {
      ggml_set_f32(net.x, 1);
      if (!sum) ggml_set_f32(ggml_opt_labels(training.context()), 0.5F);
    };
    training.micro_batch(fill);
    ggml_opt_reset(training.context(), with_optimizer);
    require_refused("ggml_opt_reset has cleared gradients",
                    [&] { no_samples ? training.micro_batch([] { return 0; }) : training.micro_batch(fill); });
    training.finish();
  }
}

inline void check_all() {
  const auto data = make_data(8192);
  check_layout();
  check_weights();
  check_between(data.get());
  check_refusals();
  check_against_ggml(data.get());
  check_schedules(data.get());
  std::printf("all checks passed\n");
}

}  // namespace mlp
