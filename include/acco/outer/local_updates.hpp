// SPDX-License-Identifier: Apache-2.0
// Local updates: workers train by themselves for some steps, then exchange. One recurrence, of which Local SGD, FedAvg, SlowMo,
// DiLoCo, its delayed and eager forms, CO2 and Overlap-Local-SGD are settings.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/outer_engine.hpp"
#include "acco/outer/outer_rules.hpp"
#include "acco/rule/check.hpp"
#include "acco/rule/sgd.hpp"
#include "acco/schedule/decorated_rule.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/schedule/synchronous.hpp"
#include "acco/type_list.hpp"

namespace ACCO_NAMESPACE {

/// Stands where a schedule stands: `acco::optimizer{acco::local_updates{.steps = 30}, rule, storage, world, layout}`.
///
/// The world is cut into workers of `ranks_a_group` neighbouring ranks. A worker m trains by `inner` and the optimizer's rule, as
/// if it were the world, on data of its own; its rule's slots stay its own. After `steps` of its commits, with the anchor x that
/// all workers have, its change is D_m = x - w_m, and with the mean D over workers (`weights`)
///
///   x <- Outer(x, D)      by `rule`: an update rule for which D is the gradient
///   w_m <- a w_m + (1 - a) x      a = `keep_local`
///
/// With a `delay` the mean is under way during so many of the next steps, or all of them (`whole_round`), and `work` says what
/// becomes of these. Then the changes that come in were measured a round ago, and much less outer momentum is stable than without
/// a delay: in a direction in which a round of local steps removes the share b of the error, sgd{.learning_rate = 0.7, .momentum
/// = 0.9, .nesterov = true} diverges for b > 0.36 under `restart` and a whole round; without a delay it is stable up to 1.93.
/// Where local steps solve a direction, b is 1. Outer momentum of 0.5 at a rate of 0.4 is stable up to 1.40.
/// docs/local_updates.md has the table, and the equations with an overlapped `inner`.
///
/// With an encoded `exchange` (`block_int4{}`: 1/H byte a parameter and step) the loop is closed on both sides. The anchor x^
/// that workers hold and measure changes against is the owner's x up to what its last difference has lost, and the next
/// difference is x - x^. What is lost of a worker's change it keeps, and adds to its next change. So all that encodings lose
/// arrives, one exchange later; `gather_committed`, and `parameters()` after `finish`, are x itself.
///
/// Anchor and outer state are cut over all ranks that hold the same slice. `samples`, `steps` and a report's are of what the
/// anchor holds; a report's losses and norms are the worker's; `parameters()` are the worker's, and the anchor's in every bit on
/// every rank after `finish`, and at reports that are `committed`. `finish` exchanges whatever has been done. `gather_committed`
/// gives the anchor, the exchange under way included; averages (`options::average_decay`) are the anchor's, over exchanges.
template <class Inner = synchronous<>, class Rule = averaging, wire Exchange = full>
struct local_updates {
  Inner inner = {};       ///< any schedule, within a worker
  int ranks_a_group = 1;  ///< ranks of a worker, which lie next to each other; 1: every rank trains alone
  unsigned steps = 8;     ///< a worker's commits from one exchange to the next
  Rule rule = {};         ///< the outer rule: averaging, sgd (heavy ball, Nesterov), clipped_momentum, any other
  unsigned delay = 0;     ///< steps during which an exchange is under way: 0, the worker waits; at most `steps`
  meanwhile work = meanwhile::keep;
  double keep_local = 0;  ///< share of the worker's own masters that it keeps; 1: it is never changed by the anchor
  worker_weights weights = worker_weights::equal;
  unsigned fragments =
      1;  ///< parts of the anchor that are exchanged in turn, every `steps` / `fragments` steps; they divide `steps`
  bool by_gap = false;     ///< D counts by 1 / (1 + |x - x of its start| / |D|): the staleness gap, as docs/local_updates.md says
  Exchange exchange = {};  ///< how changes and anchors travel: `full`, an encoding for both, or `coded`

  static constexpr char const* name = "local_updates";
  [[nodiscard]] constexpr local_updates recurrence() const { return *this; }
};

/// x <- mean of w (McDonald et al. 2010; Stich, arXiv 1805.09767).
template <class Inner = synchronous<>, wire Exchange = full>
struct local_sgd {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 8;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "local_sgd";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, averaging, Exchange>{
        .inner = inner, .ranks_a_group = ranks_a_group, .steps = steps, .exchange = exchange};
  }
};

/// The same, workers by their samples (McMahan et al., arXiv 1602.05629, Algorithm 1, with all clients in every round).
template <class Inner = synchronous<>, wire Exchange = full>
struct fedavg {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 8;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "fedavg";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, averaging, Exchange>{
        .inner = inner, .ranks_a_group = ranks_a_group, .steps = steps, .weights = worker_weights::samples, .exchange = exchange};
  }
};

/// u <- momentum u + D;  x <- x - lr u (Wang et al., arXiv 1910.00643). There D is divided by the inner learning rate and the
/// step multiplied by it: the same while that rate is constant.
template <class Inner = synchronous<>, wire Exchange = full>
struct slowmo {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 48;
  double learning_rate = 1;
  double momentum = 0.5;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "slowmo";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, sgd, Exchange>{.inner = inner,
                                               .ranks_a_group = ranks_a_group,
                                               .steps = steps,
                                               .rule = {.learning_rate = learning_rate, .momentum = momentum},
                                               .exchange = exchange};
  }
};

/// u <- momentum u + D;  x <- x - lr (D + momentum u) (Douillard et al., arXiv 2311.08105).
template <class Inner = synchronous<>, wire Exchange = full>
struct diloco {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 500;
  double learning_rate = 0.7;
  double momentum = 0.9;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "diloco";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, sgd, Exchange>{.inner = inner,
                                               .ranks_a_group = ranks_a_group,
                                               .steps = steps,
                                               .rule = {.learning_rate = learning_rate, .momentum = momentum, .nesterov = true},
                                               .exchange = exchange};
  }
};

/// The same, each exchange under way for a whole round ("naive" in arXiv 2502.12996), or, `keep`, with the work meanwhile kept on
/// top, and for as many steps as `delay` says. Its momentum is not DiLoCo's, which is not stable with a delay.
template <class Inner = synchronous<>, wire Exchange = full>
struct delayed_diloco {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 500;
  unsigned delay = whole_round;
  meanwhile work = meanwhile::restart;
  double learning_rate = 0.4;
  double momentum = 0.5;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "delayed_diloco";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, sgd, Exchange>{.inner = inner,
                                               .ranks_a_group = ranks_a_group,
                                               .steps = steps,
                                               .rule = {.learning_rate = learning_rate, .momentum = momentum, .nesterov = true},
                                               .delay = delay,
                                               .work = work,
                                               .exchange = exchange};
  }
};

/// The same, each worker ahead by its own share of what is under way (arXiv 2502.12996). There that share goes through the outer
/// momentum, on every worker another; here through the position only, so that the anchor is one and can be sharded.
template <class Inner = synchronous<>, wire Exchange = full>
struct eager_diloco {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 30;
  double learning_rate = 0.4;
  double momentum = 0.5;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "eager_diloco";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, sgd, Exchange>{.inner = inner,
                                               .ranks_a_group = ranks_a_group,
                                               .steps = steps,
                                               .rule = {.learning_rate = learning_rate, .momentum = momentum, .nesterov = true},
                                               .delay = whole_round,
                                               .work = meanwhile::eager,
                                               .exchange = exchange};
  }
};

/// diloco in fragments, one every `steps` / `fragments` steps, each under way for a few more (Douillard et al., arXiv
/// 2501.18512). What a worker did meanwhile counts by `keep_local`; 0 throws it away. There fragments are groups of layers, here
/// equal parts of each rank's slice, in the order of the layout.
template <class Inner = synchronous<>, wire Exchange = full>
struct streaming_diloco {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 30;
  unsigned fragments = 3;
  unsigned delay = 1;
  double keep_local = 0.5;
  double learning_rate = 0.4;
  double momentum = 0.9;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "streaming_diloco";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, sgd, Exchange>{.inner = inner,
                                               .ranks_a_group = ranks_a_group,
                                               .steps = steps,
                                               .rule = {.learning_rate = learning_rate, .momentum = momentum, .nesterov = true},
                                               .delay = delay,
                                               .work = meanwhile::restart,
                                               .keep_local = keep_local,
                                               .fragments = fragments,
                                               .exchange = exchange};
  }
};

/// m <- clip(momentum m + D / gap, -limit, limit);  x <- x - lr m, a whole round late (Sun et al., arXiv 2401.16265). The gap is
/// 1 + |x - x of the start| / |D|, over all parameters: the paper's formula could not be had.
template <class Inner = synchronous<>, wire Exchange = full>
struct co2 {
  Inner inner = {};
  unsigned steps = 48;
  double learning_rate = 0.7;
  double momentum = 0.2;
  double limit = 1;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "co2";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, clipped_momentum, Exchange>{
        .inner = inner,
        .steps = steps,
        .rule = {.learning_rate = learning_rate, .momentum = momentum, .limit = limit},
        .delay = whole_round,
        .work = meanwhile::restart,
        .by_gap = true,
        .exchange = exchange};
  }
};

/// w <- w - pull (w - x), where x is the mean of w a round ago (Wang et al., arXiv 2002.09539, without the anchor's momentum).
template <class Inner = synchronous<>, wire Exchange = full>
struct overlap_local_sgd {
  Inner inner = {};
  int ranks_a_group = 1;
  unsigned steps = 2;
  double pull = 0.6;
  Exchange exchange = {};  ///< as `local_updates::exchange`

  static constexpr char const* name = "overlap_local_sgd";
  [[nodiscard]] constexpr auto recurrence() const {
    return local_updates<Inner, averaging, Exchange>{.inner = inner,
                                                     .ranks_a_group = ranks_a_group,
                                                     .steps = steps,
                                                     .delay = whole_round,
                                                     .work = meanwhile::pull,
                                                     .keep_local = 1 - pull,
                                                     .exchange = exchange};
  }
};

/// The methods by name, for `with_schedule` (schedule/named.hpp), whose exchanges travel in this way.
template <wire Exchange = full, class Inner = synchronous<>>
using local_methods = type_list<local_sgd<Inner, Exchange>, fedavg<Inner, Exchange>, slowmo<Inner, Exchange>,
                                diloco<Inner, Exchange>, delayed_diloco<Inner, Exchange>, eager_diloco<Inner, Exchange>,
                                streaming_diloco<Inner, Exchange>, co2<Inner, Exchange>, overlap_local_sgd<Inner, Exchange>>;

/// What is a setting of the recurrence: `recurrence()` gives a `local_updates`.
template <class Method>
concept local_method = requires(Method const& method) {
  method.inner;
  method.recurrence().rule;
  { method.recurrence().steps } -> std::convertible_to<unsigned>;
};

template <local_method Method>
struct level_around<Method> {
  static constexpr bool is_one = true;
  using inner = decltype(Method::inner);
  static_assert(check_update_rule<decltype(std::declval<Method const&>().recurrence().rule)>());

  template <class OuterRule>
  [[nodiscard]] static double rate_of([[maybe_unused]] OuterRule const& rule) noexcept {
    if constexpr (requires { rule.learning_rate; }) {
      return rule.learning_rate;
    } else {
      return 1;
    }
  }
  /// `Flags`: `made_here` of the file that makes it.
  template <class Flags, class Rule, class Storage, class Backend>
  static auto* make(Method const& method, Rule rule, Storage storage, Backend backend, parameter_layout layout, options chosen) {
    auto found = method.recurrence();
    using outer_rule = decltype(found.rule);
    const bool rated = requires { found.rule.learning_rate; };
    using exchange_wires = decltype(exchange_wire(found.exchange));
    const exchange_settings settings{
        .ranks_a_worker = found.ranks_a_group,
        .steps = found.steps,
        .delay = found.delay,
        .fragments = found.fragments,
        .work = found.work,
        .keep_local = found.keep_local,
        .weights = found.weights,
        .by_gap = found.by_gap,
        .averages = std::is_same_v<outer_rule, averaging>,
        .encoded = encoding<typename exchange_wires::gradient_encoding> || encoding<typename exchange_wires::parameter_encoding>,
        .rated = rated,
        .rate = rate_of(found.rule)};
    auto decorated = rule_under(found.inner, std::move(rule));
    return new outer_engine<outer_rule, decltype(decorated), Storage, Backend>(
        settings, found.exchange, std::move(found.rule), std::move(found.inner), std::move(decorated), std::move(storage),
        std::move(backend), std::move(layout), std::move(chosen));
  }
};

}  // namespace ACCO_NAMESPACE
