// SPDX-License-Identifier: Apache-2.0
// What the files of the library share: handles, and one function for each part that is compiled by itself.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <acco/any_optimizer.hpp>
#include <acco/layout/parameter_layout.hpp>
#include <acco/options.hpp>

#include "acco.h"

namespace acco_c {

class carrier;

/// The optimizer of a schedule that has been checked, over any carrier. In engine.hpp; compiled one rule a file
/// (engine.cpp.in).
template <class Rule>
acco::any_optimizer<float> make(acco_rule const& rule, acco_schedule const& schedule, std::shared_ptr<carrier> const& over,
                                acco::parameter_layout const& layout, acco::options const& options);

// Worlds, one backend a file; those of MPI and Gloo only where the library is compiled with ACCO_C_MPI, ACCO_C_GLOO.
std::shared_ptr<carrier> make_solo();
acco_status run_threads(int ranks, acco_rank_function function, void* user);
void initialize_mpi();
void finalize_mpi(acco_status outcome);
std::shared_ptr<carrier> make_mpi(int const* fortran_communicator, acco_mpi_options const& options);
std::shared_ptr<carrier> make_gloo(acco_gloo_options const& options);

/// What a call that failed has said, by thread.
struct failure {
  acco_status status = ACCO_OK;
  int rank = -1, peer = -1;
  std::int64_t round = -1;
  std::uint64_t number = 0;  // of the calls that have failed in the thread so far
  char words[1280] = "";

  void say(std::string_view what) noexcept;
};
failure& last_failure() noexcept;
/// Turns the exception that is being handled into this thread's last failure.
acco_status record() noexcept;

/// Ends a call with a status that a callback has returned: that of a call of acco's that failed inside it, whose words
/// stay, or one of its own.
struct callback_failed : std::exception {
  acco_status status;
  bool has_words;
  char const* callback;
  callback_failed(acco_status its, std::uint64_t failures_before, char const* name) noexcept
      : status(its), has_words(last_failure().status == its && last_failure().number != failures_before), callback(name) {}
  [[nodiscard]] char const* what() const noexcept override { return "a callback failed"; }
};

}  // namespace acco_c

struct acco_world {
  std::shared_ptr<acco_c::carrier> carries;
  bool borrowed = false;  // of acco_run_threads
};
struct acco_layout {
  acco::parameter_layout layout;
  std::deque<std::string> names;  // which end with a 0
};
struct acco_optimizer {
  acco::any_optimizer<float> training;
  bool lies_apart = false;  // adopted tensor by tensor
};
