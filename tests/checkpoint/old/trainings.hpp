// SPDX-License-Identifier: Apache-2.0
// Trainings whose checkpoints are kept as test data. This header compiles with the library of then, which writes them
// (make.sh, which defines OLD_LIBRARY), and with the library of today, which goes on from them.
//
// Every gradient is a small multiple of 1/16, so sums of gradients are exact: a training that travels exactly has the
// same bits on any number of ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "support/problem.hpp"

namespace old_trainings {

#ifdef OLD_LIBRARY
using commit_code = acco::block_int8<>;
#else
using commit_code = acco::nearest<acco::block_int8<>>;  // gradients of coded commits were rounded to nearest
#endif

inline constexpr std::size_t micro_batches = 60, save_at = 37, spike_at = 49, samples = 4;
inline constexpr int ranks = 2;

/// What is not the same for all of them.
struct traits {
  char const* name;
  bool any_ranks = true;     ///< the same bits on any number of ranks
  double spike = 1;          ///< by which one micro-batch's gradients are multiplied
  std::size_t rest_at = 0;   ///< this many micro-batches are followed by `finish`, which makes the checkpoint; 0: none
  bool option_went = false;  ///< it was made with an option that is no more
};

/// What reports tell, and parameters after each micro-batch, as a hash; parameters after the last `finish`, and the
/// digest.
struct outcome {
  std::vector<std::uint64_t> numbers;
  friend bool operator==(outcome const&, outcome const&) = default;
};
inline outcome read(std::string const& path) {
  outcome found;
  std::ifstream file(path);
  file >> std::hex;
  for (std::uint64_t each = 0; file >> each;) found.numbers.push_back(each);
  return found;
}
inline void write(std::string const& path, outcome const& from) {
  std::ofstream file(path);
  file << std::hex;
  for (const std::uint64_t each : from.numbers) file << each << "\n";
}

template <class P>
std::uint64_t hash(std::span<P const> values) {
  std::uint64_t sum = 1;
  for (P const& each : values) sum = (sum ^ std::bit_cast<std::uint64_t>(static_cast<double>(each))) * 0x9fb21c651e98df25ULL;
  return sum;
}

/// Adds a sample's gradient: sixteenths between -4 and 4. Returns its loss, which is a multiple of 1/512.
template <class P, class G>
double add_sample(std::uint64_t sample, double factor, std::span<P const> parameters, std::span<G> gradients) {
  double loss = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double distance = static_cast<double>(parameters[i]) - (2 * problem::unit(sample * 104729 + i * 31 + 5) - 1);
    const double gradient = std::clamp(std::floor(32 * distance), -64.0, 64.0) / 16;
    gradients[i] = static_cast<G>(static_cast<double>(gradients[i]) + factor * gradient);
    loss += gradient * gradient / 2;
  }
  return loss;
}

/// There was a dynamic one.
template <class T>
double loss_scale_of([[maybe_unused]] T const& training) {
#ifdef OLD_LIBRARY
  return training.loss_scale();
#else
  return 1;
#endif
}

/// Trains a rank from micro-batch `from` on. Where `run` is given, the training is saved there.
template <class T>
outcome train(T& training, int rank, int of, traits const& is, std::size_t from, std::string const& run = "") {
  outcome seen;
  for (std::size_t m = from; m < micro_batches; ++m) {
    std::size_t weight = 0;
    double loss = 0;
    for (auto s = static_cast<std::size_t>(rank); s < samples; s += static_cast<std::size_t>(of), ++weight)
      loss += add_sample(m * samples + s, loss_scale_of(training) * (m == spike_at ? is.spike : 1), training.parameters(),
                         training.gradients());
    const std::size_t asked_at = is.rest_at != 0 ? is.rest_at - 1 : save_at;
    if (!run.empty() && m == asked_at) training.save(run, [&m] { return static_cast<std::uint64_t>(m); });
    if (auto const report = training.accumulated(static_cast<double>(weight), loss)) {
      for (const double each : {report->step_loss, report->step_weight, report->skipped ? 1.0 : 0.0})
        seen.numbers.push_back(std::bit_cast<std::uint64_t>(each));
    }
    if (is.rest_at == m + 1) training.finish();
    seen.numbers.push_back(hash(training.parameters()));
  }
  training.finish(acco::unfinished::commit);
  seen.numbers.push_back(hash(training.parameters()));
  seen.numbers.push_back(training.world_digest());
  return seen;
}

/// The micro-batch to go on with, of what `save`'s position gave.
inline std::size_t after(std::span<std::byte const> position) {
  std::uint64_t m = 0;
  std::memcpy(&m, position.data(), sizeof m);
  return static_cast<std::size_t>(m) + 1;
}

/// What `restore` tells.
inline std::vector<std::uint64_t> told_by(acco::restored const& found) {
  return {found.digest, found.step, std::bit_cast<std::uint64_t>(found.samples), std::bit_cast<std::uint64_t>(found.last_weight),
          std::bit_cast<std::uint64_t>(found.last_loss)};
}

inline acco::parameter_layout vectors(bool some_frozen = false) {
  acco::parameter_layout layout;
  const auto slow = layout.add_group({.learning_rate_scale = 0.5, .weight_decay = 0.1});
  const auto still = some_frozen ? layout.add_group({.frozen = true}) : slow;
  layout.add("wte", {7, 5}).add("bias", {9}, slow).add("h", {3, 11}, still).add("last", {1});
  return layout;
}
inline acco::parameter_layout matrices() {
  acco::parameter_layout layout;
  const auto others = layout.add_group({.rule = 1});
  layout.add("wte", {7, 3}, others).add("a", {4, 6}).add("bias", {9}, others).add("b", {5, 5});
  return layout;
}

/// Calls visit(traits, schedule, rule, storage, layout, options) for each of them.
template <class Visit>
void for_each(Visit&& visit) {
  using pace = acco::fixed_pace;
  using acco::bfloat16, acco::half, acco::host_storage;
  const acco::adamw adamw{.learning_rate = 0.05, .weight_decay = 0.01};
  const acco::sgd sgd{.learning_rate = 0.02, .momentum = 0.5};
  const acco::warmup_linear rising{.warmup = 40, .total = 400, .step = 16};
  const host_storage<float> floats;

  visit(traits{"two_phase"}, acco::two_phase{.pace = pace{2}}, adamw, floats, vectors(true),
        acco::options{.learning_rate = rising});
  visit(traits{"between_halves", true, 1, 46}, acco::two_phase{.pace = pace{2}}, adamw, floats, vectors(), acco::options{});
  visit(traits{"coded", false},
        acco::two_phase{.estimate = acco::block_int4{},
                        .commit = acco::coded{commit_code{}, acco::block_int4{}, 3},
                        .pace = pace{.first = 3, .second = 1}},
        adamw, floats, vectors(), acco::options{.clip_norm = 2});
  acco::options limited{.norms = acco::norm_detail::tensors, .norm_limit = 2, .on_norm_spike = acco::norm_spike::skip};
  limited.digest_every = 2;
#ifdef OLD_LIBRARY
  limited.check_habits = acco::habit_checks::on;  // each rank's are in the manifest
#endif
  visit(traits{"norm_limit", true, 32}, acco::delayed{.pace = pace{2}}, adamw, floats, vectors(), limited);
  acco::options averaging{.average_decay = 0.75};
#ifdef OLD_LIBRARY
  averaging.loss_scale = acco::loss_scaling{.initial = 4, .interval = 5};  // powers of two: they change no bit here
#endif
  visit(traits{.name = "synchronous", .option_went = true}, acco::synchronous{.pace = pace{2}}, sgd, host_storage<float, half>{},
        vectors(), averaging);
  visit(traits{"bfloat16"}, acco::weight_prediction{.pace = pace{2}}, sgd, host_storage<bfloat16, float>{}, vectors(),
        acco::options{.learning_rate = rising});
  visit(traits{"muon"}, acco::two_phase{.pace = pace{2}}, acco::rules{acco::muon{.learning_rate = 0.02}, adamw}, floats,
        matrices(), acco::options{});
}

}  // namespace old_trainings
