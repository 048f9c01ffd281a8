// SPDX-License-Identifier: Apache-2.0
// A model of ggml (component `ggml`), for loops over ggml-opt: ggml computes gradients and adds them up, acco updates the
// weights where they lie. For a ggml of August 2025 and newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ggml-backend.h>
#include <ggml-opt.h>
#include <ggml.h>

#include "acco/any_optimizer.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/finite.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_NAMESPACE::attach {

/// What `ggml_set_param` has marked, of all that `outputs` is computed from, in the order in which ggml's graph has it. Throws
/// `usage_error`, by name, on a tensor that has no name, is not contiguous float32, or has no host memory.
[[nodiscard]] inline std::vector<ggml_tensor*> parameters_of(ggml_tensor* outputs);

/// The layout of a model's parameters: names, and shapes from the slowest dimension to the fastest, the reverse of
/// `ne`. What is not marked has no place in it. Throws `usage_error` where `params` has no `ctx_compute`, no `inputs`
/// with memory or no `outputs`, where nothing is marked, and like `parameters_of` and `parameter_layout::add`.
[[nodiscard]] inline parameter_layout layout_of(ggml_opt_params const& params);

/// An optimizer that trains a model of ggml:
///
///   auto params = ggml_opt_default_params(sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
///   params.ctx_compute = ctx_compute, params.inputs = inputs, params.outputs = outputs;
///   acco::attach::ggml_training training{params, acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world,
///                                                                acco::attach::layout_of(params)}};
///   auto report = training.step([&] { ggml_opt_dataset_get_batch(data, inputs, ggml_opt_labels(training.context()), next++); });
///
/// It makes the `ggml_opt_context` itself, such that ggml never makes a step: `build_type`, `opt_period` and
/// `optimizer` of `params` are replaced, `get_opt_pars` is not asked. (But for one step every 2^30 evaluations, which the
/// next commit undoes; the gradients that had been added up are lost to it.) Parameters stay in the model's own memory,
/// so that it can be evaluated and saved between steps as it is, and holds the last weights when this object has ended.
/// Gradients are added up where ggml has its accumulators. acco clears these: `ggml_opt_reset` would erase what a
/// schedule keeps there over several micro-batches, and is an error.
///
/// The losses of ggml-opt are means over datapoints, the second dimension of the outputs (of a language model, tokens),
/// divided by `opt_period`; gradients arrive here as sums, and `samples()` counts datapoints. GGML_OPT_LOSS_TYPE_SUM is
/// a sum, and stays one.
///
/// Weights, inputs and the scheduler are the caller's, and are to outlive this object, and to stay where they are.
/// Threads: as in `any_optimizer`; every rank has a model and a scheduler of its own. Movable.
class ggml_training {
 public:
  /// Makes the context, and `adopt`s the parameters: rank 0's values reach every rank's. `training` is one whose layout
  /// is `layout_of(params)`, before `initialize`. Collective; blocks. Throws `usage_error` where the layout is not the
  /// model's or gradients do not lie in host memory, and what `layout_of` and `any_optimizer::adopt` throw.
  ggml_training(ggml_opt_params params, any_optimizer<float> training);
  ggml_training(ggml_training&&) = default;
  ggml_training& operator=(ggml_training&&) = delete;  // what it holds may still be in use

  /// A micro-batch: calls `fill()`, which writes inputs and labels, evaluates forward and backward, and ends it. `fill`
  /// returns nothing, or how many of its datapoints count, where the others are padding whose loss is 0; with 0 nothing is
  /// evaluated. `result`, if any, takes the loss and the predictions, as in `ggml_opt_eval`. Throws `usage_error` where
  /// `ggml_opt_reset` was called since the last one; for the rest like `any_optimizer::accumulated`.
  template <class Fill>
  std::optional<round_report> micro_batch(Fill&& fill, ggml_opt_result_t result = nullptr) {
    using filled = decltype(fill());
    static_assert(std::is_void_v<filled> || (std::is_arithmetic_v<filled> && !std::is_same_v<filled, bool>),
                  "acco: what fills the inputs of a ggml_training returns nothing, or the number of samples");
    if constexpr (std::is_void_v<filled>) {
      fill();
      return evaluate(static_cast<double>(outputs_->ne[1]), result);
    } else {
      return evaluate(static_cast<double>(fill()), result);
    }
  }

  /// One step: `micro_batch` until a step is committed; otherwise like `any_optimizer::step`.
  template <class Fill>
  round_report step(Fill&& fill, ggml_opt_result_t result = nullptr) {
    for (;;) {
      if (auto const report = micro_batch(fill, result); report && commits(report->plan)) return *report;
    }
  }

  /// Like `any_optimizer::finish`.
  void finish(unfinished rest = unfinished::drop) { training_.finish(rest); }

  /// For labels, losses and predictions, and to evaluate: `ggml_opt_alloc(context(), false)`, `ggml_opt_eval`. A
  /// backward pass belongs into `micro_batch`: what another one adds would be counted without its samples.
  [[nodiscard]] ggml_opt_context_t context() const noexcept { return context_.get(); }

  /// For everything else: samples, norms, `set_parameters`, `save`. Not for `accumulated` and `step`, which evaluate
  /// nothing.
  [[nodiscard]] any_optimizer<float>& optimizer() noexcept { return training_; }
  [[nodiscard]] any_optimizer<float> const& optimizer() const noexcept { return training_; }

 private:
  struct ends {
    void operator()(ggml_opt_context_t context) const { ggml_opt_free(context); }
  };
  static constexpr std::int32_t period = 1 << 30;  // a power of two: multiplied by it and divided, no gradient changes

  static constexpr float not_reset = -1;  // between evaluations; a reset leaves 1

  void begin_backward_with(float factor) { ggml_backend_tensor_set(loss_gradient_, &factor, 0, sizeof(factor)); }
  std::optional<round_report> evaluate(double weight, ggml_opt_result_t result);

  std::unique_ptr<ggml_opt_context, ends> context_;
  ggml_tensor const* outputs_;
  bool loss_is_sum_;
  ggml_tensor* loss_gradient_ = nullptr;  // where the backward pass begins: the factor of all gradients
  any_optimizer<float> training_;         // ends first: it works in the memory of the context
};

/// Throws unless its elements are contiguous float32 in host memory.
inline void require_host_floats(ggml_tensor const& tensor, std::string_view what, std::string_view name) {
  if (tensor.type != GGML_TYPE_F32 || !ggml_is_contiguous(&tensor)) {
    throw usage_error({},
                      text(what, " '", name, "' is ", std::string_view(ggml_type_name(tensor.type)),
                           ggml_is_contiguous(&tensor) ? "" : ", not contiguous"),
                      text("Train a model whose parameters are contiguous GGML_TYPE_F32, and convert what is saved: ggml has no "
                           "gradients of quantised weights, and float32 ones of f16"));
  }
  if (tensor.data == nullptr) {
    throw usage_error({}, text(what, " '", name, "' has no memory yet"),
                      text("Call ggml_backend_alloc_ctx_tensors for its context before"));
  }
  if (tensor.buffer != nullptr && !ggml_backend_buffer_is_host(tensor.buffer)) {
    throw usage_error(
        {},
        text(what, " '", name, "' lies in ", std::string_view(ggml_backend_buffer_name(tensor.buffer)),
             ", which the host cannot address"),
        text("Allocate the weights for the backend of ggml_backend_cpu_init, and make the scheduler over it alone"));
  }
}

inline std::vector<ggml_tensor*> parameters_of(ggml_tensor* outputs) {
  std::vector<ggml_tensor*> found;
  std::unordered_set<ggml_tensor const*> seen;
  std::vector<std::pair<ggml_tensor*, int>> path{{outputs, 0}};  // tensors, and which source of each comes next
  while (!path.empty()) {
    auto& [tensor, source] = path.back();
    if (source == 0 && !seen.insert(tensor).second) {
      path.pop_back();
    } else if (source < GGML_MAX_SRC) {
      if (ggml_tensor* const next = tensor->src[source++]) path.emplace_back(next, 0);
    } else {
      if ((tensor->flags & GGML_TENSOR_FLAG_PARAM) != 0) found.push_back(tensor);
      path.pop_back();
    }
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    const std::string_view name = ggml_get_name(found[k]);
    if (name.empty()) {
      throw usage_error({}, text("parameter ", k, " of the model has no name"),
                        text("Give every tensor that is trained one: ggml_set_name(tensor, \"output.weight\")"));
    }
    require_host_floats(*found[k], "parameter", name);
  }
  return found;
}

inline parameter_layout layout_of(ggml_opt_params const& params) {
  if (params.ctx_compute == nullptr || params.inputs == nullptr || params.outputs == nullptr || params.inputs->data == nullptr) {
    throw usage_error(
        {}, text("ggml_opt_params has no ctx_compute, no inputs with memory, or no outputs"),
        text("Set all three, and allocate the inputs' context: a graph that is built anew in every evaluation has no "
             "gradients that stay where they are"));
  }
  parameter_layout layout;
  for (ggml_tensor const* each : parameters_of(params.outputs)) {
    std::vector<std::size_t> shape;
    for (int k = ggml_n_dims(each); k-- > 0;) shape.push_back(static_cast<std::size_t>(each->ne[k]));
    layout.add(ggml_get_name(each), shape);
  }
  if (layout.tensor_count() == 0) {
    throw usage_error({}, text("the outputs are computed from no tensor that is trained"),
                      text("Call ggml_set_param for every parameter before"));
  }
  return layout;
}

inline ggml_training::ggml_training(ggml_opt_params params, any_optimizer<float> training)
    : outputs_(params.outputs), loss_is_sum_(params.loss_type == GGML_OPT_LOSS_TYPE_SUM), training_(std::move(training)) {
  parameter_layout const expected = layout_of(params);
  parameter_layout const& layout = training_.layout();
  bool same = layout.tensor_count() == expected.tensor_count();
  for (std::size_t k = 0; same && k < expected.tensor_count(); ++k) {
    auto const mine = layout[k], its = expected[k];
    same = mine.name == its.name && std::equal(mine.shape.begin(), mine.shape.end(), its.shape.begin(), its.shape.end());
  }
  if (!same) {
    throw usage_error({}, text("the layout of the optimizer is not that of the model"),
                      text("Make the optimizer with acco::attach::layout_of(params)"));
  }
  params.build_type = GGML_OPT_BUILD_TYPE_OPT;
  params.opt_period = period;
  params.optimizer = GGML_OPT_OPTIMIZER_TYPE_SGD;  // which has no momenta
  context_.reset(ggml_opt_init(params));
  loss_gradient_ = ggml_opt_grad_acc(context(), ggml_opt_loss(context()));
  begin_backward_with(not_reset);
  std::vector<tensor_memory<float>> memory;
  for (ggml_tensor* each : parameters_of(params.outputs)) {
    ggml_tensor* const sum = ggml_opt_grad_acc(context(), each);
    require_host_floats(*sum, "the gradient of parameter", ggml_get_name(each));
    const bool frozen = layout.groups()[layout[memory.size()].group].frozen;  // nobody takes what is added up there
    memory.push_back({static_cast<float*>(each->data), frozen ? nullptr : static_cast<float*>(sum->data)});
  }
  training_.adopt(memory);
}

inline std::optional<round_report> ggml_training::evaluate(double weight, ggml_opt_result_t result) {
  float found = 0;
  ggml_backend_tensor_get(loss_gradient_, &found, 0, sizeof(found));
  if (found != not_reset) {
    throw usage_error({}, text("ggml_opt_reset has cleared gradients of micro-batches that had been counted"),
                      text("Remove it: acco clears gradients itself. Begin again, from a checkpoint, say"));
  }
  if (!(is_finite(weight) && weight > 0)) return training_.accumulated(weight);  // no samples; or it refuses them
  ggml_opt_alloc(context(), true);
  const float factor = loss_is_sum_ ? 1.0F : static_cast<float>(period) * static_cast<float>(outputs_->ne[1]);
  begin_backward_with(factor);
  ggml_opt_eval(context(), result);
  begin_backward_with(not_reset);
  float loss = 0;
  ggml_backend_tensor_get(ggml_opt_loss(context()), &loss, 0, sizeof(loss));
  return training_.accumulated(weight, static_cast<double>(loss) * factor);
}

}  // namespace ACCO_NAMESPACE::attach
