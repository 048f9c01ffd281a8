// SPDX-License-Identifier: Apache-2.0
// A torch::nn::Module of LibTorch (component `torch`): its parameters are trained where they lie, its gradients are
// collected after each backward. For LibTorch 1.13 and newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "acco/any_optimizer.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/update_group.hpp"
#include "acco/number/finite.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_NAMESPACE::attach {

/// Parameters whose names `holds` of, and how their update deviates: their weight decay, their learning rate.
struct torch_group {
  std::function<bool(std::string_view name)> holds;  ///< of a name in `named_parameters()`: "blocks.0.norm.weight"
  update_group group;
};

/// How a module becomes a layout.
struct torch_layout_options {
  std::vector<torch_group> groups = {};  ///< a parameter belongs to the first whose
                                         ///< `holds` is true; otherwise to group 0
  bool no_decay_for_vectors = false;     ///< like `parameter_layout::no_decay_for_vectors`
};

/// What a micro-batch brings whose loss is the mean over its samples, as the losses of torch are by default: its
/// gradients are multiplied by `weight` when they are collected. A mean over no samples is undefined, NaN in torch:
/// with a weight of 0 neither the loss nor the gradients count, whatever they are. Where the loss is a sum over
/// samples: `micro_batch_sums`.
struct micro_batch_means {
  double weight = 0;     ///< samples (or tokens) over which the loss is the mean; 0 where there are none
  double mean_loss = 0;  ///< that loss
};

/// One parameter tensor of a module, under the first name that it has there.
struct torch_parameter {
  std::string name;
  ::torch::Tensor tensor;
};

/// The parameters of a module in the order of `named_parameters()`; one that is registered under several names (tied
/// weights) stands there once. Throws `usage_error`, by name, on a tensor that is not contiguous float32 in host
/// memory, or that shares memory with another one.
[[nodiscard]] inline std::vector<torch_parameter> parameters_of(::torch::nn::Module const& module) {
  std::vector<torch_parameter> found;
  for (auto const& each : module.named_parameters()) {
    ::torch::Tensor const& tensor = each.value();
    const bool tied =
        std::any_of(found.begin(), found.end(), [&](torch_parameter const& other) { return other.tensor.is_same(tensor); });
    if (!tied) found.push_back({each.key(), tensor});
  }
  for (torch_parameter const& each : found) {
    ::torch::Tensor const& tensor = each.tensor;
    if (!tensor.device().is_cpu() || tensor.layout() != ::torch::kStrided || tensor.scalar_type() != ::torch::kFloat32 ||
        !tensor.is_contiguous()) {
      throw usage_error({},
                        text("parameter '", each.name, "' is ", std::string_view(::c10::toString(tensor.scalar_type())), " on ",
                             std::string_view(tensor.device().str()),
                             tensor.layout() != ::torch::kStrided ? ", sparse"
                             : tensor.is_contiguous()             ? ""
                                                                  : ", not contiguous"),
                        text("Attach modules of contiguous float32 parameters in host memory: module.to(torch::kFloat32), "
                             "parameter.contiguous()"));
    }
  }
  std::vector<torch_parameter const*> by_address;
  for (torch_parameter const& each : found) {
    if (each.tensor.numel() != 0) by_address.push_back(&each);
  }
  const auto begin_of = [](torch_parameter const* p) { return p->tensor.data_ptr<float>(); };
  std::sort(by_address.begin(), by_address.end(),
            [&](auto const* a, auto const* b) { return std::less<>{}(begin_of(a), begin_of(b)); });
  for (std::size_t k = 1; k < by_address.size(); ++k) {
    if (std::less<>{}(begin_of(by_address[k]), begin_of(by_address[k - 1]) + by_address[k - 1]->tensor.numel())) {
      throw usage_error(
          {},
          text("parameters '", by_address[k - 1]->name, "' and '", by_address[k]->name, "' share memory, and are two tensors"),
          text("To tie weights, register the same tensor under both names"));
    }
  }
  return found;
}

/// The layout of a module's parameters: names and shapes, in the order of `parameters_of`. What does not require a
/// gradient is frozen. Throws `usage_error` on a group whose `holds` is empty, and like `parameters_of` and
/// `parameter_layout::add`.
[[nodiscard]] inline parameter_layout layout_of(::torch::nn::Module const& module, torch_layout_options const& options = {}) {
  parameter_layout layout;
  std::vector<std::size_t> numbers;
  for (torch_group const& each : options.groups) {
    if (!each.holds) {
      throw usage_error({}, text("torch_layout_options::groups[", numbers.size(), "].holds is empty"),
                        text("Give it a function of a parameter's name, which tells whether the group has it"));
    }
    numbers.push_back(layout.add_group(each.group));
  }
  std::size_t frozen = 0;
  for (torch_parameter const& each : parameters_of(module)) {
    std::size_t group = 0;
    for (std::size_t k = options.groups.size(); k-- > 0;) {
      if (options.groups[k].holds(each.name)) group = numbers[k];
    }
    if (!each.tensor.requires_grad()) {
      if (frozen == 0) frozen = layout.add_group({.frozen = true});
      group = frozen;
    }
    std::vector<std::size_t> shape;
    for (const std::int64_t extent : each.tensor.sizes()) shape.push_back(static_cast<std::size_t>(extent));
    layout.add(each.name, shape, group);
  }
  if (options.no_decay_for_vectors) layout.no_decay_for_vectors();
  return layout;
}

/// An optimizer that trains a module of LibTorch:
///
///   acco::attach::torch_training training{*model, acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world,
///                                                                 acco::attach::layout_of(*model)}};
///   auto report = training.step([&] {
///     model->zero_grad();                                     // harmless; `step` has done it
///     auto loss = torch::nn::functional::cross_entropy(model->forward(inputs), targets);
///     loss.backward();
///     return acco::attach::micro_batch_means{.weight = 32, .mean_loss = loss.item().toDouble()};
///   });
///
/// The parameters stay in the module's own memory, so that it can be evaluated and saved between steps as it is, and
/// holds the last weights when this object has ended. Gradient sums lie in tensors of this object's own: when a
/// micro-batch ends, each parameter's `grad()` is added to them and becomes undefined. So `zero_grad`, of either kind,
/// cannot erase what a schedule keeps over several micro-batches; between `backward` and the end of the micro-batch it
/// would erase that micro-batch, which is an error where it leaves no gradient at all. A parameter without gradient
/// adds nothing.
///
/// Whatever lies in `grad()` when a micro-batch ends is taken for that micro-batch's. Torch adds to it in every
/// backward that reaches the module, those of other losses too: a generator's, which goes through this discriminator,
/// or an attempt that threw. `step` drops such gradients before each micro-batch; a loop that calls `accumulated`
/// itself calls `zero_grad` before backward.
///
/// Weights change in place, in a report, in `finish` and in `set_parameters`; a graph that was kept over one of these
/// is out of date, and torch refuses its backward.
///
/// The module keeps its parameters: one that gains or loses some, moves them (`to`, `load`), gives them another shape
/// or freezes them is refused, by name, when the next micro-batch ends. Buffers (running statistics of norms) are each
/// rank's own. Threads: as in `any_optimizer`; every rank has a module of its own. Movable; the module is to stay where
/// it is, and to outlive this object.
class torch_training {
 public:
  /// `adopt`s the module's parameters: rank 0's values reach every rank's. Gradients of before are dropped. `training`
  /// is one whose layout is `layout_of(module)`, before `initialize`. Collective; blocks. Throws `usage_error` where
  /// the layout is not the module's, and what `any_optimizer::adopt` throws.
  torch_training(::torch::nn::Module& module, any_optimizer<float> training) : module_(&module), training_(std::move(training)) {
    parameter_layout const& layout = training_.layout();
    auto found = parameters_of(module);
    if (layout.tensor_count() != found.size()) {
      throw usage_error({}, text("the layout has ", layout.tensor_count(), " tensors, the module ", found.size(), " parameters"),
                        text("Make the optimizer with acco::attach::layout_of(module)"));
    }
    std::vector<tensor_memory<float>> memory;
    for (std::size_t k = 0; k < found.size(); ++k) {
      auto const expected = layout[k];
      ::torch::Tensor const& tensor = found[k].tensor;
      auto const shape = tensor.sizes();
      const bool frozen = layout.groups()[expected.group].frozen;
      if (expected.name != found[k].name || (!frozen && !tensor.requires_grad()) ||
          !std::equal(shape.begin(), shape.end(), expected.shape.begin(), expected.shape.end(),
                      [](std::int64_t a, std::size_t b) { return static_cast<std::size_t>(a) == b; })) {
        throw usage_error({},
                          text("tensor '", expected.name, "' of the layout is not parameter '", found[k].name,
                               "' of the module, has another shape, or is frozen there alone"),
                          text("Make the optimizer with acco::attach::layout_of(module)"));
      }
      auto sum = frozen ? ::torch::Tensor() : ::torch::zeros(tensor.sizes(), ::torch::kFloat32);
      memory.push_back({tensor.data_ptr<float>(), frozen ? nullptr : sum.data_ptr<float>()});
      parameters_.push_back(
          {std::move(found[k].name), tensor, tensor.data_ptr(), tensor.detach(), tensor.requires_grad(), std::move(sum)});
    }
    drop_gradients();
    training_.adopt(memory);
    outdate_graphs();
  }
  torch_training(torch_training&&) = default;
  torch_training& operator=(torch_training&&) = delete;  // what it holds may still be in use

  /// Ends a micro-batch whose `grad()`s are those of the mean of its losses. Call `zero_grad` before its backward
  /// wherever the backward of another loss reaches the module: its gradients would be collected, too. Throws
  /// `usage_error`, before anything is changed, on a module that is not what it was, or that has no gradient although
  /// the weight is above 0; for the rest like `any_optimizer::accumulated`.
  std::optional<round_report> accumulated(micro_batch_means const& means) {
    const double loss_sum = means.weight == 0 ? 0 : means.weight * means.mean_loss;
    return accumulated({.weight = means.weight, .loss_sum = loss_sum}, means.weight);
  }
  /// The same where they are those of the sum of its losses. They are added as they are, whatever the weight, as
  /// gradients in `any_optimizer::gradients` are: the penalty of a micro-batch without samples counts.
  std::optional<round_report> accumulated(micro_batch_sums const& sums) { return accumulated(sums, 1); }

  /// One step: drops what lies in `grad()`, calls `micro_batch()`, which runs a backward and returns
  /// `micro_batch_means` or `micro_batch_sums`, and `accumulated`, until a step is committed; otherwise like
  /// `any_optimizer::step`.
  template <class MicroBatch>
  round_report step(MicroBatch&& micro_batch) {
    using brought = std::remove_cvref_t<decltype(micro_batch())>;
    static_assert(
        std::is_same_v<brought, micro_batch_means> || std::is_same_v<brought, micro_batch_sums>,
        "acco: a micro-batch of torch_training returns micro_batch_means, where the loss is the mean over its samples, or "
        "micro_batch_sums, where it is their sum");
    for (;;) {
      drop_gradients();
      if (auto const report = accumulated(micro_batch()); report && commits(report->plan)) return *report;
    }
  }

  /// Like `any_optimizer::finish`; gradients that were not accumulated are dropped.
  void finish(unfinished rest = unfinished::drop) {
    check_memory();
    drop_gradients();
    outdate_graphs();  // before: an error may come after a commit
    training_.finish(rest);
  }

  /// Like `any_optimizer::set_parameters`, of `values` in the order of the layout; gradients that were not accumulated
  /// are dropped.
  void set_parameters(std::span<float const> values) {
    check_memory();
    training_.set_parameters(values);
    drop_gradients();
    outdate_graphs();
  }

  /// For everything else: samples, norms, `gather_committed`, `sum_over_ranks`. Not for `accumulated` and `step`, which
  /// would not see the gradients, nor for `finish` and `set_parameters`, after which torch would take graphs of before
  /// for valid.
  [[nodiscard]] any_optimizer<float>& optimizer() noexcept { return training_; }
  [[nodiscard]] any_optimizer<float> const& optimizer() const noexcept { return training_; }

 private:
  struct attached {
    std::string name;
    ::torch::Tensor parameter;
    void const* address;     // of its elements when it was attached
    ::torch::Tensor memory;  // the same, and their shape: lives on where the module lets go of it
    bool requires_grad;      // when it was attached
    ::torch::Tensor sum;     // of its gradients; undefined where it is frozen
  };

  void drop_gradients() {
    for (attached& each : parameters_) each.parameter.mutable_grad().reset();
  }
  /// Tells torch that weights have changed in place: the backward of a graph of before is to say so.
  void outdate_graphs() {
    for (attached& each : parameters_) {
      // no graph saves the others
      if (!each.parameter.is_inference()) each.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }

  std::optional<round_report> accumulated(micro_batch_sums const& sums, double factor) {
    if (!(is_finite(sums.weight) && sums.weight >= 0)) return training_.accumulated(sums.weight);  // which refuses it
    check_module();
    const bool any = std::any_of(parameters_.begin(), parameters_.end(),
                                 [](attached const& each) { return each.sum.defined() && each.parameter.grad().defined(); });
    if (!any && sums.weight > 0) {
      throw usage_error({},
                        text("no parameter of the module has a gradient, though the micro-batch has a weight of ", sums.weight),
                        text("Call backward() before the micro-batch ends, and zero_grad() not between the two"));
    }
    const ::torch::NoGradGuard no_graph;
    for (attached& each : parameters_) {
      ::torch::Tensor& gradient = each.parameter.mutable_grad();
      // 0 times infinity is NaN
      if (factor != 0 && each.sum.defined() && gradient.defined()) each.sum.add_(gradient, factor);
      gradient.reset();
    }
    auto const report = training_.accumulated(sums.weight, sums.loss_sum);
    if (report) outdate_graphs();
    return report;
  }

  /// Throws unless the module's parameters are those that were attached, where and as they were.
  void check_module() const {
    std::size_t k = 0;
    for (auto const& each : module_->named_parameters()) {
      ::torch::Tensor const& tensor = each.value();
      std::size_t found = k;  // unless it is tied to one of before, or one is missing
      if (k == parameters_.size() || !parameters_[k].parameter.is_same(tensor)) {
        found = 0;
        while (found < parameters_.size() && !parameters_[found].parameter.is_same(tensor)) ++found;
      }
      if (found == parameters_.size()) {
        throw usage_error({}, text("parameter '", each.key(), "' of the module was not there when it was attached"),
                          text(let_it_be));
      }
      if (found > k) break;
      if (found == k) ++k;
    }
    if (k < parameters_.size()) {
      throw usage_error({}, text("the module has lost parameter '", parameters_[k].name, "' since it was attached"),
                        text(let_it_be));
    }
    for (attached const& each : parameters_) {
      if (!each.parameter.device().is_cpu() || each.parameter.data_ptr() != each.address) fail_moved(each);
      if (each.parameter.scalar_type() != each.memory.scalar_type() || each.parameter.sizes() != each.memory.sizes() ||
          !each.parameter.is_contiguous()) {
        throw usage_error(
            {}, text("parameter '", each.name, "' has another shape, element type or strides than when the module was attached"),
            text(let_it_be));
      }
      if (each.parameter.requires_grad() != each.requires_grad) {
        throw usage_error({},
                          text("parameter '", each.name, "' was ", each.requires_grad ? "trained" : "frozen",
                               " when the module was attached, and is ", each.requires_grad ? "frozen" : "trained", " now"),
                          text(let_it_be));
      }
    }
  }
  /// Throws where memory that was adopted is gone: torch has allocated it anew (`resize_`). What was replaced lives on
  /// in `memory`.
  void check_memory() const {
    for (attached const& each : parameters_) {
      if (each.memory.data_ptr() != each.address) fail_moved(each);
    }
  }
  [[noreturn]] static void fail_moved(attached const& each) {
    throw usage_error({}, text("the memory of parameter '", each.name, "' has moved since the module was attached"),
                      text(let_it_be));
  }
  static constexpr char const* let_it_be =
      "Let the module be as it is while it is attached: to, load, set_data, register_parameter and requires_grad_ come before. "
      "Or finish, and attach it to a new optimizer";

  ::torch::nn::Module* module_;
  std::vector<attached> parameters_;
  any_optimizer<float> training_;  // ends first: it works in the memory of the others
};

}  // namespace ACCO_NAMESPACE::attach
