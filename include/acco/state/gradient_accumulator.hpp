// SPDX-License-Identifier: Apache-2.0
// The full-size buffers: parameters in use, gradients being accumulated, and what a round in flight owns; and how they change
// places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "acco/collective/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/observe/memory_table.hpp"

namespace ACCO_NAMESPACE {

/// The buffers that belong to a round in flight. Move-only: whoever holds it may touch them, nobody else.
template <class Parameter, class Gradient>
class round_buffers {
 public:
  round_buffers() = default;
  round_buffers(Gradient* carried, Parameter* arriving, partition shares, bool kept = false)
      : carried_(carried), arriving_(arriving), shares_(shares), kept_(kept) {}
  round_buffers(round_buffers&& other) noexcept { *this = std::move(other); }
  round_buffers& operator=(round_buffers&& other) noexcept {
    carried_ = std::exchange(other.carried_, nullptr);
    arriving_ = std::exchange(other.arriving_, nullptr);
    shares_ = other.shares_;
    kept_ = other.kept_;
    return *this;
  }

  [[nodiscard]] explicit operator bool() const noexcept { return carried_ != nullptr; }
  /// Whether the accumulator keeps what the round carries: then it must be read at once, before the trainer adds to it.
  [[nodiscard]] bool kept() const noexcept { return kept_; }
  /// What the round carries: this rank's addend.
  [[nodiscard]] partial<Gradient const> gradients() const noexcept {
    return partial<Gradient const>({carried_, shares_.padded_size()});
  }
  /// Where the parameters arrive. May lie in the same memory as `gradients()`: write only after the reduce-scatter.
  [[nodiscard]] replicated<Parameter> parameters() const noexcept {
    return replicated<Parameter>({arriving_, shares_.padded_size()});
  }
  /// A rank's own slice of the arriving parameters.
  [[nodiscard]] std::span<Parameter> slice(int rank) const noexcept {
    return {arriving_ + shares_.begin(rank), shares_.slice_size()};
  }

 private:
  Gradient* carried_ = nullptr;
  Parameter* arriving_ = nullptr;
  partition shares_{0, 1};
  bool kept_ = false;
};

/// Owns the full-size buffers of one rank. `launch` hands the accumulated gradients to a round and gives the trainer an empty
/// accumulator; `land` brings the parameters that arrived into use. How they change places:
///  - in_place (the computation waits for rounds): parameters arrive where they are in use; two buffers;
///  - exchanging (the same, and parameters travel as differences): they arrive where the gradients were; two buffers that change
///    places (three, when parameter and gradient differ in size);
///  - rotating: three buffers (or two pairs, when parameter and gradient differ in size) swap pointers; nothing is copied;
///  - copying (`stable_addresses`, or frozen tensors between trainable ones): the trainer's two buffers stay, a third one
///  travels.
template <class Storage>
class gradient_accumulator {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using queue = typename Storage::queue;
  using flight = round_buffers<parameter_type, gradient_type>;

  gradient_accumulator(parameter_layout const& layout, partition shares, bool computation_waits, bool stable_addresses,
                       bool differences = false)
      : shares_(shares), whole_(layout.size()), runs_(trainable_runs(layout)) {
    const bool has_gaps = layout.trainable_size() != layout.size();
    const bool in_place = computation_waits && !differences;
    mode_ = has_gaps || (stable_addresses && !in_place) ? mode::copying
            : in_place                                  ? mode::in_place
            : computation_waits                         ? mode::exchanging
                                                        : mode::rotating;
  }

  /// Fills in this class's rows of the byte table.
  void count(memory_table& table) const noexcept {
    for (std::size_t k = 0; k < buffer_count; ++k) {
      const std::size_t bytes = Storage::allocation_size(size_of(k), k);
      (k == 0 ? table.parameters : k == 1 ? table.gradients : table.in_flight) += bytes;
    }
  }

  /// Allocates; gradients are zero, parameters undefined until `set_parameters`.
  void allocate(Storage const& storage, queue& q) {
    for (std::size_t k = 0; k < buffer_count; ++k) buffers_[k] = storage.allocate(size_of(k), k);
    parameters_ = buffers_[0].template as<parameter_type>();
    gradients_ = buffers_[1].template as<gradient_type>();
    arriving_ = buffers_[2].template as<parameter_type>();
    spare_ = buffers_[same_size ? 2 : 3].template as<gradient_type>();
    clear(q, gradients_);
    if (mode_ != mode::copying) Storage::clear(q, parameters_, shares_.padded_size());
  }

  /// Parameters in use and gradients being accumulated, in the order of the layout.
  [[nodiscard]] std::span<parameter_type> parameters() const noexcept { return {parameters_, whole_}; }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept { return {gradients_, whole_}; }

  /// The parameters in use, by the number of the trainable element.
  [[nodiscard]] trainable_view<parameter_type> in_use() const noexcept { return {parameters_, runs_.data(), runs_.size()}; }

  /// Hands what was accumulated to a round; the accumulator is empty afterwards, unless it `keeps` its content. The trainer's
  /// spans move only at a boundary that is reported to it: the first launch after a start copies instead (`quietly`).
  [[nodiscard]] flight launch(queue& q, bool quietly, bool keeps = false) {
    if (mode_ == mode::in_place) return {gradients_, parameters_, shares_, keeps};
    if (mode_ == mode::exchanging) {
      if constexpr (same_size) arriving_ = reinterpret_cast<parameter_type*>(gradients_);
      return {gradients_, arriving_, shares_};
    }
    if (mode_ == mode::copying) {
      auto* const carried = buffers_[2].template as<gradient_type>();
      for (trainable_run const& run : runs_) Storage::copy(q, gradients_ + run.offset, carried + run.first, run.count);
      Storage::clear(q, carried + shares_.size(), shares_.padded_size() - shares_.size());
      if (!keeps) clear(q, gradients_);
      return {carried, buffers_[2].template as<parameter_type>(), shares_, keeps};
    }
    if (keeps) {
      if constexpr (same_size) arriving_ = reinterpret_cast<parameter_type*>(spare_);
      return {gradients_, arriving_, shares_, true};
    }
    if (quietly) {
      Storage::copy(q, gradients_, spare_, shares_.padded_size());
    } else {
      std::swap(gradients_, spare_);
    }
    clear(q, gradients_);
    if constexpr (same_size) {
      arriving_ = reinterpret_cast<parameter_type*>(spare_);
    }
    return {spare_, arriving_, shares_};
  }

  /// Brings the parameters of a completed round into use.
  void land(queue& q, flight&& completed) {
    const flight done = std::move(completed);
    parameter_type* const arrived = done.parameters().whole().data();
    if (mode_ == mode::in_place) {
      if (!done.kept()) clear(q, gradients_);
    } else if (mode_ == mode::exchanging) {
      arriving_ = std::exchange(parameters_, arrived);
      if constexpr (same_size) gradients_ = reinterpret_cast<gradient_type*>(arriving_);
      clear(q, gradients_);
    } else if (mode_ == mode::copying) {
      for (trainable_run const& run : runs_) Storage::copy(q, arrived + run.first, parameters_ + run.offset, run.count);
    } else {
      arriving_ = std::exchange(parameters_, arrived);
      if constexpr (same_size) spare_ = reinterpret_cast<gradient_type*>(arriving_);
    }
  }

  /// Sets the parameters in use on this rank, in the order of the layout.
  void set_parameters(queue& q, std::span<parameter_type const> values) {
    Storage::copy(q, values.data(), parameters_, values.size());
  }

  /// Trainable elements of a rank's slice, out of a buffer in the order of the layout: calls visit(offset in the slice, pointer,
  /// count).
  template <class Visitor>
  void for_slice(int rank, parameter_type const* whole, Visitor&& visit) const {
    const std::size_t begin = shares_.begin(rank);
    const std::size_t end = begin + shares_.count(rank);
    for (trainable_run const& run : runs_) {
      const std::size_t first = std::max(run.first, begin);
      const std::size_t last = std::min(run.first + run.count, end);
      if (first < last) visit(first - begin, whole + run.offset + (first - run.first), last - first);
    }
  }

  /// Copies trainable elements, numbered without gaps, to where they lie in a buffer in the order of the layout.
  void scatter(queue& q, parameter_type const* trainable, std::span<parameter_type> whole) const {
    for (trainable_run const& run : runs_) Storage::copy(q, trainable + run.first, whole.data() + run.offset, run.count);
  }

  /// Where trainable element `index` lies in the order of the layout.
  [[nodiscard]] std::size_t offset_of(std::size_t index) const noexcept {
    for (trainable_run const& run : runs_) {
      if (index < run.first + run.count) return run.offset + (index - run.first);
    }
    return whole_;
  }

 private:
  enum class mode { in_place, exchanging, rotating, copying };
  static constexpr bool same_size = sizeof(parameter_type) == sizeof(gradient_type);
  static constexpr std::size_t buffer_count = 4;  // parameters, gradients, in flight (two when their element sizes differ)

  [[nodiscard]] std::size_t size_of(std::size_t k) const noexcept {
    const std::size_t own = mode_ == mode::copying ? whole_ : shares_.padded_size();
    if (k == 0) return own * sizeof(parameter_type);
    if (k == 1) return own * sizeof(gradient_type);
    if (mode_ == mode::in_place) return 0;
    if (mode_ == mode::exchanging) return k == 2 && !same_size ? shares_.padded_size() * sizeof(parameter_type) : 0;
    const std::size_t larger = std::max(sizeof(parameter_type), sizeof(gradient_type));
    if (mode_ == mode::copying || same_size) return k == 2 ? shares_.padded_size() * larger : 0;
    return shares_.padded_size() * (k == 2 ? sizeof(parameter_type) : sizeof(gradient_type));
  }
  void clear(queue& q, gradient_type* gradients) const {
    Storage::clear(q, gradients, mode_ == mode::copying ? whole_ : shares_.padded_size());
  }

  partition shares_;
  std::size_t whole_;
  std::vector<trainable_run> runs_;
  mode mode_;
  typename Storage::buffer buffers_[buffer_count];
  parameter_type* parameters_ = nullptr;  // in use
  gradient_type* gradients_ = nullptr;    // being accumulated
  parameter_type* arriving_ = nullptr;    // rotating: where the next round's parameters arrive
  gradient_type* spare_ = nullptr;        // rotating: the accumulator that is not being filled
};

}  // namespace ACCO_NAMESPACE
