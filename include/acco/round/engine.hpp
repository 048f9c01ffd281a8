// SPDX-License-Identifier: Apache-2.0
// The engine: one rank's optimizer as a trainer sees it. It owns the parts and passes calls on; each part has a header
// of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend_in_use.hpp"
#include "acco/layout/placement.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/adopted_memory.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/construction.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/restoring.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/run_record.hpp"
#include "acco/round/saving.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/state_transfer.hpp"
#include "acco/round/step_loop.hpp"
#include "acco/round/tasks.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/storage/scoped_buffer.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// All members are called by the trainer's thread.
template <class Storage>
class round_engine : public training_engine<typename Storage::parameter_type, typename Storage::gradient_type> {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;

  using tasks_type = round_tasks<Storage>;
  using loop_type = step_loop<Storage>;

  /// Throws `usage_error`: no trainable element, an option out of range, a pace that ends no round.
  round_engine(std::unique_ptr<schedule_in_use<Storage>> schedule, std::unique_ptr<rule_in_use<Storage>> rule, Storage storage,
               std::unique_ptr<backend_in_use<Storage>> backend, parameter_layout layout, options chosen)
      : schedule_(std::move(schedule)),
        rule_(checked(std::move(rule), backend->rank())),
        layout_(std::move(layout)),
        options_(checked(std::move(chosen), *schedule_, *rule_, layout_, backend->rank())),
        waits_(schedule_->plan(0).meanwhile == computation::waits),
        placement_(placed(schedule_->owners(backend->size()))),
        shares_(placement_.empty() ? partition(layout_.trainable_size(), schedule_->owners(backend->size()),
                                               bucket_elements(schedule_->owners(backend->size())))
                                   : placement_.shares(schedule_->owners(backend->size()))),
        accumulator_(layout_, shares_, waits_, options_.stable_addresses, schedule_->keeps() && !options_.in_place),
        record_(options_),
        tasks_(*rule_, std::move(storage), std::move(backend), layout_, options_, accumulator_, shares_,
               schedule_->keeps_reduced()) {
    tasks_.declare(*schedule_);
    require_storage();
  }
  round_engine(round_engine const&) = delete;
  round_engine& operator=(round_engine const&) = delete;
  ~round_engine() override {
    membership_.end(loop_.in_flight());
    queue().stop();
  }

  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table;
    accumulator_.count(table);
    tasks_.count(table);
    table.gathering += Storage::allocation_size(gathered_bytes(), 0);
    table.staging = saves_.bytes();
    return table;
  }

  /// `begin`, and gives every rank the parameters of rank 0. Collective; blocks.
  void initialize(std::span<parameter_type const> values) override {
    begin();
    take_from_rank_0(values);
    tasks_.state().begin_averages(queue());
    queue().wait();
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    begin();
    transfer_.take_masters(read);
    ++frozen_values_;
    tasks_.state().begin_averages(queue());
    queue().wait();
    loop_.shows(visible::masters);
    queue().clock().begin();
  }
  /// Compares the ranks' construction, and allocates. Collective; blocks.
  void begin() override {
    queue().place.phase = "initialize";
    membership_.join();
    tasks_.joined(schedule_->same_everywhere());
    membership_.together([&] { agree(queue(), backend(), construction_lines().lines(), queue().place); });
    try {
      tasks_.allocate();  // first: it makes room in the queue
      accumulator_.allocate(tasks_.storage(), queue());
    } catch (std::bad_alloc const&) {
      constexpr double mebibyte = 1 << 20;
      throw memory_error(
          queue().place,
          text("the buffers of this rank, ", static_cast<double>(memory().total()) / mebibyte, " MiB, could not be allocated"),
          text("Use more ranks, smaller types, or fewer parameters; memory() lists the buffers"));
    }
  }
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) override {
    return adopted_.claim(memory, bytes, trained);
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients, bool begins) override {
    accumulator_.adopt(parameters, gradients);
    if (begins) initialize(parameters);
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors, bool begins) override {
    accumulator_.adopt(layout_, tensors);
    if (!begins) return;
    const scoped_buffer whole(queue(), tasks_.storage().allocate(layout_.size() * sizeof(parameter_type), 0));
    const std::span<parameter_type> initial(whole.template as<parameter_type>(), layout_.size());
    accumulator_.copy_parameters(queue(), initial);
    initialize(initial);
  }
  void set_parameters(std::span<parameter_type const> values) override {
    queue().place = loop_.place_in("set_parameters");
    loop_.take_back_memory();
    take_from_rank_0(values);
    tasks_.arrays().forget_feedback(queue());
    loop_.shows(visible::masters);
  }
  [[nodiscard]] bool at_rest() const noexcept override { return loop_.at_rest(); }
  [[nodiscard]] bool finished() const noexcept override { return at_rest() && membership_.finished(); }

  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override { return accumulator_.parameters(); }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override { return accumulator_.gradients(); }
  [[nodiscard]] std::span<double const> norms() const noexcept override { return loop_.norms(); }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    auto const found = layout_[index];
    if (found.size == 0) return {};
    gradient_type* const gradients = accumulator_.gradient_at(found.offset);
    return {{accumulator_.parameter_at(found.offset), found.size}, {gradients, gradients == nullptr ? 0 : found.size}};
  }
  [[nodiscard]] double samples() const noexcept override { return record_.run.samples; }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return record_.run.steps; }
  [[nodiscard]] round_totals const& totals() const noexcept override { return record_.totals; }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return layout_; }
  [[nodiscard]] error_place place() const noexcept override { return loop_.place(); }

  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    return loop_.accumulated(weight, loss_sum, [](round_report&) {});
  }
  void poll() override { queue().poll(); }

  /// Takes part in rounds until every rank is finishing and nothing is left to commit; then shows committed parameters.
  /// Collective; blocks.
  void finish(unfinished rest) override {
    finish(rest, [](round_report&) {});
  }

  /// The same; between(report) as in step_loop.
  template <class Between>
  void finish(unfinished rest, Between&& between) {
    loop_.begin_finish(rest, between);
    while (!loop_.finish_round(rest, between)) continue;
    loop_.end_finish();
  }

  /// Writes the committed parameters, after the round in flight if it commits, or their averages, into `out`, in the
  /// order of the layout. Collective; blocks.
  void gather(std::span<parameter_type> out, weights which) override {
    loop_.outside_rounds([&] { transfer_.gather(out, which == weights::average); });
  }
  /// The same in the master's type, chunk by chunk. Collective; blocks.
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) override {
    loop_.outside_rounds([&] { transfer_.give_masters(take, which == weights::average); });
  }

  /// Replaces the numbers by their sums over all ranks. Collective; blocks until the round in flight is done.
  void sum_over_ranks(std::span<double> numbers) override {
    loop_.outside_rounds([&] { acco::sum_over_ranks(tasks_, numbers, sum_kind::by_trainer); });
  }

  [[nodiscard]] std::uint64_t state_digest() override {
    std::uint64_t digest = 0;
    loop_.outside_rounds([&] { digest = tasks_.arrays().digest(queue(), loop_.committed().steps); });
    return digest;
  }
  [[nodiscard]] std::uint64_t world_digest() override {
    std::uint64_t digest = 0;
    loop_.outside_rounds([&] {
      digest_words words = digest_words::of(tasks_.arrays().part_of_digest(queue()));
      acco::sum_over_ranks(tasks_, words.word);
      digest = words.sum() + digest_of(loop_.committed().steps, loop_.committed().samples);
    });
    return digest;
  }

  [[nodiscard]] state_shape const& shape() const noexcept override { return tasks_.arrays().shape(); }
  [[nodiscard]] bool has_doubles() const noexcept override { return shape().master == element_type::float64; }
  [[nodiscard]] bool has_averages() const noexcept override { return shape().averages() || rule_->averages(); }
  [[nodiscard]] partition shares() const noexcept override { return shares_; }
  [[nodiscard]] std::vector<char> construction() const override {
    description const found = construction_lines();
    return {found.lines().begin(), found.lines().end()};
  }
  [[nodiscard]] options const& chosen() const noexcept override { return options_; }
  void copy_parameters(std::size_t tensor, std::byte* to) override {
    auto const each = layout_[tensor];
    Storage::visit_on_host(queue(), accumulator_.parameter_at(each.offset), each.size,
                           [to](parameter_type const* from, std::size_t index, std::size_t count) {
                             std::memcpy(to + index * sizeof(parameter_type), from, count * sizeof(parameter_type));
                           });
  }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return accumulator_.adopted() ? 0 : frozen_values_; }
  void broadcast(std::span<char> bytes, int root) override { broadcast_and_wait(queue(), backend(), bytes, root); }
  [[nodiscard]] checkpointer* keeper() noexcept override { return saves_.keeper(); }
  [[nodiscard]] save_outcome const* saved() const noexcept override { return saves_.saved(); }
  void together(function_view<void()> action) override { membership_.together(action); }
  [[nodiscard]] bool can_be_saved() const noexcept override { return stages<Storage>; }
  void attach(checkpointer* keeper) override { saves_.attach(std::unique_ptr<checkpointer>(keeper), place()); }
  void load(state_source& source) override {
    schedule_->require_shares(place());
    loop_.take_back_memory();
    restores_.load(source);
  }
  std::uint64_t resume(resumption how) override {
    take_up(how);
    loop_.land_if_waiting([](round_report&) {});
    const std::uint64_t digest = world_digest();
    taken_up();
    return digest;
  }
  [[nodiscard]] int ranks() const noexcept override { return tasks_.backend().size(); }

  // For a level around this one (outer/outer_engine.hpp), which knows the engine's type.

  [[nodiscard]] loop_type& loop() noexcept { return loop_; }
  [[nodiscard]] tasks_type& tasks() noexcept { return tasks_; }
  /// At rest, in host memory: all ranks' shards of the arrays of the state (state_copy.hpp), by position. Collective;
  /// blocks.
  [[nodiscard]] std::vector<std::vector<typename Storage::master_type>> gather_state()
    requires std::is_same_v<parameter_type, typename Storage::master_type>
  {
    std::vector<std::vector<typename Storage::master_type>> arrays;
    loop_.outside_rounds([&] {
      for_shards([&](std::size_t, typename Storage::master_type const* slice) {
        gather_shards(tasks_, slice, std::span(arrays.emplace_back(shares_.padded_size())));
        arrays.back().resize(shares_.size());
      });
    });
    return arrays;
  }
  /// `resume` in parts: this, collective, which blocks; what else is to be sent; and `taken_up`. A round that the
  /// computation waits for has still to land.
  void take_up(resumption how) {
    restores_.resume(how);
    ++frozen_values_;
  }
  void taken_up() {
    restores_.forget_sent();
    queue().clock().begin();
  }
  void begin_after(std::uint64_t updates) { restores_.begin_after(updates); }
  /// In host memory: visit(number, this rank's shard) for each sharded array of the state, also of a round in flight.
  template <class Visitor>
  void for_arrays(Visitor&& visit) {
    loop_.outside_rounds([&] { for_shards(visit); });
  }
  /// This rank's state now, the round in flight as one that is done and has not landed, with the parameters in use.
  /// Blocks. Valid until the next one.
  [[nodiscard]] state_view copy_now(bool shows) {
    state_view found{nullptr, nullptr, shares_, 0, {}, false, false};
    loop_.outside_rounds([&] { found = saves_.copy_now(loop_.in_flight(), shows); });
    return found;
  }
  /// Whether copies may have parameters in use, and parameters that arrive.
  [[nodiscard]] state_staging<Storage> const& room() const noexcept { return saves_.room(); }
  void cut_next(bool due) noexcept { saves_.cut_next(due); }
  /// At rest: the numbers of the state.
  [[nodiscard]] run_numbers numbers() const {
    run_numbers found;
    saves_.keep(found);
    return found;
  }
  /// At rest: by position, what wires keep of this rank's gradients that they have not sent; empty where none does
  /// so in `T`; in int8_blocks an int8_place.
  template <class T = gradient_type>
  [[nodiscard]] auto feedback() noexcept {
    return tasks_.arrays().template feedback<T>();
  }
  /// At rest, on every rank: this one may leave in peace, as after `finish`.
  void mark_finished() noexcept { membership_.finish(); }

  void leave(std::string_view reason) noexcept override { loop_.leave(reason); }
  [[nodiscard]] bool in_step() const noexcept override { return membership_.in_step(); }

 private:
  [[nodiscard]] description construction_lines() const {
    description lines;
    schedule_->describe(lines);  // first: what is named first in a mismatch is what is chosen by a flag
    describe_construction<Storage>(lines, *rule_, options_, layout_, schedule_->groups(tasks_.backend()), ranks());
    return lines;
  }
  template <class Visitor>
  void for_shards(Visitor&& visit) {
    tasks_.arrays().for_kept([&](std::size_t array, auto values) {
      if constexpr (std::is_invocable_v<Visitor&, std::size_t, decltype(values)>) {  // other types are whole
        if (shape().extent(array) == array_extent::shard) visit(array, values);
      }
    });
  }
  /// The values of rank 0 become every rank's parameters in use, and masters. Collective; blocks.
  void take_from_rank_0(std::span<parameter_type const> values) {
    transfer_.take_from(values, true);
    ++frozen_values_;
    queue().clock().begin();
  }
  /// What options ask for, and the storage lacks.
  void require_storage() const {
    if constexpr (!digests<Storage>) {
      if (options_.digest_every != 0) {
        throw usage_error(place(), text("options::digest_every: this storage cannot be digested: it lacks `digest`"),
                          text("storage/host.hpp has it"));
      }
    }
  }
  [[nodiscard]] std::size_t gathered_bytes() const noexcept { return shares_.padded_size() * sizeof(parameter_type); }
  static std::unique_ptr<rule_in_use<Storage>> checked(std::unique_ptr<rule_in_use<Storage>> rule, int rank) {
    rule->check(rank);
    return rule;
  }
  static options checked(options chosen, schedule_in_use<Storage> const& schedule, rule_facts const& rule,
                         parameter_layout const& layout, int rank) {
    chosen.check({.rank = rank});
    if (layout.trainable_size() == 0) {
      throw usage_error({.rank = rank}, text("the layout has ", layout.size(), " parameters and none of them is trainable"),
                        text("Give a positive parameter count, or a layout with a group that is not frozen"));
    }
    schedule.check({.rank = rank});
    schedule.check(layout, {.rank = rank});
    if (const bool keeps = chosen.in_place && schedule.keeps(); !Storage::host_memory && (keeps || chosen.clip_with)) {
      throw usage_error({.rank = rank},
                        keeps ? text("options::in_place: nobody could see that kept gradients of this storage were cleared")
                              : text("options::clip_with: the norms of this storage's gradients never come to the host"),
                        text("It is for gradients in host memory: leave it out"));
    }
    rule.check(layout, chosen.average_decay != 0, rank);
    return chosen;
  }
  /// Where the rule updates matrices, or some code has tiles.
  [[nodiscard]] placement placed(int ranks) const {
    if (!rule_->has_matrices && !schedule_->has_tiles()) return {};
    const auto whole = [this](std::size_t tensor) { return rule_->whole(layout_.groups()[layout_[tensor].group]); };
    return {layout_, ranks, bucket_elements(ranks), whole, schedule_->has_tiles()};
  }
  /// Trainable elements of a bucket, over all ranks.
  [[nodiscard]] std::size_t bucket_elements(int ranks) const noexcept {
    if (options_.bucket_elements != 0) return options_.bucket_elements;
    return Storage::usual_share * static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] typename Storage::queue& queue() noexcept { return tasks_.queue(); }
  [[nodiscard]] backend_in_use<Storage>& backend() noexcept { return tasks_.backend(); }

  std::unique_ptr<schedule_in_use<Storage>> schedule_;
  std::unique_ptr<rule_in_use<Storage>> rule_;
  parameter_layout layout_;
  options options_;
  bool waits_;  // whether the computation waits for rounds
  placement placement_;
  partition shares_;
  adopted_memory adopted_;  // the trainer's arrays that the accumulator works in
  gradient_accumulator<Storage> accumulator_;
  run_record record_;
  std::uint64_t frozen_values_ = 0;  // how often they were set

  tasks_type tasks_;  // its queue's threads use what is above
  saving<Storage> saves_{tasks_, *schedule_, accumulator_, layout_, options_, record_, shares_, waits_};
  membership membership_{tasks_.backend()};
  loop_type loop_{tasks_, *schedule_, accumulator_, membership_, adopted_, layout_, options_, record_, saves_, waits_};
  state_transfer<Storage> transfer_{tasks_, accumulator_, adopted_, layout_, shares_};
  restoring<Storage> restores_{tasks_, *schedule_, accumulator_, transfer_, loop_, layout_, record_, waits_};
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
