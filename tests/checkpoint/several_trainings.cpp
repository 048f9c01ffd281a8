// SPDX-License-Identifier: Apache-2.0
// Several trainings in one folder: a restore finds this one's, and refuses where it cannot tell which is meant.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
namespace fs = std::filesystem;

struct construction {
  std::size_t parameters = 300;
  double rate = 1e-3;
  acco::changes changes = acco::changes::none;
};
auto make(acco::threads_backend const& world, construction const& of) {
  return acco::optimizer{acco::synchronous{}, acco::adamw{.learning_rate = of.rate},     acco::host_storage<float>{}, world,
                         of.parameters,       acco::options{.deadline = 60 * patience()}};
}
/// What was restored, if anything, and the last save.
struct outcome {
  acco::restored found;
  std::string refused, path, run;
  std::uint64_t digest = 0;
};
/// One process's life, of two ranks: begins at `value`, or goes on from `from`, trains, saves, and ends.
outcome live(construction const& of, std::string const& folder, std::string const& from, float value = 0, int saves = 1) {
  outcome result;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world, of);
    outcome mine;
    try {
      if (from.empty()) {
        t.initialize(std::vector<float>(of.parameters, value));
      } else {
        mine.found = t.restore(from, of.changes);
      }
    } catch (acco::checkpoint_error const& e) {
      mine.refused = e.what();
    }
    for (int k = 0; k < saves && mine.refused.empty(); ++k) {
      for (int m = 0; m < 2; ++m) {
        for (float& each : t.gradients()) each += 1;
        (void)t.accumulated(1);
      }
      t.save(folder);
      t.finish();
      REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
      mine.path = t.saved()->path;
      mine.digest = t.saved()->digest;
      mine.run = acco::checkpoints::manifest_of(mine.path).run;
    }
    if (world.rank() == 0) result = mine;
    std::vector<double> nothing(1, 0.0);
    if (mine.refused.empty()) t.sum_over_ranks(nothing);
    if (world.rank() == 1 && mine.refused.empty()) CHECK(mine.found.run == result.found.run);
  });
  return result;
}
void spoil(std::string const& checkpoint) { write(checkpoint + "/master.safetensors", "no tensors"); }
}  // namespace

TEST_CASE(
    "two alike trainings have two numbers: a restore refuses with the list, and each is found by its path, and keeps its "
    "number") {
  const scratch folder;
  const std::string run = folder.run();
  const construction of;
  auto const a = live(of, run, "", 1, 2), alone = live(of, run, run), b = live(of, run, "", 2);
  CHECK(alone.found.run == a.run);
  CHECK(alone.found.path == a.path);
  CHECK(alone.run == a.run);
  CHECK(b.run != a.run);
  auto const either = live(of, run, run);
  CHECK_MESSAGE(either.refused.find(run + " has checkpoints of several trainings") != std::string::npos, either.refused);
  for (auto const& each : {alone, b})
    CHECK_MESSAGE(either.refused.find(fs::path(each.path).filename().string() + " of run " + each.run) != std::string::npos,
                  either.refused);
  auto const chosen = live(of, run, alone.path);
  CHECK(chosen.found.run == a.run);
  CHECK(chosen.found.digest == alone.digest);
  CHECK(chosen.run == a.run);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world, of);
    CHECK(t.restore(b.path).run == b.run);
    CHECK(t.restore(run).path == b.path);  // it has a number now, and the other one's is newer
    t.finish();
  });
  fs::remove_all(b.path);
  CHECK(live(of, run, run).found.path == chosen.path);
}

TEST_CASE(
    "of unlike trainings a restore takes this one's, though others' are newer, and nothing else where this one's are damaged") {
  const scratch folder;
  const std::string run = folder.run();
  const construction large{.parameters = 301}, fast{.rate = 0.5}, plain;
  auto const a = live(plain, run, "", 1, 2), b = live(large, run, "", 1), c = live(fast, run, "", 1);
  CHECK(live(plain, run, run, 0, 0).found.path == a.path);
  CHECK(live(large, run, run, 0, 0).found.path == b.path);
  CHECK(live(fast, run, run, 0, 0).found.path == c.path);
  CHECK(live({.parameters = 302}, run, run).refused.find("is another training's: ") != std::string::npos);
  spoil(a.path);
  auto const before = live(plain, run, run, 0, 0).found;
  CHECK(before.run == a.run);
  CHECK(before.skipped.size() == 1);
  spoil(before.path);
  CHECK(live(plain, run, run).refused.find("no whole checkpoint in ") != std::string::npos);
}

TEST_CASE("a training that was changed on purpose goes on from the last that it was made of, whatever is left in the folder") {
  const scratch folder;
  const std::string run = folder.run();
  const auto changed = [](double rate) { return construction{.rate = rate, .changes = acco::changes::allowed}; };
  auto const a = live({}, run, "", 1), b = live(changed(0.5), run, run), again = live(changed(0.5), run, run);
  CHECK(b.found.run == a.run);
  CHECK(b.run != a.run);
  CHECK(again.found.path == b.path);
  CHECK(again.run == b.run);
  auto const c = live(changed(0.25), run, run);
  CHECK(c.found.path == again.path);
  CHECK(acco::checkpoints::manifest_of(c.path).from == std::vector<std::string>{b.run, a.run});
  CHECK(live({}, run, run, 0, 0).found.path == a.path);  // who changes nothing goes on with what is alike
  fs::remove_all(b.path);
  fs::remove_all(again.path);
  auto const d = live(changed(0.125), run, run);
  CHECK(d.found.path == c.path);
  CHECK(acco::verify_checkpoint(a.path));
  spoil(d.path);
  CHECK(live(changed(0.125), run, run, 0, 0).found.path == c.path);
  auto const fork = live(changed(0.75), run, a.path);
  CHECK(fork.run != d.run);
  auto const either = live(changed(0.0625), run, run);
  CHECK_MESSAGE(either.refused.find(fork.run) != std::string::npos, either.refused);
  CHECK_MESSAGE(either.refused.find(d.run) != std::string::npos, either.refused);
  CHECK_MESSAGE(either.refused.find(a.run) == std::string::npos, either.refused);
}
