// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/network/launch_environment.hpp>
#include <acco/network/rendezvous_tcp.hpp>

#include "network/rendezvous_world.hpp"

namespace {

namespace fs = std::filesystem;
using namespace start_up;

struct scratch {
  fs::path path = fs::temp_directory_path() / ("acco_rendezvous_" + std::to_string(getpid()));
  scratch() { fs::remove_all(path); }
  ~scratch() { fs::remove_all(path); }
  scratch(scratch const&) = delete;
  scratch& operator=(scratch const&) = delete;
};

contributions through_files(rank_of me, fs::path const& directory, std::string const& run, double deadline) {
  return acco::rendezvous::tcp_rendezvous(me, directory, {.deadline = deadline, .run = run})
      .bring("I am " + std::to_string(me.rank));
}
}  // namespace

TEST_CASE("through files: everybody meets, by a file that is gone afterwards") {
  const scratch directory;
  const auto results = all_ranks({{0, 3}, {1, 3}, {2, 3}}, [&](rank_of me) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100 * me.rank));
    return through_files(me, directory.path, "job", enough());
  });
  for (auto const& each : results) {
    CHECK(each.error == "");
    CHECK(each.got == names(3));
  }
  CHECK(fs::is_empty(directory.path));
  CHECK((fs::status(directory.path).permissions() & ~fs::perms::owner_all) == fs::perms::none);
}

TEST_CASE("through files: what an earlier run of the same name left behind leads nobody astray, whoever has its port now") {
  const scratch directory;
  fs::create_directories(directory.path);
  const auto port = free_port();
  std::string left;
  SUBCASE("nobody") { left = frames::pack({"another start", "127.0.0.1", std::to_string(free_port())}); }
  SUBCASE("rank 0 of another run") { left = frames::pack({"another start", "127.0.0.1", std::to_string(port)}); }
  SUBCASE("half a file") { left = "another\\sstart 127.0.0.1"; }
  std::ofstream(directory.path / "job.rank0") << left;
  std::jthread other([port] { (void)told([port] { return tcp(port, {.deadline = 2, .run = "other"})({0, 2}); }); });
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    std::this_thread::sleep_for(std::chrono::milliseconds(me.rank == 0 ? 500 : 100));
    return through_files(me, directory.path, "job", enough());
  });
  for (auto const& each : results) {
    CHECK(each.error == "");
    CHECK(each.got == names(2));
  }
}

TEST_CASE("through files: who does not come is named, with the file; who finds none, or cannot write one, says so") {
  const scratch directory;
  const auto results = all_ranks(
      {{0, 3}, {1, 3}}, [&](rank_of me) { return through_files(me, directory.path, me.rank == 0 ? "one" : "two", 0.3); });
  const std::string there = "the address in " + directory.path.string() + "/";
  CHECK(contains(results[0].error, "rank 1, 2 did not come to " + there + "one.rank0 within 0.3 s"));
  CHECK(contains(results[1].error, "rank 0 could not be reached at " + there + "two.rank0 within 0.3 s: there is no such file"));
  std::ofstream(directory.path / "file") << "no directory";
  const auto wrong = told([&] { return through_files({0, 2}, directory.path / "file", "r", 1); });
  CHECK(wrong.type == "usage");
  CHECK(contains(wrong.error, "cannot write " + (directory.path / "file" / "r.rank0").string()));
}

TEST_CASE("through files: a file that is damaged is told from one that is not there, and ends nobody") {
  const scratch directory;
  fs::create_directories(directory.path);
  std::ofstream(directory.path / "job.rank0") << "x\\ y";  // fewer fields than spaces
  const auto one = told([&] { return through_files({1, 2}, directory.path, "job", 0.1); });
  CHECK(one.type == "deadline");
  CHECK(contains(one.error, "rank 0 could not be reached at the address in " + directory.path.string() +
                                "/job.rank0 within 0.1 s: that file is damaged"));
}

TEST_CASE("through files: a run's name leads nowhere else") {
  const scratch directory;
  for (std::string const& run : {std::string("../outside"), std::string("/outside"), std::string("out\0side", 8)}) {
    const auto alone = told([&] { return through_files({0, 1}, directory.path / "in", run, 1); });
    CHECK(alone.type == "usage");
    CHECK(contains(alone.error, "acco: rank 0, start-up: the run's name '" + std::string(run.c_str()) +
                                    "' cannot begin a file's: it has a '/' or a NUL in it. Name the run without them"));
  }
  CHECK(!fs::exists(directory.path));
  CHECK(through_files({0, 1}, directory.path, "..", 1) == names(1));
}

TEST_CASE("the launcher's environment: what is missing or no number is named") {
  const auto message = [] {
    try {
      (void)acco::launch_environment::read();
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (char const* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  CHECK(contains(message(), "WORLD_SIZE is not set"));
  setenv("WORLD_SIZE", "4", 1);
  CHECK(contains(message(), "RANK is not set"));
  setenv("RANK", "4", 1);
  CHECK(contains(message(), "RANK is '4'. It must be a number from 0 to 3"));
  setenv("RANK", "two", 1);
  CHECK(contains(message(), "RANK is 'two'"));
  setenv("RANK", "2", 1);
  CHECK(contains(message(), "MASTER_ADDR is not set"));
  setenv("MASTER_ADDR", "somewhere", 1);
  setenv("MASTER_PORT", "70000", 1);
  CHECK(contains(message(), "MASTER_PORT is '70000'"));
  setenv("MASTER_PORT", "29500", 1);
  CHECK(message() == "");
  const auto read = acco::launch_environment::read();
  CHECK(read.rank == 2);
  CHECK(read.size == 4);
  CHECK(read.address == "somewhere");
  CHECK(read.port == 29500);
}

TEST_CASE("the launcher's environment: the run's name comes from the first that gives one") {
  for (auto const& [name, value] : {std::pair{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})
    setenv(name, value, 1);
  const std::vector<std::string> all{"ACCO_RUN_ID",  "TORCHELASTIC_RUN_ID", "SLURM_HET_JOB_ID",
                                     "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID",
                                     "LSB_JOBID",    "LSB_JOBINDEX",        "FLUX_JOB_ID"};
  const auto run = [&](std::vector<std::pair<std::string, std::string>> const& set) {
    for (std::string const& name : all) unsetenv(name.c_str());
    for (auto const& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
    std::string found = acco::launch_environment::read().run;
    for (std::string const& name : all) unsetenv(name.c_str());
    return found;
  };
  CHECK(run({}) == "");
  CHECK(run({{"FLUX_JOB_ID", "f"}}) == "f");
  CHECK(run({{"FLUX_JOB_ID", "f"}, {"LSB_JOBID", "7"}, {"LSB_JOBINDEX", "0"}}) == "7");
  CHECK(run({{"LSB_JOBID", "7"}, {"LSB_JOBINDEX", "3"}}) == "7[3]");
  CHECK(run({{"PBS_JOBID", "12[4].server"}, {"LSB_JOBID", "7"}}) == "12[4].server");
  CHECK(run({{"SLURM_JOB_ID", "41"}, {"PBS_JOBID", "12"}}) == "41");
  CHECK(run({{"SLURM_JOB_ID", "41"}, {"SLURM_RESTART_COUNT", "0"}}) == "41");
  CHECK(run({{"SLURM_JOB_ID", "41"}, {"SLURM_RESTART_COUNT", "2"}}) == "41.2");
  CHECK(run({{"SLURM_JOB_ID", "42"}, {"SLURM_HET_JOB_ID", "41"}}) == "41");
  CHECK(run({{"TORCHELASTIC_RUN_ID", "t"}, {"SLURM_JOB_ID", "41"}}) == "t");
  CHECK(run({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "41"}}) == "41");
  CHECK(run({{"ACCO_RUN_ID", "mine"}, {"TORCHELASTIC_RUN_ID", "t"}}) == "mine");
}
