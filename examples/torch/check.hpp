// SPDX-License-Identifier: Apache-2.0
// What the test `examples/torch/check` asks of the attachment, against torch's own AdamW.
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

#include "char_gpt.hpp"

namespace char_gpt {

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

/// The largest difference of two modules' weights.
inline double distance(model const& a, model const& b) {
  double largest = 0;
  const auto other = b->named_parameters();
  for (auto const& each : a->named_parameters())
    largest = std::max(largest, (each.value() - other[each.key()]).abs().max().item().toDouble());
  return largest;
}

constexpr int ranks = 2;

/// Plain AdamW of torch, on the union of the batches that all ranks draw, with the gradient of the mean over all
/// samples.
inline model train_plainly(settings const& s, torch::Tensor const& text, double weight_decay) {
  model net = make_model();
  std::vector<torch::Tensor> matrices, vectors;
  for (auto const& each : acco::attach::parameters_of(*net)) {
    if (each.tensor.requires_grad()) (each.tensor.dim() < 2 ? vectors : matrices).push_back(each.tensor);
  }
  const auto with = [&](double decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(s.rule.learning_rate);
    options->betas({s.rule.beta1, s.rule.beta2}).eps(s.rule.epsilon).weight_decay(decay);
    return options;
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, with(weight_decay));
  groups.emplace_back(vectors, with(0));
  torch::optim::AdamW plain(groups, torch::optim::AdamWOptions(s.rule.learning_rate));
  for (int step = 0; step < s.steps; ++step) {
    std::vector<torch::Tensor> inputs, targets;
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::uint64_t k = 0; k < 2; ++k) {
        auto part = draw(text, s.sequences, rank, static_cast<std::uint64_t>(step) * 2 + k);
        inputs.push_back(part.inputs);
        targets.push_back(part.targets);
      }
    }
    plain.zero_grad();
    mean_loss(net, {torch::cat(inputs), torch::cat(targets)}).backward();
    plain.step();
  }
  return net;
}

struct outcome {
  model net{nullptr};
  std::vector<double> losses;  // of the steps
};
inline outcome train_on_threads(settings const& s, torch::Tensor const& text) {
  outcome all[ranks];
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto& mine = all[world.rank()];
    mine.net = train(s, world, text, [&](acco::round_report const& report) { mine.losses.push_back(report.step_loss); });
  });
  demand(distance(all[0].net, all[1].net) == 0, "both ranks hold the same weights");
  return all[0];
}

/// Synchronous ranks make the updates of torch's AdamW; a wrong decay would be seen.
inline void check_against_torch(torch::Tensor const& text) {
  const settings s{.schedule = "synchronous", .steps = 30};
  // The sums of gradients are rounded in another order, and AdamW divides by the root of the second moment: where a
  // gradient is small, its rounding moves a weight by a visible part of a learning rate. Measured: 2e-5 to 4e-5, a
  // hundredth of the learning rate; five times that is allowed, and half the decay is sixty times away.
  const double tolerance = 2e-4;
  const auto ours = train_on_threads(s, text).net;
  const double apart = distance(ours, train_plainly(s, text, s.rule.weight_decay));
  const double moved = distance(ours, make_model());
  const double wrong = distance(ours, train_plainly(s, text, s.rule.weight_decay / 2));
  std::printf(
      "synchronous and torch's AdamW after %d steps: largest difference %.1e, of weights that moved by up to %.2f\n"
      "with half the weight decay: %.1e\n",
      s.steps, apart, moved, wrong);
  demand(apart < tolerance, "the weights are those of torch's AdamW");
  demand(moved > 100 * tolerance, "they have moved");
  demand(wrong > 5 * tolerance, "half the weight decay would have been seen");
  demand(distance(make_model(), train_plainly({.steps = 0}, text, 0)) == 0, "modules start alike");
}

/// The mean loss of the last steps stays close under two_phase, with exact and with coarse estimates.
inline void check_schedules(torch::Tensor const& text) {
  const auto last = [&](char const* schedule) {
    auto const losses = train_on_threads({.schedule = schedule, .steps = 100}, text).losses;
    demand(losses.size() == 100, "a report for every step");
    demand(losses.front() > 4 && losses.front() < 5, "the first loss is about the logarithm of 96");
    return std::accumulate(losses.end() - 20, losses.end(), 0.0) / 20;
  };
  const double measure = last("synchronous");
  demand(measure < 3.2, "something was learned");
  for (char const* schedule : {"two_phase", "two_phase+int4"}) {
    const double loss = last(schedule);
    std::printf("loss of the last 20 of 100 steps: synchronous %.4f, %s %.4f\n", measure, schedule, loss);
    demand(std::abs(loss / measure - 1) < 0.01, std::string(schedule) + " learns like synchronous");
  }
}

template <class Schedule>
acco::any_optimizer<float> alone(acco::parameter_layout const& layout, Schedule const& schedule) {
  return acco::optimizer{schedule, acco::sgd{.learning_rate = 1}, acco::host_storage<float>{}, acco::solo_backend{}, layout};
}
inline acco::any_optimizer<float> alone(acco::parameter_layout const& layout) {
  return alone(layout, acco::synchronous{.pace = acco::fixed_pace{1}});
}

/// Demands that torch refuses the backward of a graph whose weights have changed since.
inline void require_out_of_date(torch::Tensor const& loss, std::string const& after) {
  try {
    loss.backward();
  } catch (c10::Error const&) {
    return;
  }
  throw std::runtime_error("check failed: torch refuses a graph of before " + after);
}

inline void check_layout() {
  auto net = make_model();
  const auto ends = [](char const* with) { return [with](std::string_view name) { return name.ends_with(with); }; };
  auto const layout = acco::attach::layout_of(
      *net, {.groups = {{ends("norm1.weight"), {.weight_decay = 0.0}}, {ends("weight"), {.learning_rate_scale = 0.5}}}});
  demand(layout.tensor_count() == acco::attach::parameters_of(*net).size(), "one tensor a parameter");
  demand(layout.tensor_count() + 1 == net->named_parameters().size(), "a tied parameter stands there once");
  demand(layout.groups()[layout["positions"].group].frozen, "what requires no gradient is frozen");
  demand(layout.groups()[layout["block.norm1.weight"].group].weight_decay == 0.0, "the first group that holds it");
  demand(layout.groups()[layout["block.norm2.weight"].group].learning_rate_scale == 0.5, "the second");
  demand(layout["block.linear1.bias"].group == 0, "none of them");
  demand(layout["block.linear1.weight"].shape[0] == 4 * width && layout["block.linear1.weight"].shape[1] == width, "shapes");
  auto const light = acco::attach::layout_of(*net, {.no_decay_for_vectors = true});
  demand(light.groups()[light["block.linear1.bias"].group].weight_decay == 0.0, "no decay for vectors");
  demand(!light.groups()[light["block.linear1.weight"].group].weight_decay, "the rule's for matrices");
}

/// One weight of one: the gradient of weight * 3 is 3.
struct line_impl : torch::nn::Module {
  line_impl() : weight(register_parameter("weight", torch::ones({1, 2}))), other(register_parameter("other", torch::ones({3}))) {}
  void lose(std::string const& name) { parameters_.erase(name); }
  torch::Tensor weight, other;
};

/// What is collected: sums, means, gradients that are not there, and zero_grad before, never between.
inline void check_gradients() {
  auto net = std::make_shared<line_impl>();
  (net->weight.sum() * 100).backward();  // of before: dropped
  acco::attach::torch_training training(*net, alone(acco::attach::layout_of(*net)));
  net->zero_grad();
  (net->weight.sum() * 3 * 4).backward();  // the sum over four samples
  auto report = training.accumulated(acco::micro_batch_sums{.weight = 4, .loss_sum = 8});
  demand(report && report->step_loss == 2, "a mean loss of two");
  demand(net->weight[0][1].item().toFloat() == -2, "a step along 3");
  demand(net->other[0].item().toFloat() == 1, "what has no gradient stays");
  demand(!net->weight.grad().defined(), "gradients become undefined");
  (net->weight.sum() * 3).backward();  // the mean over four samples, in two passes
  (net->weight.sum() * 2).backward();
  report = training.accumulated(acco::attach::micro_batch_means{.weight = 4, .mean_loss = 2});
  demand(report && report->step_loss == 2 && net->weight[0][1].item().toFloat() == -7, "a step along 5");
  require_refused("no parameter of the module has a gradient, though the micro-batch has a weight of 1",
                  [&] { training.accumulated(acco::attach::micro_batch_means{.weight = 1}); });
  (net->weight.sum() * 1).backward();
  require_refused("accumulated got a weight of -1", [&] { training.accumulated(acco::attach::micro_batch_means{.weight = -1}); });
  training.accumulated(acco::attach::micro_batch_means{.weight = 1});
  demand(net->weight[0][1].item().toFloat() == -8, "what was refused has not been collected");
  auto old = net->weight.square().sum();
  net->weight.sum().backward();
  training.accumulated(acco::attach::micro_batch_means{.weight = 0.5});
  require_out_of_date(old, "the update");
  demand(net->weight[0][1].item().toFloat() == -9, "half a sample moves it like a whole one");
  acco::attach::torch_training moved(std::move(training));
  (net->weight.sum() * 1).backward();
  moved.accumulated(acco::attach::micro_batch_means{.weight = 1});
  moved.finish();
  demand(net->weight[0][1].item().toFloat() == -10 && moved.optimizer().steps() == 5, "it may be moved");
}

/// Gradients of other losses, which lie in `grad()` when a step begins, are nobody's.
inline void check_foreign_gradients() {
  line_impl generator, discriminator;
  acco::attach::torch_training trains_generator(generator, alone(acco::attach::layout_of(generator)));
  acco::attach::torch_training trains_discriminator(discriminator, alone(acco::attach::layout_of(discriminator)));
  for (int k = 0; k < 2; ++k) {
    trains_discriminator.step([&] {
      (discriminator.weight.sum() * 3).backward();
      return acco::micro_batch_sums{.weight = 1};
    });
    trains_generator.step([&] {  // fills grad() of both
      (generator.weight * discriminator.weight.square() * 100).sum().backward();
      return acco::micro_batch_sums{.weight = 1};
    });
  }
  demand(discriminator.weight.grad().defined(), "the generator's loss has reached the discriminator");
  demand(discriminator.weight[0][1].item().toFloat() == -5, "the discriminator makes two steps along 3");
  discriminator.zero_grad();  // as a loop without step() must
  discriminator.weight.sum().backward();
  trains_discriminator.accumulated(acco::micro_batch_sums{.weight = 1});
  demand(discriminator.weight[0][1].item().toFloat() == -6, "and a third one along 1");

  line_impl net;
  acco::attach::torch_training training(net, alone(acco::attach::layout_of(net)));
  bool fails = true;
  const auto attempt = [&] {
    net.weight.sum().backward();
    if (std::exchange(fails, false)) throw std::domain_error("after backward");
    return acco::attach::micro_batch_means{.weight = 1};
  };
  try {
    training.step(attempt);
  } catch (std::domain_error const&) {
    training.step(attempt);
  }
  demand(!fails && net.weight[0][1].item().toFloat() == 0, "an attempt that threw does not count");
}

/// A mean over no samples is NaN; the gradients of sums are added whatever the weight.
inline void check_empty_batch() {
  line_impl net;
  acco::attach::torch_training training(net, alone(acco::attach::layout_of(net), acco::synchronous{.pace = acco::fixed_pace{2}}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  net.weight.sum().backward();
  demand(!training.accumulated(acco::attach::micro_batch_means{.weight = 4, .mean_loss = 2}), "half a step");
  (net.weight * std::numeric_limits<float>::infinity()).sum().backward();
  auto report = training.accumulated(acco::attach::micro_batch_means{.weight = 0, .mean_loss = nan});
  demand(report && report->step_loss == 2 && report->step_weight == 4, "an empty batch leaves the loss as it is");
  demand(net.weight[0][1].item().toFloat() == 0, "and adds no gradient");
  demand(!net.weight.grad().defined(), "what it brought is dropped");
  net.weight.sum().backward();
  training.accumulated(acco::micro_batch_sums{.weight = 1});
  (net.weight.sum() * 2).backward();  // a penalty, say
  training.accumulated(acco::micro_batch_sums{.weight = 0});
  demand(net.weight[0][1].item().toFloat() == -3, "a sum without weight is added");
}

/// Torch knows when weights have changed in place.
inline void check_graphs() {
  line_impl net;
  auto old = net.weight.square().sum();
  acco::attach::torch_training training(net, alone(acco::attach::layout_of(net), acco::delayed{.pace = acco::fixed_pace{1}}));
  require_out_of_date(old, "the module was attached");
  training.step([&] {
    net.weight.sum().backward();
    return acco::micro_batch_sums{.weight = 1};
  });
  const float before = net.weight[0][1].item().toFloat();
  old = net.weight.square().sum();
  training.finish(acco::unfinished::commit);
  demand(net.weight[0][1].item().toFloat() != before, "finish changes weights");
  require_out_of_date(old, "finish");
  old = net.weight.square().sum();
  net.weight.sum().backward();
  require_refused("set_parameters got 2 parameters, the layout has 5", [&] { training.set_parameters(std::vector<float>(2)); });
  demand(net.weight.grad().defined(), "what was refused has dropped no gradient");
  training.set_parameters(std::vector<float>{1, 2, 3, 4, 5});
  demand(net.weight[0][1].item().toFloat() == 2 && net.other[2].item().toFloat() == 5, "set_parameters changes weights");
  demand(!net.weight.grad().defined(), "set_parameters drops gradients of before");
  require_out_of_date(old, "set_parameters");
}

/// What the layout freezes is not trained, whether it requires a gradient or not.
inline void check_frozen() {
  line_impl net;
  acco::attach::torch_training training(
      net, alone(acco::attach::layout_of(
               net, {.groups = {{[](std::string_view name) { return name == "other"; }, {.frozen = true}}}})));
  (net.weight.sum() + net.other.sum()).backward();
  training.accumulated(acco::attach::micro_batch_means{.weight = 1});
  demand(net.weight[0][0].item().toFloat() == 0 && net.other[0].item().toFloat() == 1, "one of two is trained");
  demand(!net.other.grad().defined(), "the gradient of the other is dropped");
}

struct square_impl : torch::nn::Module {
  square_impl() : weight(register_parameter("weight", torch::ones({2, 2}))) {}
  torch::Tensor weight;
};

/// A fresh module, attached, changed, and asked again.
template <class Module = line_impl, class Change>
void require_change_refused(std::string_view words, Change&& change) {
  auto net = std::make_shared<Module>();
  acco::attach::torch_training training(*net, alone(acco::attach::layout_of(*net)));
  net->weight.sum().backward();
  change(*net);
  require_refused(words, [&] { training.accumulated(acco::attach::micro_batch_means{.weight = 1}); });
}

inline void check_refusals() {
  auto const layout_of = [](torch::nn::Module const& net) { return acco::attach::layout_of(net); };
  line_impl net;
  net.register_parameter("late", torch::ones({2, 3}).t());
  require_refused("parameter 'late' is Float on cpu, not contiguous", [&] { layout_of(net); });
  line_impl exact;
  exact.to(torch::kFloat64);
  require_refused("parameter 'weight' is Double on cpu", [&] { layout_of(exact); });
  line_impl views;
  views.register_parameter("view", views.other.detach().slice(0, 1, 3));
  require_refused("parameters 'other' and 'view' share memory, and are two tensors", [&] { layout_of(views); });

  require_refused("torch_layout_options::groups[1].holds is empty", [&] {
    const auto none = [](std::string_view) { return false; };
    (void)acco::attach::layout_of(line_impl(), {.groups = {{none, {}}, {nullptr, {}}}});
  });

  acco::parameter_layout short_one, strange, flat;
  short_one.add("weight", {1, 2});
  strange.add("weight", {1, 2}).add("bias", {3});
  flat.add("weight", {2}).add("other", {3});
  line_impl good;
  const auto attach = [&](acco::parameter_layout const& layout) { acco::attach::torch_training(good, alone(layout)); };
  require_refused("the layout has 1 tensors, the module 2 parameters", [&] { attach(short_one); });
  require_refused("tensor 'bias' of the layout is not parameter 'other' of the module", [&] { attach(strange); });
  require_refused("tensor 'weight' of the layout is not parameter 'weight'", [&] { attach(flat); });
  const auto thawed = layout_of(good);
  good.other.requires_grad_(false);
  require_refused(
      "tensor 'other' of the layout is not parameter 'other' of the module, has another shape, or is frozen there alone",
      [&] { attach(thawed); });

  require_change_refused("parameter 'late' of the module was not there when it was attached",
                         [](line_impl& of) { of.register_parameter("late", torch::ones({2})); });
  require_change_refused("the module has lost parameter 'other'", [](line_impl& of) { of.lose("other"); });
  require_change_refused("the module has lost parameter 'weight'", [](line_impl& of) { of.lose("weight"); });
  require_change_refused("the memory of parameter 'weight' has moved", [](line_impl& of) {
    of.to(torch::kFloat64);
    of.to(torch::kFloat32);
    of.weight.mutable_grad() = torch::ones({1, 2});
  });
  require_change_refused("the memory of parameter 'weight' has moved",
                         [](line_impl& of) {  // in its storage: the tensor is as it was
                           of.weight.data().resize_({1000, 2});
                           of.weight.mutable_grad() = torch::ones({1, 2});
                         });
  const auto reshaped = [](std::string_view name) {
    return "parameter '" + std::string(name) + "' has another shape, element type or strides than when the module was attached";
  };
  require_change_refused<square_impl>(reshaped("weight"), [](square_impl& of) { of.weight.set_data(of.weight.data().t()); });
  require_change_refused(reshaped("other"), [](line_impl& of) { of.other.set_data(of.other.data().narrow(0, 0, 2)); });
  require_change_refused(reshaped("weight"), [](line_impl& of) { of.weight.set_data(of.weight.data().view({2, 1})); });
  require_change_refused(reshaped("other"),
                         [](line_impl& of) { of.other.set_data(of.other.data().view(torch::kFloat16).narrow(0, 0, 3)); });
  line_impl left;
  acco::attach::torch_training keeps(left, alone(layout_of(left)));
  const auto memory = left.weight.storage();
  left.weight.set_data(torch::ones({1, 2}));
  demand(memory.use_count() > 1, "memory in which the optimizer works lives on");
  require_change_refused("parameter 'other' was trained when the module was attached, and is frozen now",
                         [](line_impl& of) { of.other.requires_grad_(false); });
}

inline void check_all(torch::Tensor const& text) {
  check_layout();
  check_gradients();
  check_foreign_gradients();
  check_empty_batch();
  check_graphs();
  check_frozen();
  check_refusals();
  check_against_torch(text);
  check_schedules(text);
  std::printf("all checks passed\n");
}

}  // namespace char_gpt
