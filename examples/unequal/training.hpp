// SPDX-License-Identifier: Apache-2.0
// Ranks of unequal speed train on packs of documents of unequal length: the weight of a micro-batch is its tokens. What
// a token costs is told, not computed: a micro-batch lasts as long as its tokens take on that rank.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <acco/acco.hpp>

namespace unequal {

constexpr std::size_t letters = 16, parameter_count = letters * letters;
using document = std::vector<unsigned char>;
using pack = std::vector<document>;

/// Texts of a random Markov chain, of 2 to some 500 letters.
class source {
 public:
  explicit source(std::uint64_t seed) : seed_(seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> logit(0, 2);
    for (double& each : chain_) each = std::exp(logit(generator));
  }
  /// Of a rank's micro-batch: four documents.
  [[nodiscard]] pack draw(int rank, std::uint64_t number) const {
    std::mt19937_64 generator((seed_ * 1000003 + static_cast<std::uint64_t>(rank)) * 0x9e3779b97f4a7c15ULL + number);
    std::lognormal_distribution<double> length(3.7, 0.9);
    pack documents(4);
    for (document& each : documents) {
      each.resize(2 + static_cast<std::size_t>(std::min(length(generator), 500.0)));
      for (std::size_t i = 1; i < each.size(); ++i) {
        auto const row = chain_.begin() + static_cast<std::ptrdiff_t>(each[i - 1] * letters);
        each[i] = static_cast<unsigned char>(std::discrete_distribution<int>(row, row + letters)(generator));
      }
    }
    return documents;
  }
  /// The parameters that nothing beats.
  [[nodiscard]] std::vector<float> best() const {
    std::vector<float> logits(parameter_count);
    std::transform(chain_.begin(), chain_.end(), logits.begin(), [](double p) { return static_cast<float>(std::log(p)); });
    return logits;
  }

 private:
  std::uint64_t seed_;
  std::array<double, parameter_count> chain_;
};

/// A letter costs as much as a token of your model does.
inline double tokens_of(pack const& documents) {
  std::size_t count = 0;
  for (document const& each : documents) count += each.size() - 1;
  return static_cast<double>(count);
}
/// A bigram model: ADDS the gradient of the SUM of its losses over all tokens, none across documents; returns that sum.
inline double add_gradients(pack const& documents, std::span<float const> parameters, std::span<float> gradients) {
  double loss = 0;
  for (document const& each : documents) {
    for (std::size_t i = 1; i < each.size(); ++i) {
      const std::size_t row = each[i - 1] * letters;
      double sum = 0;
      for (std::size_t j = 0; j < letters; ++j) sum += std::exp(static_cast<double>(parameters[row + j]));
      loss += std::log(sum) - static_cast<double>(parameters[row + each[i]]);
      for (std::size_t j = 0; j < letters && !gradients.empty(); ++j) {
        const double share = std::exp(static_cast<double>(parameters[row + j])) / sum;
        gradients[row + j] += static_cast<float>(share - (j == each[i] ? 1 : 0));
      }
    }
  }
  return loss;
}
/// Mean loss of documents that nobody trains on.
inline double validation_loss(source const& texts, std::span<float const> parameters) {
  double loss = 0, tokens = 0;
  for (std::uint64_t k = 0; k < 200; ++k) {
    const pack held_out = texts.draw(1000, k);
    loss += add_gradients(held_out, parameters, {});
    tokens += tokens_of(held_out);
  }
  return loss / tokens;
}

struct settings {
  int ranks = 4;
  double slower = 3;         ///< the last rank takes so many times as long for a token
  double microseconds = 80;  ///< for a token, on the others
  double tokens = 400'000;   ///< of the training, over all ranks
};
struct outcome {
  std::vector<float> parameters;
  double tokens = 0, dropped = 0;  ///< committed; left out by `finish`
  std::uint64_t updates = 0;
  double share = 0;                                     ///< of the sum of all ranks' speeds
  std::vector<std::vector<acco::round_report>> rounds;  ///< by rank
  std::vector<std::uint64_t> micro_batches;             ///< drawn, by rank
};

template <class Schedule>
outcome train(settings const& s, source const& texts, Schedule const& schedule) {
  using clock = std::chrono::steady_clock;
  outcome found;
  found.rounds.resize(static_cast<std::size_t>(s.ranks));
  found.micro_batches.resize(static_cast<std::size_t>(s.ranks));
  acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
    const int rank = world.rank();
    const std::chrono::duration<double, std::micro> of_a_token(rank == s.ranks - 1 ? s.slower * s.microseconds : s.microseconds);
    // [training]
    acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{}, world, parameter_count};
    training.initialize(std::vector<float>(parameter_count, 0.0F));
    clock::duration late{};
    double mine = 0, mine_before = 0, begun_at = 0, ended_at = 0;  // before: the first round landed
    for (std::uint64_t k = 0; training.samples() < s.tokens; ++k) {
      auto const begin = clock::now();
      const pack documents = texts.draw(rank, k);
      const double tokens = tokens_of(documents);
      const double loss = add_gradients(documents, training.parameters(), training.gradients());
      // the rest of the time that so many tokens take here; what the machine wakes us late the next one is shorter
      auto const end = begin + std::chrono::duration_cast<clock::duration>(tokens * of_a_token) - late;
      std::this_thread::sleep_until(end);
      late = clock::now() - end;
      auto const report = training.accumulated(tokens, loss);  // the weight: tokens
      // [training]
      mine += tokens;
      found.micro_batches[static_cast<std::size_t>(rank)] = k + 1;
      if (!report) continue;
      found.rounds[static_cast<std::size_t>(rank)].push_back(*report);
      ended_at = std::chrono::duration<double>(clock::now().time_since_epoch()).count();
      if (begun_at == 0) begun_at = ended_at, mine_before = mine;
    }
    training.finish();
    std::array<double, 1> speed{ended_at > begun_at ? (mine - mine_before) / (ended_at - begun_at) : 0};
    training.sum_over_ranks(speed);
    if (rank != 0) return;
    found.share = speed[0] / ((s.ranks - 1 + 1 / s.slower) * 1e6 / s.microseconds);
    found.parameters.assign(training.parameters().begin(), training.parameters().end());
    found.tokens = training.samples();
    found.dropped = training.totals().dropped;
    found.updates = training.steps();
  });
  return found;
}

}  // namespace unequal
