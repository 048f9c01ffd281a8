// SPDX-License-Identifier: Apache-2.0
// The small GPT of examples/toy_gpt on a GPU beside the host: two ranks as threads train it on both with the same text,
// seed and schedule, and the losses of their steps must stay together. One JSON object a line. `--root DIR`: the
// repository, whose own text is learnt; `--steps N`.
#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include "gpt_cuda.cuh"
#include "measure.hpp"
#include "text.hpp"

namespace {

using bench::arguments, bench::figure;

struct run {
  std::vector<double> losses;  // of steps
  double seconds = 0;
};

/// Trains two ranks; make(rank, train) calls train(model, storage) with what belongs to a rank.
template <class Schedule, class Make>
run train(Schedule schedule, toy_gpt::corpus const& text, std::size_t steps, std::vector<float> const& initial, Make&& make) {
  run result;
  constexpr std::size_t sequences = bench::stand_in ? 2 : 8;
  acco::threads_backend::run(2, [&](auto world) {
    make([&](auto& model, auto storage) {
      acco::optimizer training{
          schedule,       acco::adamw{.learning_rate = 3e-3, .beta2 = 0.99, .weight_decay = 0.1},
          storage,        world,
          model.layout(), acco::options{.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = 500, .total = 1e6}}};
      training.initialize(initial);
      toy_gpt::batch data;
      const double begin = acco::steady_seconds();
      for (std::uint64_t number = 0; training.steps() < steps; ++number) {
        text.draw(data, sequences, 1, static_cast<std::uint64_t>(world.rank()), number);
        const double loss = model.add_gradients(data, &training.parameters()[0], &training.gradients()[0]);
        const auto report = training.accumulated(static_cast<double>(sequences), loss);
        if (world.rank() == 0 && report && acco::commits(report->plan)) result.losses.push_back(report->step_loss);
      }
      if (world.rank() == 0) result.seconds = acco::steady_seconds() - begin;
      training.finish();
    });
  });
  result.losses.resize(steps);
  return result;
}

/// The model on the host, called as the one on the GPU is.
struct host_model {
  toy_gpt::gpt<float> model;
  acco::parameter_layout const& layout() const { return model.layout(); }
  double add_gradients(toy_gpt::batch const& data, float const* parameters, float* gradients) {
    const std::size_t count = layout().size();
    return model.add_gradients(data, std::span(parameters, count), std::span(gradients, count));
  }
};

template <class Schedule>
void compare(Schedule schedule, char const* name, toy_gpt::shape const& shape, toy_gpt::corpus const& text, std::size_t steps) {
  const std::vector<float> initial = toy_gpt::gpt<float>(shape).initial(1);
  const run device = train(schedule, text, steps, initial, [&](auto&& rank) {
    acco::cuda_stream stream;
    toy_gpt::gpt_on_gpu model(shape, stream.get());
    rank(model, acco::cuda_storage<float>{.computation = stream.get()});
  });
  const run host = train(schedule, text, steps, initial, [&](auto&& rank) {
    host_model model{toy_gpt::gpt<float>(shape)};
    rank(model, acco::host_storage<float>{});
  });
  double early = 0, late = 0;
  for (std::size_t k = 0; k < steps; ++k) {
    const double apart = std::abs(device.losses[k] / host.losses[k] - 1);
    (k < 20 ? early : late) = std::max(k < 20 ? early : late, apart);
  }
  figure row("curve");
  row.with("schedule", name).with("parameters", initial.size()).with("steps", steps).with("first_loss", device.losses[0]);
  row.with("last_loss", device.losses[steps - 1]).with("host_last_loss", host.losses[steps - 1]).with("apart_early", early);
  row.with("apart_late", late).with("ms_a_step", 1e3 * device.seconds / static_cast<double>(steps));
  row.with("host_ms_a_step", 1e3 * host.seconds / static_cast<double>(steps)).print();
  for (std::size_t k = 0; k < steps; k += std::max<std::size_t>(steps / 10, 1))
    figure("curve_point")
        .with("schedule", name)
        .with("step", k + 1)
        .with("loss", device.losses[k])
        .with("host", host.losses[k])
        .print();
  // rounding is amplified by training: what it may reach is told in docs/digits.md
  if (!(early < 1e-3 && late < 0.05)) throw std::runtime_error(std::string(name) + ": the losses are not the host's");
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen(count, words);
  if (bench::gpus() == 0) return 0;
  try {
    const toy_gpt::shape shape =
        bench::stand_in ? toy_gpt::shape{.context = 8, .layers = 1, .width = 8, .heads = 2} : toy_gpt::shape{};
    const toy_gpt::corpus text(toy_gpt::repository_text(chosen.text("--root", ".")), shape.context);
    const auto steps = static_cast<std::size_t>(chosen.number("--steps", bench::stand_in ? 6 : 100));
    compare(acco::two_phase{.pace = acco::fixed_pace{1}}, "two_phase", shape, text, steps);
    compare(acco::delayed{}, "delayed", shape, text, steps);
  } catch (std::exception const& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
