// SPDX-License-Identifier: Apache-2.0
// Whether a rank takes part in a training, and what the others hear when it does not any more.
#pragma once

#include <exception>
#include <string_view>
#include <utility>

#include "acco/collective/backend_in_use.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's. A rank is outside until it joins, takes part from then on, is finished after `finish` as long as it does
/// nothing else, and has failed when it has left for a reason. The trainer's thread calls all members.
class membership {
 public:
  /// `ranks`, which must outlive it, becomes a channel of its own when the rank joins.
  explicit membership(ranks_in_use& ranks) noexcept : ranks_(ranks) {}
  membership(membership const&) = delete;
  membership& operator=(membership const&) = delete;

  void join() {
    if (state_ != state::outside) return;
    together([&] { ranks_.duplicate(); });
    state_ = state::taking_part;
  }
  void take_part() noexcept { state_ = state_ == state::finished ? state::taking_part : state_; }
  void finish() noexcept { state_ = state::finished; }
  [[nodiscard]] bool finished() const noexcept { return state_ == state::finished; }

  /// Tells the others, at once, that this rank will not go on, and why. What all ranks have found together needs no
  /// telling.
  void leave(std::string_view reason) noexcept {
    if (ranks_.traits.tells_departures) {
      try {
        if (state_ != state::failed && !found_together_) {
          if (!ranks_.traits.duplicates_together) join();  // the channel at which the others may wait
          ranks_.abort(reason);
        }
      } catch (...) {  // nothing more can be done for the others
      }
    }
    state_ = state::failed;
  }
  /// The optimizer is destroyed: after `finish` the rank leaves in peace, else for that reason.
  void end(bool in_flight) noexcept {
    const bool unwinding = std::uncaught_exceptions() > uncaught_;
    if (state_ == state::finished) {
      ranks_.close();
    } else if (state_ == state::taking_part || (state_ == state::outside && unwinding)) {
      leave(
          text("it destroyed its optimizer ",
               unwinding ? "because an exception left its training loop" : "without finish(), which every rank calls at the end",
               in_flight ? ", with a round in flight" : "")
              .view());
    }
  }

  /// Runs `action`. An error that is not a peer's, a deadline's or a device's is raised by every rank at the same
  /// point: the ranks stay in step and need not be told.
  template <class Action>
  void together(Action&& action) {
    try {
      action();
    } catch (peer_error const&) {
      throw;
    } catch (deadline_error const&) {
      throw;
    } catch (device_error const&) {
      throw;
    } catch (error const&) {
      found_together_ = true;
      throw;
    }
  }
  /// Whether the error that ended the training was such a one: then the ranks are still in step.
  [[nodiscard]] bool in_step() const noexcept { return found_together_; }

 private:
  enum class state { outside, taking_part, finished, failed };

  ranks_in_use& ranks_;
  state state_ = state::outside;
  bool found_together_ = false;
  int uncaught_ = std::uncaught_exceptions();
};

}  // namespace ACCO_SIMD_NAMESPACE
