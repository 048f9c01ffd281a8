// SPDX-License-Identifier: Apache-2.0
// The roll call of those that are left: ranks are threads.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/network/those_left.hpp>

#include "support/patience.hpp"

namespace {

namespace fs = std::filesystem;
using acco::rendezvous::those_left;

struct folder {
  fs::path path = fs::temp_directory_path() / ("acco_those_left_" + std::to_string(getpid()));
  folder() { fs::remove_all(path); }
  folder(folder const&) = delete;
  folder& operator=(folder const&) = delete;
  ~folder() { fs::remove_all(path); }
};
/// What each of these ranks, of `size`, finds.
std::vector<std::vector<int>> roll_call(std::vector<int> const& who, int size, fs::path const& path, std::string const& run,
                                        acco::quorum const& enough) {
  std::vector<std::vector<int>> found(who.size());
  std::vector<std::thread> ranks;
  for (std::size_t k = 0; k < who.size(); ++k)
    ranks.emplace_back([&, k] { found[k] = those_left({who[k], size}, path, run, enough, 60 * patience()); });
  for (std::thread& each : ranks) each.join();
  return found;
}

}  // namespace

TEST_CASE("all come, or all that can: nobody waits for the grace time") {
  const folder files;
  for (auto const& each : roll_call({2, 0, 1}, 3, files.path, "all", {.grace = 1e9})) CHECK(each == std::vector<int>{0, 1, 2});
  for (auto const& each : roll_call({4, 0, 1, 3}, 5, files.path, "one lost", {.grace = 1e9, .lost = 1}))
    CHECK(each == std::vector<int>{0, 1, 3, 4});
}
TEST_CASE("a quorum goes on when the grace time of one has ended, and all of it knows the same; who comes later is told") {
  const folder files;
  std::vector<std::vector<int>> found;
  for (int times = 0; times < 20; ++times) {  // whoever ends it
    found = roll_call({3, 0, 2}, 5, files.path, "three " + std::to_string(times), {.grace = 0.05, .lost = 1});
    for (auto const& each : found) CHECK(each == std::vector<int>{0, 2, 3});
  }
  CHECK_THROWS_WITH_AS((void)those_left({1, 5}, files.path, "three 0", {.grace = 0}, 1), doctest::Contains("came too late"),
                       acco::deadline_error);
  CHECK_THROWS_AS((void)those_left({2, 5}, files.path, "three 0", {}, 1), acco::usage_error);  // it has come already
  CHECK(those_left({0, 1}, files.path, "three 0", {}, 1) == std::vector<int>{0});              // of another world
}
TEST_CASE("a roll call's name leads nowhere else") {
  const folder files;
  for (std::string const& run : {std::string("../outside"), std::string("/outside"), std::string("out\0side", 8)})
    CHECK_THROWS_WITH_AS((void)those_left({0, 1}, files.path / "in", run, {}, 1), doctest::Contains("cannot begin a file's"),
                         acco::usage_error);
  CHECK(!fs::exists(files.path));
  CHECK(those_left({0, 1}, files.path, "..", {}, 1) == std::vector<int>{0});
}
TEST_CASE("what makes no sense is refused at once, by its name, and writes nothing") {
  const folder files;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    acco::rank_of me;
    acco::quorum enough;
    double deadline;
    char const* what;
  } cases[] = {{{0, 0}, {}, 0.1, "there is no rank 0 of 0"},
               {{0, -3}, {}, 0.1, "there is no rank 0 of -3"},
               {{3, 3}, {}, 0.1, "there is no rank 3 of 3"},
               {{-1, 3}, {}, 0.1, "there is no rank -1 of 3"},
               {{0, 3}, {.grace = 0.05}, nan, "the roll call's deadline is nan. Give a finite number above 0"},
               {{0, 3}, {}, 0, "the roll call's deadline is 0"},
               {{0, 3}, {}, -1, "the roll call's deadline is -1"},
               {{0, 3}, {.least = 1, .grace = nan}, 0.1, "quorum::grace is nan. Give a finite number, 0 or more"},
               {{0, 3}, {.least = 1, .grace = -1}, 0.1, "quorum::grace is -1"},
               {{0, 3}, {.least = 4}, 0.1, "quorum::least is 4. Give a number from 0 to 3"},
               {{0, 3}, {.least = -1}, 0.1, "quorum::least is -1"},
               {{0, 3}, {.least = 1, .grace = 0, .lost = 3}, 0.1, "quorum::lost is 3. Give a number from 0 to 2"},
               {{0, 3}, {.least = 1, .grace = 0, .lost = -1}, 0.1, "quorum::lost is -1"}};
  for (auto const& each : cases) {
    CAPTURE(each.what);
    CHECK_THROWS_WITH_AS((void)those_left(each.me, files.path, "r", each.enough, each.deadline), doctest::Contains(each.what),
                         acco::usage_error);
  }
  CHECK(!fs::exists(files.path));
  CHECK(those_left({0, 3}, files.path, "the most", {.least = 1, .grace = 1e9, .lost = 2}, 1e9) == std::vector<int>{0});
}
TEST_CASE("too few: nobody goes on, and who is missing is named; fewer are enough where that is said") {
  const folder files;
  try {
    (void)those_left({1, 4}, files.path, "few", {.grace = 0}, 0.1);
    FAIL("one of four is no quorum");
  } catch (acco::deadline_error const& e) {
    CHECK(std::string(e.what()).find("of 4 ranks 1 came within 0.1 s, and 3 are to go on; missing: rank 0, 2, 3") !=
          std::string::npos);
    CHECK(e.peer() == 0);
  }
  CHECK(those_left({1, 4}, files.path, "one is enough", {.least = 1, .grace = 0}, 1) == std::vector<int>{1});
  CHECK(those_left({1, 4}, files.path, "a grace time beyond the deadline", {.least = 1, .grace = 60}, 0.1) ==
        std::vector<int>{1});
  CHECK_THROWS_AS((void)those_left({1, 4}, "/proc/acco", "nowhere", {}, 1), acco::usage_error);
}
