// SPDX-License-Identifier: Apache-2.0
// The engine of local updates: an engine of the inner schedule within each worker, and between two of its rounds the exchange of
// the workers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/outer/anchor_exchange.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/group_backend.hpp"
#include "acco/outer/regroup.hpp"
#include "acco/outer/workers_world.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/engine.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/stage/world_digest.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// One rank's. The slice is cut into fragments, contiguous and of one size, whose exchanges take turns: an engine each. World
/// rank r is rank r % ranks_a_worker of worker r / ranks_a_worker; it exchanges with the ranks of the same place in the other
/// workers. Channels: the worker's, one for each fragment, and one of the whole world for the beginning.
template <class OuterRule, class Rule, class Storage, class Backend>
class outer_engine : public training_engine<typename Storage::parameter_type, typename Storage::gradient_type>,
                     public changing_workers {
  static_assert(Storage::host_memory, "acco: local updates need storage in host memory so far");
  static_assert(traits_of<Backend>.splits && traits_of<Backend>.duplicates,
                "acco: local updates need a backend that `splits` and `duplicates`");

 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using master_type = typename Storage::master_type;
  using inner_engine = round_engine<Rule, Storage, group_backend<Backend>>;
  using exchange_type = anchor_exchange<OuterRule, master_type, Backend>;

  template <class Exchange, class Inner>
  outer_engine(exchange_settings const& settings, Exchange const& exchange, OuterRule outer_rule, Inner inner, Rule rule,
               Storage storage, Backend backend, parameter_layout layout, options chosen)
      : settings_(cut(settings, backend)),
        chosen_(checked(std::move(chosen), backend.rank())),
        make_exchange_([exchange, rule = told(std::move(outer_rule), settings_), memory = storage.memory, of = of_outer(chosen_)](
                           exchange_settings const& now, group_backend<Backend> group, std::size_t count) {
          return std::make_unique<exchange_type>(now, exchange, rule, typename exchange_type::storage{.memory = memory},
                                                 std::move(group), count, of);
        }),
        position_{.workers = settings_.workers, .whole = {}, .own = {}},
        in_(std::make_unique<workers_world<Backend>>(std::move(backend), settings_.ranks_a_worker, chosen_.deadline)),
        inner_(std::make_unique<schedule_of<Inner, typename inner_engine::works_type>>(std::move(inner)), std::move(rule),
               storage, in_->within_worker(), std::move(layout), of_inner(chosen_)),
        fragments_(fragments_over(*in_, settings_)) {
    inner_.loop().serve_worker();
  }
  outer_engine(outer_engine const&) = delete;
  outer_engine& operator=(outer_engine const&) = delete;
  ~outer_engine() override { in_->member.end(false); }  // before its engines leave

  void initialize(std::span<parameter_type const> values) override {
    std::vector<parameter_type> same(values.begin(), values.end());
    join_world();
    from_rank_0(std::span(same));
    start([&] { inner_.initialize(same); });
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    std::vector<std::byte> same(layout().size() * sizeof(master_type));
    join_world();
    for (std::size_t k = 0; k < layout().tensor_count(); ++k) {
      auto const each = layout()[k];
      if (in_->rank() == 0 || is_own(each)) read(each.offset, each.size, same.data() + each.offset * sizeof(master_type));
    }
    from_rank_0(std::span(same));
    start([&] {
      inner_.initialize_from([&](std::size_t first, std::size_t count, std::byte* to) {
        std::copy_n(same.data() + first * sizeof(master_type), count * sizeof(master_type), to);
      });
    });
  }
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) override {
    return inner_.claim(memory, bytes, trained);
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients, bool begins) override {
    if (!begins) return inner_.adopt(parameters, gradients, false);
    join_world();
    from_rank_0(parameters);
    start([&] { inner_.adopt(parameters, gradients, true); });
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors, bool begins) override {
    if (!begins) return inner_.adopt(tensors, false);
    join_world();
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      if (!is_own(layout()[k])) in_->broadcast(std::span(tensors[k].parameters, layout()[k].size), 0);
    }
    start([&] { inner_.adopt(tensors, true); });
  }
  void set_parameters(std::span<parameter_type const> values) override {
    std::vector<parameter_type> same(values.begin(), values.end());
    from_rank_0(std::span(same));
    in_->names.of_worker([&] { inner_.set_parameters(same); });
    in_->names.of_exchange([&] {
      for (fragment& each : fragments_) each.exchange->set(of(each));
    });
  }
  [[nodiscard]] bool at_rest() const noexcept override {
    return inner_.at_rest() && std::none_of(fragments_.begin(), fragments_.end(),
                                            [](fragment const& each) { return each.pending || each.exchange->in_flight(); });
  }
  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override { return inner_.parameters(); }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override { return inner_.gradients(); }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    return inner_.tensor(index);
  }
  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    in_->member.take_part();
    for (fragment& each : fragments_) {
      if (each.exchange->in_flight()) each.exchange->level().poll();
    }
    return in_->names.of_worker([&] { return inner_.loop().accumulated(weight, loss_sum, between()); });
  }
  void poll() override {
    inner_.poll();
    for (fragment& each : fragments_) each.exchange->level().poll();
  }
  void finish(unfinished rest) override {
    in_->member.take_part();
    in_->names.of_worker([&] {
      inner_.finish(rest, between());
      in_->names.of_exchange([&] { finish_exchanges(); });
      inner_.loop().masters_changed();
    });
    phase_ = 0;
    std::vector<double> made(static_cast<std::size_t>(settings_.workers), 0.0);
    made[static_cast<std::size_t>(in_->names.worker())] =
        static_cast<double>(position_({inner_.samples(), inner_.steps()}).steps);
    in_->names.of_exchange([&] { first().sum_over_ranks(made); });
    before_ = static_cast<std::uint64_t>(*std::max_element(made.begin(), made.end()));
    for (fragment& each : fragments_) each.exchanges_before = each.exchange->exchanges();
    in_->member.finish();
  }

  void gather(std::span<parameter_type> out, weights which) override {
    shown_as_masters(which, [&] { inner_.gather(out, weights::committed); });
  }
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) override {
    shown_as_masters(which, [&] { inner_.gather_masters(take, weights::committed); });
  }
  void sum_over_ranks(std::span<double> numbers) override {
    in_->names.of_worker([&] { inner_.sum_over_ranks(numbers); });
    in_->names.of_exchange([&] { first().sum_over_ranks(numbers); });
  }
  [[nodiscard]] std::span<double const> norms() const noexcept override { return inner_.norms(); }
  /// What all fragments hold.
  [[nodiscard]] double samples() const noexcept override {
    double least = fragments_.front().exchange->samples();
    for (fragment const& each : fragments_) least = std::min(least, each.exchange->samples());
    return least;
  }
  [[nodiscard]] std::uint64_t steps() const noexcept override {
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      const std::uint64_t landed = fragments_[p].exchange->exchanges() - fragments_[p].exchanges_before;
      least = std::min(least, landed == 0 ? 0 : due(p) + settings_.steps * (landed - 1));
    }
    return before_ + least;
  }
  [[nodiscard]] round_totals const& totals() const noexcept override {
    totals_ = inner_.totals();
    totals_.bytes_sent += bytes_before_;
    for (fragment const& each : fragments_) totals_.bytes_sent += each.exchange->level().totals().bytes_sent;
    return totals_;
  }
  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table = inner_.memory();
    std::size_t gathering = 0;
    for (fragment const& each : fragments_) {
      each.exchange->count(table);
      gathering = std::max(gathering, each.exchange->level().memory().gathering);
    }
    table.gathering += inner_.shares().slice_size() * sizeof(master_type) + gathering;
    return table;
  }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return inner_.layout(); }
  [[nodiscard]] std::uint64_t state_digest() override {
    const std::uint64_t worker = in_->names.of_worker([&] { return inner_.state_digest(); });
    std::uint64_t anchors = 0;
    in_->names.of_exchange([&] {
      for (fragment& each : fragments_) anchors = mix(anchors) + each.exchange->level().state_digest();
    });
    return mix(worker) + mix(anchors + 1);
  }
  /// Of all workers' masters and slots, and of the anchor's. Not independent of how the world is cut.
  [[nodiscard]] std::uint64_t world_digest() override {
    std::uint64_t workers = in_->names.of_worker([&] { return inner_.world_digest(); });
    std::uint64_t anchors = 0;
    in_->names.of_exchange([&] {
      for (fragment& each : fragments_) anchors = mix(anchors) + each.exchange->level().world_digest();
      workers = sum_of(workers, first());
    });
    in_->names.of_worker([&] { anchors = sum_of(anchors, inner_); });
    return mix(workers) + mix(anchors + 1);
  }

  // States are not kept: everything that would is refused.

  [[nodiscard]] state_shape shape() const noexcept override {
    state_shape found = inner_.shape();
    found.averages = chosen_.average_decay > 0;  // the anchor's
    return found;
  }
  [[nodiscard]] partition shares() const noexcept override { return inner_.shares(); }
  [[nodiscard]] std::vector<char> construction() const override { return {construction_.begin(), construction_.end()}; }
  [[nodiscard]] options const& chosen() const noexcept override { return chosen_; }
  void copy_parameters(std::size_t tensor, std::byte* to) override { inner_.copy_parameters(tensor, to); }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return inner_.frozen_values(); }
  void broadcast(std::span<char> bytes, int root) override { in_->broadcast(bytes, root); }
  void attach(state_keeper* keeper) override {
    const std::unique_ptr<state_keeper> dropped(keeper);
    refuse_states();
  }
  [[nodiscard]] bool finished() const noexcept override { return false; }
  [[nodiscard]] bool can_be_saved() const noexcept override { return false; }
  [[nodiscard]] state_keeper* keeper() noexcept override { return nullptr; }
  [[nodiscard]] save_outcome const* saved() const noexcept override { return nullptr; }
  void together(function_view<void()> action) override { in_->member.together(action); }
  void begin() override { refuse_states(); }  // of a restore; `initialize` does its own
  void load(state_source&) override { refuse_states(); }
  std::uint64_t resume(resumption) override { return refuse_states(); }

  void leave(std::string_view reason) noexcept override {
    in_->member.leave(reason);
    for (fragment& each : fragments_) each.exchange->level().leave(reason);
    inner_.leave(reason);
  }
  /// What one worker throws the others hear of; only what began with all of them is known to all.
  [[nodiscard]] bool in_step() const noexcept override { return false; }
  [[nodiscard]] error_place place() const noexcept override { return {in_->rank(), inner_.place().round, ""}; }

  // Workers come and go.

  void depart() override {
    (void)brought_by_workers<master_type>::hand_over(*in_, nullptr, inner_, fragments_, settings_.ranks_a_worker);
    inner_.be_at_peace();
  }
  [[nodiscard]] changing_workers* changing() noexcept override { return this; }
  [[nodiscard]] type_mark world_type() const noexcept override { return type_mark::of<Backend>(); }
  void regroup(void const* given) override {
    auto const& world = *static_cast<Backend const*>(given);
    exchange_settings const settings = cut(settings_, world);
    auto to = std::make_unique<workers_world<Backend>>(world, settings.ranks_a_worker, chosen_.deadline);
    std::vector<fragment> fragments = fragments_over(*to, settings);
    try {
      auto all = brought_by_workers<master_type>::hand_over(*in_, to.get(), inner_, fragments_, settings.ranks_a_worker);
      all.steps = before_;
      all.take_up(*to, inner_, fragments, settings.ranks_a_worker, construction_);
    } catch (std::exception const& e) {  // the new world is to hear of it, too
      to->member.leave(e.what());
      for (fragment& each : fragments) each.exchange->level().leave(e.what());
      throw;
    }
    for (fragment const& each : fragments_) bytes_before_ += each.exchange->level().totals().bytes_sent;
    fragments_ = std::move(fragments);
    in_ = std::move(to);
    settings_ = settings;
    go_on();
  }
  void join() override {
    brought_by_workers<master_type> none(fragments_.size(), 0);
    none.take_up(*in_, inner_, fragments_, settings_.ranks_a_worker, construction_);
    before_ = none.steps;
    go_on();
  }

 private:
  static exchange_settings cut(exchange_settings settings, Backend const& world) {
    const error_place where{.rank = world.rank()};
    const int group = settings.ranks_a_worker;
    if (group < 1 || world.size() % group != 0) {
      throw usage_error(where, text("local_updates::ranks_a_group is ", group, ", and the world has ", world.size(), " ranks"),
                        text("Give a number that divides the ranks of the world"));
    }
    settings.workers = world.size() / group;
    if (settings.delay == whole_round) settings.delay = settings.steps;
    settings.check(where);
    return settings;
  }
  static options checked(options chosen, int rank) {
    chosen.check({.rank = rank});
    const auto refuse = [&](char const* what, char const* advice) {
      throw usage_error({.rank = rank}, text("options::", std::string_view(what), " is not there for local updates"),
                        text(advice));
    };
    if (chosen.digest_every != 0) refuse("digest_every", "Ask world_digest() at a report");
    return chosen;
  }
  /// A worker asks for its learning rate at its own samples: as many as the world would have if all were as fast.
  options of_inner(options chosen) const {
    chosen.average_decay = 0;
    chosen.learning_rate = [whole = std::move(chosen.learning_rate), at = &position_](training_position const& own) -> double {
      return whole((*at)(own));
    };
    return chosen;
  }
  static options of_outer(options const& chosen) {
    options mine;
    mine.deadline = chosen.deadline;
    mine.average_decay = chosen.average_decay;
    mine.compare_every = chosen.compare_every;
    mine.empty_limit = chosen.empty_limit;
    return mine;
  }
  static OuterRule told(OuterRule rule, [[maybe_unused]] exchange_settings const& settings) {
    if constexpr (requires { rule.of_means; }) rule.of_means = settings.sends_parameters();
    return rule;
  }
  [[nodiscard]] std::string described() const {
    description lines;
    lines.add_all("local_updates.", settings_);
    std::string all = lines.lines();
    for (auto const& level : {inner_.construction(), fragments_.front().exchange->level().construction()})
      all.append(level.begin(), level.end());
    return all;
  }
  [[noreturn]] std::uint64_t refuse_states() const {
    throw usage_error(place(), text("checkpoints of local updates are not there yet"),
                      text("save_model writes the anchor's weights; initialize from them"));
  }

  void join_world() { in_->join(construction_, "initialize", "initialize"); }
  template <class T>
  void from_rank_0(std::span<T> values) {
    const std::size_t width = values.size() / layout().size();  // of an element, in T
    layout().for_common(
        [&](std::size_t begin, std::size_t count) { in_->broadcast(values.subspan(begin * width, count * width), 0); });
  }
  [[nodiscard]] bool is_own(parameter_layout::tensor const& each) const noexcept {
    return layout().groups()[each.group].per_rank;
  }
  template <class Initialize>
  void start(Initialize&& initialize) {
    in_->names.of_worker(initialize);
    in_->names.of_exchange([&] {
      for (fragment& each : fragments_) each.exchange->begin(of(each));
    });
  }

  /// A part of the slice, and its exchange.
  struct fragment {
    std::size_t begin = 0, count = 0;
    bool pending = false;     // the worker has made a step since its last exchange began
    double sent_samples = 0;  // of the worker, that have been brought to exchanges
    std::uint64_t exchanges_before = 0;
    std::unique_ptr<exchange_type> exchange;
  };
  std::vector<fragment> fragments_over(workers_world<Backend> const& world, exchange_settings const& settings) const {
    const std::size_t slice = inner_.shares().slice_size();
    if (slice < settings.fragments) {
      throw usage_error({.rank = world.rank()},
                        text("local_updates::fragments is ", settings.fragments, ", and a rank's slice has ", slice, " numbers"),
                        text("Give fewer fragments"));
    }
    std::vector<fragment> made(settings.fragments);
    for (std::size_t p = 0; p < made.size(); ++p) {
      made[p].begin = slice * p / made.size();
      made[p].count = slice * (p + 1) / made.size() - made[p].begin;
      made[p].exchange = make_exchange_(settings, world.between_workers(), made[p].count);
    }
    return made;
  }
  [[nodiscard]] std::span<master_type> of(fragment const& each) noexcept {
    return inner_.loop().masters().subspan(each.begin, each.count);
  }
  /// Where all fragments are alike.
  [[nodiscard]] typename exchange_type::engine& first() noexcept { return fragments_.front().exchange->level(); }
  /// Of a round's steps, after which a fragment is exchanged.
  [[nodiscard]] unsigned due(std::size_t p) const noexcept { return static_cast<unsigned>(p + 1) * settings_.stretch(); }
  /// The samples that a fragment's exchange brings.
  [[nodiscard]] double taken(fragment& each) noexcept {
    each.pending = false;
    return inner_.samples() - std::exchange(each.sent_samples, inner_.samples());
  }
  /// What happens between two rounds of the worker.
  [[nodiscard]] auto between() noexcept {
    return [this](round_report& report) { landed(report); };
  }
  void landed(round_report& report) {
    report.committed = false;
    if (inner_.steps() != seen_) {
      seen_ = inner_.steps();
      in_->names.of_exchange([&] { step(report); });
    }
    report.step = steps();
    report.samples = samples();
    report.outer.reset();
    for (std::size_t p = 0; p < fragments_.size(); ++p) {  // several after a `finish`
      auto const news = fragments_[p].exchange->news();
      if (!news) continue;
      report.outer = news;
      report.outer->fragment = p;
      report.bytes_sent += news->bytes_sent;
    }
  }
  /// The worker has made a step.
  void step(round_report& report) {
    bool changed = false;
    phase_ = phase_ % settings_.steps + 1;
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      fragment& each = fragments_[p];
      each.pending = true;
      if (settings_.delay < settings_.steps && (due(p) + settings_.delay) % settings_.steps == phase_ % settings_.steps)
        changed = each.exchange->arrive(of(each)) || changed;
    }
    if (phase_ % settings_.stretch() == 0) {
      fragment& each = fragments_[phase_ / settings_.stretch() - 1];
      const double samples = taken(each);
      changed = each.exchange->exchange(of(each), samples) || changed;
      report.committed = settings_.blocks() && settings_.keep_local == 0 && fragments_.size() == 1;
    }
    if (changed) in_->names.of_worker([&] { inner_.loop().masters_changed(); });
  }
  /// In the order in which the others, who may train on, exchange: whoever waited in another fragment's exchange would hold them
  /// up for ever.
  void finish_exchanges() {
    const std::size_t count = fragments_.size(), next = phase_ / settings_.stretch() % count;
    std::size_t brought = 0;
    for (; brought < count; ++brought) {  // those that have nothing pending were the last
      fragment& each = fragments_[(next + brought) % count];
      if (!each.pending) break;
      const double samples = taken(each);
      each.exchange->bring(of(each), samples);
    }
    for (fragment& each : fragments_) each.exchange->begin_finish();
    for (std::size_t k = next + brought; !fragments_[k % count].exchange->take_part(); ++k) continue;
    for (fragment& each : fragments_) each.exchange->end_finish(of(each));
  }

  /// At rest among other workers.
  void go_on() {
    phase_ = 0;
    seen_ = inner_.steps();
    for (fragment& each : fragments_) {
      each.sent_samples = inner_.samples();
      each.exchanges_before = each.exchange->exchanges();
    }
    position_ = {settings_.workers, {samples(), before_}, {inner_.samples(), inner_.steps()}};
  }

  /// Calls action() while this rank's masters are the anchor, the exchange in flight included, or its average.
  template <class Action>
  void shown_as_masters(weights which, Action&& action) {
    std::vector<master_type> x(inner_.shares().slice_size());
    in_->names.of_exchange([&] {
      for (fragment& each : fragments_) each.exchange->level().gather(std::span(x).subspan(each.begin, each.count), which);
    });
    in_->names.of_worker([&] {
      inner_.loop().outside_rounds([&] {
        auto const mine = inner_.loop().masters();
        std::swap_ranges(x.begin(), x.end(), mine.begin());
        try {
          action();
        } catch (...) {
          std::swap_ranges(x.begin(), x.end(), mine.begin());
          throw;
        }
        std::swap_ranges(x.begin(), x.end(), mine.begin());
      });
    });
  }
  template <class Level>
  static std::uint64_t sum_of(std::uint64_t digest, Level& over) {
    digest_words words = digest_words::of(digest);
    over.sum_over_ranks(words.word);
    return words.sum();
  }

  exchange_settings settings_;
  options chosen_;
  std::function<std::unique_ptr<exchange_type>(exchange_settings const&, group_backend<Backend>, std::size_t)> make_exchange_;
  position_by_worker position_;
  std::unique_ptr<workers_world<Backend>> in_;
  unsigned phase_ = 0;  // the worker's steps of this round: 0 until the first, then from 1 to `steps`; alike on all workers
  std::uint64_t seen_ = 0, before_ = 0;
  std::uint64_t bytes_before_ = 0;  // of exchanges among other workers
  mutable round_totals totals_;
  inner_engine inner_;
  std::vector<fragment> fragments_;               // in the order of their exchanges
  const std::string construction_ = described();  // once: later the learning rate is asked elsewhere
};

}  // namespace ACCO_ENGINE_NAMESPACE

#include "acco/restore_macros.hpp"
