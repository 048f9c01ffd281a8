// SPDX-License-Identifier: Apache-2.0
// Trains the library on support/problem.hpp exactly as the reference does, and hands back what rank 0 sees.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <acco/acco.hpp>

#include "support/problem.hpp"
#include "support/reference.hpp"

namespace library {

struct outcome {
  std::vector<double> parameters;
  double samples = 0;
  std::uint64_t steps = 0;
  std::vector<acco::round_report> reports;  // those that `accumulated` returned on rank 0
  std::vector<std::uint64_t> digests;       // of every rank, at the end
  bool ranks_agree = true;                  // every rank holds bit-identical parameters
};

/// Before the host touches what a storage of other memory may still be working on.
template <class Storage>
void settle() {
  if constexpr (requires { Storage::settle(); }) Storage::settle();
}

/// `Storage` decides the types; the world runs the ranks.
template <class Storage, class World, class Schedule, class Rule>
outcome train(World, Schedule const& schedule, Rule const& rule, acco::parameter_layout const& layout,
              reference::setting const& s, acco::options options = {}) {
  using P = typename Storage::parameter_type;
  options.clip_norm = s.clip_norm;
  options.learning_rate = s.learning_rate;
  outcome out;
  out.digests.resize(static_cast<std::size_t>(s.ranks));
  std::vector<std::vector<P>> finals(static_cast<std::size_t>(s.ranks));
  std::mutex mutex;
  World::run(s.ranks, [&](auto backend) {
    const int rank = backend.rank();
    acco::optimizer training{schedule, rule, Storage{}, backend, layout, options};
    auto start = problem::converted<P>(problem::initial(layout.size()));
    if (rank != 0) start.assign(start.size(), P(0.0F));  // rank 0's values reach every rank
    training.initialize(start);
    std::vector<acco::round_report> reports;
    for (std::size_t m = 0; m < s.micro_batches[static_cast<std::size_t>(rank)]; ++m) {
      const std::size_t samples = problem::batch_size(rank, m);
      settle<Storage>();
      double loss = 0;
      for (std::size_t j = 0; j < samples; ++j) {
        loss += problem::add_sample(problem::sample_id(rank, m, j), training.parameters(), training.gradients());
      }
      if (auto report = training.accumulated(static_cast<double>(samples), loss)) reports.push_back(*report);
    }
    training.finish();
    const std::uint64_t digest = training.state_digest();
    settle<Storage>();
    const std::lock_guard lock(mutex);
    finals[static_cast<std::size_t>(rank)].assign(training.parameters().begin(), training.parameters().end());
    out.digests[static_cast<std::size_t>(rank)] = digest;
    if (rank == 0) {
      out.samples = training.samples();
      out.steps = training.steps();
      out.reports = reports;
    }
  });
  if constexpr (requires { World::share(finals); }) {
    World::share(finals);
    World::share(out.digests);
    std::vector<double> counts(static_cast<std::size_t>(s.ranks));
    counts[0] = out.samples;
    World::share(counts);
    out.samples = counts[0];
    counts[0] = static_cast<double>(out.steps);
    World::share(counts);
    out.steps = static_cast<std::uint64_t>(counts[0]);
    std::vector<std::vector<acco::round_report>> reports(static_cast<std::size_t>(s.ranks));
    reports[0] = out.reports;
    World::share(reports);
    out.reports = reports[0];
  }
  for (auto const& each : finals) {
    for (std::size_t i = 0; i < each.size(); ++i) {
      out.ranks_agree = out.ranks_agree && static_cast<double>(each[i]) == static_cast<double>(finals[0][i]);
    }
  }
  for (const P p : finals[0]) out.parameters.push_back(static_cast<double>(p));
  return out;
}

/// The largest difference relative to 1 + |reference|.
inline double difference(std::vector<double> const& a, std::vector<double> const& b) {
  double worst = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    worst = d > worst || std::isnan(d) ? (std::isnan(d) ? 1e300 : d) : worst;
  }
  return worst;
}

}  // namespace library
