// SPDX-License-Identifier: Apache-2.0
// Several folders: every wish becomes a checkpoint, in order; those of one cut share their bytes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
namespace fs = std::filesystem;

/// What goes to standard error otherwise; and a file system with links, or without.
struct watched_calls : acco::checkpoints::system_calls {
  int link(std::string const& file, std::string const& name) override {
    if (links) return system_calls::link(file, name);
    errno = EPERM;
    return -1;
  }
  void note(std::string const& sentence) override {
    const std::lock_guard lock(mutex);
    notes.push_back(sentence);
  }
  bool links = true;
  std::mutex mutex;
  std::vector<std::string> notes;
};

constexpr std::size_t parameters = 5000, frozen = 3000;
acco::parameter_layout layout() {
  acco::parameter_layout made;
  made.add("trained", {parameters}).add("still", {frozen}, made.add_group({.frozen = true}));
  return made;
}
template <class Body>
void train(int ranks, Body&& body) {
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, layout(),
                      acco::options{.deadline = 60 * patience()}};
    body(t, world.rank());
  });
}
template <class Training>
acco::round_report step(Training& t) {
  return t.step([](auto, auto g) {
    for (float& each : g) each += 1;
    return 1;
  });
}
std::string only_one_in(std::string const& folder) {
  auto const all = acco::checkpoints_in(folder);
  REQUIRE(all.size() == 1);
  CHECK(acco::verify_checkpoint(all[0]));
  return all[0];
}
}  // namespace

TEST_CASE("two folders at one report: two checkpoints of one cut, each with its own position, told in order; they share files") {
  for (const bool links : {true, false}) {
    CAPTURE(links);
    const scratch folder;
    watched_calls calls;
    calls.links = links;
    const in_their_place theirs([&](int) -> acco::checkpoints::system_calls& { return calls; });
    const std::string last = folder.run("last"), best = folder.run("best");
    train(2, [&](auto& t, int rank) {
      t.initialize(std::vector<float>(parameters + frozen, 1.0F));
      (void)step(t);
      t.save(last, [rank] { return rank; });
      t.save(best, [rank] { return std::array<int, 2>{rank, 7}; });
      std::vector<std::string> told;
      for (int k = 0; k < 1000000 && told.size() < 2; ++k) {
        auto const report = step(t);  // of two rounds: one tells
        if (report.saved == nullptr) continue;
        CHECK_MESSAGE(report.saved->complete(), report.saved->problem);
        told.push_back(fs::path(report.saved->path).parent_path().string());
      }
      CHECK(told == std::vector{last, best});
      t.finish();
    });
    const std::string one = only_one_in(last), two = only_one_in(best);
    CHECK(fs::path(one).filename() == fs::path(two).filename());
    for (char const* const file :
         {"master.safetensors", "adamw.0.safetensors", "adamw.1.safetensors", "shown.safetensors", "frozen.safetensors"}) {
      CAPTURE(file);
      CHECK(content(one + "/" + file) == content(two + "/" + file));
      CHECK(fs::equivalent(one + "/" + file, two + "/" + file) == links);
    }
    for (auto const& path : {one, two}) {
      train(2, [&](auto& t, int rank) {
        auto const found = t.restore(path);
        CHECK(found.exact);
        if (path == one) CHECK(found.template position<int>() == rank);
        if (path == two) CHECK(found.template position<std::array<int, 2>>() == std::array<int, 2>{rank, 7});
        t.finish();
      });
    }
    fs::remove_all(one);
    CHECK(acco::verify_checkpoint(two));
  }
}

TEST_CASE("a wish that comes while another waits, or is written, is not lost, whichever rank asks when") {
  const scratch folder;
  train(3, [&](auto& t, int rank) {
    t.initialize(std::vector<float>(parameters + frozen, 1.0F));
    for (int k = 0; k < 30; ++k) {
      if (k == 2) t.save(folder.run("a"));
      if (k == (rank == 0 ? 2 : 5)) t.save(folder.run("b"));
      if (k == 5 + rank) t.save(folder.run("c"));
      if (k == 20 - 5 * rank) t.save(folder.run("d"));
      (void)step(t);
    }
    t.finish();
    CHECK(t.saved()->complete());
  });
  for (char const* const each : {"a", "b", "c", "d"}) CHECK(acco::has_checkpoints(folder.run(each)));
}

TEST_CASE("a folder that cannot be made spoils none of the same cut, and is told by a report, or by finish on standard error") {
  for (const bool finishes : {false, true}) {
    CAPTURE(finishes);
    const scratch folder;
    watched_calls calls;
    const in_their_place theirs([&](int) -> acco::checkpoints::system_calls& { return calls; });
    write(folder.run("file"), "no folder");
    train(2, [&](auto& t, int) {
      t.initialize(std::vector<float>(parameters + frozen, 1.0F));
      (void)step(t);
      t.save(folder.run("file"));
      t.save(folder.run("first"));
      t.save(folder.run("file") + "/in");
      t.save(folder.run("second"));
      std::vector<bool> told;
      for (int k = 0; k < 1000000 && told.size() < 4 && !finishes; ++k) {
        auto const report = step(t);
        if (report.saved != nullptr) told.push_back(report.saved->complete());
      }
      if (!finishes) CHECK(told == std::vector{false, true, false, true});
      t.finish();
      REQUIRE(t.saved() != nullptr);
      CHECK(t.saved()->complete());
    });
    CHECK(calls.notes.size() == (finishes ? 4 : 0));
    CHECK(std::ranges::count_if(calls.notes, [&](std::string const& each) {
            return each.find("the last save into " + folder.run("file") + " failed: ") != std::string::npos;
          }) == (finishes ? 2 : 0));
    CHECK(fs::equivalent(only_one_in(folder.run("first")) + "/master.safetensors",
                         only_one_in(folder.run("second")) + "/master.safetensors"));
  }
}

TEST_CASE("as many wishes as all ranks have are told apart from those of some, for any number of ranks") {
  for (const int ranks : {1, 2, 3, 1000, 1 << 26}) {
    CAPTURE(ranks);
    acco::checkpoints::wishes few(ranks), more(ranks);
    CHECK(few.told() == 0);
    CHECK(few.of_all(0) == 0);
    for (char const* const each : {"a", "b", "a", "b", "a"}) more.ask(each, nullptr);
    CHECK(more.all().size() == 2);
    few.ask("a", nullptr);
    CHECK(more.of_all(ranks * more.told()) == 2);
    if (ranks == 1) continue;
    CHECK(more.of_all((ranks - 1) * more.told()) == 0);
    CHECK(more.of_all((ranks - 1) * more.told() + few.told()) == 1);
    CHECK(more.askers((ranks - 1) * more.told()) == ranks - 1);
    for (int k = 0; k < 60; ++k) more.ask(std::to_string(k), nullptr);
    CHECK(more.of_all(ranks * more.told()) >= 2);
  }
}
