// SPDX-License-Identifier: Apache-2.0
// Where a level around the engine comes in: after a round has landed, before the next one starts.
#pragma once

#include "acco/observe/round_report.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Told by an engine, on the trainer's thread, on every rank, after the same rounds. Nothing is in flight then: the masters may
/// be replaced, and the report changed. What it throws ends the training.
class between_rounds {
 public:
  virtual void landed(round_report& report) = 0;

 protected:
  between_rounds() = default;
  between_rounds(between_rounds const&) = default;
  between_rounds& operator=(between_rounds const&) = default;
  ~between_rounds() = default;
};

}  // namespace ACCO_NAMESPACE
