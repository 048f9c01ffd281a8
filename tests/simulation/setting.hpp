// SPDX-License-Identifier: Apache-2.0
// What is drawn from a seed: the ranks, their trainings, and at most one disaster.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <acco/layout/parameter_layout.hpp>
#include <acco/rule/all.hpp>
#include <acco/schedule/learning_rate_function.hpp>

#include "simulation/random.hpp"

namespace simulation {

enum class schedule_kind { synchronous, delayed, two_phase, weight_prediction };
enum class wire_kind { full, estimate_int8, estimate_int4, coded, estimate_own, estimate_corrected };
enum class lateness { plain, extrapolated, compensated };  ///< of the delayed update
enum class disaster {
  none,
  death,        ///< a rank vanishes at a collective
  loss,         ///< a transfer never completes on a rank
  mismatch,     ///< a rank asks for an element more than it should
  throws,       ///< a rank's own code throws between two calls
  rate_throws,  ///< its learning rate throws, inside a call
  rate_is_nan,  ///< its learning rate returns NaN
  bad_alloc,    ///< its memory resource has nothing more
  raised,       ///< a gradient that is not finite, which every rank throws
  skipped,      ///< the same, and the update is left out
  differs,      ///< it is constructed differently
  leaves,       ///< it goes without finish()
};
inline constexpr std::size_t disasters = 12;
inline constexpr double ahead = 0.7, strength = 0.3;  // of an extrapolation, and of a compensation
/// A rule, at settings that take some steps to train.
template <class Rule>
constexpr Rule tuned(Rule rule) {
  rule.learning_rate = std::is_same_v<Rule, acco::sgd> ? 0.05 : std::is_same_v<Rule, acco::lion> ? 0.01 : 0.02;
  rule.weight_decay = 0.1;
  if constexpr (requires { rule.nesterov; }) rule.momentum = 0.8, rule.weight_decay = 0.05, rule.nesterov = true;
  return rule;
}
inline constexpr std::size_t most_slots = [] {
  std::size_t most = 0;
  acco::for_each(acco::all_rules{}, [&](auto const& rule) { most = std::max(most, rule.slot_count); });
  return most;
}();
enum class question { gather_committed, state_digest, sum_over_ranks };

char const* name_of(schedule_kind kind);
char const* name_of(wire_kind kind);
char const* name_of(lateness kind);
char const* name_of(disaster kind);

/// Asked on every rank behind the boundary with this number.
struct planned_question {
  std::size_t boundary;
  question what;
};

/// One optimizer, the same on every rank.
struct training_setting {
  schedule_kind schedule = schedule_kind::synchronous;
  wire_kind wires = wire_kind::full;
  std::size_t rule = 0;  // which of acco::all_rules
  lateness late = lateness::plain;
  unsigned exact_every = 0;
  bool feeds_back = false;  // a coded commit, in four bits: what is lost of it is sent later
  bool elastic = false;
  // auto_pace: by the clock, so that a seed does not tell the split; all ranks must find the same one
  bool found = false;
  // micro-batches of a part of a step; `at_most` where the pace is elastic
  unsigned first = 1, second = 1, at_most = 1;
  double clip_norm = 0;
  bool drops = false;  // at finish(), a step that lacks micro-batches
  bool stable_addresses = false, falling_rate = false, in_steps = false, stray_gradients = false;
  std::size_t bucket_elements = 0;
  acco::parameter_layout layout;
  std::vector<std::vector<std::size_t>> micro_batches;   // by segment and rank; finish() stands behind each segment
  std::vector<std::vector<planned_question>> questions;  // by segment, in order
  std::uint64_t data = 0;                                // seed of the samples

  [[nodiscard]] char const* rule_name() const {
    return acco::visit_at(acco::all_rules{}, rule, [](auto const& each) { return each.name; });
  }
  // What looks at the run, and must change nothing.
  [[nodiscard]] std::uint64_t compares() const { return data % 4; }
  [[nodiscard]] std::uint64_t digests() const { return (data >> 8U) % 3; }
  [[nodiscard]] bool waits() const { return schedule == schedule_kind::synchronous; }
  [[nodiscard]] bool two_rounds() const { return schedule == schedule_kind::two_phase; }
  [[nodiscard]] bool commits(std::size_t round) const { return !two_rounds() || round % 2 == 1; }
  /// Micro-batches that the part of this round has at least, and at most; until a pace has `found` another split.
  [[nodiscard]] std::size_t least(std::size_t round) const { return elastic || !two_rounds() || round % 2 == 0 ? first : second; }
  [[nodiscard]] std::size_t most(std::size_t round) const {
    // found: of all before, together
    return found ? (round % 2 == 0 ? step() - 1 : 1) : elastic ? at_most : least(round);
  }
  [[nodiscard]] unsigned step() const { return first + second; }
  /// An encoded estimate leaves its gradients with the ranks, and the commit carries them too.
  [[nodiscard]] bool keeps() const { return two_rounds() && wires != wire_kind::full; }
  /// In the trainer's accumulator, or aside; then a trainer may clear its gradients whenever a part begins.
  [[nodiscard]] bool in_place() const { return keeps() && (data >> 24U) % 3 == 0; }
  [[nodiscard]] bool clears() const { return !in_place() && (data >> 28U) % 2 == 0; }
  [[nodiscard]] bool own_estimates() const { return wires == wire_kind::estimate_own || wires == wire_kind::estimate_corrected; }
  /// Whether committed weights follow from the equations, not from the rounding of an encoding.
  [[nodiscard]] bool exact() const { return wires != wire_kind::coded; }
  /// Whether a rank that comes to finish() with so many micro-batches behind its last boundary has completed a part.
  [[nodiscard]] bool completes(std::size_t micro_batches_left) const { return elastic && micro_batches_left >= first; }
  /// What a micro-batch weighs.
  [[nodiscard]] double weight(std::size_t segment, int rank, std::size_t micro_batch) const;
  [[nodiscard]] std::uint64_t sample(std::size_t segment, int rank, std::size_t micro_batch) const;
  [[nodiscard]] double rate(acco::training_position const& at) const {
    return !falling_rate ? 1 : in_steps ? 1 / (1 + static_cast<double>(at.steps) / 3) : 1 / (1 + at.samples / 40);
  }
};

struct setting {
  std::uint64_t seed = 0;
  int ranks = 1;
  int bystanders = 0;                       // ranks of a larger world, of which those that train are split off
  bool backwards = false;                   // in the order of falling ranks there
  std::vector<training_setting> trainings;  // one or two, whose calls alternate
  // polls that a transfer is held back; the largest number: until it is waited for
  std::size_t delay_at_most = 0;
  bool polls = false;  // the trainers call poll()
  disaster kind = disaster::none;
  int culprit = -1;
  std::size_t strikes_in = 0;  // which training
  std::size_t at = 0;          // collective, call of the learning rate, allocation, or micro-batch of segment `segment`
  std::size_t segment = 0;     // where `at` is a micro-batch
  std::size_t element = 0;     // of the gradient that is not finite
  double poison = 0;           // NaN, or infinite
  std::size_t difference = 0;  // in what the culprit is constructed differently

  /// The rank in the larger world; those that train have the highest ones.
  [[nodiscard]] int outside(int rank) const { return bystanders + (backwards ? ranks - 1 - rank : rank); }
  [[nodiscard]] bool poisons() const { return kind == disaster::raised || kind == disaster::skipped; }
};

setting draw(std::uint64_t seed);
/// In words.
std::string describe(setting const& drawn);

/// The derivative of a sample's loss by parameter i, which has the value p.
inline double derivative(std::uint64_t sample, std::size_t i, double p) {
  const std::uint64_t h = mix(sample + i * 0x632be59bd9b4e019ULL);
  const double a = 0.5 + static_cast<double>(h >> 32U) * 0x1p-32, b = static_cast<double>(h & 0xffffffffU) * 0x1p-31 - 1;
  return a * (p - b) + 0.1 * p * p * p;
}

}  // namespace simulation
