// SPDX-License-Identifier: Apache-2.0
// The errors of ranks that live in one process and cannot meet: threads and the mock say the same.
#pragma once

#include <cstddef>
#include <string_view>

#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE::impossible {

/// What ranks must call alike.
struct call {
  collective operation;
  std::size_t count, element;
  int root;
  friend constexpr bool operator==(call const&, call const&) = default;
};

[[noreturn]] inline void throw_mismatch(error_place const& where, call const& mine, int peer, call const& other) {
  throw mismatch_error(
      where,
      text("this rank calls ", name_of(mine.operation), " of ", mine.count, " elements of ", mine.element, " bytes, rank ", peer,
           " calls ", name_of(other.operation), " of ", other.count, " elements of ", other.element, " bytes"),
      text("Every rank must make the same calls in the same order, one at a time"), peer);
}

/// The peer has left (`how`: "has returned"); fail(reason) tells whoever comes later.
template <class Fail>
[[noreturn]] void throw_departed(error_place const& where, collective operation, int peer, char const* how, Fail&& fail) {
  fail(text("it ", how, " and did not come to ", name_of(operation)));
  throw peer_error(where, text("rank ", peer, " ", how, " and will not come to this ", name_of(operation)),
                   text("Let every rank process the same rounds, or call finish() on the ranks that have no more data"), peer);
}

/// A rank has failed before.
[[noreturn]] inline void throw_failed(error_place const& where, collective operation, int failed, std::string_view reason) {
  if (failed == where.rank) {
    throw peer_error(where, text(name_of(operation), " is impossible because this rank has left or came too late: ", reason),
                     text("Look at what kept it, or at its own first error"), failed);
  }
  throw peer_error(where, text(name_of(operation), " is impossible because rank ", failed, " failed: ", reason),
                   text("Look at rank ", failed, "'s own error first"), failed);
}

}  // namespace ACCO_SIMD_NAMESPACE::impossible
