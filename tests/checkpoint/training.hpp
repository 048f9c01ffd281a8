// SPDX-License-Identifier: Apache-2.0
// Made-up trainings, each from a seed: everything that a checkpoint must keep differs from one to the next. Where a
// rank stands in its data is the trainer's own, so a training that goes on can be compared with one that never stopped.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "support/problem.hpp"

namespace training {

/// All that a report tells that is not a time.
struct told {
  std::size_t round;
  bool committed, skipped, spike;
  std::uint64_t step;
  std::size_t micro_batches;
  std::optional<std::uint64_t> digest;
  std::vector<std::uint64_t> bits;  // of its numbers
  friend bool operator==(told const&, told const&) = default;
};
inline told tell(acco::round_report const& r, std::span<double const> norms) {
  told found{r.round, r.committed, r.skipped, r.spike, r.step, r.micro_batches, r.digest, {}};
  for (const double number : {r.samples, r.weight, r.mean_loss, r.step_weight, r.step_loss, r.gradient_norm, r.clip_scale,
                              r.learning_rate_scale, static_cast<double>(r.first), static_cast<double>(r.second)})
    found.bits.push_back(std::bit_cast<std::uint64_t>(number));
  found.bits.push_back(r.bytes_sent);
  for (const double number : norms) found.bits.push_back(std::bit_cast<std::uint64_t>(number));
  return found;
}

/// What a rank saw.
struct history {
  std::vector<std::pair<std::size_t, told>> reports;              // and the micro-batch, of this rank, at which
  std::vector<std::pair<std::size_t, std::uint64_t>> parameters;  // a hash of all of them, after each micro-batch
  std::vector<std::pair<std::size_t, std::uint64_t>> digests;     // the world's, now and then
  std::uint64_t end = 0, end_parameters = 0;                      // after finish
  std::uint64_t skipped = 0;
};

template <class P>
std::uint64_t hash(std::span<P const> values) {
  std::uint64_t h = 1;
  for (P const& each : values) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &each, sizeof each);
    h = (h ^ bits) * 0x9fb21c651e98df25ULL;
    h ^= h >> 29U;
  }
  return h;
}

struct plan {
  std::size_t micro_batches = 40;             // of each rank
  std::size_t restart_at = 0;                 // micro-batch of the save; 0: none
  std::size_t infinite_at = ~std::size_t{0};  // a gradient of rank 0 there is infinite
  std::string run;                            // where it is saved, and restored from
};

/// Trains a rank from its micro-batch `from` on.
template <class P, class G>
void train(acco::any_optimizer<P, G>& t, int rank, plan const& p, std::size_t from, history& h) {
  std::size_t at = from;  // micro-batch under way: the trainer's position
  for (std::size_t m = from; m < p.micro_batches; ++m) {
    at = m;
    const std::size_t samples = problem::batch_size(rank, m);
    double loss = 0;
    std::vector<double> sum(t.gradients().size(), 0.0);
    for (std::size_t j = 0; j < samples; ++j)
      loss += problem::add_sample(problem::sample_id(rank, m, j), t.parameters(), std::span<double>(sum));
    for (std::size_t i = 0; i < sum.size(); ++i)
      t.gradients()[i] = static_cast<G>(static_cast<double>(t.gradients()[i]) + sum[i]);
    if (m == p.infinite_at && rank == 0) t.gradients()[1] = static_cast<G>(std::numeric_limits<float>::infinity());
    if (p.restart_at != 0 && m + 1 == p.restart_at) t.save(p.run, [&at] { return at; });
    if (auto const report = t.accumulated(static_cast<double>(samples), loss)) {
      h.reports.emplace_back(m, tell(*report, t.norms()));
      if (m % 5 == 0) h.digests.emplace_back(m, t.world_digest());
    }
    h.parameters.emplace_back(m, hash(t.parameters()));
  }
  t.finish(acco::unfinished::commit);
  h.end = t.world_digest();
  h.end_parameters = hash(t.parameters());
  h.skipped = t.totals().skipped;
}

}  // namespace training
