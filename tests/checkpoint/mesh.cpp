// SPDX-License-Identifier: Apache-2.0
// A model of two parts over two ranks each, whose norm is joint (examples/mesh): each part saves into a folder of its
// own. Where a kill has left one of them with a newer checkpoint, all go on from the newest that every part has, and
// train what they trained.
#include "../../examples/mesh/mesh.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"

namespace {

struct told {
  double loss, norm, clip;
  bool operator==(told const&) const = default;
};
using curve = std::vector<told>;  // by step, from 1

std::uint64_t step_of(std::string const& checkpoint) { return std::stoull(checkpoint.substr(checkpoint.rfind("step-") + 5)); }

/// The newest step of which every part has a checkpoint that is whole; 0 where some part has none.
std::uint64_t common_step(acco::threads_backend const& world, std::string const& run) {
  std::vector<float> steps(static_cast<std::size_t>(world.size()));
  if (auto const latest = acco::latest_checkpoint(run))
    steps[static_cast<std::size_t>(world.rank())] = static_cast<float>(step_of(*latest));
  mesh::group<acco::threads_backend>(world).sum(steps);
  return static_cast<std::uint64_t>(*std::min_element(steps.begin(), steps.end()));
}
std::string checkpoint_of(std::string const& run, std::uint64_t step) {
  for (std::string const& path : acco::checkpoints_in(run)) {
    if (step_of(path) == step) return path;
  }
  return "";
}

/// Trains until step `end`, and until so many saves have ended in every part; goes on from checkpoints where there are
/// some. Returns the curve of part 1.
curve train(std::string const& folder, std::uint64_t end, int saves) {
  curve result(1);
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    auto const ranks = mesh::split(world, 2);
    mesh::group<acco::threads_backend> model(ranks.model);
    const auto part = static_cast<std::size_t>(ranks.model.rank());
    const acco::parameter_layout layout(300 + 100 * part);
    const acco::options chosen{.clip_norm = 8};
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{.learning_rate = 0.1},
                      acco::host_storage<float>{},
                      mesh::joint_norm(ranks.data, ranks.model, layout, chosen),
                      layout,
                      chosen};
    const std::string run = folder + "/part" + std::to_string(part);
    std::uint64_t drawn = 0;
    if (const std::uint64_t step = common_step(world, run); step != 0) {
      drawn = t.restore(checkpoint_of(run, step)).position<std::uint64_t>();
    } else {
      if (ranks.data.rank() == 0) std::filesystem::remove_all(run);
      t.initialize(std::vector<float>(layout.size(), 1.0F));
    }
    int left = saves;
    float being_made = 0;
    for (bool goes_on = true; goes_on;) {
      double loss = 0;
      const auto sample = static_cast<float>((drawn++ * 7 + static_cast<std::uint64_t>(ranks.data.rank()) * 3) % 5);
      for (std::size_t i = 0; i < layout.size(); ++i) {
        const float error = t.parameters()[i] - sample * static_cast<float>(1 + part);
        loss += static_cast<double>(error);
        t.gradients()[i] += error;
      }
      const auto report = t.accumulated(1, loss);
      if (report && report->saved != nullptr) being_made = 0;
      if (!report || !acco::commits(report->plan)) continue;
      if (world.rank() == 1) {
        result.resize(std::max<std::size_t>(result.size(), report->step + 1));
        result[report->step] = {report->step_loss, report->gradient_norm, report->clip_scale};
      }
      float in_some_part = being_made;
      model.sum({&in_some_part, 1});
      if (in_some_part == 0 && left > 0 && report->step >= 9) {  // the cut is at the same step in every part
        t.save(run, [&] { return drawn; });
        being_made = 1;
        --left;
      }
      goes_on = report->step < end || left > 0;
    }
    t.finish();
  });
  return result;
}

}  // namespace

TEST_CASE("parts of a model whose newest checkpoints differ go on from the newest that all have, as one run") {
  const scratch peace, killed;
  const curve whole = train(peace.run(), 40, 0);
  train(killed.run(), 30, 2);
  const std::string newest = acco::latest_checkpoint(killed.run() + "/part1").value();
  const std::uint64_t cut = step_of(newest);
  CHECK(cut == step_of(acco::latest_checkpoint(killed.run() + "/part0").value()));
  std::filesystem::remove_all(newest);

  const curve resumed = train(killed.run(), 40, 0);
  REQUIRE(resumed.size() == whole.size());
  std::size_t first = 0;
  while (first < 40 && resumed[first].norm == 0) ++first;
  CHECK(first > 9);
  CHECK(first < cut);
  for (std::size_t k = first; k <= 40; ++k) CHECK(resumed[k] == whole[k]);
  CHECK(std::any_of(whole.begin() + 1, whole.end(), [](told const& each) { return each.clip < 1; }));
}

TEST_CASE("parts of which one has no checkpoint yet begin anew, all of them") {
  const scratch peace, killed;
  const curve whole = train(peace.run(), 30, 0);
  train(killed.run(), 20, 1);
  std::filesystem::remove_all(killed.run() + "/part1");
  const curve again = train(killed.run(), 30, 1);
  REQUIRE(again.size() >= whole.size());
  for (std::size_t k = 1; k < whole.size(); ++k) CHECK(again[k] == whole[k]);
  CHECK(step_of(acco::latest_checkpoint(killed.run() + "/part1").value()) ==
        step_of(acco::latest_checkpoint(killed.run() + "/part0").value()));
}
