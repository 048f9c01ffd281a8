// SPDX-License-Identifier: Apache-2.0
// What a queue of the host asks a task, and what it answers.
#pragma once

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A task's answer.
enum class progress {
  done,
  pending,   ///< transfers are under way: ask again later
  advanced,  ///< transfers are under way, and some have ended since the last question: ask again sooner
  begun,     ///< all its transfers are under way: a task `beside` it may begin; ask again later
  ended,     ///< done, and no task, in either lane, is to run before the next `wait` has returned
};

/// How long a task may wait before it answers.
enum class patience {
  rest,    ///< as long as it takes
  glance,  ///< some milliseconds at most, and no longer than until something has ended: others are to begin beside it
  none,    ///< not at all: it only begins
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
