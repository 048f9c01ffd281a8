// SPDX-License-Identifier: Apache-2.0
// The arrays of an extragradient method on one rank, and the arithmetic of its recurrence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "acco/game/game_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/number/finite_arrays.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/storage/host.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What `compressed_extragradient` keeps, named as in its equations: arrays of all parameters, and this rank's slices of others.
/// Nothing is communicated here, and no code is known. What fills up the last slice is 0 everywhere, and stays so.
class extragradient_state {
 public:
  using storage_type = host_storage<float>;

  /// Allocates nothing.
  extragradient_state(game_layout game, int ranks, int rank, storage_type storage)
      : game_(std::move(game)), storage_(storage), shares_(game_.size(), ranks), rank_(rank) {}

  [[nodiscard]] game_layout const& game() const noexcept { return game_; }
  [[nodiscard]] storage_type& storage() noexcept { return storage_; }

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(shares_.ranks()); }
  /// Elements of all parameters with what fills up the last slice, and of a slice.
  [[nodiscard]] std::size_t padded_size() const noexcept { return shares_.padded_size(); }
  [[nodiscard]] std::size_t share() const noexcept { return shares_.slice_size(); }
  /// The first element of this rank's slice.
  [[nodiscard]] std::size_t first() const noexcept { return static_cast<std::size_t>(rank_) * share(); }
  /// How many elements of a rank's slice are numbers of the game.
  [[nodiscard]] std::size_t real(std::size_t rank) const noexcept { return shares_.count(static_cast<int>(rank)); }
  [[nodiscard]] std::size_t own_real() const noexcept { return shares_.count(rank_); }

  // Of all parameters: those in use, the gradients that are added and F_m from them, F_m(w), what codes have lost.
  [[nodiscard]] float* shown() const noexcept { return shown_.as<float>(); }
  [[nodiscard]] float* operators() const noexcept { return operators_.as<float>(); }
  [[nodiscard]] float* own_reference() const noexcept { return own_reference_.as<float>(); }
  [[nodiscard]] float* lost() const noexcept { return lost_.as<float>(); }
  // Of the slice: z, w, F(w), and what arrives: F, later the next z_half.
  [[nodiscard]] float* z() const noexcept { return z_.as<float>(); }
  [[nodiscard]] float* w() const noexcept { return w_.as<float>(); }
  [[nodiscard]] float* reference() const noexcept { return reference_.as<float>(); }
  [[nodiscard]] float* reduced() const noexcept { return reduced_.as<float>(); }
  [[nodiscard]] trainable_view<float> in_use() const noexcept { return {shown(), &whole_, 1}; }

  /// All of them, as zeros.
  void allocate(host_queue& queue, double step, bool keeps_lost) {
    const auto floats = [&](host_buffer& buffer, std::size_t count, std::size_t stagger) {
      buffer = storage_.allocate(count * sizeof(float), stagger);
      storage_type::clear(queue, buffer.as<float>(), count);
    };
    floats(shown_, padded_size(), 0);
    floats(operators_, padded_size(), 1);
    floats(own_reference_, padded_size(), 2);
    floats(z_, share(), 3);
    floats(w_, share(), 4);
    floats(reference_, share(), 5);
    floats(reduced_, share(), 6);
    if (keeps_lost) floats(lost_, padded_size(), 7);
    whole_ = {0, 0, padded_size()};
    for_tensors([&](parameter_layout::tensor const& each, tensor_moves const& moves, bool) {
      const std::size_t begin = std::max(each.offset, first()), end = std::min(each.offset + each.size, first() + share());
      if (begin < end) {
        moves_.push_back(
            {begin - first(), end - first(), static_cast<float>(step * moves.step_scale), static_cast<float>(moves.bound)});
      }
    });
  }
  /// Staggers of allocations from this one on are free.
  static constexpr std::size_t next_stagger = 8;
  /// Bytes of what `allocate` allocates, and of a copy of all parameters.
  [[nodiscard]] memory_table memory(bool keeps_lost) const noexcept {
    const auto whole = [this](std::size_t stagger) { return room(padded_size() * sizeof(float), stagger); };
    const auto slice = [this](std::size_t stagger) { return room(share() * sizeof(float), stagger); };
    memory_table table;
    table.parameters = whole(0);
    table.gradients = whole(1);
    table.in_flight = whole(2);
    table.masters = slice(3);
    table.slots = slice(4) + slice(5);
    table.reduced = slice(6);
    table.encoded = keeps_lost ? whole(7) : 0;
    table.gathering = whole(0);
    return table;
  }
  [[nodiscard]] static std::size_t room(std::size_t bytes, std::size_t stagger) noexcept {
    return storage_type::allocation_size(bytes, stagger);
  }

  /// z = w = the parameters in use, within their bounds.
  void begin() {
    cut_off_shown();
    std::copy_n(shown() + first(), share(), z());
    move_reference();
  }
  /// The parameters in use, all of them, are within their bounds.
  void cut_off_shown() {
    for_tensors([&](parameter_layout::tensor const& each, tensor_moves const& moves, bool) {
      if (moves.bound == 0) return;
      const auto bound = static_cast<float>(moves.bound);
      for (std::size_t i = each.offset; i < each.offset + each.size; ++i) shown()[i] = inside(shown()[i], bound);
    });
  }
  /// F_m(w) = the operator, from the gradients that were added, which become 0.
  void keep_own_reference() {
    turn_signs([](float value, float) { return value; });
    std::swap_ranges(operators(), operators() + padded_size(), own_reference());
    clear_operators();
  }
  /// What was added becomes F_m(z_half) - F_m(w).
  void subtract_own_reference() {
    turn_signs([](float value, float at_reference) { return value - at_reference; });
  }
  void clear_operators() { std::fill_n(operators(), padded_size(), 0.0F); }

  /// F(w), from the sum over ranks.
  void average_reference() {
    const float part = 1 / static_cast<float>(shares_.ranks());
    for (std::size_t i = 0; i < share(); ++i) reference()[i] *= part;
  }
  /// reduced = F(w) + g, where it was the sum over ranks of what g is the mean of.
  void add_reference() {
    const float part = 1 / static_cast<float>(shares_.ranks());
    for (std::size_t i = 0; i < share(); ++i) reduced()[i] = reference()[i] + part * reduced()[i];
  }
  /// z <- P(v - step reduced).
  void advance(float tau) { step_to(z(), tau, reduced()); }
  /// reduced <- P(v - step F(w)): the next z_half.
  void look_ahead(float tau) { step_to(reduced(), tau, reference()); }
  /// w <- z.
  void move_reference() { std::copy_n(z(), share(), w()); }

  /// The squares of what `operator_norm` is made of, in this rank's slice, which is `at`, and has the mean operator `mean` there:
  /// of u - P(u - step F) as a multiple of the step, which is F where P cuts nothing off.
  [[nodiscard]] double residual_squares(float const* at, float const* mean) const {
    double squares = 0;
    for (stretch const& each : moves_) {
      if (each.bound == 0) {
        squares += elementwise::sum_of_squares(mean + each.begin, each.end - each.begin);
        continue;
      }
      for (std::size_t i = each.begin; i < each.end; ++i) {
        const float to = at[i] - each.step * mean[i], cut_off = inside(to, each.bound);
        const double left = cut_off == to
                                ? static_cast<double>(mean[i])
                                : (static_cast<double>(at[i]) - static_cast<double>(cut_off)) / static_cast<double>(each.step);
        squares += left * left;
      }
    }
    return squares;
  }
  /// How many numbers of a slice are not finite.
  [[nodiscard]] double count_non_finite(float const* slice) const {
    std::size_t where = 0;
    return static_cast<double>(elementwise::count_non_finite(slice, share(), where));
  }

 private:
  /// Neighbours in this rank's slice that move alike.
  struct stretch {
    std::size_t begin, end;
    float step, bound;
  };

  [[nodiscard]] static float inside(float value, float bound) noexcept {
    return bound == 0 ? value : std::min(std::max(value, -bound), bound);
  }
  /// Calls visit(tensor, what is said of it, whether it is maximized).
  template <class Visitor>
  void for_tensors(Visitor&& visit) const {
    for (std::size_t k = 0; k < game_.tensors().tensor_count(); ++k)
      visit(game_.tensors()[k], game_.moves(k), game_.is_maximized(k));
  }
  /// operators = change(the operator, F_m(w)), elementwise.
  template <class Change>
  void turn_signs(Change&& change) {
    float* const values = operators();
    float const* const at_reference = own_reference();
    for_tensors([&](parameter_layout::tensor const& each, tensor_moves const&, bool maximized) {
      const float sign = maximized ? -1.0F : 1.0F;
      for (std::size_t i = each.offset; i < each.offset + each.size; ++i) values[i] = change(sign * values[i], at_reference[i]);
    });
  }
  /// to = P(v - step by).
  void step_to(float* to, float tau, float const* by) {
    for (stretch const& each : moves_) {
      for (std::size_t i = each.begin; i < each.end; ++i) {
        const float between = w()[i] + tau * (z()[i] - w()[i]);  // z itself, where it is w
        to[i] = inside(between - each.step * by[i], each.bound);
      }
    }
  }

  game_layout game_;
  storage_type storage_;
  partition shares_;
  int rank_;
  std::vector<stretch> moves_;
  trainable_run whole_{};
  host_buffer shown_, operators_, own_reference_, lost_;
  host_buffer z_, w_, reference_, reduced_;
};

}  // namespace ACCO_SIMD_NAMESPACE
