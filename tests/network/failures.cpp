// SPDX-License-Identifier: Apache-2.0
// Starts ranks as processes, lets one misbehave (trainer.cpp) and watches that all end in time, with an error that
// names the culprit, and leave nothing running.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "network/free_port.hpp"
#include "support/patience.hpp"
#include "support/thorough.hpp"

namespace {

namespace fs = std::filesystem;
using environment = std::vector<std::pair<std::string, std::string>>;

struct ended {
  int exit = -1;  // 128 + signal where a signal ended it; 1000 where it had to be stopped
  std::string output;
};

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }
int occurrences(std::string const& text, std::string const& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// A command under way; its output goes to a file.
class process {
 public:
  process(std::vector<std::string> words, environment const& settings) {
    static int number = 0;
    file_ = fs::temp_directory_path() / ("acco_failures_" + std::to_string(getpid()) + "_" + std::to_string(number++));
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string path = file_.string();
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      for (auto const& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
      const int out = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
  }
  process(process const&) = delete;
  process& operator=(process const&) = delete;
  ~process() {
    kill(-pid_, SIGKILL);  // children that it has left
    fs::remove(file_);
  }

  ended wait(std::chrono::steady_clock::time_point until) {
    ended result;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) {
        kill(-pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        result.exit = 1000;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (result.exit != 1000) result.exit = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    std::ifstream in(file_);
    result.output.assign(std::istreambuf_iterator<char>(in), {});
    return result;
  }

 private:
  pid_t pid_ = -1;
  fs::path file_;
};

/// Whether a process that carries this mark among its words is still running (zombies are not).
bool running(std::string const& mark) {
  for (auto const& entry : fs::directory_iterator("/proc")) {
    std::ifstream words(entry.path() / "cmdline");
    std::string line;
    // a process may end while it is read: then there are no words, where an iterator would throw
    std::getline(words, line);
    if (!line.empty() && line.find(mark) != std::string::npos) return true;
  }
  return false;
}
bool ends(std::string const& mark) {
  for (int attempt = 0; attempt < 6000 * patience(); ++attempt) {
    if (!running(mark)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

constexpr double deadline = 3;
constexpr int ranks = 3;
auto in(double seconds) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(1000 * seconds)); }

/// The survivors' promises.
void check_survivor(int rank, ended const& each) {
  CAPTURE(rank);
  CAPTURE(each.output);
  CHECK(each.exit == 1);
  CHECK(contains(each.output, "rank " + std::to_string(rank) + ", caused by 1, parameters kept"));
  CHECK(contains(each.output, "acco: rank " + std::to_string(rank) + ", "));
  CHECK((contains(each.output, ", round ") || contains(each.output, ", initialize: ")));
  CHECK((contains(each.output, "all_reduce") || contains(each.output, "reduce_scatter") || contains(each.output, "all_gather") ||
         contains(each.output, "broadcast")));
}

std::string mark() {
  static int number = 0;
  return "mark-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

/// Ranks over Gloo, started one by one.
std::vector<ended> over_gloo(environment settings, int size = ranks) {
  settings.insert(settings.begin(), {{"WORLD_SIZE", std::to_string(size)},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", std::to_string(free_port())},
                                     {"DEADLINE", std::to_string(deadline)}});
  const std::string sign = mark();
  std::vector<ended> results;
  {
    std::vector<std::unique_ptr<process>> processes;
    for (int rank = 0; rank < size; ++rank) {
      environment mine = settings;
      mine.emplace_back("RANK", std::to_string(rank));
      processes.push_back(std::make_unique<process>(std::vector<std::string>{GLOO_TRAINER, sign}, mine));
    }
    const auto until = in(deadline + 60 * patience());
    for (auto const& each : processes) results.push_back(each->wait(until));
  }
  CHECK(ends(sign));
  return results;
}

}  // namespace

TEST_CASE("gloo: without a failure all ranks finish") {
  for (ended const& each : over_gloo({{"DEADLINE", "60"}})) {
    CAPTURE(each.output);
    CHECK(each.exit == 0);
    CHECK(contains(each.output, "finished with 120 samples"));
  }
}

TEST_CASE("gloo: a rank killed in any phase of a round, or of the start") {
  for (char const* clip : {"0", "1"}) {
    for (char const* operation : {"broadcast", "all_reduce", "reduce_scatter", "all_gather"}) {
      CAPTURE(operation);
      CAPTURE(clip);
      const auto results =
          over_gloo({{"DIE_IN", operation}, {"DIE_AFTER", std::string(operation) == "broadcast" ? "0" : "30"}, {"CLIP", clip}});
      CHECK(results[1].exit == 128 + SIGKILL);
      check_survivor(0, results[0]);
      check_survivor(2, results[2]);
    }
  }
}

TEST_CASE("gloo: a rank killed at any moment: the others know at once, not at their deadline, and name it") {
  std::minstd_rand moment(1);
  for (int kill = 0; kill < (thorough() ? 1000 : 8); ++kill) {
    const int size = 2 + kill % 4;
    CAPTURE(kill);
    const auto results = over_gloo({{"DIE_AT", std::to_string(static_cast<double>(moment() % 60) / 1000)},
                                    {"MICRO_BATCHES", "100000000"},
                                    {"COMPUTE", "0"},
                                    {"DEADLINE", "600"}},
                                   size);
    CHECK(results[1].exit == 128 + SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != 1) check_survivor(rank, results[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST_CASE("gloo: a rank killed whose children live on, forked or started: the others know, not at their deadline") {
  for (char const* child : {"forked", "started", "spawned"}) {
    CAPTURE(child);
    const auto results =
        over_gloo({{"CHILD", child}, {"DIE_AT", "0.2"}, {"MICRO_BATCHES", "100000000"}, {"COMPUTE", "0"}, {"DEADLINE", "600"}});
    CHECK(results[1].exit == 128 + SIGKILL);
    check_survivor(0, results[0]);
    check_survivor(2, results[2]);
  }
}

#ifdef OUTLIVING
TEST_CASE("gloo: local updates outlive workers that are killed, one after the other") {
  struct loss {
    std::string worker, step;
  };
  for (std::vector<loss> const& lost : {std::vector<loss>{{"1", "27"}}, {{"3", "8"}}, {{"0", "30"}, {"2", "77"}}}) {
    const fs::path directory = fs::temp_directory_path() / ("acco_outliving_" + mark());
    std::vector<std::unique_ptr<process>> workers;
    for (char const* worker : {"0", "1", "2", "3"}) {
      std::vector<std::string> words{OUTLIVING, worker, "4", directory.string()};
      for (loss const& each : lost) {
        if (each.worker == worker) words.push_back(each.step);
      }
      workers.push_back(std::make_unique<process>(words, environment{{"GLOO_SOCKET_IFNAME", "lo"}}));
    }
    std::string last;
    for (std::size_t k = 0; k < workers.size(); ++k) {
      const bool dies = std::any_of(lost.begin(), lost.end(), [&](loss const& each) { return each.worker == std::to_string(k); });
      const ended now = workers[k]->wait(in(120 * patience()));
      CAPTURE(now.output);
      CHECK(now.exit == (dies ? 128 + SIGKILL : 0));
      if (dies) continue;
      CHECK(occurrences(now.output, " goes on as rank ") == static_cast<int>(lost.size()));
      CHECK(contains(now.output, "has finished among " + std::to_string(4 - lost.size()) + ", after "));
      const std::string found = now.output.substr(now.output.rfind(", after "));
      CHECK(found == (last.empty() ? found : last));  // samples, and parameters
      last = found;
    }
    const ended again = process({OUTLIVING, "0", "4", directory.string()}, {}).wait(in(60 * patience()));
    CHECK(again.exit == 1);
    CHECK(contains(again.output, "Give each job a new directory"));
    fs::remove_all(directory);
  }
}
#endif

TEST_CASE("gloo: a rank that is far too slow") {
  const auto results = over_gloo({{"SLOWER", "3000"}});
  check_survivor(0, results[0]);
  check_survivor(2, results[2]);
  CHECK(contains(results[0].output, "rank 1 did not come to"));
  check_survivor(1, results[1]);
}

TEST_CASE(
    "gloo: a rank that is stopped: below the deadline nothing is lost; beyond it nobody waits, and it learns so when it wakes") {
  std::string last;
  for (ended const& each : over_gloo({{"STOPPED", "3"}, {"DEADLINE", std::to_string(30 * patience())}})) {
    CAPTURE(each.output);
    CHECK(each.exit == 0);
    const std::string found = each.output.substr(each.output.find("finished with"));
    CHECK(found == (last.empty() ? found : last));
    last = found;
  }
  for (const double deadlines : {1.5, 3.0}) {
    CAPTURE(deadlines);
    const auto results = over_gloo({{"STOPPED", std::to_string(deadlines * deadline)}});
    for (int rank = 0; rank < ranks; ++rank) check_survivor(rank, results[static_cast<std::size_t>(rank)]);
    CHECK(contains(results[0].output, "rank 1 did not come to"));
  }
}

TEST_CASE("gloo: an exception in one rank's code") {
  const auto results = over_gloo({{"THROW", "1"}});
  check_survivor(0, results[0]);
  check_survivor(2, results[2]);
  CHECK(contains(results[1].output, "the data loader broke"));
  CHECK(results[1].exit == 1);
}

TEST_CASE("gloo: ranks built with other types, or started with other flags") {
  for (auto const& [name, value, words] :
       {std::tuple{"BFLOAT16", "1", "rank 0 has 'parameter type = float', rank 1 has 'parameter type = bfloat16'"},
        std::tuple{"LEARNING_RATE", "0.5", "rank 0 has 'rule.learning_rate = 0.01', rank 1 has 'rule.learning_rate = 0.5'"}}) {
    for (ended const& each : over_gloo({{name, value}, {"DEADLINE", "60"}})) {
      CAPTURE(each.output);
      CHECK(each.exit == 1);
      CHECK(contains(each.output, words));
    }
  }
}

TEST_CASE("gloo: a link that stops carrying") {
  const std::string sign = mark();
  const std::string script =
      std::string("ip link set lo up || exit 77; for r in 0 1 2; do RANK=$r ") + GLOO_TRAINER + " " + sign +
      " & done; until [ $(grep -c began /proc/$$/fd/1) = 3 ] || ! kill -0 $!; do sleep 0.1; done; ip link set lo down; wait";
  process run({"unshare", "-n", "sh", "-c", script}, {{"WORLD_SIZE", "3"},
                                                      {"MASTER_ADDR", "127.0.0.1"},
                                                      {"MASTER_PORT", "29400"},
                                                      {"DEADLINE", "2"},
                                                      {"COMPUTE", "0.02"},
                                                      {"MICRO_BATCHES", "1000"}});
  const ended all = run.wait(in(120 * patience()));
  if (all.exit == 77 || all.exit == 127 || contains(all.output, "unshare failed") || contains(all.output, "not permitted")) {
    MESSAGE("skipped: this user may not make a network namespace: " << all.output);
    return;
  }
  CAPTURE(all.output);
  CHECK(all.exit == 0);  // of the shell
  CHECK(occurrences(all.output, "parameters kept") == 3);
  CHECK(occurrences(all.output, "acco: rank ") >= 3);
  CHECK(occurrences(all.output, "did not come to") >= 1);
  CHECK(ends(sign));
}

#if defined(MPI_TRAINERS)
namespace {
struct implementation {
  char const* name;
  char const* launcher;
  char const* trainer;
  std::vector<std::string> flags, recovery;
};
std::vector<implementation> implementations() { return {MPI_TRAINERS}; }

ended over_mpi(implementation const& which, std::vector<std::string> const& more, environment settings) {
  settings.insert(
      settings.begin(),
      {{"DEADLINE", std::to_string(deadline)}, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  const std::string sign = mark();
  std::vector<std::string> words = {which.launcher};
  words.insert(words.end(), which.flags.begin(), which.flags.end());
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"-n", std::to_string(ranks), which.trainer, sign});
  process run(words, settings);
  const ended result = run.wait(in(deadline + 60 * patience()));
  CHECK(ends(sign));
  return result;
}
}  // namespace

TEST_CASE("mpi: without a failure all ranks finish") {
  for (implementation const& which : implementations()) {
    const ended all = over_mpi(which, {}, {{"DEADLINE", "60"}});
    CAPTURE(which.name);
    CAPTURE(all.output);
    CHECK(all.exit == 0);
    CHECK(occurrences(all.output, "finished with 120 samples") == ranks);
  }
}

TEST_CASE("mpi: a rank killed in any phase: the launcher ends the job; where it is told not to, survivors say what they saw") {
  for (implementation const& which : implementations()) {
    CAPTURE(which.name);
    for (char const* operation : {"all_reduce", "reduce_scatter", "all_gather"}) {
      CAPTURE(operation);
      const environment dying = {{"DIE_IN", operation}, {"DIE_AFTER", "30"}};
      const ended all = over_mpi(which, {}, dying);
      CAPTURE(all.output);
      CHECK(all.exit != 0);
      CHECK(all.exit != 1000);
      if (which.recovery.empty()) continue;
      // Open MPI itself may hang in a survivor, or end it, as it says. Who can speak names the culprit, or that it
      // hangs.
      const ended survivors = over_mpi(which, which.recovery, dying);
      CAPTURE(survivors.output);
      CHECK(survivors.exit != 1000);
      const int spoke = occurrences(survivors.output, ", caused by "),
                named = occurrences(survivors.output, ", caused by 1, parameters kept");
      CHECK((spoke == named || contains(survivors.output, "has not ended within twice the deadline")));
    }
  }
}

TEST_CASE("mpi: a rank killed at any moment: the launcher ends the job at once") {
  std::minstd_rand moment(1);
  for (int kill = 0; kill < (thorough() ? 500 : 2); ++kill) {
    for (implementation const& which : implementations()) {
      CAPTURE(which.name);
      CAPTURE(kill);
      const ended all = over_mpi(which, {},
                                 {{"DIE_AT", std::to_string(static_cast<double>(moment() % 60) / 1000)},
                                  {"MICRO_BATCHES", "100000000"},
                                  {"COMPUTE", "0"},
                                  {"DEADLINE", "600"}});
      CAPTURE(all.output);
      CHECK(all.exit != 0);
      CHECK(all.exit != 1000);  // which is how a job that waits for its deadline would end
      CHECK((!contains(all.output, ", caused by ") || contains(all.output, ", caused by 1, ")));
    }
  }
}

TEST_CASE("mpi: a rank that is far too slow, an exception, other types: all survivors say so, and the job ends") {
  for (implementation const& which : implementations()) {
    CAPTURE(which.name);
    for (auto const& [name, value, words] : {std::tuple{"SLOWER", "3000", "rank 1 did not come to all_reduce within"},
                                             std::tuple{"THROW", "1", "because rank 1 failed: "},
                                             std::tuple{"BFLOAT16", "1", "rank 1 has 'parameter type = bfloat16'"}}) {
      const ended all = over_mpi(which, {}, {{name, value}});
      CAPTURE(all.output);
      CHECK(all.exit != 0);
      CHECK(all.exit != 1000);
      CHECK(contains(all.output, words));
      CHECK(contains(all.output, "rank 0, caused by 1, parameters kept"));
      CHECK(contains(all.output, "rank 2, caused by 1, parameters kept"));
    }
  }
}
#endif
