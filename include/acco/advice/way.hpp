// SPDX-License-Identifier: Apache-2.0
// Ways to train: a schedule, how it travels, what it costs in bytes, loss and memory.
#pragma once

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Bytes a number of a message: gradients to their owners, parameters from them.
struct wire_bytes {
  static constexpr double in_full = -1;  ///< in place of bytes: those of the type
  double gradients = in_full;            ///< 0: none travel (`own_slice`)
  double parameters = in_full;
};

/// What a trainer's numbers take, and how many of them each rank has.
struct training_size {
  double parameters = 0;
  double parameter_bytes = 4, gradient_bytes = 4, master_bytes = 4;
  unsigned slots = 2;  ///< of the rule: two of AdamW, one of SGD and Lion
};

/// A way to train: a schedule and its codes. Where `every` is 1 an exchange brings a step's gradients and parameters;
/// elsewhere ranks train by themselves, and exchange in `fragments` parts, in turn, once in `every` steps each.
struct way {                     // NOLINT(clang-analyzer-optin.performance.Padding): in the order of a way
  char const* name = "";         ///< of the schedule and its codes, in a word
  char const* code = "";         ///< in C++, what the optimizer is given as its schedule, with PACE where its pace goes
  bool in_parts = false;         ///< `two_phase`: commits behind the first part of a step, estimates behind the second
  wire_bytes estimate = {};      ///< of `in_parts` only
  wire_bytes commit = {};        ///< of commits, or of exchanges
  unsigned every = 1;            ///< steps from one exchange of all parameters to the next
  unsigned fragments = 1;        ///< which divide them
  unsigned delay = 0;            ///< steps behind which an exchange travels; 0: ranks wait, or, `in_parts`, a part
  bool keeps_meanwhile = false;  ///< steps made while an exchange travels, where ranks train by themselves (`keeping`)
  unsigned outer_slots = 0;      ///< of the outer rule, where ranks train by themselves
  double loss_percent = 0;       ///< validation loss that it costs, over `synchronous`

  [[nodiscard]] constexpr bool is_local() const noexcept { return every > 1; }
};

/// The ways of which the loss is measured, by rising complication, each at its best learning rate: a GPT of 0.12 M
/// parameters, means over three seeds. Those with codes, and local updates, are the mean of 4 and 8 ranks: of local
/// updates, with H = 8, and of the rotated code in docs/front.md, of the others in docs/performance.md, "What codes
/// cost". All others are of 4 ranks ("The loss of the family" there). What is below `synchronous` is 0 here, less than
/// seeds differ. Another model's losses differ: measure them before you rely on them, and pass ways of your own.
inline constexpr way measured_ways[] = {
    {.name = "synchronous", .code = "synchronous{.pace = PACE}"},
    {.name = "synchronous+int4",
     .code = "synchronous{.commit = block_int4{}, .pace = PACE}",
     .commit = {.gradients = 132 / 256.0, .parameters = 132 / 256.0}},
    {.name = "synchronous+coded",
     .code = "synchronous{.commit = coded<without_feedback<block_gauss4>, block_gauss3>{}, .pace = PACE}",
     .commit = {.gradients = 130 / 256.0, .parameters = 98 / 256.0},
     .loss_percent = 0.42},
    {.name = "synchronous+rotated_gauss3/ternary",
     .code = "synchronous{.commit = coded<without_feedback<rotated<block_gauss3>>, block_ternary>{}, .pace = PACE}",
     .commit = {.gradients = 100 / 256.0, .parameters = 54 / 256.0}},
    {.name = "two_phase", .code = "two_phase{.pace = PACE}", .in_parts = true, .loss_percent = 0.20},
    {.name = "two_phase+int4",
     .code = "two_phase{.estimate = block_int4{}, .pace = PACE}",
     .in_parts = true,
     .estimate = {.gradients = 132 / 256.0, .parameters = 132 / 256.0},
     .loss_percent = 0.11},
    {.name = "two_phase+coded",
     .code = "two_phase{.estimate = block_int4{}, .commit = coded<without_feedback<block_gauss4>, block_gauss3>{}, .pace = PACE}",
     .in_parts = true,
     .estimate = {.gradients = 132 / 256.0, .parameters = 132 / 256.0},
     .commit = {.gradients = 130 / 256.0, .parameters = 98 / 256.0},
     .loss_percent = 0.20},
    {.name = "two_phase+own/gauss3;gauss4/gauss3",
     .code = "two_phase{.estimate = coded<own_slice, block_gauss3>{}, .commit = coded<without_feedback<block_gauss4>, "
             "block_gauss3>{}, .pace = PACE}",
     .in_parts = true,
     .estimate = {.gradients = 0, .parameters = 98 / 256.0},
     .commit = {.gradients = 130 / 256.0, .parameters = 98 / 256.0},
     .loss_percent = 0.38},
    {.name = "two_phase+own/gauss3;gauss4/ternary",
     .code = "two_phase{.estimate = coded<own_slice, block_gauss3>{}, .commit = coded<without_feedback<block_gauss4>, "
             "block_ternary>{}, .pace = PACE}",
     .in_parts = true,
     .estimate = {.gradients = 0, .parameters = 98 / 256.0},
     .commit = {.gradients = 130 / 256.0, .parameters = 54 / 256.0},
     .loss_percent = 0.85},
    {.name = "weight_prediction", .code = "weight_prediction{.pace = PACE}", .delay = 1, .loss_percent = 6.78},
    {.name = "delayed", .code = "delayed{.pace = PACE}", .delay = 1, .loss_percent = 13.60},
    {.name = "local_sgd",
     .code = "local_updates{.method = local_sgd, .inner = synchronous{.pace = PACE}, .steps = 8}",
     .every = 8,
     .loss_percent = 2.63},
    {.name = "local_sgd_late+int4",
     .code = "local_updates{.method = keeping<>{.delay = 1}, .inner = synchronous{.pace = PACE}, .steps = 8, .fragments = 2, "
             ".exchange = block_int4{}}",
     .commit = {.gradients = 132 / 256.0, .parameters = 132 / 256.0},
     .every = 8,
     .fragments = 2,
     .delay = 1,
     .keeps_meanwhile = true,
     .loss_percent = 2.53},
    {.name = "local_sgd_late+stat2",
     .code = "local_updates{.method = keeping<>{.delay = 1}, .inner = synchronous{.pace = PACE}, .steps = 8, .fragments = 2, "
             ".exchange = block_stat2{}}",
     .commit = {.gradients = 68 / 256.0, .parameters = 68 / 256.0},
     .every = 8,
     .fragments = 2,
     .delay = 1,
     .keeps_meanwhile = true,
     .loss_percent = 3.00},
    {.name = "local_sgd+sparse_exchange",
     .code = "local_updates{.method = local_sgd, .inner = synchronous{.pace = PACE}, .steps = 8, .exchange = sparse_exchange}",
     .commit = {.gradients = 114 / 4096.0, .parameters = 226 / 4096.0},
     .every = 8,
     .loss_percent = 5.87},
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
