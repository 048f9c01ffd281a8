// SPDX-License-Identifier: Apache-2.0
// The byte table of one rank: known before anything is allocated, and equal to what is then allocated.
#pragma once

#include <array>
#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Bytes that this rank's buffers take from the storage's memory resource, alignment included, and the network
/// backend's own. For Phi parameters of p bytes, gradients of g bytes, masters of m bytes, sums of s bytes, k slots and
/// N ranks: p Phi + g Phi +
/// for the round in flight p Phi where p = g, p Phi + g Phi elsewhere; under `synchronous` nothing where p <= g, p Phi
/// elsewhere; where habits are checked, p Phi + g Phi more, twice that where spans move;
/// with `stable_addresses` (not under `synchronous`), frozen tensors or a rule for matrices max(p, g) of the trainable
/// ones; where estimates are kept (coded, or from own gradients), always p Phi + g Phi, unless `options::in_place`;
/// + (k + 1) m Phi / N + s Phi / N, + m Phi / N for averages; where rounds travel encoded, + the encoded bytes of Phi
/// gradients, and once more of gradients or parameters, whichever are more; with a feedback, + g Phi, in
/// another store 2 Phi (bfloat16), 4 Phi (float) or 65/64 Phi (int8_blocks), and m Phi / N under `ef21`; with
/// `power_sgd` of thin matrices of E numbers, vectors included, + 4 s E at most, and m Phi / N; once `save` has been
/// called, + (k + 1) m Phi / N + 2 p Phi / N, m Phi / N where averages are kept, and what a feedback has,
/// of int8_blocks 129/64 Phi. Local updates: docs/local_updates.md. Bookkeeping is not counted: a few KiB, some 3 KiB
/// for every bucket, and 32 bytes (on a GPU 16 there, and 32 here) for every block, at most 4096 elements of one group
/// in the slice; 8 more where norms are wanted of groups or tensors.
struct memory_table {
  std::size_t parameters = 0;  ///< parameters in use, whole
  std::size_t gradients = 0;   ///< gradients being accumulated, whole
  std::size_t in_flight = 0;   ///< what a round in flight owns, whole
  std::size_t masters = 0;     ///< master parameters, this rank's slice
  std::size_t slots = 0;       ///< the rule's state, this rank's slice
  std::size_t averages = 0;    ///< `options::average_decay`: averages of the masters, this rank's slice
  std::size_t scratch = 0;     ///< for a rule that updates matrices: room for
                               ///< this rank's largest, and what its update needs
  std::size_t reduced = 0;     ///< reduced gradients, this rank's slice; under
                               ///< `two_phase` the kept first half lives here
  std::size_t encoded = 0;     ///< encoded gradients and parameters, whole: what
                               ///< leaves and what arrives; what a feedback keeps
  std::size_t messages = 0;    ///< what the backend itself allocated, when it was made, for arriving messages
  std::size_t outer = 0;       ///< under local updates: anchor, changes, outer
                               ///< state, and all else of the level between workers
  std::size_t staging = 0;     ///< in host memory, once `save` has been called: a copy of this rank's part of the state
  std::size_t gathering = 0;   ///< not in the total: what `gather_committed`, and of `gpa` `gather_average`, takes for
                               ///< as long as it runs

  struct row {
    char const* name;
    std::size_t bytes;
  };
  [[nodiscard]] constexpr std::array<row, 12> rows() const noexcept {
    return {{{"parameters in use", parameters},
             {"gradients accumulating", gradients},
             {"round in flight", in_flight},
             {"master parameters", masters},
             {"optimizer slots", slots},
             {"averaged parameters", averages},
             {"room for a matrix", scratch},
             {"reduced gradients", reduced},
             {"encoded numbers", encoded},
             {"arriving messages", messages},
             {"outer level", outer},
             {"copy to be saved", staging}}};
  }
  [[nodiscard]] constexpr std::size_t total() const noexcept {
    return parameters + gradients + in_flight + masters + slots + averages + scratch + reduced + encoded + messages + outer +
           staging;
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
