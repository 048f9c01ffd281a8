// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism beside data parallelism, two times two ranks: each has half of the heads and of the MLPs
// (Megatron-LM, arXiv 1909.08053, section 3), and acco trains each half over the ranks that hold it.
//   mesh_tensor_parallel [--steps N] [--gloo]
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>

#include "mesh.hpp"
#include "part.hpp"
#include "run.hpp"

namespace {

template <class World>
std::vector<mesh::step_numbers> train(World const& world, std::string_view schedule, std::uint64_t steps) {
  // [train]
  const mesh::worlds<World> ranks = mesh::split(world, mesh::parts);
  mesh::group<World> tensor_group(ranks.model);
  const mesh::part which{.first_block = 0,
                         .end_block = mesh::model_shape.layers,
                         .tensor_rank = static_cast<std::size_t>(ranks.model.rank()),
                         .tensor_ranks = static_cast<std::size_t>(ranks.model.size())};
  const mesh::part_layout layout(mesh::model_shape, which);
  mesh::gpt_part model(mesh::model_shape, which, mesh::sequences, [&](std::span<float> addends) { tensor_group.sum(addends); });

  std::vector<float> parameters = layout.taken_from(toy_gpt::gpt<float>(mesh::model_shape).initial(mesh::seed));
  std::vector<float> gradients(parameters.size());
  mesh::copies<World> copies(tensor_group, std::span(parameters).first(layout.copied()),
                             std::span(gradients).first(layout.copied()));

  const bool owner = ranks.model.rank() == 0;  // of what all ranks of a tensor group have
  const std::size_t begin = owner ? 0 : layout.copied();
  const acco::parameter_layout trained = layout.trained(owner);
  const acco::options options = mesh::options_of_training();
  auto training =
      mesh::make_training(schedule, 1, mesh::joint_norm<World>(ranks.data, ranks.model, trained, options), trained, options);
  training.adopt(std::span(parameters).subspan(begin), std::span(gradients).subspan(begin));
  copies.spread();

  const toy_gpt::corpus text = mesh::task();
  toy_gpt::batch batch;
  std::vector<mesh::step_numbers> curve;
  for (std::uint64_t k = 0; training.steps() < steps; ++k) {
    text.draw(batch, mesh::sequences, mesh::seed, static_cast<std::uint64_t>(ranks.data.rank()), k);  // one for a tensor group
    const double loss = model.forward(batch, parameters);
    model.backward(batch, parameters, gradients);  // of copies each rank has the same, and all of it
    const auto report = training.accumulated(mesh::sequences, loss);
    if (!report) continue;
    copies.spread();  // whatever the report: an estimate's parameters are others, too
    if (acco::commits(report->plan)) curve.push_back(mesh::numbers_of(*report));
  }
  training.finish();
  copies.spread();
  // [train]
  return curve;
}

}  // namespace

int main(int count, char** words) {
  return mesh::run(count, words, [](auto const& world, std::uint64_t steps) {
    mesh::run_schedules(world, steps, world.rank() == 0,
                        [](auto const& ranks, char const* schedule, std::uint64_t n) { return train(ranks, schedule, n); });
  });
}
