// SPDX-License-Identifier: Apache-2.0
// Trainings drawn from seeds, over the deterministic world, with at most one disaster each, compared with the
// equations.
//
//   acco_simulation [--seeds N] [--from SEED] [--minutes M] [--list FILE]
//
// Prints, of the first seed that fails, what was drawn and what differs. `--from SEED --seeds 1` runs it again.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "simulation/check.hpp"

namespace {

using namespace simulation;
using clock_type = std::chrono::steady_clock;

constexpr std::chrono::seconds longest{20};  // for one seed, which takes milliseconds: whoever is slower hangs

/// What a worker is at, for the watchdog.
struct worker {
  std::atomic<std::uint64_t> seed = 0;
  std::atomic<clock_type::rep> since = 0;  // 0: at nothing
};

/// The features of a seed, for the table.
void count_features(setting const& s, outcome const& o, tally& counts) {
  ++counts["ranks: " + std::to_string(s.ranks)];
  ++counts[std::string("disaster: ") + name_of(s.kind) + (s.kind == disaster::none || o.struck ? "" : " (did not come)")];
  counts["two optimizers"] += s.trainings.size() == 2;
  counts["split off a larger world"] += s.bystanders != 0;
  for (training_setting const& t : s.trainings) {
    ++counts[std::string("schedule: ") + name_of(t.schedule) + name_of(t.late) + ", " + name_of(t.wires)];
    ++counts[std::string("rule: ") + t.rule_name()];
    counts["elastic pace"] += t.elastic;
    counts["the split found by the clock"] += t.found;
    counts["clipping"] += t.clip_norm > 0;
    counts["small buckets"] += t.bucket_elements != 0;
    counts["stable addresses"] += t.stable_addresses;
    counts["estimates kept in place"] += t.in_place();
    counts["clears its gradients"] += t.clears();
    counts["frozen tensors"] += t.layout.trainable_size() != t.layout.size();
    counts["several segments"] += t.micro_batches.size() > 1;
    counts["gradients without weight"] += t.stray_gradients;
  }
}

/// What is wrong with a seed; empty: nothing.
std::string failure_of(std::uint64_t seed, tally& counts) {
  const setting s = draw(seed);
  const outcome found = run(s);
  count_features(s, found, counts);
  std::string wrong = check(s, found, counts);
  bool fixed = s.kind == disaster::none;
  for (training_setting const& t : s.trainings) fixed = fixed && !t.elastic && !t.found;
  if (wrong.empty() && fixed && mix(seed) % 4 == 0) {
    setting other = s;
    other.delay_at_most = s.delay_at_most == 0 ? 7 : 0;
    ++counts["the same bits with other delays"];
    wrong = compare(found, run(other));
  }
  if (wrong.empty()) return {};
  std::ostringstream out;
  out << "seed " << seed << " failed\n" << describe(s) << "\nfirst difference: " << wrong << "\nof the ranks:\n";
  for (std::size_t rank = 0; rank < found.ranks.size(); ++rank) {
    rank_log const& each = found.ranks[rank];
    out << "  " << rank << ": " << (each.ended ? "ended" : each.died ? "died" : each.kind + ": " + each.what) << "\n";
  }
  return out.str();
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t from = mix(static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  std::uint64_t seeds = 3000;
  double minutes = 1e9;
  std::vector<std::uint64_t> list;
  for (int k = 1; k < count; k += 2) {
    const std::string_view flag = arguments[k];
    if (k + 1 == count || (flag != "--seeds" && flag != "--from" && flag != "--minutes" && flag != "--list")) {
      std::fprintf(stderr, "usage: %s [--seeds N] [--from SEED] [--minutes M] [--list FILE]\n", arguments[0]);
      return 2;
    }
    char const* const value = arguments[k + 1];
    if (flag == "--seeds") seeds = std::strtoull(value, nullptr, 10);
    if (flag == "--from") from = std::strtoull(value, nullptr, 10);
    if (flag == "--minutes") minutes = std::strtod(value, nullptr);
    if (flag != "--list") continue;
    std::ifstream file(value);
    for (std::string line; std::getline(file, line);) {
      if (!line.empty() && line[0] != '#') list.push_back(std::strtoull(line.c_str(), nullptr, 10));
    }
    if (list.empty()) {
      std::fprintf(stderr, "%s holds no seeds\n", value);
      return 2;
    }
    seeds = list.size();
  }
  std::printf("%llu seeds %s\n", static_cast<unsigned long long>(seeds),
              list.empty() ? ("from " + std::to_string(from)).c_str() : "from a list");
  std::fflush(stdout);

  const auto began = clock_type::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(clock_type::now() - began).count(); };
  std::atomic<std::uint64_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  tally counts;
  std::vector<worker> workers(2);
  std::uint64_t done = 0;
  {
    const std::jthread watchdog([&](std::stop_token const& stop) {
      while (!stop.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (worker const& each : workers) {
          const auto since = each.since.load();
          if (since == 0 || clock_type::now().time_since_epoch() - clock_type::duration(since) < longest) continue;
          const std::uint64_t seed = each.seed;
          std::printf("seed %llu hangs\n%s\n", static_cast<unsigned long long>(seed), describe(draw(seed)).c_str());
          std::fflush(stdout);
          std::_Exit(1);
        }
      }
    });
    std::vector<std::jthread> threads;
    for (worker& me : workers) {
      threads.emplace_back([&] {
        tally mine;
        std::uint64_t finished = 0;
        while (!failed && elapsed() < 60 * minutes) {
          const std::uint64_t k = next++;
          if (k >= seeds) break;
          const std::uint64_t seed = list.empty() ? from + k : list[k];
          me.seed = seed;
          me.since = clock_type::now().time_since_epoch().count();
          const std::string wrong = failure_of(seed, mine);
          me.since = 0;
          ++finished;
          if (wrong.empty()) continue;
          const std::lock_guard lock(mutex);
          if (!failed.exchange(true)) std::printf("%s", wrong.c_str());
        }
        const std::lock_guard lock(mutex);
        done += finished;
        for (auto const& [what, times] : mine) counts[what] += times;
      });
    }
    threads.clear();
  }
  for (auto const& [what, times] : counts) std::printf("%10zu  %s\n", times, what.c_str());
  std::printf("%llu seeds in %.1f s: %.0f an hour\n", static_cast<unsigned long long>(done), elapsed(),
              static_cast<double>(done) / elapsed() * 3600);
  return failed ? 1 : 0;
}
