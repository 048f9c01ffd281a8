// SPDX-License-Identifier: Apache-2.0
// The two lanes of a queue.
#pragma once

#include <cstdint>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The tasks of a round stand in two lanes, each in order: messages, and what is computed from them. On a host a lane
/// is a thread, on a GPU a stream.
enum class lane : std::uint8_t {
  network,  ///< collectives, and the few numbers that they wait for
  update,   ///< whatever passes over a slice: squares, the update, encoding and decoding
};

/// All tasks of a lane up to here.
struct queue_mark {
  lane where = lane::network;
  std::uint64_t tasks = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
