// SPDX-License-Identifier: Apache-2.0
// The processes of kill_matrix.py: "train RUN SAVES" is a rank that goes on from the newest checkpoint, or begins, and
// saves; "check RUN" says what is in the folder of a run. A rank that is told ACCO_WRITER=FILE writes the number of the
// thread that writes checkpoints into it, and waits until somebody traces that thread.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/gloo.hpp>

#include "support/problem.hpp"

namespace {
acco::parameter_layout layout() {
  acco::parameter_layout layout;
  return layout.add("a", {9001}).add("still", {40}, layout.add_group({.frozen = true})).add("b", {3, 31});
}
std::set<std::string> threads() {
  std::set<std::string> found;
  for (auto const& each : std::filesystem::directory_iterator("/proc/self/task")) found.insert(each.path().filename().string());
  return found;
}
bool is_traced(std::string const& thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  for (std::string word; status >> word;) {
    if (word == "TracerPid:") return (status >> word) && word != "0";
  }
  return false;
}
void wait_for_tracer(std::string const& file, std::set<std::string> const& before) {
  std::vector<std::string> fresh;
  for (std::string const& each : threads()) {
    if (!before.contains(each)) fresh.push_back(each);
  }
  if (fresh.size() != 1) throw std::runtime_error(std::to_string(fresh.size()) + " threads are new");
  std::ofstream(file + ".new") << fresh[0];
  std::filesystem::rename(file + ".new", file);
  for (int k = 0; k < 20000 && !is_traced(fresh[0]); ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int train(std::string const& run, int saves) {
  const acco::gloo_backend world = acco::gloo_backend::from_environment({.deadline = 10});
  const int rank = world.rank();
  acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                    acco::adamw{},
                    acco::host_storage<float>{},
                    world,
                    layout(),
                    acco::options{.deadline = 5}};
  auto const before = threads();
  if (acco::checkpoints_in(run).empty()) {
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    t.save(run, [] { return 0; });
  } else {
    (void)t.restore(run);
  }
  if (char const* const file = std::getenv("ACCO_WRITER")) wait_for_tracer(file, before);
  for (int k = 0; k < saves; ++k) {
    t.save(run, [&] { return std::vector<int>(300, rank); });
    for (std::size_t m = 0;; ++m) {
      (void)problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), t.gradients());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (auto const report = t.accumulated(1); report && report->saved != nullptr) {
        std::printf("rank %d: %s\n", rank, report->saved->complete() ? "saved" : report->saved->problem);
        break;
      }
    }
  }
  t.finish();
  return 0;
}
int check(std::string const& run) {
  int damaged = 0;
  for (auto const& each : std::filesystem::directory_iterator(run)) {
    const std::string name = each.path().filename().string();
    const bool named = name.starts_with("step-");
    auto const findings = acco::verify_checkpoint(each.path().string());
    if (named && !findings) {
      ++damaged;
      std::printf("damaged %s\n", findings.problems[0].c_str());
    }
    if (!named) std::printf("left %s\n", name.c_str());
  }
  auto const latest = acco::latest_checkpoint(run);
  std::printf("latest %s\n", latest ? std::filesystem::path(*latest).filename().c_str() : "none");
  return damaged == 0 ? 0 : 3;
}
}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> word(words, words + count);
  try {
    if (word.size() == 4 && word[1] == "train") return train(word[2], std::stoi(word[3]));
    if (word.size() == 3 && word[1] == "check") return check(word[2]);
    std::fprintf(stderr, "usage: %s train RUN SAVES | check RUN\n", words[0]);
    return 2;
  } catch (std::exception const& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
