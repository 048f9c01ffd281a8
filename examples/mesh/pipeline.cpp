// SPDX-License-Identifier: Apache-2.0
// A pipeline of two stages beside data parallelism, two times two ranks, in the order "one forward, one backward"
// (1F1B; D. Narayanan et al., arXiv 2104.04473, section 2.2). The output is tied to the embedding, which both stages
// have.
//   mesh_pipeline [--steps N] [--gloo]
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>

#include "mesh.hpp"
#include "part.hpp"
#include "run.hpp"

namespace {

/// One stage: a model for each micro-batch that is between its forward and its backward, and a way to the other stage in
/// either direction, so that neither waits for the other.
template <class World>
class stage {
 public:
  stage(World const& stages, mesh::part const& which) : forward_(stages), backward_(stages), rank_(stages.rank()) {
    for (int k = 0; k <= ahead(); ++k) models_.emplace_back(mesh::model_shape, which, mesh::sequences);
  }
  [[nodiscard]] bool first() const { return rank_ == 0; }

  // [1F1B]
  /// Runs the micro-batches of a part of a step. ended(k, loss) is called when the gradient of micro-batch k has been
  /// added.
  template <class Ended>
  void run(std::span<toy_gpt::batch const> data, std::span<float const> parameters, std::span<float> gradients, Ended&& ended) {
    const auto early = static_cast<std::size_t>(ahead());
    losses_.resize(data.size());
    for (std::size_t k = 0; k < data.size() + early; ++k) {
      if (k < data.size()) losses_[k] = forward(data[k], of(k), parameters);
      if (k < early) continue;
      backward(data[k - early], of(k - early), parameters, gradients);
      ended(k - early, losses_[k - early]);
    }
  }
  // [1F1B]

 private:
  /// How many forwards this stage is in front of its backwards.
  [[nodiscard]] int ahead() const { return mesh::parts - 1 - rank_; }
  [[nodiscard]] mesh::gpt_part& of(std::size_t micro_batch) { return models_[micro_batch % models_.size()]; }

  double forward(toy_gpt::batch const& data, mesh::gpt_part& model, std::span<float const> parameters) {
    if (!first()) forward_.broadcast(model.entering(), 0);
    const double loss = model.forward(data, parameters);
    if (first()) forward_.start_broadcast(model.leaving(), 0);
    return loss;
  }
  void backward(toy_gpt::batch const& data, mesh::gpt_part& model, std::span<float const> parameters,
                std::span<float> gradients) {
    if (first()) backward_.broadcast(model.d_stream(), 1);
    if (!first()) backward_.wait();  // for what it sent last, from the same array or another
    model.backward(data, parameters, gradients);
    if (!first()) backward_.start_broadcast(model.d_stream(), 1);
  }

  mesh::group<World> forward_, backward_;
  int rank_;
  std::vector<mesh::gpt_part> models_;
  std::vector<double> losses_;
};

template <class World>
std::vector<mesh::step_numbers> train(World const& world, std::string_view schedule, std::uint64_t steps) {
  const mesh::worlds<World> ranks = mesh::split(world, mesh::parts);
  static_assert(mesh::model_shape.layers % mesh::parts == 0, "each stage has as many blocks");
  const std::size_t blocks = mesh::model_shape.layers / mesh::parts,
                    first_block = static_cast<std::size_t>(ranks.model.rank()) * blocks;
  const mesh::part which{.first_block = first_block, .end_block = first_block + blocks};
  const mesh::part_layout layout(mesh::model_shape, which);
  stage<World> pipeline(ranks.model, which);

  std::vector<float> parameters = layout.taken_from(toy_gpt::gpt<float>(mesh::model_shape).initial(mesh::seed));
  std::vector<float> gradients(parameters.size());
  mesh::group<World> stages(ranks.model);
  mesh::copies<World> tied(stages, std::span(parameters).first(layout.copied()), std::span(gradients).first(layout.copied()));

  const bool owner = pipeline.first();  // of the embedding
  const std::size_t begin = owner ? 0 : layout.copied();
  const acco::parameter_layout trained = layout.trained(owner);
  const acco::options options = mesh::options_of_training();
  auto training =
      mesh::make_training(schedule, 1, mesh::joint_norm<World>(ranks.data, ranks.model, trained, options), trained, options);
  training.adopt(std::span(parameters).subspan(begin), std::span(gradients).subspan(begin));
  tied.spread();

  // [train]
  const toy_gpt::corpus text = mesh::task();
  const mesh::step_lengths lengths = mesh::lengths_of(schedule);
  std::vector<mesh::step_numbers> curve;
  std::uint64_t drawn = 0;
  for (bool second = false; training.steps() < steps; second = !second && lengths.second != 0) {
    std::vector<toy_gpt::batch> data(second ? lengths.second : lengths.first);  // both stages draw the same
    for (toy_gpt::batch& each : data)
      text.draw(each, mesh::sequences, mesh::seed, static_cast<std::uint64_t>(ranks.data.rank()), drawn++);
    pipeline.run(data, parameters, gradients, [&](std::size_t k, double loss) {
      if (k + 1 == data.size()) tied.collect();                         // each stage has a part of the embedding's gradient
      const auto report = training.accumulated(mesh::sequences, loss);  // the first stage's loss is 0
      if (report && acco::commits(report->plan)) curve.push_back(mesh::numbers_of(*report));
    });
    tied.spread();  // a part has ended, and with it came a report
  }
  training.finish();
  tied.spread();
  // [train]
  return curve;
}

}  // namespace

int main(int count, char** words) {
  return mesh::run(count, words, [](auto const& world, std::uint64_t steps) {
    mesh::run_schedules(world, steps, world.rank() == 1,  // a last stage, which knows the loss
                        [](auto const& ranks, char const* schedule, std::uint64_t n) { return train(ranks, schedule, n); });
  });
}
