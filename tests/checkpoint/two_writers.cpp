// SPDX-License-Identifier: Apache-2.0
// Trainings that save into one folder at once leave each other's checkpoints alone, finished or not; what a training
// that was killed has left goes with the next save.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
namespace fs = std::filesystem;
acco::parameter_layout layout() {
  acco::parameter_layout layout;
  return layout.add("a", {6001}).add("b", {3, 31});
}
/// A training, begun anew, of so many ranks, that saves so many times; returns what was reported, on rank 0.
std::vector<std::string> train(
    int ranks, std::string const& run, int saves, std::size_t keep = 2, std::function<void()> const& first_saved = [] {}) {
  std::vector<std::string> problems;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      layout(),
                      acco::options{.deadline = 60 * patience(), .keep_checkpoints = keep}};
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    for (int k = 0; k < saves; ++k) {
      t.save(run);
      for (std::size_t m = 0;; ++m) {
        REQUIRE(m < 10000000);
        (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
        auto const report = t.accumulated(1);
        if (!report || report->saved == nullptr) continue;
        if (world.rank() == 0) problems.emplace_back(report->saved->problem);
        if (world.rank() == 0 && k == 0) first_saved();
        break;
      }
    }
    t.finish();
  });
  return problems;
}
std::map<std::string, std::size_t> by_run(std::string const& folder) {
  std::map<std::string, std::size_t> found;
  for (auto const& each : acco::checkpoints::known_checkpoints(folder)) {
    CHECK(acco::verify_checkpoint(each.path));
    ++found[each.is.run];
  }
  return found;
}
std::size_t others(std::string const& folder) {  // that are no checkpoints
  std::size_t found = 0;
  for (auto const& each : fs::directory_iterator(folder)) found += each.path().filename().string().starts_with("step-") ? 0 : 1;
  return found;
}
void leave(std::string const& path) {
  fs::create_directories(path + "/deeper");
  write(path + "/master.safetensors", "half");
  write(path + "/deeper/file", "more");
}
/// Calls that do not sync, which only takes time here.
struct quick_calls : acco::checkpoints::system_calls {
  int fsync(int) override { return 0; }
};
}  // namespace

TEST_CASE("two trainings save into one folder at once: each keeps its own, and whoever looks finds a whole one") {
  const scratch folder(in_memory());
  const std::string run = folder.run();
  quick_calls calls;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  const int saves = thorough() ? 60 : 8;
  std::atomic<int> begun = 0, at_work = 2;
  std::vector<std::string> problems[2];
  std::vector<std::thread> trainings;
  for (int which = 0; which < 2; ++which) {
    trainings.emplace_back([&, which] {
      problems[which] = train(1 + which, run, saves, 1, [&] { ++begun; });
      --at_work;
    });
  }
  while (begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::size_t looks = 0;
  for (; at_work > 0; ++looks) {
    std::vector<std::string> skipped;
    auto const found = acco::latest_checkpoint(run, &skipped);
    CHECK_MESSAGE(found.has_value(), (skipped.empty() ? std::string() : skipped[0]));
    if (!found) break;
  }
  for (auto& each : trainings) each.join();
  CHECK(looks > 0);
  for (auto const& each : problems) {
    CHECK(each.size() == static_cast<std::size_t>(saves));
    for (auto const& problem : each) CHECK_MESSAGE(problem.empty(), problem);
  }
  auto const kept = by_run(run);
  CHECK(kept.size() == 2);
  for (auto const& [id, count] : kept) CHECK(count == 1);
  CHECK(others(run) == 0);
}

TEST_CASE("what a living training is writing is left alone, however long it takes; what a killed one has left is not") {
  const scratch folder(in_memory());
  const std::string run = folder.run();
  struct blocking_calls : quick_calls {
    std::mutex mutex;
    std::condition_variable changed;
    bool here = false, go = false;
    ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
      std::unique_lock lock(mutex);
      here = true;
      changed.notify_all();
      changed.wait(lock, [this] { return go; });
      return quick_calls::pwrite(file, bytes, at);
    }
  } blocking;
  quick_calls calls;
  std::atomic<bool> blocks = true;
  const in_their_place now(
      [&](int) -> acco::checkpoints::system_calls& { return blocks ? static_cast<quick_calls&>(blocking) : calls; });
  std::vector<std::string> slow;
  std::thread other([&] { slow = train(2, run, 1); });
  {
    std::unique_lock lock(blocking.mutex);
    blocking.changed.wait(lock, [&] { return blocking.here; });
  }
  blocks = false;
  leave(run + "/.saving-0123456789ab-7");
  leave(run + "/.saving-0123456789ab-8.begun");
  leave(run + "/.deleting-0123456789ab-step-00000000001");
  CHECK(others(run) == 4);
  for (auto const& problem : train(2, run, 3)) CHECK_MESSAGE(problem.empty(), problem);
  CHECK(others(run) == 1);
  {
    const std::lock_guard lock(blocking.mutex);
    blocking.go = true;
  }
  blocking.changed.notify_all();
  other.join();
  REQUIRE(slow.size() == 1);
  CHECK_MESSAGE(slow[0].empty(), slow[0]);
  CHECK(others(run) == 0);
  CHECK(by_run(run).size() == 2);
}

TEST_CASE("where the file system has no locks, what has not changed for an hour is nobody's") {
  const scratch folder(in_memory());
  const std::string run = folder.run();
  struct lockless_calls : quick_calls {
    int flock(int, int) override {
      errno = ENOLCK;
      return -1;
    }
  } calls;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  leave(run + "/.saving-0123456789ab-7");
  leave(run + "/.saving-ba9876543210-1");
  fs::last_write_time(run + "/.saving-0123456789ab-7", fs::file_time_type::clock::now() - std::chrono::hours(2));
  for (auto const& problem : train(2, run, 2)) CHECK_MESSAGE(problem.empty(), problem);
  CHECK(!fs::exists(run + "/.saving-0123456789ab-7"));
  CHECK(fs::exists(run + "/.saving-ba9876543210-1"));
  CHECK(others(run) == 1);
}

TEST_CASE("a name that another training takes at the last moment: the next one") {
  const scratch folder(in_memory());
  const std::string run = folder.run();
  struct taking_calls : quick_calls {
    std::string taken;
    int rename(std::string const& from, std::string const& to) override {
      if (taken.empty() && to.find("/step-") != std::string::npos) {
        taken = to;
        fs::create_directories(to);
        write(to + "/manifest.json", "another's");
      }
      return quick_calls::rename(from, to);
    }
  } calls;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  for (auto const& problem : train(1, run, 1)) CHECK_MESSAGE(problem.empty(), problem);
  CHECK(content(calls.taken + "/manifest.json") == "another's");
  CHECK(acco::latest_checkpoint(run) == calls.taken + ".2");
}
