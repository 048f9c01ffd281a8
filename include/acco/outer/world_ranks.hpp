// SPDX-License-Identifier: Apache-2.0
// Errors of some ranks of a world, told with the world's ranks.
#pragma once

#include <string_view>

#include "acco/error.hpp"
#include "acco/outer/split_backend.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where a rank of the world stands in its two smaller worlds: the worker's, and that of the ranks with which it
/// exchanges.
class world_ranks {
 public:
  split_of_world inner, outer;
  int rank = 0;

  world_ranks(split_of_world of_inner, split_of_world of_outer, int world_rank) noexcept
      : inner(of_inner), outer(of_outer), rank(world_rank) {}

  [[nodiscard]] int worker() const noexcept { return outer.rank_of(rank); }

  /// Runs what communicates within the worker, or between workers.
  template <class Action>
  decltype(auto) of_worker(Action&& action) {
    return named(inner, "within the worker", action);
  }
  template <class Action>
  decltype(auto) of_exchange(Action&& action) {
    return named(outer, "between workers", action);
  }

 private:
  template <class Action>
  decltype(auto) named(split_of_world const& group, char const* level, Action& action) {
    try {
      return action();
    } catch (peer_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (deadline_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (non_finite_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (spike_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (corruption_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (mismatch_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    } catch (usage_error const& e) {
      if (named_) throw;
      raise(e, group, level);
    }
  }
  template <class Error>
  [[noreturn]] void raise(Error const& e, split_of_world const& group, char const* level) {
    named_ = true;  // the other level, which it leaves through, has nothing to add
    const int peer = e.peer() < 0 ? -1 : group.world_rank(group.color_of(rank), e.peer());
    const text advice = peer < 0 ? text("These words number the ranks of the group alone")
                                 : text("These words number the ranks of the group alone: its rank ", e.peer(), " is rank ", peer,
                                        " of the world");
    std::string_view what = e.what();
    if (what.starts_with("acco: ")) what.remove_prefix(6);
    throw Error({rank, e.round(), level}, text(what.substr(0, 700)), advice, peer);
  }

  bool named_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE
