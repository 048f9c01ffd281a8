// SPDX-License-Identifier: Apache-2.0
#include "simulation/check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "simulation/history.hpp"

namespace simulation {
namespace {

using vector = std::vector<double>;

template <class... Parts>
std::string say(Parts const&... parts) {
  std::ostringstream out;
  out.precision(17);
  (out << ... << parts);
  return out.str();
}
bool near(double a, double b) { return std::fabs(a - b) <= 1e-8 * (1 + std::fabs(b)); }
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }
bool same_bits(vector const& a, vector const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}
/// The first element at which they differ, in words; empty: none.
std::string difference(vector const& found, vector const& expected, bool bits) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (bits ? std::memcmp(&found[i], &expected[i], sizeof(double)) == 0 : near(found[i], expected[i])) continue;
    return say("element ", i, " is ", found[i], ", expected ", expected[i]);
  }
  return found.size() == expected.size() ? "" : "sizes differ";
}
char const* name_of(seen what) {
  constexpr char const* names[] = {"initialize", "report", "finish", "an error"};
  return names[static_cast<std::size_t>(what)];
}

/// A pace that splits a step by the clock: every step has all of its micro-batches, and every rank splits it alike.
std::string check_splits(setting const& s, outcome const& o, std::size_t number, tally& counts) {
  const std::size_t step = s.trainings[number].step();
  std::vector<std::vector<std::size_t>> sizes;  // of the parts that a rank has launched
  for (rank_log const& rank : o.ranks) {
    sizes.emplace_back();
    if (rank.trainings.size() <= number || rank.trainings[number].segments.empty()) continue;
    for (auto const& part : rank.trainings[number].segments[0].parts) sizes.back().push_back(part.size());
    sizes.back().pop_back();  // the last one was not full, or is carried by finish()
  }
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    auto const& mine = sizes[rank];
    for (std::size_t k = 0; k + 1 < mine.size(); k += 2) {
      if (mine[k] + mine[k + 1] != step || mine[k] == 0 || mine[k + 1] == 0)
        return say("rank ", rank, ", training ", number, ": step ", k / 2, " was ", mine[k], " + ", mine[k + 1], " of ", step);
      if (k > 0 && mine[k] != mine[0]) ++counts["steps with a split that was found"];
    }
    for (std::size_t k = 0; k < std::min(mine.size(), sizes[0].size()); ++k) {
      if (mine[k] != sizes[0][k])
        return say("training ", number, ": part ", k, " had ", mine[k], " micro-batches on rank ", rank, ", ", sizes[0][k],
                   " on rank 0");
    }
  }
  return {};
}

/// One training, all ranks.
std::string check_training(setting const& s, outcome const& o, std::size_t number, tally& counts) {
  training_setting const& t = s.trainings[number];
  const history h = replay(s, o, number);
  std::map<std::tuple<seen, std::size_t, std::size_t>, std::pair<int, snapshot const*>> first_seen;
  std::map<std::tuple<std::size_t, std::size_t, bool>, vector> gathered;
  const std::set<double> reached(h.samples.begin(), h.samples.end());
  for (int rank = 0; rank < s.ranks; ++rank) {
    rank_log const& mine = o.ranks[static_cast<std::size_t>(rank)];
    if (mine.trainings.size() <= number) continue;
    training_log const& log = mine.trainings[number];
    const auto wrong = [&](auto const&... parts) { return say("rank ", rank, ", training ", number, ": ", parts...); };
    snapshot const* before = nullptr;
    for (snapshot const& now : log.snapshots) {
      snapshot const* const last = std::exchange(before, &now);
      const auto at = [&](auto const&... parts) {
        return wrong("at ", name_of(now.what), ", segment ", now.segment, ", boundary ", now.boundary, ": ", parts...);
      };
      if (now.what == seen::error) {
        ++counts["parameters after an error"];
        const bool in_finish = now.boundary == 1 && now.rounds != last->rounds;
        if (!in_finish && !same_bits(now.parameters, last->parameters))
          return at("parameters() have changed: ", difference(now.parameters, last->parameters, true));
        const bool estimated = t.keeps() && now.rounds != 0 && now.rounds <= h.rounds.size() && !h.rounds[now.rounds - 1].commits;
        // an encoded estimate nobody else has seen
        if (h.known && in_finish && now.rounds < h.shown.size() && !estimated) {
          auto const what = difference(now.parameters, h.shown[now.rounds], false);
          if (!what.empty()) return at("after ", now.rounds, " rounds ", what);
        }
        continue;
      }
      if (now.segment >= h.base.size()) return at("the oracle did not come here");
      const bool finished = now.what == seen::finished;
      if (finished && now.segment + 1 >= h.base.size()) return at("the oracle did not end this segment");
      const std::size_t rounds = finished                        ? h.base[now.segment + 1]
                                 : now.what == seen::initialized ? 0
                                                                 : h.base[now.segment] + now.boundary + (t.waits() ? 1 : 0);
      if (rounds >= h.shown.size()) return at("the oracle knows ", h.shown.size() - 1, " rounds, not ", rounds);
      if (now.rounds != rounds) return at("totals() count ", now.rounds, " rounds, expected ", rounds);
      if (!near(now.samples, h.samples[rounds])) return at("samples() = ", now.samples, ", expected ", h.samples[rounds]);
      const double dropped = now.segment + (finished ? 1 : 0) == 0 ? 0 : h.dropped[now.segment - (finished ? 0 : 1)];
      if (!near(now.dropped, dropped)) return at("totals() tell of ", now.dropped, " dropped, expected ", dropped);
      if (finished && dropped > 0) ++counts["steps that were dropped"];
      if (now.steps != h.steps[rounds]) return at("steps() = ", now.steps, ", expected ", h.steps[rounds]);
      auto const [same, is_first] = first_seen.try_emplace({now.what, now.segment, now.boundary * !finished}, rank, &now);
      if (!is_first && !same_bits(now.parameters, same->second.second->parameters)) {
        return at("not the bits of rank ", same->second.first, ": ",
                  difference(now.parameters, same->second.second->parameters, true));
      }
      if (h.known) {
        ++counts["parameters against the equations"];
        auto const what = difference(now.parameters, finished ? h.committed[rounds] : h.shown[rounds], false);
        if (!what.empty()) return at(what);
      }
      if (now.what != seen::report) continue;
      history::round const& round = h.rounds[rounds - 1];
      if (now.digest != same->second.second->digest)
        return at("the state's digest is ", now.digest, ", on rank ", same->second.first, " ", same->second.second->digest);
      const bool digested = t.digests() != 0 && round.commits && (now.steps + (round.applied ? 0 : 1)) % t.digests() == 0;
      if ((now.digest != 0) != digested) return at("the state was ", digested ? "not " : "", "digested");
      if (digested) ++counts["digests of reports"];
      if (now.round != round.index) return at("the report is of round ", now.round, ", expected ", round.index);
      if (now.skipped != round.skipped) return at("skipped = ", now.skipped, ", expected ", round.skipped);
      if (!near(now.weight, round.weight)) return at("the round's weight is ", now.weight, ", expected ", round.weight);
      if (now.weight > 0 && !near(now.mean_loss, 2)) return at("mean_loss = ", now.mean_loss, ", expected 2");
      if (!near(now.step_weight, round.so_far)) return at("step_weight = ", now.step_weight, ", expected ", round.so_far);
      if (now.step_weight > 0 && !near(now.step_loss, 2)) return at("step_loss = ", now.step_loss, ", expected 2");
      if (!near(now.rate, round.rate)) return at("learning rate ", now.rate, ", expected ", round.rate);
      if (h.known && (t.wires == wire_kind::full || (t.own_estimates() && !round.commits)) && round.applied) {
        ++counts[round.clip < 1 ? "norms, clipped" : "norms"];
        if (!near(now.norm, round.norm)) return at("norm ", now.norm, ", expected ", round.norm);
        if (!near(now.clip, round.clip)) return at("clip ", now.clip, ", expected ", round.clip);
      }
    }
    std::map<std::uint64_t, std::uint64_t> digests;  // by the updates committed
    vector const* finished = nullptr;
    for (answer const& a : log.answers) {
      const auto at = [&](auto const&... parts) {
        return wrong("answer in segment ", a.segment, ", boundary ", a.boundary, a.after_finish ? " (after finish)" : "",
                     a.after_error ? " (after an error)" : "", ": ", parts...);
      };
      if (!a.after_error && (a.segment >= h.base.size() || (a.after_finish && a.segment + 1 >= h.base.size())))
        return at("the oracle did not come here");
      const std::size_t rounds = a.after_error    ? h.rounds.size()
                                 : a.after_finish ? h.base[a.segment + 1]
                                                  : h.base[a.segment] + a.boundary + 1;
      if (rounds >= h.shown.size()) return at("the oracle knows ", h.shown.size() - 1, " rounds, not ", rounds);
      switch (a.what) {
        case question::gather_committed: {
          ++counts[a.after_error ? "gather_committed after an error" : "gather_committed"];
          if (h.known) {
            auto const what = difference(a.numbers, h.committed[rounds], false);
            if (!what.empty()) return at("gather_committed: ", what);
          }
          auto const [same, is_first] = gathered.try_emplace({a.segment, a.boundary, a.after_finish}, a.numbers);
          if (!is_first && !a.after_error && !same_bits(same->second, a.numbers)) return at("ranks gathered different bits");
          if (!a.after_finish) break;
          for (snapshot const& each : log.snapshots) {
            if (each.what == seen::finished && each.segment == a.segment) finished = &each.parameters;
          }
          if (finished == nullptr || !same_bits(*finished, a.numbers)) return at("finish does not show what is committed");
          break;
        }
        case question::state_digest: {
          ++counts["digests"];
          auto const [known, is_new] = digests.try_emplace(h.steps[rounds], a.digest);
          // an update that is left out has moved nothing, and compensations remember by how much the last one has
          const bool may = t.late == lateness::compensated && std::any_of(h.rounds.begin(), h.rounds.end(), [](auto const& each) {
                             return each.commits && !each.applied;
                           });
          if (!is_new && !may && known->second != a.digest) return at("the digest of step ", h.steps[rounds], " has changed");
          for (auto const& [step, digest] : digests) {
            if (step != h.steps[rounds] && digest == a.digest)
              return at("steps ", step, " and ", h.steps[rounds], " have one digest");
          }
          break;
        }
        case question::sum_over_ranks: {
          ++counts["sums over ranks"];
          const double n = s.ranks;
          if (a.numbers != vector{n * (n + 1) / 2, n / 2}) return at("the sum over ranks is ", a.numbers[0], ", ", a.numbers[1]);
          break;
        }
      }
    }
    for (const double samples : log.asked_rates) {
      if (mine.ended && !reached.contains(samples)) return wrong("the learning rate was asked for at ", samples, " samples");
    }
  }
  return {};
}

/// The errors of a disaster.
std::string check_ends(setting const& s, outcome const& o, tally& counts) {
  const auto of = [&](int rank) -> rank_log const& { return o.ranks[static_cast<std::size_t>(rank)]; };
  const auto wrong = [&](int rank, std::string const& expected) {
    return say("rank ", rank, " ended with ",
               of(rank).ended  ? "nothing"
               : of(rank).died ? "death"
                               : of(rank).kind,
               " '", of(rank).what, "', expected ", expected);
  };
  if (!o.struck || s.kind == disaster::none || s.kind == disaster::skipped) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      if (!of(rank).ended) return wrong(rank, "no error");
    }
    return {};
  }
  const int v = s.culprit;
  const std::string culprit = say("rank ", v);
  rank_log const& own = of(v);
  switch (s.kind) {
    case disaster::death:
      if (!own.died) return wrong(v, "death");
      break;
    case disaster::loss:
      if (own.kind != "deadline_error" || !contains(own.what, "never completed")) return wrong(v, "that its data were lost");
      break;
    case disaster::throws:
      if (own.what != say("the data loader of rank ", v, " broke")) return wrong(v, "its own exception");
      break;
    case disaster::rate_throws:
      if (own.what != say("no rate on rank ", v)) return wrong(v, "its own exception");
      break;
    case disaster::rate_is_nan:
      if (own.kind != "usage_error" || !contains(own.what, "options::learning_rate returned nan"))
        return wrong(v, "an error about its learning rate");
      break;
    case disaster::bad_alloc:
      if (own.kind != "memory_error" && own.kind != "bad_alloc") return wrong(v, "a memory_error");
      break;
    case disaster::leaves:
      if (!own.ended) return wrong(v, "nothing");
      break;
    case disaster::mismatch:
      if (s.ranks > 1 && own.kind != "mismatch_error") return wrong(v, "a mismatch_error");
      break;
    default: break;
  }
  for (int rank = 0; rank < s.ranks; ++rank) {
    rank_log const& mine = of(rank);
    if (s.kind == disaster::raised && (s.trainings.size() == 1 || !mine.is_error || mine.kind == "non_finite_error")) {
      auto const tensor = s.trainings[s.strikes_in].layout.at_offset(s.element);
      if (mine.kind != "non_finite_error" || !contains(mine.what, culprit + " brought 1 gradients") ||
          !contains(mine.what, say("in tensor '", tensor.name, "' at element ", s.element - tensor.offset, ".")))
        return wrong(rank, say(culprit, ", tensor '", tensor.name, "', element ", s.element - tensor.offset));
      continue;
    }
    if (s.kind == disaster::differs && s.ranks > 1 && s.trainings.size() == 1) {
      if (mine.kind != "mismatch_error" || !contains(mine.what, "constructed differently") ||
          !contains(mine.what, culprit + " has"))
        return wrong(rank, "what rank " + std::to_string(v) + " has");
      continue;
    }
    if (rank == v) continue;
    if (s.kind == disaster::loss && mine.ended) continue;  // the last transfer that it needed
    if (!mine.is_error) return wrong(rank, "an acco::error that names " + culprit);
    // behind the place, which names the reporter
    if (!contains(mine.what.substr(mine.what.find(": ", 6) + 2), culprit))
      return wrong(rank, "an acco::error that names " + culprit);
    // who goes in the middle of a round says why, before its thread ends; between two it may only be gone, as in another
    // training of its
    training_setting const& its = s.trainings.front();
    const bool between =
        s.at == 0 || s.trainings.size() > 1 || (its.waits() && (its.elastic || its.found || s.at % its.first == 0));
    if (!between && ((s.kind == disaster::throws && !contains(mine.what, "an exception left its training loop")) ||
                     (s.kind == disaster::leaves && !contains(mine.what, "it destroyed its optimizer without finish()"))))
      return wrong(rank, "the reason that " + culprit + " gave");
    ++counts["errors that name the culprit"];
  }
  return {};
}

}  // namespace

std::string check(setting const& s, outcome const& o, tally& counts) {
  if (!o.complaints.empty()) return o.complaints.front();
  for (rank_log const& rank : o.ranks) {
    if (!rank.complaints.empty()) return rank.complaints.front();
  }
  auto wrong = check_ends(s, o, counts);
  for (std::size_t k = 0; k < s.trainings.size() && wrong.empty(); ++k) {
    const bool starts = !(s.kind == disaster::differs && s.strikes_in == k && o.struck && s.ranks > 1);
    if (starts) wrong = check_training(s, o, k, counts);
    if (starts && wrong.empty() && s.trainings[k].found) wrong = check_splits(s, o, k, counts);
  }
  return wrong;
}

std::string compare(outcome const& one, outcome const& other) {
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank) {
    for (std::size_t k = 0; k < one.ranks[rank].trainings.size(); ++k) {
      training_log const &a = one.ranks[rank].trainings[k], &b = other.ranks[rank].trainings[k];
      if (a.final_digest != b.final_digest) return say("rank ", rank, ", training ", k, ": another digest with other delays");
      if (!same_bits(a.snapshots.back().parameters, b.snapshots.back().parameters))
        return say("rank ", rank, ", training ", k, ": other parameters with other delays");
    }
  }
  return {};
}

}  // namespace simulation
