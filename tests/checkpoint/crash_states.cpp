// SPDX-License-Identifier: Apache-2.0
// The power fails at any moment of a save, and what was not synced is lost in part: the old checkpoint is found, or the
// new one, whole; the new one once it was reported. Every sync that the writer makes is needed for this: without it, a
// loss is found.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "checkpoint/simulated_disk.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
using simulated::fate;
using simulated::operation;

/// The bytes of all files of a folder.
using contents = std::map<std::string, std::string>;
contents contents_of(std::string const& folder) {
  contents found;
  for (auto const& each : std::filesystem::directory_iterator(folder))
    found[each.path().filename().string()] = content(each.path().string());
  return found;
}

struct setting {
  int ranks = 1;
  std::size_t keep = 2;
  std::uint64_t seed = 0;
  [[nodiscard]] acco::parameter_layout layout() const {
    acco::parameter_layout layout;
    const auto still = layout.add_group({.frozen = true});
    layout.add("a", {static_cast<std::size_t>(ranks) * 2200 + 77 + seed % 13}).add("still", {40}, still).add("b", {3, 31});
    return layout;
  }
};
auto make(acco::threads_backend const& world, setting const& s) {
  return acco::optimizer{
      acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, s.layout(),
      acco::options{.keep_checkpoints = s.keep}};
}
template <class Training, class Saved>
void train_and_save(Training& t, int rank, std::string const& run, int saves, Saved&& saved) {
  for (int save = 0; save < saves; ++save) {
    std::size_t m = 0;
    t.save(run, [&] { return std::vector<std::size_t>(700, m); });
    for (bool done = false; !done && m < 100000; ++m) {
      (void)problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), t.gradients());
      if (auto const report = t.accumulated(1); report && report->saved != nullptr) {
        REQUIRE_MESSAGE(report->saved->complete(), report->saved->problem);
        saved(*report->saved);
        done = true;
      }
    }
  }
}

/// Trainings that save into one folder, one after the other, and what they did to the disk.
struct recording {
  explicit recording(setting const& of) : s(of), trace(of.ranks, of.seed) {
    std::vector<std::unique_ptr<simulated::recording_calls>> calls;
    for (int rank = 0; rank < s.ranks; ++rank) calls.push_back(std::make_unique<simulated::recording_calls>(trace, rank));
    const in_their_place now(
        [&](int rank) -> acco::checkpoints::system_calls& { return *calls[static_cast<std::size_t>(rank)]; });
    for (int process = 0; process < 2; ++process) {
      acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
        auto t = make(world, s);
        if (process == 0) {
          t.initialize(problem::converted<float>(problem::initial(s.layout().size())));
        } else {
          (void)t.restore(run());
        }
        train_and_save(t, world.rank(), run(), process == 0 ? 3 : 1, [&](acco::save_outcome const& saved) {
          if (world.rank() != 0) return;
          const std::string name = std::filesystem::path(saved.path).filename().string();
          whole[name] = contents_of(saved.path);
          trace.reported(name);
        });
        t.finish();
      });
    }
  }
  [[nodiscard]] std::string run() const { return folder.path() + "/new/of/run"; }

  setting s;
  scratch folder{in_memory()};
  simulated::trace trace;
  std::map<std::string, contents> whole;  // every checkpoint that there ever was
};

/// Searches the states after a crash.
class search {
 public:
  explicit search(recording& of) : of_(of), random_(of.s.seed) {}

  std::size_t distinct = 0, next_saves = 0;

  /// A violation, in words; empty: none in so many states.
  std::string states(std::size_t count) {
    auto const& all = of_.trace.operations;
    std::vector<std::size_t> at;       // sorted, so that the disk is played once
    std::vector<std::size_t> telling;  // moments right before a sync, where most is open
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k].what == operation::kind::sync) telling.push_back(k);
    }
    for (std::size_t k = 0; k < count; ++k)
      at.push_back(k % 2 == 0 && !telling.empty() ? telling[random_() % telling.size()] : random_() % (all.size() + 1));
    std::sort(at.begin(), at.end());
    simulated::disk disk(of_.folder.path());
    std::size_t played = 0;
    for (const std::size_t end : at) {
      for (; played < end; ++played) disk.play(all[played]);
      std::string problem = look(crash(disk), played, true);
      if (!problem.empty()) return problem;
    }
    return "";
  }
  /// The same without one sync, before which the disk is as it says. What it would have made durable is lost, and
  /// everything else has arrived: after each later operation that changes names, until another sync covers the same.
  std::string without(std::size_t sync, simulated::disk disk) {
    auto const& all = of_.trace.operations;
    const simulated::disk::spot lost = disk.covered(all[sync]);
    const auto fates = [&](std::size_t node, int rank, std::size_t index) {
      return node == lost.node && rank == lost.rank && index < lost.changes ? fate::lost : fate::arrived;
    };
    disk.play(all[sync], true);
    for (std::size_t k = sync + 1; k < all.size(); ++k) {
      using kind = operation::kind;
      if (all[k].what == kind::sync) {
        const simulated::disk::spot same = disk.covered(all[k]);
        if (same.node == lost.node && same.rank == lost.rank) return "";
      }
      disk.play(all[k]);
      if (all[k].what != kind::rename && all[k].what != kind::remove && all[k].what != kind::reported) continue;
      if (all[k].path.find("/part-") != std::string::npos) continue;  // nobody looks for these
      std::string problem = look(disk.crash(fates, random_), k + 1, false);
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  /// What is wrong with a state after so many operations. From some, where that is asked, a training goes on.
  std::string look(simulated::image const& found, std::size_t played, bool goes_on) {
    auto const& all = of_.trace.operations;
    std::string reported, next;
    for (std::size_t k = 0; k < all.size() && next.empty(); ++k) {
      if (all[k].what == operation::kind::reported) (k < played ? reported : next) = all[k].path;
    }
    if (!seen_.emplace(found.hash(), reported).second) return "";
    ++distinct;
    std::string problem = judge(found, reported, next, goes_on && distinct % (thorough() ? 200 : 20) == 0);
    if (problem.empty()) return "";
    return "after " + std::to_string(played) + " of " + std::to_string(all.size()) + " operations, seed " +
           std::to_string(of_.s.seed) + ": " + problem;
  }
  simulated::image crash(simulated::disk const& disk) {
    auto const pending = disk.pending();
    const std::size_t way = random_() % 8;
    simulated::disk::spot one{0, -1, 0};
    if (!pending.empty()) one = pending[random_() % pending.size()];
    const std::size_t item = one.changes == 0 ? 0 : random_() % one.changes;
    const double likely = std::array{0.1, 0.5, 0.9}[random_() % 3];
    const auto here = [&](std::size_t node, int rank) { return node == one.node && rank == one.rank; };
    return disk.crash(
        [&](std::size_t node, int rank, std::size_t index) {
          const auto some = [&] {
            if (std::generate_canonical<double, 53>(random_) > likely) return fate::lost;
            if (rank < 0) return fate::arrived;
            const std::size_t what = random_() % 8;
            return what == 0 ? fate::torn : what == 1 ? fate::size_only : fate::arrived;
          };
          switch (way) {
            case 0: return fate::lost;
            case 1: return fate::arrived;
            case 2:
            case 3: return here(node, rank) ? fate::lost : fate::arrived;
            case 4: return here(node, rank) ? fate::arrived : fate::lost;
            case 5: return here(node, rank) && index == item ? (random_() % 2 == 0 ? fate::torn : fate::lost) : fate::arrived;
            case 6: return here(node, rank) ? some() : fate::arrived;
            default: return some();
          }
        },
        random_);
  }
  std::string judge(simulated::image const& found, std::string const& reported, std::string const& next, bool go_on) {
    const scratch folder(in_memory());
    found.put(folder.path());
    const std::string run = folder.path() + "/new/of/run";
    std::vector<std::string> skipped;
    auto const latest = acco::latest_checkpoint(run, &skipped);
    const std::string name = latest ? std::filesystem::path(*latest).filename().string() : "";
    if (name != reported && name != next)
      return "found '" + name + "', reported was '" + reported + "'" + (skipped.empty() ? "" : ", passed over: " + skipped[0]);
    if (latest && contents_of(*latest) != of_.whole.at(name)) return name + " has other bytes";
    if (!skipped.empty()) return skipped[0];  // a name of a checkpoint is that of a whole one
    std::error_code unknown;
    for (std::filesystem::directory_iterator each(run, unknown), end; !unknown && each != end; ++each) {
      const std::string other = each->path().filename().string();
      if (!other.starts_with("step-")) continue;
      auto const findings = acco::verify_checkpoint(each->path().string());
      if (!findings) return findings.problems[0];
      if (contents_of(each->path().string()) != of_.whole.at(other)) return other + " has other bytes";
    }
    if (go_on) return next_save(run, latest.has_value());
    return "";
  }
  /// A training that goes on from there saves, and nothing half-written is left.
  std::string next_save(std::string const& run, bool restores) {
    ++next_saves;
    struct without_syncs : acco::checkpoints::system_calls {
      int fsync(int) override { return 0; }
    } calls;
    const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
    acco::threads_backend::run(of_.s.ranks, [&](acco::threads_backend const& world) {
      auto t = make(world, of_.s);
      restores ? (void)t.restore(run) : t.initialize(problem::converted<float>(problem::initial(of_.s.layout().size())));
      train_and_save(t, world.rank(), run, 1, [](acco::save_outcome const&) {});
      t.finish();
    });
    for (auto const& each : std::filesystem::directory_iterator(run)) {
      if (!each.path().filename().string().starts_with("step-")) return each.path().string() + " is left after the next save";
      auto const findings = acco::verify_checkpoint(each.path().string());
      if (!findings) return findings.problems[0];
    }
    return "";
  }

  recording& of_;
  std::mt19937_64 random_;
  std::set<std::pair<std::uint64_t, std::string>> seen_;
};
}  // namespace

TEST_CASE("in every state after a crash the old checkpoint or the new one is found, whole") {
  std::size_t distinct = 0, next_saves = 0;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const std::size_t keep : {1U, 2U}) {
      recording of({.ranks = ranks, .keep = keep, .seed = static_cast<std::uint64_t>(ranks) * 10 + keep});
      REQUIRE(of.whole.size() == 4);
      search in(of);
      const std::size_t wanted = thorough() ? 1400 : 12;
      std::string problem;
      while (in.distinct < wanted && problem.empty()) problem = in.states(wanted);
      CHECK_MESSAGE(problem.empty(), ranks, " ranks, ", keep, " kept: ", problem);
      distinct += in.distinct;
      next_saves += in.next_saves;
    }
  }
  std::printf("%zu different states after a crash; from %zu a training went on\n", distinct, next_saves);
  if (thorough()) CHECK(distinct >= 10000);
}

TEST_CASE("every sync is needed: without it, a state is found in which a checkpoint is lost") {
  std::size_t syncs = 0, states = 0;
  std::set<std::string> names;
  for (const int ranks : {1, 3, 4}) {
    recording of({.ranks = ranks, .keep = 1, .seed = 500 + static_cast<std::uint64_t>(ranks)});
    auto const& all = of.trace.operations;
    simulated::disk disk(of.folder.path());
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k].what != operation::kind::sync) {
        disk.play(all[k]);
        continue;
      }
      const simulated::disk before = disk;
      const bool needed = disk.play(all[k]);
      std::string name = all[k].path.substr(of.folder.path().size());
      if (const std::size_t from = name.find(".saving-"); from != std::string::npos) {
        const std::size_t to = std::min(name.find('/', from), name.size());
        name.replace(from, to - from, "SAVING");
      }
      if (!needed) {  // only of folders whose entries were synced before
        CHECK_MESSAGE(name == "/new/of", "the sync of ", name, " had nothing to do");
        continue;
      }
      if (!thorough() && k % 21 != 0) continue;
      ++syncs;
      names.insert(name);
      search in(of);
      const std::string found = in.without(k, before);
      states += in.distinct;
      CHECK_MESSAGE(!found.empty(), "the sync of ", name, " by rank ", all[k].rank, " can be left out: operation ", k,
                    " of seed ", of.s.seed);
    }
  }
  CHECK(syncs > (thorough() ? 10U : 3U));
  std::printf("%zu syncs left out, one at a time; %zu states until each was missed. Of:\n", syncs, states);
  for (std::string const& each : names) std::printf("  %s\n", each.empty() ? "/" : each.c_str());
}
