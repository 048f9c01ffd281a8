// SPDX-License-Identifier: Apache-2.0
// Where a level around the engine comes in: before a round starts, and after it has landed.
#pragma once

#include "acco/observe/round_report.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Told by an engine, on the trainer's thread, on every rank, of the same rounds. Nothing is in flight then: the masters may be
/// replaced. What it throws ends the training.
class between_rounds {
 public:
  /// A round is about to carry what has been accumulated, to which may still be added. `begins_step`: it is the first of a step.
  virtual void starting([[maybe_unused]] bool begins_step) {}
  /// A round has landed; the report may be changed.
  virtual void landed(round_report& report) = 0;

 protected:
  between_rounds() = default;
  between_rounds(between_rounds const&) = default;
  between_rounds& operator=(between_rounds const&) = default;
  ~between_rounds() = default;
};

}  // namespace ACCO_NAMESPACE
