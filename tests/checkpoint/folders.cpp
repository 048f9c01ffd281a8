// SPDX-License-Identifier: Apache-2.0
// Folders as people leave them: links, pipes, files in a folder's place, names that mean something else, others at work
// in them.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
namespace fs = std::filesystem;

auto make(acco::threads_backend const& world, acco::parameter_layout layout = acco::parameter_layout(300), std::size_t keep = 2,
          double rate = 1e-3) {
  return acco::optimizer{acco::synchronous{},         acco::adamw{.learning_rate = rate},
                         acco::host_storage<float>{}, world,
                         std::move(layout),           acco::options{.deadline = 20, .keep_checkpoints = keep}};
}
template <class Training>
void train(Training& t, int steps) {
  for (int m = 0; m < steps; ++m) {
    for (float& each : t.gradients()) each += 1;
    (void)t.accumulated(1);
  }
}
/// Trains a little, saves, and returns what became of it.
template <class Training>
acco::save_outcome saved(Training& t, std::string const& run, int steps = 1) {
  train(t, steps);
  t.save(run);
  t.finish();
  return *t.saved();
}
template <class Training>
void begin(Training& t) {
  t.initialize(std::vector<float>(t.layout().size(), 1.0F));
}
}  // namespace

TEST_CASE("links are removed, not what they lead to") {
  const scratch folder;
  fs::create_directories(folder.run());
  const std::string precious = folder.path() + "/precious", archive = folder.path() + "/archive";
  fs::create_directories(precious);
  std::ofstream(precious + "/notes") << "mine";
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    auto t = make(world, acco::parameter_layout(300), 1);
    begin(t);
    const std::string first = saved(t, folder.run()).path;
    fs::rename(first, archive);
    fs::create_directory_symlink(archive, first);
    fs::create_directory_symlink(precious, folder.run() + "/.deleting-link");
    fs::create_directory_symlink(precious, folder.run() + "/.saving-link");
    CHECK(saved(t, folder.run()).complete());
    CHECK(saved(t, folder.run()).complete());
  });
  CHECK(acco::verify_checkpoint(archive));
  CHECK(fs::exists(precious + "/notes"));
  CHECK(acco::checkpoints_in(folder.run()).size() == 1);
  CHECK(acco::latest_checkpoint(folder.run()));
}

TEST_CASE("a folder that cannot be made spoils no save into another one") {
  const scratch folder;
  std::ofstream(folder.path() + "/file") << "a file";
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world, acco::parameter_layout(300), 1);
    begin(t);
    for (std::string const& bad : {std::string("/proc/acco/run"), folder.path() + "/file/run"}) {
      CHECK_FALSE(saved(t, bad).complete());
      for (int times = 0; times < 3; ++times) {
        auto const good = saved(t, folder.run());
        CHECK_MESSAGE(good.complete(), good.problem);
      }
    }
  });
  CHECK(acco::checkpoints_in(folder.run()).size() == 1);
}

TEST_CASE("a name with .. behind a link leads save, restore and all others where it leads the system") {
  const scratch folder;
  fs::create_directories(folder.path() + "/big/scratch");
  fs::create_directories(folder.path() + "/home");
  fs::create_directory_symlink(folder.path() + "/big/scratch", folder.path() + "/home/scratch");
  const std::string behind = folder.path() + "/home/scratch/..", beside = folder.path() + "/big/scratch/new";
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    for (std::string const& run : {behind + "/run", behind + "/./run//", beside + "/../run", folder.path() + "/home/scratch/."}) {
      CAPTURE(run);
      auto t = make(world);
      begin(t);
      auto const outcome = saved(t, run);
      REQUIRE_MESSAGE(outcome.complete(), outcome.problem);
      CHECK(acco::has_checkpoints(run));
      CHECK(fs::equivalent(outcome.path, acco::latest_checkpoint(run).value()));
      CHECK(acco::verify_checkpoint(outcome.path));
      auto again = make(world);
      CHECK(fs::equivalent(again.restore(run).path, outcome.path));
      again.save_model(behind + "/model.safetensors");
      again.finish();
      if (world.rank() == 0) fs::remove_all(outcome.path);
      std::vector<double> nothing(1, 0.0);
      again.sum_over_ranks(nothing);
    }
  });
  CHECK(fs::exists(folder.path() + "/big/run"));
  CHECK(fs::exists(folder.path() + "/big/model.safetensors"));
  for (auto const& each : fs::directory_iterator(folder.path() + "/home")) CHECK(each.path().filename() == "scratch");
}

namespace {
/// fsync fails, of folders or of files, as `number` says.
struct no_sync : acco::checkpoints::system_calls {
  bool of_folders = true;
  int number = 0;
  std::vector<std::string> told;
  int fsync(int file) override {
    struct stat found{};
    ::fstat(file, &found);
    if (S_ISDIR(found.st_mode) != of_folders) return system_calls::fsync(file);
    errno = number;
    return -1;
  }
  void note(std::string const& sentence) override { told.push_back(sentence); }
};
}  // namespace

TEST_CASE(
    "a file system that does not sync folders is told of once, and saves; other failures, and those of files, end the save") {
  for (const int number : {EINVAL, EOPNOTSUPP, ENOSYS, ENOTSUP, EIO}) {
    for (const bool of_folders : {true, false}) {
      const bool tolerated = of_folders && number != EIO;
      CAPTURE(number);
      CAPTURE(of_folders);
      const scratch folder;
      no_sync calls;
      calls.of_folders = of_folders;
      calls.number = number;
      const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
      const std::string words = std::generic_category().message(number);
      acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
        auto t = make(world);
        begin(t);
        for (int times = 0; times < 3; ++times) {
          auto const outcome = saved(t, folder.run());
          CHECK_MESSAGE(outcome.complete() == tolerated, outcome.problem);
          if (!tolerated) CHECK(std::string(outcome.problem).find("fsync") != std::string::npos);
        }
        const auto write_model = [&] {
          acco::model_writer model(folder.path() + "/model.safetensors", {{"a", {1}}}, {}, &calls);
          model.append(std::as_bytes(std::span("abc")));
          model.commit();
        };
        if (tolerated) CHECK_NOTHROW(write_model());
        if (!tolerated) CHECK_THROWS_WITH_AS(write_model(), doctest::Contains(words.c_str()), acco::checkpoint_error);
        auto again = make(world);
        if (tolerated) CHECK(again.restore(folder.run()).step == 3);
      });
      CHECK(calls.told.size() == (tolerated ? 1 : 0));
      for (std::string const& each : calls.told) {
        CHECK_MESSAGE(each.find(words) != std::string::npos, each);
        CHECK_MESSAGE(each.find(folder.path()) != std::string::npos, each);
      }
    }
  }
}

namespace {
/// In the place of the rename by which rank `whose` shows its part, once that of rank 0 is there.
struct at_the_part : acco::checkpoints::system_calls {
  std::atomic<int> whose{1};
  std::function<void()> instead;
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::vector<std::string> told;
  int rename(std::string const& from, std::string const& to) override {
    if (!to.ends_with("/part-" + std::to_string(whose.load()))) return system_calls::rename(from, to);
    const std::string first = to.substr(0, to.rfind('-')) + "-0";
    while (whose != 0 && !fs::exists(first)) std::this_thread::yield();
    instead();
    done = true;
    return 0;
  }
  void note(std::string const& sentence) override {
    const std::lock_guard lock(mutex);
    told.push_back(sentence);
  }
};
}  // namespace

TEST_CASE("a folder that is removed while the ranks save into it ends that save, with words, and not the next") {
  for (const int whose : {0, 1}) {
    CAPTURE(whose);
    const scratch folder;
    at_the_part calls;
    calls.whose = whose;
    calls.instead = [&] {
      if (!calls.done) fs::remove_all(folder.run());
    };
    std::optional<in_their_place> now;
    now.emplace([&](int) -> acco::checkpoints::system_calls& { return calls; });
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto t = make(world);
      begin(t);
      const std::string problem = saved(t, folder.run()).problem;
      if (world.rank() == 0 && whose == 1)
        CHECK_MESSAGE(problem.find(" is gone: it was removed, or renamed") != std::string::npos, problem);
      CHECK_MESSAGE(problem.find("within") == std::string::npos, problem);
      CHECK_FALSE(problem.empty());
      std::vector<double> nothing(1, 0.0);
      t.sum_over_ranks(nothing);
      if (world.rank() == 0) calls.whose = -1;
      t.sum_over_ranks(nothing);
      CHECK(saved(t, folder.run()).complete());
    });
    CHECK(acco::latest_checkpoint(folder.run()));
  }
}

TEST_CASE("a rank that is killed while it saves holds no survivor's destructor for more than a second, and it is told") {
  const scratch folder;
  at_the_part calls;
  calls.instead = [] {};
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    std::optional<decltype(make(world))> t(std::in_place, acco::synchronous{}, acco::adamw{}, acco::host_storage<float>{}, world,
                                           300);
    begin(*t);
    t->save(folder.run());
    train(*t, 5);
    while (!calls.done) std::this_thread::yield();
    const double before = acco::steady_seconds();
    t.reset();
    CHECK(acco::steady_seconds() - before < 5 * patience());
  });
  REQUIRE(calls.told.size() == 1);
  CHECK_MESSAGE(calls.told[0].find("rank 1 has not written its part within") != std::string::npos, calls.told[0]);
  CHECK_MESSAGE(calls.told[0].find(folder.run()) != std::string::npos, calls.told[0]);
}

TEST_CASE("what cannot be listed is not empty") {
  const scratch folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "a file";
  CHECK(acco::checkpoints_in(folder.path() + "/nowhere").empty());
  CHECK_THROWS_WITH_AS((void)acco::checkpoints_in(file), doctest::Contains("cannot be listed: opendir"), acco::checkpoint_error);
  CHECK_THROWS_WITH_AS((void)acco::latest_checkpoint(file), doctest::Contains("cannot be listed"), acco::checkpoint_error);
  const std::string loop = folder.path() + "/loop";
  fs::create_symlink(loop, loop);
  std::atomic<int> refused{0};
  for (std::string const& path : {file, loop, std::string(), std::string(5000, 'x'), folder.path() + "/nowhere"}) {
    CAPTURE(path.substr(0, 40));
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      auto t = make(world);
      try {
        (void)t.restore(path);
      } catch (acco::checkpoint_error const& e) {
        refused += std::string(e.what()).find("no whole checkpoint in") != std::string::npos ? 1 : 0;
      }
      auto another = make(world);  // the ranks are in step
      begin(another);
      train(another, 2);
      another.finish();
    });
  }
  CHECK(refused == 15);
}

TEST_CASE("a pipe in a file's place holds nobody up") {
  const scratch folder;
  const std::string fake = folder.run() + "/step-00000000001";
  fs::create_directories(fake);
  REQUIRE(::mkfifo((fake + "/manifest.json").c_str(), 0600) == 0);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    begin(t);
    CHECK(saved(t, folder.run(), 3).complete());
    auto again = make(world);
    CHECK(again.restore(folder.run()).step == 3);
    again.finish();
  });
}

TEST_CASE("names that no tensor file can have are refused before anything is written; a folder without a name is, too") {
  const scratch folder;
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    for (std::string const& name : {std::string("__metadata__"), std::string("\xff\xfe")}) {
      acco::parameter_layout layout;
      auto t = make(world, layout.add(name, {300}));
      begin(t);
      CHECK_THROWS_WITH_AS(t.save(folder.run()), doctest::Contains("tensor 0 of the layout cannot be saved"), acco::usage_error);
    }
  });
  CHECK_FALSE(fs::exists(folder.run()));
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    auto t = make(world);
    begin(t);
    CHECK_THROWS_WITH_AS(t.save(""), doctest::Contains("is no folder's name"), acco::usage_error);
    CHECK(saved(t, folder.run()).complete());  // and the training goes on
  });
}

namespace {
struct nameless : acco::adamw {
  static constexpr char const* name = "";
};
}  // namespace

TEST_CASE("a rule without a name has files, too") {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto of = [&] { return acco::optimizer{acco::synchronous{}, nameless{}, acco::host_storage<float>{}, world, 300}; };
    auto t = of();
    begin(t);
    CHECK(saved(t, folder.run(), 3).complete());
    auto again = of();
    CHECK(again.restore(folder.run()).step == 3);
    CHECK(again.world_digest() == t.world_digest());
    again.finish();
  });
}

TEST_CASE("a restore finds a checkpoint while another training saves and deletes") {
  const scratch folder(in_memory());
  std::atomic<bool> over{false};
  std::atomic<int> restores{0};
  std::thread writer([&] {
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      auto t = make(world, acco::parameter_layout(300), 1);
      begin(t);
      CHECK(saved(t, folder.run()).complete());
      ++restores;
      while (!over) CHECK(saved(t, folder.run()).complete());
    });
  });
  while (restores == 0) std::this_thread::yield();
  for (int times = 0; times < 150; ++times) {
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      auto t = make(world, acco::parameter_layout(300), 1);
      CHECK_NOTHROW((void)t.restore(folder.run()));
    });
  }
  over = true;
  writer.join();
}

TEST_CASE("a training that was changed on purpose is another run: it deletes none of the one that it comes from") {
  const scratch folder;
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    auto a = make(world, acco::parameter_layout(300), 1);
    begin(a);
    const std::string mine = saved(a, folder.run()).path;
    auto b = make(world, acco::parameter_layout(300), 1, 0.5);
    CHECK_FALSE(b.restore(folder.run(), acco::changes::allowed).exact);
    for (int times = 0; times < 3; ++times) CHECK(saved(b, folder.run()).complete());
    CHECK(acco::verify_checkpoint(mine));
    CHECK(acco::checkpoints_in(folder.run()).size() == 2);
    CHECK_THROWS_WITH_AS((void)make(world, acco::parameter_layout(301)).restore(folder.run(), acco::changes::allowed),
                         doctest::Contains("weights alone come from its master.safetensors"), acco::checkpoint_error);
  });
}
