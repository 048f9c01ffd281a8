// SPDX-License-Identifier: Apache-2.0
// A disk that is too small is known before the first byte is written, and the report says how many bytes are needed. On
// a file system in memory, which takes root to make.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mount.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"

namespace {
constexpr int ranks = 3;
acco::parameter_layout layout() {
  acco::parameter_layout layout;
  return layout.add("a", {40001}).add("still", {400}, layout.add_group({.frozen = true})).add("b", {3, 31});
}
/// A file system of so many bytes.
class small_disk {
 public:
  small_disk(std::string path, std::size_t bytes) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (!mounted_) why_ = std::strerror(errno);
  }
  small_disk(small_disk const&) = delete;
  small_disk& operator=(small_disk const&) = delete;
  ~small_disk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool mounted() const noexcept { return mounted_; }
  [[nodiscard]] std::string const& why() const noexcept { return why_; }

 private:
  std::string path_, why_;
  bool mounted_ = false;
};
/// Counts bytes that are written into tensor files.
struct counting_calls : acco::checkpoints::system_calls {
  std::mutex mutex;
  std::vector<int> tensors;  // open files
  std::uint64_t bytes = 0;
  int open(std::string const& path, int flags) override {
    const int file = system_calls::open(path, flags);
    const std::lock_guard lock(mutex);
    std::erase(tensors, file);
    if (path.ends_with(".safetensors")) tensors.push_back(file);
    return file;
  }
  ssize_t pwrite(int file, std::span<std::byte const> from, std::uint64_t at) override {
    const ssize_t written = system_calls::pwrite(file, from, at);
    const std::lock_guard lock(mutex);
    for (const int each : tensors) bytes += each == file && written > 0 ? static_cast<std::uint64_t>(written) : 0;
    return written;
  }
};
}  // namespace

TEST_CASE("a disk that is too small is known before the first byte") {
  const scratch folder;
  const std::string run = folder.run("disk/run");
  const std::size_t whole =
      4 * (4096 + (40001 + 93) * 4);  // masters, two slots, in use: where there is room for one, and not two
  const small_disk disk(folder.path() + "/disk", whole * 3 / 2);
  if (!disk.mounted()) {
    MESSAGE("skipped: this user may not mount a file system: " << disk.why());
    return;
  }
  counting_calls calls;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      layout(),
                      acco::options{.deadline = 60}};
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    const auto save = [&](std::string const& to) -> std::string {  // the problem
      t.save(to, [] { return 1; });
      for (std::size_t m = 0;; ++m) {
        REQUIRE(m < 1000000);
        (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
        if (auto const report = t.accumulated(1); report && report->saved != nullptr) return report->saved->problem;
      }
    };
    const auto together = [&] {
      std::vector<double> nothing(1, 0.0);
      t.sum_over_ranks(nothing);
    };
    const std::string first = save(run);
    REQUIRE_MESSAGE(first.empty(), first);
    together();
    if (world.rank() == 0) calls.bytes = 0;
    together();
    const std::uint64_t step = t.steps();
    std::string problem = save(run);
    CHECK(!problem.empty());
    if (world.rank() == 0) {
      CHECK_MESSAGE(problem.find("fallocate " + run) != std::string::npos, problem);
      CHECK_MESSAGE(problem.find("No space left on device") != std::string::npos, problem);
      CHECK_MESSAGE(problem.find("The checkpoint needs ") != std::string::npos, problem);
      const std::size_t at = problem.find("The checkpoint needs ");
      const auto told = at == std::string::npos ? 0 : std::stoull(problem.substr(at + std::strlen("The checkpoint needs ")));
      const std::uint64_t there = [&] {
        std::uint64_t bytes = 0;
        for (auto const& each : std::filesystem::directory_iterator(acco::latest_checkpoint(run).value()))
          bytes += each.path().filename() == "manifest.json" ? 0 : each.file_size();
        return bytes;
      }();
      CHECK(calls.bytes == 0);
      CHECK(told <= there);
      CHECK(told + ranks * sizeof(int) >= there);  // but what the other ranks' trainers keep
    }
    together();
    CHECK(t.steps() > step);
    if (world.rank() == 0) {
      auto const found = acco::checkpoints_in(run);
      REQUIRE(found.size() == 1);
      CHECK(acco::verify_checkpoint(found[0]));
    }
    together();
    const std::string elsewhere = save(folder.run("elsewhere"));
    CHECK_MESSAGE(elsewhere.empty(), elsewhere);
    t.finish();
  });
  for (auto const& each : std::filesystem::directory_iterator(run))
    CHECK_MESSAGE(each.path().filename().string().starts_with("step-"), each.path().string());
}
