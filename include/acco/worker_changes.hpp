// SPDX-License-Identifier: Apache-2.0
// Workers of local updates that come and go, as a trainer sees it.
#pragma once

#include <exception>

#include "acco/committed_state.hpp"
#include "acco/error.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_NAMESPACE {

/// Members of any_optimizer.
template <class Parameter, class Gradient>
class worker_changes : public committed_state<Parameter, Gradient> {
  using base = committed_state<Parameter, Gradient>;

 protected:
  using base::changing;
  using base::engine_;
  using base::fail_use;
  using base::failure_;
  using base::guarded;
  using base::require_rest;
  using base::state_;
  using typename base::state;

 public:
  // Workers of local updates come and go (docs/local_updates.md), after `finish` and before the next micro-batch:
  // `depart` on those that leave, `regroup` on those that stay, `join`, instead of `initialize`, on those that come.

  /// This optimizer goes on in `world`, of its backend's type: a handle on a world of those that stay and those that
  /// join. Anchor, outer state and averages are sharded over its workers; this worker's masters, slots and parameters
  /// stay. `samples()` and `steps()` go on, and so does the learning rate. A worker of several ranks stays as a
  /// whole: neighbours in the same order, from a multiple of `ranks_a_group` on. Collective over the optimizer's world
  /// so far, then over `world`; blocks; allocates, for as long as it lasts, the anchor and its slots whole. Throws
  /// `usage_error` where a step is under way, after which the training goes on; `usage_error` where worlds do not fit,
  /// `mismatch_error`, `peer_error`, `deadline_error`, which end it, and are told to both worlds.
  ///
  /// Behind a `peer_error` or a `deadline_error`, where a worker is one rank: others are lost, and `world` is one of
  /// those that are left, which all call this; collective over `world` alone. The anchor is that of who has landed most
  /// exchanges, the outer rule begins anew, and what this worker has done since stays where workers wait or keep it
  /// (docs/local_updates.md). May be called again where it throws these. `parameters()` may have changed.
  template <class Backend>
  void regroup(Backend const& world) {
    changing_workers* const found = base::engine().changing();
    const bool after_loss = state_ == state::failed && found != nullptr && found->survives() && has_lost();
    if (!after_loss) require_rest("regroup");
    if (found == nullptr || found->world_type() != type_mark::of<Backend>()) {
      fail_use(text("regroup got a world of another type than the optimizer was made over, or it makes no local updates"),
               "Give it a backend of the same type, and include acco/outer.hpp");
    }
    guarded([&] { after_loss ? found->survive(&world) : found->regroup(&world); });
    state_ = state::running;
    failure_ = nullptr;
  }
  /// This worker leaves, and is released: what it has trained is in the anchor, and the others go on without it.
  /// `parameters()` stay; other members throw `usage_error` from then on. Collective, with the others' `regroup`, over
  /// the world so far; blocks. Throws what `regroup` throws.
  void depart() {
    require_rest("depart");
    changing_workers& found = changing("depart");
    guarded([&] { found.depart(); });
    failure_ = std::make_exception_ptr(usage_error(engine_->place(), text("this worker has departed from its training"),
                                                   text("To come back, construct an optimizer over a new world, and join")));
    state_ = state::failed;
  }
  /// Instead of `initialize`: this optimizer, made over the new world, comes to those that `regroup`. Its parameters
  /// and masters are the anchor, the rule's slots are fresh; `samples()`, `steps()` and the learning rate are where the
  /// others are. Collective over the new world; blocks. Throws `usage_error` where nobody regroups, and what
  /// `initialize` throws.
  void join() {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("join was called after initialize"), "Call it instead of initialize, once");
    changing_workers& found = changing("join");
    guarded([&] { found.join(); });
    state_ = state::running;
  }

 protected:
  /// Whether what has ended the training is that others are lost.
  [[nodiscard]] bool has_lost() const noexcept {
    try {
      if (failure_) std::rethrow_exception(failure_);
    } catch (peer_error const&) {
      return true;
    } catch (deadline_error const&) {
      return true;
    } catch (...) {  // this rank's own
    }
    return false;
  }
  worker_changes() noexcept = default;
  explicit worker_changes(training_engine<Parameter, Gradient>* made) noexcept : base(made) {}
};

}  // namespace ACCO_NAMESPACE
