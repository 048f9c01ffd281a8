// SPDX-License-Identifier: Apache-2.0
// The full-size buffers: parameters in use, gradients being accumulated, and what a round in flight owns; and how they
// change places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/stage/stagger.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The buffers that belong to a round in flight. Move-only: whoever holds it may touch them, nobody else.
template <class Parameter, class Gradient>
class round_buffers {
 public:
  round_buffers() = default;
  round_buffers(Gradient* carried, Parameter* arriving, partition shares)
      : carried_(carried), arriving_(arriving), shares_(shares) {}
  round_buffers(round_buffers&& other) noexcept { *this = std::move(other); }
  round_buffers& operator=(round_buffers&& other) noexcept {
    carried_ = std::exchange(other.carried_, nullptr);
    arriving_ = std::exchange(other.arriving_, nullptr);
    shares_ = other.shares_;
    return *this;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return carried_ != nullptr; }
  /// What the round carries: this rank's addend.
  [[nodiscard]] partial<Gradient const> gradients() const noexcept {
    return partial<Gradient const>({carried_, shares_.padded_size()});
  }
  /// Where the parameters arrive. May lie in the same memory as `gradients()`: write only after the reduce-scatter.
  [[nodiscard]] replicated<Parameter> parameters() const noexcept {
    return replicated<Parameter>({arriving_, shares_.padded_size()});
  }

 private:
  Gradient* carried_ = nullptr;
  Parameter* arriving_ = nullptr;
  partition shares_{0, 1};
};

/// Owns the full-size buffers of one rank. `launch` hands the accumulated gradients to a round, `empty` gives the
/// trainer an empty accumulator; `land` brings the parameters that arrived into use, all at once: a round that fails
/// leaves no trace in them.
///
/// | mode       | when                                    | the round carries | parameters arrive  | landing         | spans |
/// |------------|-----------------------------------------|-------------------|--------------------|-----------------|-------|
/// | swapping   | the computation waits, equal sizes      | the accumulator   | in the accumulator | they swap       | move  |
/// | delivering | it waits; stable, or smaller parameters | the accumulator   | in the accumulator | copied          | stay  |
/// | rotating   | it continues                            | the accumulator   | in a third buffer  | pointers rotate | move  |
/// | copying    | stable, adopted, frozen tensors, or a   | a copy, without   | in the copy        | copied          | stay  |
/// |            | placement                               |                   |                    |                 |       |
///
/// Parameters arrive in memory that held the carried gradients only after those have left the rank (`parameters_in`).
/// Where parameter and gradient differ in size, rotating has two pairs of buffers.
///
/// What a round `keeps` (rotating, copying) lies aside until the next launch adds to it, so the trainer's accumulator
/// is empty after every launch. That takes two pairs of buffers. `in_place` saves one: kept gradients stay in the
/// accumulator.
template <class Storage>
class gradient_accumulator {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using queue = typename Storage::queue;
  using flight = round_buffers<parameter_type, gradient_type>;

  /// `keeps_aside`: some round keeps what it carries, and not in place.
  gradient_accumulator(parameter_layout const& layout, partition shares, bool computation_waits, bool stable_addresses,
                       bool keeps_aside = false)
      : shares_(shares), whole_(layout.size()), gaps_(shares.size() != layout.trainable_size()), keeps_aside_(keeps_aside) {
    take_runs(trainable_runs(layout));
    const bool gaps = layout.trainable_size() != layout.size() || shares.placed().count != 0;
    constexpr bool fits = sizeof(parameter_type) <= sizeof(gradient_type);
    if (gaps) {
      mode_ = mode::copying;
    } else if (computation_waits) {
      mode_ = same_size && !stable_addresses ? mode::swapping : fits ? mode::delivering : mode::copying;
    } else {
      mode_ = stable_addresses ? mode::copying : mode::rotating;
    }
  }

  /// Works in arrays of the trainer's, in the order of the layout, instead of buffers of its own: they outlive this
  /// object, and never change places. Before `count` and `allocate`.
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients) noexcept {
    mode_ = mode::copying;
    adopted_parameters_ = parameters.data();
    adopted_gradients_ = gradients.data();
  }

  /// The same with tensors that lie apart, one for each of the layout's.
  void adopt(parameter_layout const& layout, std::span<tensor_memory<parameter_type, gradient_type> const> tensors) {
    mode_ = mode::copying;
    std::vector<tensor_memory<parameter_type, gradient_type>> trained;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      const bool trains = !layout.groups()[layout[k].group].frozen && layout[k].size != 0;
      apart_.push_back({layout[k].offset, layout[k].size, tensors[k].parameters, tensors[k].gradients});
      if (trains) trained.push_back(tensors[k]);
    }
    take_runs(trainable_runs(layout, true));
    for_placed_runs(trainable_runs(layout, true), shares_, [&](std::size_t run, std::size_t in_run, std::size_t, std::size_t) {
      of_runs_.push_back({trained[run].parameters + in_run, trained[run].gradients + in_run});
    });
  }
  /// Whether tensors lie apart: then there are no whole arrays.
  [[nodiscard]] bool lies_apart() const noexcept { return !apart_.empty(); }
  /// Whether the parameters in use are the trainer's own arrays.
  [[nodiscard]] bool adopted() const noexcept { return adopted_parameters_ != nullptr || lies_apart(); }

  /// Fills in this class's rows of the byte table.
  void count(memory_table& table) const noexcept {
    for (std::size_t k = 0; k < buffer_count; ++k) {
      const std::size_t bytes = Storage::allocation_size(size_of(k), stagger::accumulator + k);
      (k == 0 ? table.parameters : k == 1 ? table.gradients : table.in_flight) += bytes;
    }
  }

  /// Allocates; gradients are zero, parameters undefined until `set_parameters`.
  void allocate(Storage const& storage, queue& q) {
    for (std::size_t k = 0; k < buffer_count; ++k) buffers_[k] = storage.allocate(size_of(k), stagger::accumulator + k);
    parameters_ = adopted() ? adopted_parameters_ : buffers_[0].template as<parameter_type>();
    gradients_ = adopted() ? adopted_gradients_ : buffers_[1].template as<gradient_type>();
    arriving_ = buffers_[2].template as<parameter_type>();
    spare_ = buffers_[pairs() ? 3 : 2].template as<gradient_type>();
    clear(q, gradients_);
    if (lies_apart()) {
      places_ = {storage, runs_.size()};
      for (std::size_t k = 0; k < runs_.size(); ++k) places_[k] = of_runs_[k].parameters;
      q.after_computation();
      places_.upload(q);
    }
    if (mode_ != mode::copying) Storage::clear(q, parameters_, shares_.padded_size());
    table_ = {storage, runs_.size()};
    for (std::size_t k = 0; k < runs_.size(); ++k) table_[k] = runs_[k];
    q.after_computation();
    table_.upload(q);
  }

  /// Parameters in use and gradients being accumulated, in the order of the layout.
  /// Nothing where tensors lie apart.
  [[nodiscard]] std::span<parameter_type> parameters() const noexcept { return {parameters_, lies_apart() ? 0 : whole_}; }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept { return {gradients_, lies_apart() ? 0 : whole_}; }

  /// The parameters in use, where they lie as all ranks' shares travel, with room for the padding; else null.
  [[nodiscard]] parameter_type* gathered() const noexcept { return mode_ == mode::copying ? nullptr : parameters_; }

  /// One of their elements, by its place in the layout.
  [[nodiscard]] parameter_type const* parameter_at(std::size_t offset) const noexcept {
    if (!lies_apart()) return parameters_ + offset;
    tensor_apart const* const tensor = apart_at(offset);
    return tensor == nullptr ? nullptr : tensor->parameters + (offset - tensor->offset);
  }
  [[nodiscard]] gradient_type* gradient_at(std::size_t offset) const noexcept {
    if (!lies_apart()) return gradients_ + offset;
    tensor_apart const* const tensor = apart_at(offset);
    return tensor == nullptr || tensor->gradients == nullptr ? nullptr : tensor->gradients + (offset - tensor->offset);
  }

  /// The parameters in use, by the number of the trainable element, for tasks of the queue.
  [[nodiscard]] trainable_view<parameter_type> in_use() const noexcept {
    return {parameters_, table_.there(), runs_.size(), lies_apart() ? places_.there() : nullptr, gaps_};
  }

  /// Hands what was accumulated to a round, with what the round before has kept; `empty` makes the accumulator empty
  /// then, unless it `keeps` in place, or the computation waits: then it is when the round has landed. The trainer's
  /// spans move only at a boundary that is reported to it: the first launch after a start copies instead (`quietly`).
  [[nodiscard]] flight launch(queue& q, bool quietly, bool keeps = false) {
    if (mode_ == mode::swapping || mode_ == mode::delivering) return arrive();
    const bool in_place = keeps && !keeps_aside_;
    if (mode_ == mode::copying) {
      copy_out(q);
    } else if (kept_) {
      Storage::add_now(q, static_cast<gradient_type const*>(gradients_), spare_, shares_.padded_size());
    } else if (!in_place && quietly) {
      Storage::copy(q, gradients_, spare_, shares_.padded_size());
    } else if (!in_place) {
      std::swap(gradients_, spare_);
    }
    kept_ = keeps && keeps_aside_;
    full_ = !in_place;
    if (!pairs()) arriving_ = parameters_in(spare_);
    return {in_place && mode_ == mode::rotating ? gradients_ : spare_, arriving_, shares_};
  }
  /// Between rounds: room for parameters that arrive without one, which `land` brings into use. Carries nothing.
  [[nodiscard]] flight arrive() noexcept {
    if (mode_ == mode::swapping || mode_ == mode::delivering) return {gradients_, parameters_in(gradients_), shares_};
    if (!pairs()) arriving_ = parameters_in(spare_);
    return {spare_, arriving_, shares_};
  }
  /// After `launch`, when it is known behind what the round begins: this is no part of it.
  void empty(queue& q) {
    if (std::exchange(full_, false)) clear(q, gradients_);
  }

  /// Brings the parameters of a completed round into use.
  void land(queue& q, flight&& completed) {
    const flight done = std::move(completed);
    parameter_type* const arrived = done.parameters().whole().data();
    switch (mode_) {
      case mode::swapping:
        gradients_ = gradients_in(std::exchange(parameters_, arrived));
        clear(q, gradients_);
        return;
      case mode::delivering:
        Storage::copy(q, arrived, parameters_, whole_);
        clear(q, gradients_);
        return;
      case mode::copying:
        for (std::size_t k = 0; k < runs_.size(); ++k)
          Storage::copy(q, arrived + runs_[k].first, lies_apart() ? of_runs_[k].parameters : parameters_ + runs_[k].offset,
                        runs_[k].count);
        return;
      case mode::rotating: break;
    }
    arriving_ = std::exchange(parameters_, arrived);
    if (!pairs()) spare_ = gradients_in(arriving_);
  }

  /// Gives up what was accumulated or kept.
  void drop(queue& q) {
    kept_ = false;
    clear(q, gradients_);
  }

  /// Sets the parameters in use on this rank, in the order of the layout.
  void set_parameters(queue& q, std::span<parameter_type const> values) {
    for (tensor_apart const& each : apart_) Storage::copy(q, values.data() + each.offset, each.parameters, each.count);
    if (!lies_apart() && values.data() != parameters_) Storage::copy(q, values.data(), parameters_, values.size());
  }
  /// Some of them, from `offset` of the layout on, within one tensor.
  void put_parameters(queue& q, std::size_t offset, std::span<parameter_type const> values) {
    Storage::copy(q, values.data(), const_cast<parameter_type*>(parameter_at(offset)), values.size());
  }
  /// Copies them to `out`.
  void copy_parameters(queue& q, std::span<parameter_type> out) const {
    for (tensor_apart const& each : apart_) {
      Storage::copy(q, static_cast<parameter_type const*>(each.parameters), out.data() + each.offset, each.count);
    }
    if (!lies_apart() && out.data() != parameters_)
      Storage::copy(q, static_cast<parameter_type const*>(parameters_), out.data(), out.size());
  }

  /// The real elements of a rank's slice, out of a buffer in the order of the layout: calls visit(offset in the slice,
  /// pointer, count).
  template <class Visitor>
  void for_slice(int rank, parameter_type const* whole, Visitor&& visit) const {
    const trainable_view<parameter_type> view{whole, runs_.data(), runs_.size()};
    shares_.for_positions(rank, [&](std::size_t offset, std::size_t first, std::size_t count) {
      view.for_stretches(first, count,
                         [&](parameter_type const* from, std::size_t at, std::size_t n) { visit(offset + at, from, n); });
    });
  }

  /// The same of the parameters in use, wherever they lie.
  template <class Visitor>
  void for_slice_in_use(int rank, Visitor&& visit) const {
    if (!lies_apart()) return for_slice(rank, static_cast<parameter_type const*>(parameters_), visit);
    std::vector<parameter_type const*> places(of_runs_.size());
    for (std::size_t k = 0; k < places.size(); ++k) places[k] = of_runs_[k].parameters;
    const trainable_view<parameter_type> view{nullptr, runs_.data(), runs_.size(), places.data()};
    shares_.for_positions(rank, [&](std::size_t offset, std::size_t first, std::size_t count) {
      view.for_stretches(first, count,
                         [&](parameter_type const* from, std::size_t at, std::size_t n) { visit(offset + at, from, n); });
    });
  }
  /// The most ranges of memory that a slice may lie in.
  [[nodiscard]] std::size_t most_ranges() const noexcept { return runs_.size() + shares_.buckets(); }
  /// Trainable elements, by position, become the parameters in use.
  void show(queue& q, parameter_type const* trainable) {
    for (std::size_t k = 0; k < runs_.size(); ++k)
      Storage::copy(q, trainable + runs_[k].first, lies_apart() ? of_runs_[k].parameters : parameters_ + runs_[k].offset,
                    runs_[k].count);
  }

  /// Copies trainable elements, by position, to where they lie in a buffer in the order of the layout.
  void scatter(queue& q, parameter_type const* trainable, std::span<parameter_type> whole) const {
    for (trainable_run const& run : runs_) Storage::copy(q, trainable + run.first, whole.data() + run.offset, run.count);
  }

  /// What lies at a position, as it is numbered in the order of the layout; of a gap, what follows.
  [[nodiscard]] std::size_t offset_of(std::size_t position) const noexcept {
    const auto run = std::upper_bound(runs_.begin(), runs_.end(), position,
                                      [](std::size_t i, trainable_run const& each) { return i < each.first + each.count; });
    return run == runs_.end() ? whole_ : run->offset + (position - std::min(position, run->first));
  }

 private:
  enum class mode { swapping, delivering, rotating, copying };
  struct tensor_apart {
    std::size_t offset, count;
    parameter_type* parameters;
    gradient_type* gradients;
  };
  static constexpr bool same_size = sizeof(parameter_type) == sizeof(gradient_type);
  static constexpr std::size_t buffer_count = 4;  // parameters, gradients, in flight (two of `pairs`)

  /// Whether arriving parameters and carried gradients have memory of their own.
  [[nodiscard]] bool pairs() const noexcept { return keeps_aside_ || (mode_ == mode::rotating && !same_size); }

  /// The memory of gradients, for the parameters that arrive when the gradients have left, and the reverse: buffers of
  /// trivially copyable elements, aligned for both, that change their purpose from round to round.
  [[nodiscard]] static parameter_type* parameters_in(gradient_type* memory) noexcept {
    return static_cast<parameter_type*>(static_cast<void*>(memory));
  }
  [[nodiscard]] static gradient_type* gradients_in(parameter_type* memory) noexcept {
    return static_cast<gradient_type*>(static_cast<void*>(memory));
  }
  /// Runs of the layout, as they are placed.
  void take_runs(std::vector<trainable_run> const& runs) {
    runs_.clear();
    for_placed_runs(std::span<trainable_run const>(runs), shares_,
                    [&](std::size_t run, std::size_t in_run, std::size_t position, std::size_t count) {
                      runs_.push_back({position, runs[run].offset + in_run, count});
                    });
  }
  /// What is accumulated, in the order in which it travels, replaces the spare gradients, or is added to those that
  /// were kept.
  void copy_out(queue& q) {
    for (std::size_t k = 0; k < runs_.size(); ++k) {
      gradient_type const* const from = lies_apart() ? of_runs_[k].gradients : gradients_ + runs_[k].offset;
      gradient_type* const to = spare_ + runs_[k].first;
      if (kept_) {
        Storage::add_now(q, from, to, runs_[k].count);
      } else {
        Storage::copy(q, from, to, runs_[k].count);
      }
    }
    clear_gaps(q, spare_);
  }
  /// Where no element lies travels zero.
  void clear_gaps(queue& q, gradient_type* carried) const {
    std::size_t behind = 0;
    for (trainable_run const& run : runs_) {
      if (run.first != behind) Storage::clear(q, carried + behind, run.first - behind);
      behind = run.first + run.count;
    }
    Storage::clear(q, carried + behind, shares_.padded_size() - behind);
  }
  /// Nothing behind the last element.
  [[nodiscard]] tensor_apart const* apart_at(std::size_t offset) const noexcept {
    const auto behind = std::upper_bound(apart_.begin(), apart_.end(), offset,
                                         [](std::size_t i, tensor_apart const& each) { return i < each.offset + each.count; });
    return behind == apart_.end() ? nullptr : &*behind;
  }
  [[nodiscard]] std::size_t size_of(std::size_t k) const noexcept {
    if (adopted() && k < 2) return 0;
    const std::size_t padded = shares_.padded_size(), own = mode_ == mode::copying ? whole_ : padded;
    if (k == 0) return own * sizeof(parameter_type);
    if (k == 1) return own * sizeof(gradient_type);
    if (mode_ == mode::swapping || mode_ == mode::delivering) return 0;
    if (!pairs()) return k == 2 ? padded * std::max(sizeof(parameter_type), sizeof(gradient_type)) : 0;
    return padded * (k == 2 ? sizeof(parameter_type) : sizeof(gradient_type));
  }
  void clear(queue& q, gradient_type* gradients) const {
    if (adopted()) {  // what is frozen there is none of ours
      for (std::size_t k = 0; k < runs_.size(); ++k)
        Storage::clear(q, lies_apart() ? of_runs_[k].gradients : gradients + runs_[k].offset, runs_[k].count);
    } else {
      Storage::clear(q, gradients, mode_ == mode::copying ? whole_ : shares_.padded_size());
    }
  }

  partition shares_;
  std::size_t whole_;
  bool gaps_;  // among the positions
  bool keeps_aside_;
  std::vector<trainable_run> runs_;
  typename Storage::template numbers<trainable_run> table_;  // the same, where tasks of the queue find them
  mode mode_;
  parameter_type* adopted_parameters_ = nullptr;  // the trainer's own arrays
  gradient_type* adopted_gradients_ = nullptr;
  std::vector<tensor_apart> apart_;  // or its tensors, and those of them that are runs
  std::vector<tensor_memory<parameter_type, gradient_type>> of_runs_;
  typename Storage::template numbers<parameter_type const*> places_;
  typename Storage::buffer buffers_[buffer_count];
  parameter_type* parameters_ = nullptr;  // in use
  gradient_type* gradients_ = nullptr;    // being accumulated
  parameter_type* arriving_ = nullptr;    // where the next round's parameters arrive
  bool full_ = false;                     // has been launched, and holds what is not to be added to
  bool kept_ = false;                     // `spare_` holds gradients that the next launch adds to
  // the gradients that are not being filled: carried by a round in flight, or kept
  gradient_type* spare_ = nullptr;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
