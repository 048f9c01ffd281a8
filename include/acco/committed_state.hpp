// SPDX-License-Identifier: Apache-2.0
// What can be asked of an optimizer: how far it is, what it has committed, and digests of its state.
#pragma once

#include <cstdint>
#include <span>

#include "acco/engine_handle.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_NAMESPACE {

/// Members of any_optimizer.
template <class Parameter, class Gradient>
class committed_state : public engine_handle<Parameter, Gradient> {
  using base = engine_handle<Parameter, Gradient>;

 protected:
  using base::engine;
  using base::engine_;
  using base::gather_as;
  using base::guarded;
  using base::require_average;
  using base::require_room;
  using base::require_running;
  using base::state_;
  using typename base::state;

 public:
  /// Norms of the mean gradient of the round that ended last, before clipping, over all ranks: by group or by tensor of
  /// the layout, as `options::norms` says (empty by default); 0 for frozen ones. Valid until the next report.
  [[nodiscard]] std::span<double const> norms() const { return engine().norms(); }
  /// Weight committed so far, over all ranks; the same on every rank.
  [[nodiscard]] double samples() const { return engine().samples(); }
  /// Updates committed so far.
  [[nodiscard]] std::uint64_t steps() const { return engine().steps(); }
  /// Sums over this rank's rounds, those inside `finish` included.
  [[nodiscard]] round_totals const& totals() const { return engine().totals(); }
  /// This rank's buffers in bytes: known before `initialize`, equal to what it allocates.
  [[nodiscard]] memory_table memory() const { return engine().memory(); }
  [[nodiscard]] parameter_layout const& layout() const { return engine().layout(); }

  /// Writes the weights committed so far, the round in flight included, to `out` (`layout().size()` elements).
  /// Collective; blocks. Works after an error that all ranks have thrown alike, too.
  void gather_committed(std::span<Parameter> out) {
    if (state_ != state::failed || !engine().in_step()) require_running("gather_committed");
    require_room(out, "gather_committed");
    guarded([&] { engine_->gather(out, weights::committed); });
  }

  /// Writes the exponential moving average of the committed weights (`options::average_decay`), or the average by which
  /// `gpa` trains, to `out`. For the rest like `gather_committed`. Throws `usage_error` where no average is kept.
  void gather_average(std::span<Parameter> out) {
    if (state_ != state::failed || !engine().in_step()) require_running("gather_average");
    require_average(weights::average, "gather_average");
    require_room(out, "gather_average");
    guarded([&] { engine_->gather(out, weights::average); });
  }

  /// Writes the committed weights as the optimizer keeps them, in the master's type, or their averages, to `out`
  /// (`layout().size()` elements; frozen ones are the parameters, converted): for evaluation, export, and to begin
  /// again from. For the rest like `gather_committed`.
  void gather_masters(std::span<float> out, weights which = weights::committed) { gather_as(out, which); }
  void gather_masters(std::span<double> out, weights which = weights::committed) { gather_as(out, which); }

  /// Replaces the numbers by their sums over all ranks, e.g. a validation loss. Collective: at the same report on every
  /// rank (under elastic_pace the same micro-batch lies between other rounds). Blocks until the round in flight is
  /// done.
  void sum_over_ranks(std::span<double> numbers) {
    require_running("sum_over_ranks");
    guarded([&] { engine_->sum_over_ranks(numbers); });
  }

  /// 64-bit hash of this rank's masters, slots and averages and of the updates committed; a prediction leaves it
  /// unchanged. Waits for the round in flight.
  [[nodiscard]] std::uint64_t state_digest() {
    require_running("state_digest");
    return guarded([&] { return engine_->state_digest(); });
  }

  /// 64-bit digest of the committed state of all ranks: masters, slots, averages, updates and samples
  /// (stage/world_digest.hpp). The same whatever the number of ranks, and after a restore. Collective: like
  /// `sum_over_ranks`.
  [[nodiscard]] std::uint64_t world_digest() {
    require_running("world_digest");
    return guarded([&] { return engine_->world_digest(); });
  }

 protected:
  committed_state() noexcept = default;
  explicit committed_state(training_engine<Parameter, Gradient>* made) noexcept : base(made) {}
};

}  // namespace ACCO_NAMESPACE
