// SPDX-License-Identifier: Apache-2.0
// The engine of local updates: an engine of the inner schedule within each worker, and between two of its rounds the
// exchange of the workers.
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

#include "acco/collective/backend_in_use.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/outer/anchor_exchange.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/level_construction.hpp"
#include "acco/outer/level_state.hpp"
#include "acco/outer/regroup.hpp"
#include "acco/outer/split_backend.hpp"
#include "acco/outer/worker_exchanges.hpp"
#include "acco/outer/workers_world.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/engine.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/world_digest.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's. The slice is divided into fragments, whose exchanges take turns: an engine each (worker_exchanges.hpp).
/// World rank r is rank r % ranks_a_worker of worker r / ranks_a_worker; it exchanges with the ranks of the same place
/// in the other workers. Channels: the worker's, one for each fragment, and one of the whole world for the beginning.
template <class Storage, class Backend>
class outer_engine : public training_engine<typename Storage::parameter_type, typename Storage::gradient_type> {
  static_assert(Storage::host_memory, "acco: local updates need storage in host memory so far");
  static_assert(traits_of<Backend>.splits && traits_of<Backend>.duplicates,
                "acco: local updates need a backend that `splits` and `duplicates`");

 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using master_type = typename Storage::master_type;
  using inner_engine = round_engine<Storage>;
  using exchange_type = anchor_exchange<master_type>;
  using exchanges_type = worker_exchanges<exchange_type, master_type>;

  template <class Exchange, class OuterRule, class Inner, class Rule>
  outer_engine(exchange_settings const& settings, Exchange const& exchange, OuterRule outer_rule, Inner inner, Rule rule,
               Storage storage, Backend backend, parameter_layout layout, options chosen)
      : settings_(checked(settings, backend.rank(), backend.size(), Rule::slot_count)),
        chosen_(checked_for_level(std::move(chosen), exchange_wire(exchange), layout, backend.rank())),
        make_exchange_([exchange, rule = told(std::move(outer_rule), settings_), memory = storage.memory, of = of_outer(chosen_)](
                           exchange_settings const& now, split_backend<Backend> group, std::size_t count) {
          return std::make_unique<exchange_type>(now, exchange, rule, typename exchange_type::storage{.memory = memory},
                                                 std::move(group), count, of);
        }),
        at_{.by_worker = {.workers = settings_.workers, .whole = {}, .own = {}}},
        in_(std::make_unique<workers_world<Backend>>(std::move(backend), settings_.ranks_a_worker, chosen_.deadline,
                                                     settings_.slots_every.any())),
        inner_(std::make_unique<schedule_of<Inner, Storage>>(std::move(inner)),
               std::make_unique<rule_of<Rule, Storage>>(std::move(rule)), storage,
               std::make_unique<backend_of<split_backend<Backend>, Storage>>(in_->within_worker()), std::move(layout),
               of_inner(chosen_)),
        exchanges_(exchanges_over(*in_, settings_)) {
    inner_.loop().serve_worker();
    state_.stand(in_->names);
  }
  outer_engine(outer_engine const&) = delete;
  outer_engine& operator=(outer_engine const&) = delete;
  ~outer_engine() override { in_->end(); }  // before its engines leave

  void initialize(std::span<parameter_type const> values) override {
    std::vector<parameter_type> same(values.begin(), values.end());
    join_world();
    in_->broadcast_common(layout(), std::span(same));
    start([&] { inner_.initialize(same); });
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    std::vector<std::byte> same(layout().size() * sizeof(master_type));
    join_world();
    for (std::size_t k = 0; k < layout().tensor_count(); ++k) {
      auto const each = layout()[k];
      if (in_->rank() == 0 || is_own(each)) read(each.offset, each.size, same.data() + each.offset * sizeof(master_type));
    }
    in_->broadcast_common(layout(), std::span(same));
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
    in_->broadcast_common(layout(), parameters);
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
    in_->broadcast_common(layout(), std::span(same));
    in_->names.of_worker([&] { inner_.set_parameters(same); });
    in_->names.of_exchange([&] { exchanges_.set(masters()); });
  }
  [[nodiscard]] bool at_rest() const noexcept override { return inner_.at_rest() && exchanges_.at_rest(); }
  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override { return inner_.parameters(); }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override { return inner_.gradients(); }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    return inner_.tensor(index);
  }
  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    in_->take_part();
    for (auto& each : exchanges_.all()) {
      if (each.exchange->in_flight()) each.exchange->level().poll();
    }
    return in_->names.of_worker([&] { return inner_.loop().accumulated(weight, loss_sum, between()); });
  }
  void poll() override {
    inner_.poll();
    exchanges_.poll();
  }
  void finish(unfinished rest) override {
    in_->take_part();
    in_->names.of_worker([&] {
      inner_.finish(rest, between());
      state_.end_rounds();
      in_->names.of_exchange([&] { exchanges_.finish(masters(), inner_.samples(), behind()); });
      inner_.loop().masters_changed();
    });
    std::vector<double> made(static_cast<std::size_t>(settings_.workers), 0.0);
    made[static_cast<std::size_t>(in_->names.worker())] =
        static_cast<double>(at_.by_worker({inner_.samples(), inner_.steps()}).steps);
    in_->names.of_exchange([&] { exchanges_.first().sum_over_ranks(made); });
    at_.before = static_cast<std::uint64_t>(*std::max_element(made.begin(), made.end()));
    exchanges_.begin_round();
    save_at_rest();
    in_->finish();
  }

  void gather(std::span<parameter_type> out, weights which) override {
    exchanges_.show(inner_, in_->names, which, [&] { inner_.gather(out, weights::committed); });
  }
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) override {
    exchanges_.show(inner_, in_->names, which, [&] { inner_.gather_masters(take, weights::committed); });
  }
  void sum_over_ranks(std::span<double> numbers) override {
    in_->names.of_worker([&] { inner_.sum_over_ranks(numbers); });
    in_->names.of_exchange([&] { exchanges_.first().sum_over_ranks(numbers); });
  }
  [[nodiscard]] std::span<double const> norms() const noexcept override { return inner_.norms(); }
  /// What all fragments hold.
  [[nodiscard]] double samples() const noexcept override { return exchanges_.samples(); }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return at_.before + exchanges_.steps(); }
  [[nodiscard]] round_totals const& totals() const noexcept override {
    totals_ = inner_.totals();
    totals_.bytes_sent += bytes_before_ + exchanges_.bytes_sent();
    return totals_;
  }
  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table = inner_.memory();
    exchanges_.count(table);
    table.gathering += inner_.shares().slice_size() * sizeof(master_type);
    table.staging += state_.bytes();
    return table;
  }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return inner_.layout(); }
  [[nodiscard]] std::uint64_t state_digest() override {
    const std::uint64_t worker = in_->names.of_worker([&] { return inner_.state_digest(); });
    const std::uint64_t anchors =
        in_->names.of_exchange([&] { return exchanges_.digest([](auto& level) { return level.state_digest(); }); });
    return mix(worker) + mix(anchors + 1);
  }
  /// Of all workers' masters and slots, and of the anchor's. Not independent of how the world is divided.
  [[nodiscard]] std::uint64_t world_digest() override {
    std::uint64_t workers = in_->names.of_worker([&] { return inner_.world_digest(); });
    std::uint64_t anchors = 0;
    in_->names.of_exchange([&] {
      anchors = exchanges_.digest([](auto& level) { return level.world_digest(); });
      workers = digest_words::sum_over(exchanges_.first(), workers);
    });
    in_->names.of_worker([&] { anchors = digest_words::sum_over(inner_, anchors); });
    return mix(workers) + mix(anchors + 1);
  }

  [[nodiscard]] state_shape const& shape() const noexcept override { return shape_; }
  [[nodiscard]] bool has_doubles() const noexcept override { return shape().master == element_type::float64; }
  [[nodiscard]] bool has_averages() const noexcept override { return shape().averages(); }
  [[nodiscard]] partition shares() const noexcept override { return inner_.shares(); }
  [[nodiscard]] int ranks() const noexcept override { return in_->size(); }
  [[nodiscard]] std::vector<char> construction() const override {
    return {construction_.of_states.begin(), construction_.of_states.end()};
  }
  [[nodiscard]] options const& chosen() const noexcept override { return chosen_; }
  void copy_parameters(std::size_t tensor, std::byte* to) override { inner_.copy_parameters(tensor, to); }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return inner_.frozen_values(); }
  void broadcast(std::span<char> bytes, int root) override { in_->broadcast(bytes, root); }
  void attach(checkpointer* keeper) override {
    std::unique_ptr<checkpointer> taken(keeper);
    inner_.attach(state_.of_worker().release());
    for (auto& each : exchanges_.all())
      each.exchange->level().attach(state_.of_exchange(&each == &exchanges_.all().front()).release());
    state_.attach(std::move(taken));
  }
  [[nodiscard]] bool finished() const noexcept override { return at_rest() && in_->member.finished(); }
  [[nodiscard]] bool can_be_saved() const noexcept override { return inner_.can_be_saved(); }
  [[nodiscard]] checkpointer* keeper() noexcept override { return state_.keeper(); }
  [[nodiscard]] save_outcome const* saved() const noexcept override {
    return state_.keeper() == nullptr ? nullptr : state_.keeper()->newest();
  }
  void together(function_view<void()> action) override { in_->member.together(action); }
  void begin() override {
    in_->join(construction_.whole, "initialize", "restore");
    in_->names.of_worker([&] { inner_.begin(); });
    in_->names.of_exchange([&] {
      for (auto& each : exchanges_.all()) each.exchange->begin();
    });
  }
  void load(state_source& source) override { state_.load(source); }
  std::uint64_t resume(resumption how) override {
    const bool same = how == resumption::exact && state_.same();
    in_->names.of_exchange([&] { state_.resume_exchanges(same); });
    in_->names.of_worker([&] { inner_.take_up(how); });
    if (same) {
      at_ = level_position::of(state_.loaded(), settings_.workers, settings_.steps);
      exchanges_.go_on_in(state_.loaded());
    } else {
      go_on_from(state_.loaded_steps());
    }
    const std::uint64_t parts = digest_words::sum_over(*this, state_.part_of_digest());
    inner_.taken_up();
    for (auto& each : exchanges_.all()) each.exchange->level().taken_up();
    in_->names.of_worker([&] { inner_.loop().land_if_waiting(between()); });
    return parts + state_.digest_of_numbers();
  }

  void leave(std::string_view reason) noexcept override {
    in_->leave(reason);
    exchanges_.leave(reason);
    inner_.leave(reason);
  }
  /// What one worker throws the others hear of; only what began with all of them is known to all.
  [[nodiscard]] bool in_step() const noexcept override { return false; }
  [[nodiscard]] error_place place() const noexcept override { return {in_->rank(), inner_.place().round, ""}; }

 protected:  // for changing_engine.hpp
  /// A worker asks for its learning rate at its own samples: as many as the world would have if all were as fast.
  options of_inner(options chosen) const {
    chosen.average_decay = 0;
    chosen.learning_rate = [whole = std::move(chosen.learning_rate),
                            at = &at_.by_worker](training_position const& own) -> double { return whole((*at)(own)); };
    return chosen;
  }
  void join_world() { in_->join(construction_.whole, "initialize", "initialize"); }
  [[nodiscard]] bool is_own(parameter_layout::tensor const& each) const noexcept {
    return layout().groups()[each.group].per_rank;
  }
  template <class Initialize>
  void start(Initialize&& initialize) {
    in_->names.of_worker(initialize);
    in_->names.of_exchange([&] { exchanges_.begin(masters()); });
  }

  exchanges_type exchanges_over(workers_world<Backend> const& world, exchange_settings const& settings) const {
    return {settings, inner_.shares().slice_size(), error_place{.rank = world.rank()},
            [&](std::size_t count) { return make_exchange_(settings, world.between_workers(), count); }};
  }
  [[nodiscard]] std::span<master_type> masters() noexcept { return inner_.loop().masters(); }
  /// What happens between two rounds of the worker.
  [[nodiscard]] auto between() noexcept {
    return [this](round_report& report) { landed(report); };
  }
  void landed(round_report& report) {
    report.committed = false;
    if (inner_.steps() != at_.seen) {
      at_.seen = inner_.steps();
      in_->names.of_exchange([&] { step(report); });
    }
    if (state_.grants()) inner_.cut_next(true);
    report.step = steps();
    report.samples = samples();
    exchanges_.tell(report);
  }
  /// The worker has made a step.
  void step(round_report& report) {
    bool exchanged = false;
    const std::uint64_t before = bytes_before_;
    const bool changed = exchanges_.step(masters(), inner_.samples(), exchanged, behind());
    report.bytes_sent += bytes_before_ - before;
    if (exchanged) report.committed = settings_.blocks() && settings_.keep_local == 0 && exchanges_.all().size() == 1;
    if (changed) in_->names.of_worker([&] { inner_.loop().masters_changed(); });
  }
  [[nodiscard]] auto behind() noexcept {  // an exchange
    return [this](std::uint64_t exchanges, bool brought) {
      bytes_before_ +=
          average_slots(*in_, inner_, brought ? 1 : 0, [&](std::size_t k) { return settings_.slots_every.due(k, exchanges); });
      if (!settings_.by_speed) return;
      in_->names.of_worker([&] { exchanges_.own().agree([&](std::span<char> decided) { inner_.broadcast(decided, 0); }); });
      at_.by_worker.go_on({inner_.samples(), inner_.steps()}, settings_.steps, exchanges_.own().steps());
    };
  }

  /// Among other workers; `brought`: at rest, and all samples are in the anchor.
  void go_on_from(std::uint64_t steps_before, bool brought = true) {
    at_.before = steps_before;
    at_.seen = inner_.steps();
    brought ? exchanges_.begin_round(inner_.samples()) : exchanges_.begin_round();
    const training_position own{inner_.samples(), inner_.steps()};
    at_.by_worker = {settings_.workers, brought ? training_position{samples(), at_.before} : at_.by_worker(own), own};
  }
  /// All workers have come to the end. What was wished is saved now; a cut that none of them has made is wished again,
  /// and one that only some have made fails.
  void save_at_rest() {
    inner_.cut_next(false);
    state_.rest(
        ranks(), [this](std::span<double> numbers) { sum_over_ranks(numbers); },
        [this](char const* problem) { state_.cut(inner_.copy_now(false), problem); });
  }

  exchange_settings settings_;
  options chosen_;
  std::function<std::unique_ptr<exchange_type>(exchange_settings const&, split_backend<Backend>, std::size_t)> make_exchange_;
  level_position at_;
  std::unique_ptr<workers_world<Backend>> in_;
  std::uint64_t bytes_before_ = 0;  // of exchanges among other workers, and of slots
  mutable round_totals totals_;
  inner_engine inner_;
  exchanges_type exchanges_;
  const state_shape shape_ = shape_of_level(inner_.shape(), chosen_);
  const level_construction construction_{settings_, inner_.construction(), exchanges_.first().construction()};
  level_state<inner_engine, exchanges_type> state_{inner_, exchanges_, settings_, at_};  // ends before what it keeps
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
