// SPDX-License-Identifier: Apache-2.0
// Every system call of a save fails once, on every rank, in every way that disks have. The training goes on, the report
// says why, the old checkpoint stays, and after the next save nothing half-written is left.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
constexpr int ranks = 3;
constexpr int short_write = -1;

/// A rank's calls, one of which may fail. The rank's trainer arms it while nothing is being written.
class failing_calls final : public acco::checkpoints::system_calls {
 public:
  struct fault {
    std::string call;
    std::size_t at = 0;  // 0: none; 1: the first of these calls
    int number = 0;
  };
  void arm(fault const& next) {
    counts.clear();
    hit.clear();
    fault_ = next;
  }
  std::map<std::string, std::size_t> counts;
  std::string hit;  // path of the call that failed

  int mkdir(std::string const& path) override { return fails("mkdir", path) ? -1 : system_calls::mkdir(path); }
  int open(std::string const& path, int flags) override {
    if (fails("open", path)) return -1;
    const int file = system_calls::open(path, flags);
    if (file >= 0) paths_[file] = path;
    return file;
  }
  int fallocate(int file, std::uint64_t at, std::uint64_t bytes) override {
    return fails("fallocate", paths_[file]) ? -1 : system_calls::fallocate(file, at, bytes);
  }
  ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
    if (!fails("pwrite", paths_[file])) return system_calls::pwrite(file, bytes, at);
    return fault_.number == short_write ? system_calls::pwrite(file, bytes.first((bytes.size() + 1) / 2), at) : -1;
  }
  int fsync(int file) override { return fails("fsync", paths_[file]) ? -1 : 0; }
  int flock(int file, int how) override { return fails("flock", paths_[file]) ? -1 : system_calls::flock(file, how); }
  int close(int file) override {
    const int result = system_calls::close(file);  // Linux closes the file whatever it returns
    return fails("close", paths_[file]) ? -1 : result;
  }
  int rename(std::string const& from, std::string const& to) override {
    return fails("rename", from) ? -1 : system_calls::rename(from, to);
  }
  int unlink(std::string const& path) override { return fails("unlink", path) ? -1 : system_calls::unlink(path); }
  int rmdir(std::string const& path) override { return fails("rmdir", path) ? -1 : system_calls::rmdir(path); }

 private:
  bool fails(char const* call, std::string const& path) {
    const std::size_t count = ++counts[call];
    if (fault_.at == 0 || fault_.call != call || fault_.at != count) return false;
    hit = path;
    errno = fault_.number;
    return true;
  }
  fault fault_;
  std::map<int, std::string> paths_;
};

acco::parameter_layout layout() {
  acco::parameter_layout layout;
  return layout.add("a", {thorough() ? 7001U : 2501U}).add("still", {40}, layout.add_group({.frozen = true})).add("b", {3, 31});
}
std::size_t whole_ones(std::string const& run) {
  std::size_t found = 0;
  for (auto const& each : acco::checkpoints_in(run)) found += acco::verify_checkpoint(each) ? 1 : 0;
  return found;
}
}  // namespace

// Rank 2's call fails; rank 1, which is told so before rank 0 is, gives its part up; rank 0 then reads whatever rank 1
// has left.
TEST_CASE("the words are those of the rank that failed, not of one that gave up because of it") {
  const scratch folder(in_memory());
  std::atomic<bool> writes{false}, told{false}, gave_up{false};
  struct slow final : acco::checkpoints::system_calls {
    std::atomic<bool>*writes, *told, *gave_up;
    ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
      writes->store(true);
      while (!told->load()) std::this_thread::yield();
      return system_calls::pwrite(file, bytes, at);
    }
    int close(int file) override {
      if (told->load()) gave_up->store(true);
      return system_calls::close(file);
    }
  } slow_one;
  slow_one.writes = &writes;
  slow_one.told = &told;
  slow_one.gave_up = &gave_up;
  failing_calls failing;
  failing.arm({"open", 1, EIO});
  acco::checkpoints::system_calls usual;
  const in_their_place now([&](int rank) -> acco::checkpoints::system_calls& {
    return rank == 0 ? usual : rank == 1 ? static_cast<acco::checkpoints::system_calls&>(slow_one) : failing;
  });
  acco::parameter_layout large;
  large.add("a", {3 * 2 * acco::checkpoints::block_bytes});  // whole blocks on every rank
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      large,
                      acco::options{.deadline = 60}};
    t.initialize(problem::converted<float>(problem::initial(large.size())));
    t.save(folder.run());
    for (std::size_t m = 0;; ++m) {
      REQUIRE(m < 100000);
      (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
      if (world.rank() == 0 && writes) {  // late: rank 1 lands before
        for (int wait = 0; !told && wait < 50; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (int wait = 0; told && !gave_up && wait < 5000; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (gave_up) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 looks every 50 ms
      }
      auto const report = t.accumulated(1);
      if (!report || report->saved == nullptr) continue;
      if (world.rank() == 1) told = true;
      const std::string problem = report->saved->problem;
      if (world.rank() == 0) CHECK_MESSAGE(problem.starts_with("rank 2: open " + failing.hit), problem);
      if (world.rank() == 2) CHECK_MESSAGE(problem.starts_with("open " + failing.hit), problem);
      break;
    }
    t.finish(acco::unfinished::drop);
  });
}

TEST_CASE("every call of a save fails once: the training goes on, and nothing is lost or left behind") {
  const scratch folder(in_memory());
  const std::string run = folder.run();
  std::array<failing_calls, ranks> calls;
  const in_their_place now([&](int rank) -> acco::checkpoints::system_calls& { return calls[static_cast<std::size_t>(rank)]; });
  std::size_t faults = 0, failed = 0;
  std::map<std::string, std::size_t> by_call;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      layout(),
                      acco::options{.deadline = 60}};
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    failing_calls& mine = calls[static_cast<std::size_t>(world.rank())];
    const auto save = [&]() -> std::string {  // the problem
      t.save(run, [] { return std::array<int, 300>{}; });
      for (std::size_t m = 0;; ++m) {
        REQUIRE(m < 1000000);
        (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
        if (auto const report = t.accumulated(1); report && report->saved != nullptr) return report->saved->problem;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // files are written meanwhile
      }
    };
    const auto together = [&] {  // a round later all ranks have come to this place
      std::vector<double> nothing(1, 0.0);
      t.sum_over_ranks(nothing);
    };
    const auto one_that_works = [&] {
      const std::string problem = save();
      REQUIRE_MESSAGE(problem.empty(), problem);
    };
    for (int k = 0; k < 3; ++k) one_that_works();  // so that one is deleted every time
    mine.arm({});
    one_that_works();
    together();
    std::array<std::map<std::string, std::size_t>, ranks> made;
    for (std::size_t rank = 0; rank < ranks; ++rank) made[rank] = calls[rank].counts;
    together();
    for (int rank = 0; rank < ranks; ++rank) {
      for (auto const& [call, count] : made[static_cast<std::size_t>(rank)]) {
        std::size_t of_call = 0;
        for (std::size_t at = 1; at <= count; ++at) {
          for (const int number : {EIO, ENOSPC, EDQUOT, EINTR, short_write}) {
            if (number == short_write && call != "pwrite") continue;
            if (!thorough() && of_call++ % 23 != static_cast<std::size_t>(rank)) continue;  // of each call at least one
            const std::string latest = acco::latest_checkpoint(run).value_or("");
            together();
            if (world.rank() == rank) mine.arm({call, at, number});
            const std::string problem = save();
            together();
            auto const& culprit = calls[static_cast<std::size_t>(rank)];
            std::string hit = culprit.hit;
            together();
            if (world.rank() == rank) {
              CAPTURE(call);
              CAPTURE(at);
              CAPTURE(number);
              CAPTURE(hit);
              CAPTURE(problem);
              REQUIRE(!hit.empty());
              mine.arm({});
              ++faults;
              ++by_call[call];
              failed += problem.empty() ? 0 : 1;
              if (!problem.empty()) {
                CHECK(problem.starts_with(call + " " + hit));
                CHECK(problem.find(std::generic_category().message(number)) != std::string::npos);
              }
              const bool deletes = hit.find(".deleting-") != std::string::npos || hit.find("/step-") != std::string::npos;
              const bool harmless = number == short_write || deletes || call == "flock" || (number == EINTR && call != "fsync") ||
                                    (call == "close" && std::filesystem::path(hit).filename().string().starts_with(".saving-")) ||
                                    hit.ends_with(".begun") || hit == run || hit == folder.path();
              if (!harmless) CHECK(!problem.empty());
              if (number == short_write || (number == EINTR && call != "fsync")) CHECK(problem.empty());
              if (call == "fsync" && hit.find(".saving-") != std::string::npos) CHECK(!problem.empty());
            } else if (world.rank() == 0 && !problem.empty()) {
              CHECK_MESSAGE(problem.starts_with("rank " + std::to_string(rank) + ": " + call + " " + hit), problem);
            }
            if (world.rank() == 0) {
              CHECK(acco::verify_checkpoint(latest));
              auto const found = acco::latest_checkpoint(run);
              REQUIRE(found);
              if (problem.empty()) CHECK(*found != latest);
            }
            together();
            one_that_works();
            if (world.rank() == 0) {
              std::size_t all = 0;
              for (auto const& each : std::filesystem::directory_iterator(run)) {
                ++all;
                CHECK_MESSAGE(each.path().filename().string().starts_with("step-"), call, " ", hit, ": ", each.path().string());
                for (auto const& file : std::filesystem::directory_iterator(each.path()))
                  CHECK_MESSAGE(!file.path().filename().string().starts_with("part-"), file.path().string());
              }
              CHECK(whole_ones(run) == all);
              CHECK(all <= 3);  // a deletion that failed is made up for by the next save
            }
            together();
          }
        }
      }
    }
    t.finish();
  });
  CHECK(faults > (thorough() ? 500U : 20U));
  CHECK(failed > faults / 3);
  std::printf("%zu calls failed, and %zu saves by that:", faults, failed);
  for (auto const& [call, count] : by_call) std::printf(" %s %zu", call.c_str(), count);
  std::printf("\n");
}
