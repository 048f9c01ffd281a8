// SPDX-License-Identifier: Apache-2.0
// Local updates: workers train by themselves for some steps, then exchange. Five recurrences, of which Local SGD,
// FedAvg, SlowMo, DiLoCo, its delayed and eager forms, CO2 and Overlap-Local-SGD are constants.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/outer/changing_engine.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/outer_rules.hpp"
#include "acco/rule/check.hpp"
#include "acco/rule/sgd.hpp"
#include "acco/schedule/decorated_rule.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/schedule/synchronous.hpp"
#include "acco/type_list.hpp"
#include "acco/usage/checked_engine.hpp"

namespace ACCO_NAMESPACE {

// The recurrences. With the anchor x that all workers have, a worker's masters w_m, its change D_m = x - w_m after
// `steps` of its commits, and the mean D of these over the workers, an exchange brings
//
//   x <- Outer(x, D)      by `rule`: an update rule for which D is the gradient
//
// and what the worker has then depends on what it did while the exchange was under way. With a = `keep_local`, the
// share of its own masters that it keeps:

/// The worker waits:  w_m <- a w_m + (1 - a) x.
template <class Rule = averaging>
struct waiting {
  Rule rule = {};         ///< the outer rule: averaging, sgd (heavy ball, Nesterov), clipped_momentum, any other
  double keep_local = 0;  ///< 1: the worker is never changed by the anchor
  worker_weights weights = worker_weights::equal;

  [[nodiscard]] constexpr exchange_settings settings() const { return {.keep_local = keep_local, .weights = weights}; }
};

/// It trains on for `delay` steps, which are kept: w_m <- x + (w_m - w_m of the exchange's start). They are part of the
/// next exchange.
template <class Rule = averaging>
struct keeping {
  Rule rule = {};
  unsigned delay = whole_round;  ///< steps during which an exchange is under way: at most `steps`; 0: the worker waits
  worker_weights weights = worker_weights::equal;
  bool lands_at_boundary = false;  ///< an exchange starts `delay` steps early, and ends where one without a delay would

  [[nodiscard]] constexpr exchange_settings settings() const {
    return {.delay = delay, .work = work_meanwhile::keep, .weights = weights, .lands_at_boundary = lands_at_boundary};
  }
};

/// It trains on, and starts from the anchor: w_m <- a w_m + (1 - a) x. Of a whole round nothing is lost: its change is
/// what the exchange that starts then carries. Of a shorter delay with a = 0, what was done meanwhile is (Streaming
/// DiLoCo's).
template <class Rule = averaging>
struct restarting {
  Rule rule = {};
  unsigned delay = whole_round;  ///< as `keeping::delay`
  double keep_local = 0;
  worker_weights weights = worker_weights::equal;
  bool by_gap = false;             ///< D counts by 1 / (1 + |x - x of its start| / |D|): the staleness gap, as
                                   ///< docs/local_updates.md says; of a whole round, with one rank a worker
  bool lands_at_boundary = false;  ///< as `keeping::lands_at_boundary`

  [[nodiscard]] constexpr exchange_settings settings() const {
    return {.delay = delay,
            .work = work_meanwhile::restart,
            .keep_local = keep_local,
            .weights = weights,
            .by_gap = by_gap,
            .lands_at_boundary = lands_at_boundary};
  }
};

/// It trains on for a whole round, ahead of the anchor by its own share of what it has just sent: w_m <- x - (rate /
/// workers) D_m.
template <class Rule = averaging>
struct eager {
  static_assert(
      std::is_same_v<Rule, averaging> || requires(Rule const& rule) { rule.learning_rate; },
      "acco: an eager worker knows the rate at which its share will count: give `rule` a `learning_rate`, or averaging");
  Rule rule = {};

  [[nodiscard]] constexpr exchange_settings settings() const { return {.delay = whole_round, .work = work_meanwhile::eager}; }
};

/// It trains on for a whole round, and is pulled to the mean of a round ago: x <- mean of w, w_m <- a w_m + (1 - a) x.
struct pulling {
  averaging rule = {};
  double keep_local = 0;
  worker_weights weights = worker_weights::equal;

  [[nodiscard]] constexpr exchange_settings settings() const {
    return {.delay = whole_round, .work = work_meanwhile::pull, .keep_local = keep_local, .weights = weights};
  }
};

// The published methods: docs/local_updates.md says in what each differs from its paper.

/// x <- mean of w (McDonald et al. 2010; Stich, arXiv 1805.09767).
inline constexpr waiting<> local_sgd;
/// The same, workers by their samples (McMahan et al., arXiv 1602.05629, Algorithm 1, with all clients in every round).
inline constexpr waiting<> fedavg{.weights = worker_weights::samples};
/// u <- momentum u + D; x <- x - lr u (Wang et al., arXiv 1910.00643). There D is divided by the inner learning rate
/// and the step multiplied by it: the same while that rate is constant.
inline constexpr waiting<sgd> slowmo{.rule = {.learning_rate = 1, .momentum = 0.5}};
/// u <- momentum u + D;  x <- x - lr (D + momentum u) (Douillard et al., arXiv 2311.08105).
inline constexpr waiting<sgd> diloco{.rule = {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}};
/// The same for workers that train by muon, whose changes lie closer together (Therien et al., arXiv 2505.23725); give
/// it `.exchange = block_stat2{}`, two bits both ways.
inline constexpr waiting<sgd> mu_loco{.rule = {.learning_rate = 0.7, .momentum = 0.6, .nesterov = true}};
/// DiLoCo, each exchange under way for a whole round ("naive" in arXiv 2502.12996). Its momentum is not DiLoCo's,
/// which is not stable with a delay.
inline constexpr restarting<sgd> delayed_diloco{.rule = {.learning_rate = 0.4, .momentum = 0.5, .nesterov = true}};
/// The same, each worker ahead by its own share of what is under way (arXiv 2502.12996). There that share goes through
/// the outer momentum, on every worker another; here through the position only, so that the anchor is one and can be
/// sharded.
inline constexpr eager<sgd> eager_diloco{.rule = {.learning_rate = 0.4, .momentum = 0.5, .nesterov = true}};
/// diloco for `local_updates::fragments`, each under way for a step (Douillard et al., arXiv 2501.18512). There
/// fragments are groups of layers, here equal parts of each rank's slice, in the order of the layout.
inline constexpr restarting<sgd> streaming_diloco{
    .rule = {.learning_rate = 0.4, .momentum = 0.9, .nesterov = true}, .delay = 1, .keep_local = 0.5};
/// m <- clip(momentum m + D / gap, -limit, limit); x <- x - lr m, a whole round late (Sun et al., arXiv 2401.16265).
/// The gap is 1 + |x - x of the start| / |D|, over all parameters: the paper's formula could not be had.
inline constexpr restarting<clipped_momentum> co2{.rule = {.learning_rate = 0.7, .momentum = 0.2, .limit = 1}, .by_gap = true};
/// w <- w - 0.6 (w - x), where x is the mean of w a round ago (Wang et al., arXiv 2002.09539, without the anchor's
/// momentum).
inline constexpr pulling overlap_local_sgd{.keep_local = 0.4};

/// One of the recurrences, or one's own: an outer rule, and how workers exchange.
template <class Method>
concept local_method = requires(Method const& method) {
  method.rule;
  { method.settings() } -> std::same_as<exchange_settings>;
};

/// Stands where a schedule stands: `acco::optimizer{acco::local_updates{.method = acco::diloco, .steps = 30}, rule,
/// storage, world, layout}`.
///
/// A world is split into workers of `ranks_a_group` neighbouring ranks. A worker trains by `inner` and the optimizer's
/// rule, as if it were the world, on data of its own; its rule's slots stay its own, but for `slots_every`.
///
/// Where an exchange is under way for a whole round, the changes that come in were measured a round ago, and much less
/// outer momentum is stable than without a delay: in a direction in which a round of local steps removes the share b of
/// the error, sgd{.learning_rate = 0.7, .momentum = 0.9, .nesterov = true} diverges for b > 0.36 under `restarting`;
/// without a delay it is stable up to 1.93. Where local steps solve a direction, b is 1. Outer momentum of 0.5 at a
/// rate of 0.4 is stable up to 1.40. docs/local_updates.md has the table, and the equations with an overlapped `inner`.
///
/// With an encoded `exchange` (`block_int4{}`: 1/H byte a parameter and step) the loop is closed on both sides. The
/// anchor x^ that workers hold and measure changes against is the owner's x up to what its last difference has lost,
/// and the next difference is x - x^. What is lost of a worker's change it keeps, and adds to its next change: all of
/// it, unless `with_feedback{...}` says otherwise. So all that encodings lose arrives, one exchange later;
/// `gather_committed`, and `parameters()` after `finish`, are x itself.
///
/// Anchor and outer state are sharded over all ranks that hold the same slice. `samples`, `steps` and a report's are of
/// what the anchor holds; a report's losses and norms are the worker's; `parameters()` are the worker's, and the
/// anchor's in every bit on every rank after `finish`, and at reports that are `committed`. `finish` exchanges whatever
/// has been done. `gather_committed` gives the anchor, the exchange under way included; averages
/// (`options::average_decay`) are the anchor's, over exchanges.
template <local_method Method = waiting<>, class Inner = synchronous<>, wire Exchange = full>
struct local_updates {
  Method method = {};     ///< one of those above: a name, or a recurrence with settings of its own
  Inner inner = {};       ///< any schedule, within a worker
  int ranks_a_group = 1;  ///< ranks of a worker, which lie next to each other; 1: every rank trains alone
  unsigned steps = 8;     ///< a worker's commits from one exchange to the next
  unsigned fragments =
      1;  ///< parts of the anchor that are exchanged in turn, every `steps` / `fragments` steps, which they divide
  Exchange exchange = {};         ///< how changes and anchors travel: `full`, an encoding for both, or `coded`
  slot_periods slots_every = {};  ///< after how many exchanges a slot of the rule becomes its mean over the workers
  bool steps_by_speed = false;    ///< faster workers make more steps, slower ones fewer, in sum as many; nobody waits

  static constexpr char const* name = "local_updates";
};

/// A method in a list, by its name.
template <label Name, auto const& Method, class Inner, wire Exchange>
struct named_method {
  static constexpr char const* name = Name.text;
  [[nodiscard]] static constexpr auto value() {
    return local_updates<std::remove_cvref_t<decltype(Method)>, Inner, Exchange>{.method = Method};
  }
};
/// The published methods by name, for `with_schedule` (schedule/named.hpp), whose exchanges travel in this way.
template <wire Exchange = full, class Inner = synchronous<>>
using local_methods =
    type_list<named_method<"local_sgd", local_sgd, Inner, Exchange>, named_method<"fedavg", fedavg, Inner, Exchange>,
              named_method<"slowmo", slowmo, Inner, Exchange>, named_method<"diloco", diloco, Inner, Exchange>,
              named_method<"mu_loco", mu_loco, Inner, Exchange>, named_method<"delayed_diloco", delayed_diloco, Inner, Exchange>,
              named_method<"eager_diloco", eager_diloco, Inner, Exchange>,
              named_method<"streaming_diloco", streaming_diloco, Inner, Exchange>, named_method<"co2", co2, Inner, Exchange>,
              named_method<"overlap_local_sgd", overlap_local_sgd, Inner, Exchange>>;

template <class Method, class Inner, class Exchange>
struct level_around<local_updates<Method, Inner, Exchange>> {
  static constexpr bool is_one = true;
  using inner = Inner;
  using outer_rule = std::remove_cvref_t<decltype(std::declval<Method const&>().rule)>;
  static_assert(check_update_rule<outer_rule>());
  static_assert(!updates_by_all<Inner>, "acco: a worker's state is cut over its ranks: updated_by_all is for a schedule alone");
  static_assert(!has_reference<Inner>,
                "acco: local updates move what a reference point belongs to: masha is for a schedule alone");

  [[nodiscard]] static double rate_of([[maybe_unused]] outer_rule const& rule) noexcept {
    if constexpr (requires { rule.learning_rate; }) {
      return rule.learning_rate;
    } else {
      return 1;
    }
  }
  template <class Rule, class Storage, class Backend>
  static auto* make(bool checked, local_updates<Method, Inner, Exchange> const& level, Rule rule, Storage storage,
                    Backend backend, parameter_layout layout, options chosen) {
    static_assert(!keeps_average<Rule>,
                  "acco: the anchor of local updates is not what gpa averages: set options::average_decay for an average of "
                  "anchors, or take gpa under another schedule");
    using exchange_wires = decltype(exchange_wire(level.exchange));
    static_assert(outer_rule::slot_count == 0 ||
                      !(loose<typename exchange_wires::gradient_encoding> || loose<typename exchange_wires::parameter_encoding>),
                  "acco: exchanges travel in a code that may fall behind, and outer momentum adds to that: take averaging, a "
                  "finer code, or say acco::loosely<Encoding>");
    exchange_settings settings = level.method.settings();
    settings.ranks_a_worker = level.ranks_a_group;
    settings.steps = level.steps;
    settings.fragments = level.fragments;
    settings.slots_every = level.slots_every;
    settings.by_speed = level.steps_by_speed;
    settings.averages = std::is_same_v<outer_rule, averaging>;
    settings.encoded =
        encoding<typename exchange_wires::gradient_encoding> || encoding<typename exchange_wires::parameter_encoding>;
    settings.rate = rate_of(level.method.rule);
    auto within = level.inner;
    auto decorated = rule_under(within, std::move(rule));
    return new_engine<changing_engine<Storage, Backend>>(
        checked, storage, settings, exchange_wire(level.exchange), outer_rule(level.method.rule), std::move(within),
        std::move(decorated), std::move(storage), std::move(backend), std::move(layout), std::move(chosen));
  }
};

}  // namespace ACCO_NAMESPACE
