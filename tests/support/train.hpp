// SPDX-License-Identifier: Apache-2.0
// Trains the library on support/problem.hpp exactly as the reference does, and hands back what rank 0 sees.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <acco/acco.hpp>
#include <acco/function_view.hpp>

#include "support/problem.hpp"
#include "support/reference.hpp"
#include "support/worlds.hpp"

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

/// What one rank ends with.
template <class P>
struct finding {
  std::vector<P> parameters;
  double samples = 0;
  std::uint64_t steps = 0, digest = 0;
  std::vector<acco::round_report> reports;
};

/// Trains one rank, whatever its optimizer was made of: compiled once for each pair of element types.
template <class P, class G>
finding<P> train_rank(acco::any_optimizer<P, G> training, int rank, reference::setting const& s, void (*settle)()) {
  finding<P> found;
  auto start = problem::converted<P>(problem::initial(training.layout().size()));
  if (rank != 0) start.assign(start.size(), P(0.0F));  // rank 0's values reach every rank
  training.initialize(start);
  for (std::size_t m = 0; m < s.micro_batches[static_cast<std::size_t>(rank)]; ++m) {
    const std::size_t samples = problem::batch_size(rank, m);
    settle();
    double loss = 0;
    for (std::size_t j = 0; j < samples; ++j) {
      loss += problem::add_sample(problem::sample_id(rank, m, j), training.parameters(), training.gradients());
    }
    if (auto report = training.accumulated(static_cast<double>(samples), loss)) found.reports.push_back(*report);
  }
  training.finish(acco::unfinished::commit);
  found.digest = training.state_digest();
  settle();
  found.parameters.assign(training.parameters().begin(), training.parameters().end());
  found.samples = training.samples();
  found.steps = training.steps();
  return found;
}

/// Tells every process of the world what the others found, where ranks are processes.
template <class World, class P>
void share(std::vector<finding<P>>& all) {
  if constexpr (requires { World::share(all[0].reports); }) {
    const auto each = [&](auto member) {
      std::vector<std::remove_cvref_t<decltype(all[0].*member)>> values;
      for (auto& one : all) values.push_back(one.*member);
      World::share(values);
      for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank].*member = values[rank];
    };
    each(&finding<P>::parameters);
    each(&finding<P>::samples);
    each(&finding<P>::steps);
    each(&finding<P>::digest);
    each(&finding<P>::reports);
  }
}

template <class P>
outcome together(std::vector<finding<P>> const& all) {
  outcome out{.parameters = {}, .samples = all[0].samples, .steps = all[0].steps, .reports = all[0].reports, .digests = {}};
  for (auto const& each : all) {
    out.digests.push_back(each.digest);
    for (std::size_t i = 0; i < each.parameters.size(); ++i)
      out.ranks_agree = out.ranks_agree && static_cast<double>(each.parameters[i]) == static_cast<double>(all[0].parameters[i]);
  }
  for (const P p : all[0].parameters) out.parameters.push_back(static_cast<double>(p));
  return out;
}

/// Runs a function on every rank of a world: one instantiation for all functions.
template <class World>
void run(int ranks, acco::function_view<void(typename World::backend const&)> on_rank) {
  World::run(ranks, on_rank);
}

/// `Storage` decides the types; the world runs the ranks.
template <class Storage, class World, class Schedule, class Rule>
outcome train(World, Schedule const& schedule, Rule const& rule, acco::parameter_layout const& layout,
              reference::setting const& s, acco::options options = {}) {
  using P = typename Storage::parameter_type;
  options.clip_norm = s.clip_norm;
  options.learning_rate = s.learning_rate;
  std::vector<finding<P>> all(static_cast<std::size_t>(s.ranks));
  run<World>(s.ranks, [&](typename World::backend const& backend) {  // every rank writes its own element
    all[static_cast<std::size_t>(backend.rank())] = train_rank<P, typename Storage::gradient_type>(
        acco::optimizer{schedule, rule, Storage{}, backend, layout, options}, backend.rank(), s, settle<Storage>);
  });
  share<World>(all);
  return together(all);
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
