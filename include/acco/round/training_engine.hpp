// SPDX-License-Identifier: Apache-2.0
// The interface between the trainer's side (any_optimizer.hpp) and the engine (engine.hpp): where the types of schedule, rule,
// storage and backend end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"

namespace ACCO_NAMESPACE {

/// What `finish` does with a step of which no rank has all micro-batches: its second part is missing, or some of a part.
enum class unfinished {
  drop,   ///< leaves it out: as many updates as steps were completed, in every schedule; `totals().dropped` tells its weight
  commit  ///< makes an update of what there is, at the full learning rate
};

/// The part of a tensor in parameters and gradients.
template <class Parameter, class Gradient>
struct tensor_spans {
  std::span<Parameter const> parameters;
  std::span<Gradient> gradients;
};

/// Whose memory a stretch that is to be adopted overlaps.
enum class memory_shared_with { nobody, itself, another };

/// One rank's engine. Every member has the meaning that the member of `any_optimizer` of the same name has; the order of calls
/// and the sizes of spans have been checked.
template <class Parameter, class Gradient>
class training_engine {
 public:
  training_engine() = default;
  training_engine(training_engine const&) = delete;
  training_engine& operator=(training_engine const&) = delete;
  virtual ~training_engine() = default;

  virtual void initialize(std::span<Parameter const> values) = 0;
  /// Before `adopt`, for each stretch of it: where the answer is not `nobody`, or this throws, nothing is claimed any more.
  [[nodiscard]] virtual memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) = 0;
  virtual void adopt(std::span<Parameter> parameters, std::span<Gradient> gradients) = 0;
  virtual void adopt(std::span<tensor_memory<Parameter, Gradient> const> tensors) = 0;
  virtual void set_parameters(std::span<Parameter const> values) = 0;
  /// Whether nothing has been accumulated since `initialize` or `finish`.
  [[nodiscard]] virtual bool at_rest() const noexcept = 0;
  [[nodiscard]] virtual std::span<Parameter const> parameters() const noexcept = 0;
  [[nodiscard]] virtual std::span<Gradient> gradients() const noexcept = 0;
  [[nodiscard]] virtual tensor_spans<Parameter, Gradient> tensor(std::size_t index) const noexcept = 0;
  virtual std::optional<round_report> accumulated(double weight, double loss_sum) = 0;
  virtual void finish(unfinished rest) = 0;
  virtual void gather_committed(std::span<Parameter> out) = 0;
  virtual void gather_average(std::span<Parameter> out) = 0;
  virtual void sum_over_ranks(std::span<double> numbers) = 0;
  virtual void poll() = 0;
  [[nodiscard]] virtual double loss_scale() const noexcept = 0;
  [[nodiscard]] virtual std::span<double const> norms() const noexcept = 0;
  [[nodiscard]] virtual double samples() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t steps() const noexcept = 0;
  [[nodiscard]] virtual round_totals const& totals() const noexcept = 0;
  [[nodiscard]] virtual memory_table memory() const noexcept = 0;
  [[nodiscard]] virtual parameter_layout const& layout() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t state_digest() = 0;
  /// Tells the other ranks, at once, that this one ends, and why. Once.
  virtual void leave(std::string_view reason) noexcept = 0;
  /// Whether the error that ended the training was thrown by every rank alike: then `gather_committed` still works.
  [[nodiscard]] virtual bool in_step() const noexcept = 0;
  /// Rank and round, for errors.
  [[nodiscard]] virtual error_place place() const noexcept = 0;
};

}  // namespace ACCO_NAMESPACE
