// SPDX-License-Identifier: Apache-2.0
// An update rule behind a plain interface: what the engine asks of it, a few times a round and once for each bucket.
// All rules share the engine of a storage; what is compiled for a rule is its update.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "acco/handed.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/update_group.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/construction.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/update_table.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a rule is asked before it has seen a storage.
class rule_facts {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  rule_facts(rule_facts const&) = delete;
  rule_facts& operator=(rule_facts const&) = delete;
  virtual ~rule_facts() = default;

  const std::size_t slot_count;
  const bool has_matrices;           ///< update_rule.hpp: matrix_rule
  const std::size_t others_slot;     ///< remembers_others; or none
  const std::size_t average_slot;    ///< keeps_average; or none
  const std::size_t reference_slot;  ///< remembers_reference; or none

  [[nodiscard]] bool averages() const noexcept { return average_slot != none; }
  /// Of its type, slots of its decoration included: it names the arrays of a state.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Everything about it on which the ranks must agree.
  virtual void describe(description& into) const = 0;
  /// Its own check of its hyperparameters: throws `usage_error`.
  virtual void check(int rank) const = 0;
  /// The same of what groups replace, of the tensors that it takes for matrices, and of averages that others keep, too.
  virtual void check(parameter_layout const& layout, bool averages, int rank) const = 0;
  /// Whether a group's tensors are matrices to it; how many numbers of room it needs for one.
  [[nodiscard]] virtual bool whole(update_group const& group) const noexcept = 0;
  [[nodiscard]] virtual std::size_t scratch_of(std::size_t rows, std::size_t columns) const noexcept = 0;

 protected:
  rule_facts(std::size_t slots, bool matrices, std::size_t others, std::size_t average, std::size_t reference) noexcept
      : slot_count(slots), has_matrices(matrices), others_slot(others), average_slot(average), reference_slot(reference) {}
};

/// The slice that updates work on, as long as their tasks run: `update_table` without the constants.
template <class Storage>
struct slice_in_use {
  typename Storage::master_type* master;
  typename Storage::master_type* const* slots;  ///< as many as the rule has
  typename Storage::sum_type const* gradient;
  region_update const* decided;
  update_block const* blocks;
  update_matrix const* matrices;
  typename Storage::master_type* scratch;
};

/// The same with its constants, by region, and its updates.
template <class Storage>
class rule_in_use : public rule_facts {
 public:
  using parameter_type = typename Storage::parameter_type;
  using queue = typename Storage::queue;

  virtual void allocate(Storage const& storage, std::size_t regions) = 0;
  /// Computes a region's constants of the coming update, and of the update after it, which commit_and_predict uses too;
  /// tasks that are enqueued after the upload see them.
  virtual void prepare(std::size_t region, update_step const& now, update_group const& group) = 0;
  virtual void prepare_next(std::size_t region, update_step const& next, update_group const& group) = 0;
  virtual void upload(queue& q) = 0;
  virtual void upload_next(queue& q) = 0;
  /// What the updates of a round read.
  virtual void begin(slice_in_use<Storage> const& slice) = 0;
  /// Enqueues the update of the blocks, or of the matrices, from `first` to before `last`; `out` is indexed like the
  /// slice.
  virtual void apply(update kind, queue& q, std::size_t first, std::size_t last, parameter_type* out) const = 0;
  virtual void apply_to_matrices(update kind, queue& q, std::size_t first, std::size_t last, parameter_type* out) const = 0;

 protected:
  using rule_facts::rule_facts;
};

/// The one of type `Rule`.
template <class Rule, class Storage>
class rule_of final : public rule_in_use<Storage> {
 public:
  using master_type = typename Storage::master_type;
  using typename rule_in_use<Storage>::parameter_type;
  using typename rule_in_use<Storage>::queue;

  explicit rule_of(Rule rule)
      : rule_in_use<Storage>(Rule::slot_count, matrix_rule<Rule>, others_of(), average_of(), reference_of()),
        rule_(std::move(rule)) {}

  [[nodiscard]] std::string name() const override { return name_of_type<Rule>(); }
  void describe(description& into) const override { into.add_all("rule.", rule_); }
  void check(int rank) const override { check_rule(rule_, rank); }
  void check(parameter_layout const& layout, bool averages, int rank) const override {
    if (averages && keeps_average<Rule>) {
      throw usage_error({.rank = rank}, text("options::average_decay is set, and the rule keeps an average itself"),
                        text("Leave it 0: gather_average gives the rule's"));
    }
    check_groups(rule_, layout, rank);
    check_without_gradient<master_type>(rule_, layout, rank);
  }
  [[nodiscard]] bool whole(update_group const& group) const noexcept override { return updates_whole<Rule>(group); }
  [[nodiscard]] std::size_t scratch_of([[maybe_unused]] std::size_t rows,
                                       [[maybe_unused]] std::size_t columns) const noexcept override {
    if constexpr (matrix_rule<Rule>) return Rule::scratch_of(rows, columns);
    return 0;
  }

  void allocate(Storage const& storage, std::size_t regions) override {
    now_ = {storage, regions};
    next_ = {storage, regions};
  }
  void prepare(std::size_t region, update_step const& now, update_group const& group) override {
    now_[region] = rule_.prepare(now, group);
  }
  void prepare_next(std::size_t region, update_step const& next, update_group const& group) override {
    next_[region] = rule_.prepare(next, group);
  }
  void upload(queue& q) override { now_.upload(q); }
  void upload_next(queue& q) override { next_.upload(q); }
  void begin(slice_in_use<Storage> const& s) override {
    table_ = {s.master, {}, s.gradient, now_.there(), next_.there(), s.decided, s.blocks, s.matrices, s.scratch};
    for (std::size_t k = 0; k < Rule::slot_count; ++k) table_.slots[k] = s.slots[k];
  }
  void apply(update kind, queue& q, std::size_t first, std::size_t last, parameter_type* out) const override {
    with(kind, [&](auto constant) { Storage::template apply<Rule, constant()>(q, &table_, first, last, out); });
  }
  void apply_to_matrices([[maybe_unused]] update kind, [[maybe_unused]] queue& q, [[maybe_unused]] std::size_t first,
                         [[maybe_unused]] std::size_t last, [[maybe_unused]] parameter_type* out) const override {
    if constexpr (matrix_rule<Rule>) {
      with(kind, [&](auto constant) { Storage::template apply_to_matrices<Rule, constant()>(q, &table_, first, last, out); });
    }
  }

 private:
  using constants_table = typename Storage::template numbers<rule_constants<Rule>>;

  static constexpr std::size_t others_of() noexcept {
    if constexpr (remembers_others<Rule>) return Rule::others_slot;
    return rule_facts::none;
  }
  static constexpr std::size_t average_of() noexcept {
    if constexpr (keeps_average<Rule>) return Rule::average_slot;
    return rule_facts::none;
  }
  static constexpr std::size_t reference_of() noexcept {
    if constexpr (remembers_reference<Rule>) return Rule::reference_slot;
    return rule_facts::none;
  }
  /// action(the kind as a constant); nothing of a kind that the rule has not.
  template <class Action>
  static void with(update kind, Action&& action) {
    switch (kind) {
      case update::predict: return action(std::integral_constant<update, update::predict>());
      case update::commit: return action(std::integral_constant<update, update::commit>());
      case update::commit_and_predict: return action(std::integral_constant<update, update::commit_and_predict>());
      case update::commit_and_show:
        if constexpr (shows<Rule>) return action(std::integral_constant<update, update::commit_and_show>());
    }
  }

  Rule rule_;
  constants_table now_, next_;
  update_table<Rule, master_type, typename Storage::sum_type> table_{};
};

/// The one way to make one: acco::compiled has it of usual types.
template <class Rule, class Storage>
[[nodiscard]] handed<rule_in_use<Storage>> new_rule(Rule rule) {
  return hand<rule_in_use<Storage>, rule_of<Rule, Storage>>(std::move(rule));
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
