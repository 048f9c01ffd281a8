// SPDX-License-Identifier: Apache-2.0
// Habits of trainers that break a training without an error, found by looking at a few numbers: gradients that are cleared or
// stay zero, parameters that are written to.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/number/finite.hpp"
#include "acco/options.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/stage/state_copy.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// Whether engines of files that are compiled like this one look for them.
[[nodiscard]] constexpr bool checks_habits(habit_checks chosen) noexcept {
#if defined(NDEBUG)
  return chosen == habit_checks::on;
#else
  return chosen != habit_checks::off;
#endif
}

}  // namespace ACCO_ENGINE_NAMESPACE

namespace ACCO_SIMD_NAMESPACE {

/// Looks at up to 256 spots of the parameters and of the gradients whenever a micro-batch ends. In host memory; elsewhere it
/// looks at nothing. Members are called by the trainer's thread; what they throw is `usage_error`.
///
/// Cleared between two micro-batches of a part: let v be the accumulator before a micro-batch, x after it. Where the trainer
/// added, x = v + d: its projection on v is about v, or more where gradients agree. Where it cleared first, x = d, and the
/// projection is about 0 where gradients are noise. Since d is unknown that is no proof, and a line on stderr says it once, no
/// error. Nothing is written.
///
/// With `in_place` a round keeps content in the accumulator that must not be cleared. There marks, eight times what stands there
/// and of both signs, are added at up to eight spots while the trainer computes, and taken away again: x near the marks says
/// that all is well, x near 0 that it is not. Gradients of two bytes have no digits to spare: `in_place` is refused for them.
///
/// That gradients are missing is no rank's own decision: others may have them. What a rank lacks travels with the counts.
template <class Storage>
class habit_watch {
 public:
  using accumulator_type = gradient_accumulator<Storage>;
  using gradient_type = typename Storage::gradient_type;

  static constexpr std::size_t silent_parts = 10;  ///< parts of steps in which a tensor may lack a gradient

  /// `in_place`: what a round keeps stays in the accumulator. It is marked without any suspicion, also where nothing else is
  /// looked at (not `on`).
  habit_watch(parameter_layout const& layout, accumulator_type const& accumulator, bool on, bool in_place = false)
      : layout_(layout), accumulator_(accumulator), on_(on && Storage::host_memory), in_place_(in_place && Storage::host_memory) {
    if (!looks()) return;
    for (std::size_t k = 0; on_ && k < layout.tensor_count(); ++k) {
      update_group const& group = layout.groups()[layout[k].group];
      if (!group.frozen && !group.leave_without_gradient && layout[k].size != 0) unseen_.push_back(k);
    }
    const std::size_t elements = layout.trainable_size();
    count_ = std::min(std::clamp(elements / 8, std::size_t{16}, most), elements);
    draw();
  }

  /// Parameters have come into use.
  void shown() {
    if (!on_) return;
    const std::size_t elements = layout_.trainable_size();
    for (std::size_t k = 0; k < count_; ++k) {
      const std::size_t at = accumulator_.offset_of(somewhere(k, elements, random_of_parameters_));
      parameters_[k] = {at, number(there_is(accumulator_.parameter_at(at)))};
    }
  }
  /// A micro-batch of this weight has ended.
  void micro_batch(double weight, error_place const& where) {
    if (!looks()) return;
    if (on_) check_parameters(where);
    std::array<double, most> seen;
    for (std::size_t k = 0; k < count_; ++k) seen[k] = number(there_is(accumulator_.gradient_at(gradients_[k].at)));
    if (on_) {
      check_idle(where);
      check_spoiled(where);
    }
    if (probes_ != 0) end_probe(seen, where);
    if (weight <= 0 || !on_) return;
    std::erase_if(unseen_, [&](std::size_t k) { return has_gradient(layout_[k]); });
    if (compare(seen)) say_cleared(where);
  }
  /// A part of a step is complete, and about to leave.
  void part(double weight) noexcept { parts_ += weight > 0 ? 1U : 0U; }
  /// The first tensor, from 1, that this rank has added nothing to for long; 0: none.
  [[nodiscard]] double first_unseen() const noexcept {
    return parts_ < silent_parts || unseen_.empty() ? 0 : static_cast<double>(unseen_.front() + 1);
  }
  /// All ranks have the same one.
  [[noreturn]] void raise_unseen(error_place const& where) const {
    throw usage_error(
        where,
        text("tensor '", layout_[unseen_.front()].name, "' has had no gradient in ", parts_, " parts of steps, on any rank"),
        text("Add to its part of gradients(), freeze it, set update_group::leave_without_gradient, or "
             "options::check_habits = habit_checks::off"));
  }
  /// The trainer goes on, with what the accumulator has now, which is something unless it was emptied; `kept`: of a round.
  void rest(bool has_content, bool kept = false) {
    if (!looks()) return;
    if (!has_content) draw();
    for (std::size_t k = 0; k < count_; ++k)
      gradients_[k].value = has_content ? number(there_is(accumulator_.gradient_at(gradients_[k].at))) : 0;
    if (gradient_type const* const idle = accumulator_.idle_gradients()) {
      for (std::size_t k = 0; k < count_; ++k) idle_[k] = idle[gradients_[k].at];
      watches_idle_ = true;
    }
    content_ = has_content;
    const bool often = kept && in_place_ && (parts_ < 32 || parts_ % 64 < 2 || verdicts_ != 0);
    if (marks && often && has_content) begin_probe();
  }
  /// What decides about marks, between a part and the next `rest`; and back again: a training that goes on marks what it would
  /// have marked. It is another process, which does not know which tensors have had a gradient.
  void keep(habit_numbers& to) const noexcept {
    to = {};
    if (!looks()) return;
    to.random = random_;
    to.values[0] = missing_;
    to.values[5] = static_cast<double>(flip_);
    to.values[6] = static_cast<double>(parts_);
    to.values[7] = said_ ? 1 : 0;
  }
  void restore(habit_numbers const& from) noexcept {
    if (!looks() || from.random == 0) return;
    random_ = from.random;
    missing_ = from.values[0];
    flip_ = from.values[5] != 0 ? 1 : 0;
    parts_ = static_cast<std::size_t>(from.values[6] >= 0 && from.values[6] < 1e15 ? from.values[6] : 0);
    said_ = from.values[7] != 0;
    probes_ = 0;
    if (parts_ >= silent_parts) unseen_.clear();  // it was looked for, and those that were seen are not known
  }
  /// The training is about to come to rest, in the midst of a part perhaps: what was written to the parameters would be gone.
  void settle(error_place const& where) {
    if (on_) check_parameters(where);
    for (std::size_t k = 0; k < probes_; ++k) take_away(k);
    probes_ = 0;
  }

 private:
  static constexpr std::size_t most = 256, most_probes = 8, enough_verdicts = 12;
  static constexpr bool marks = sizeof(gradient_type) >= 4;
  struct spot {
    std::size_t at = 0;  // in the order of the layout
    double value = 0;
  };
  /// Trainable elements have memory, which a compiler that warns of null pointers does not see.
  template <class Number>
  [[nodiscard]] static Number& there_is(Number* element) noexcept {
    if (element == nullptr) __builtin_unreachable();
    return *element;
  }
  template <class Number>
  [[nodiscard]] static double number(Number const& value) noexcept {
    return static_cast<double>(value);
  }
  [[nodiscard]] static bool same(double a, double b) noexcept {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }

  [[nodiscard]] bool looks() const noexcept { return on_ || in_place_; }

  /// An element of the k-th of `count_` equal stretches.
  [[nodiscard]] std::size_t somewhere(std::size_t k, std::size_t elements, std::uint64_t& random) const noexcept {
    random ^= random << 13U;
    random ^= random >> 7U;
    random ^= random << 17U;
    const std::size_t begin = elements / count_ * k, end = k + 1 == count_ ? elements : elements / count_ * (k + 1);
    return begin + random % (end - begin);
  }

  void draw() noexcept {
    for (std::size_t k = 0; k < count_; ++k)
      gradients_[k].at = accumulator_.offset_of(somewhere(k, layout_.trainable_size(), random_));
    watches_idle_ = false;
  }
  void check_parameters(error_place const& where) const {
    for (std::size_t k = 0; k < count_; ++k) {
      spot const& each = parameters_[k];
      if (same(number(there_is(accumulator_.parameter_at(each.at))), each.value)) continue;
      auto const tensor = layout_.at_offset(each.at);
      throw usage_error(where,
                        text("the parameters were written to since they came into use, tensor '", tensor.name, "' at element ",
                             each.at - tensor.offset, " among them: the next commit would undo it"),
                        text("Hand weights of your own over by set_parameters, after finish. Or a gradient span of before the "
                             "last report is in use: ask again after each report, or set options::stable_addresses"));
    }
  }
  /// Gradients in flight are nobody's.
  void check_idle(error_place const& where) const {
    gradient_type const* const idle = watches_idle_ ? accumulator_.idle_gradients() : nullptr;
    for (std::size_t k = 0; k < count_ && idle != nullptr; ++k) {
      gradient_type const now = idle[gradients_[k].at], before = idle_[k];
      if (same(number(now), number(before)) || spoiled(now) || spoiled(before)) continue;  // the mock spoils what it sends
      throw usage_error(where, text("gradients were added to a span of before the last report"),
                        text("For gradients(), ask again after each report, or set options::stable_addresses"));
    }
  }
  [[nodiscard]] bool has_gradient(parameter_layout::tensor const& tensor) const {
    gradient_type const* const from = accumulator_.gradient_at(tensor.offset);
    return std::any_of(from, from + tensor.size, [](gradient_type const& g) { return number(g) != 0; });
  }
  /// NaN with all bits set, whatever its sign.
  [[nodiscard]] static bool spoiled(gradient_type value) noexcept {
    using bits = typename number_bits<gradient_type>::type;
    constexpr auto sign = static_cast<bits>(bits{1} << (sizeof(bits) * 8 - 1));
    return static_cast<bits>(std::bit_cast<bits>(value) | sign) == static_cast<bits>(~bits{0});
  }
  /// What was computed from retired parameters is that.
  void check_spoiled(error_place const& where) const {
    for (std::size_t k = 0; k < count_; ++k) {
      if (!spoiled(there_is(accumulator_.gradient_at(gradients_[k].at)))) continue;
      throw usage_error(where, text("gradients were computed from parameters of before the last report"),
                        text("For parameters(), ask again after each report, or set options::stable_addresses"));
    }
  }

  /// Whether, of late, what was there before a micro-batch has often been missing after it.
  [[nodiscard]] bool compare(std::array<double, most> const& seen) noexcept {
    if (!content_) return false;
    double before = 0, size = 0, both = 0, fourth = 0;
    for (std::size_t k = 0; k < count_; ++k) {
      const double was = gradients_[k].value, now = seen[k];
      before += was * was;
      fourth += was * was * was * was;
      size += now * now;
      both += now * was;
    }
    if (!(fourth > 0) || size == 0) return false;
    const double left = both / before;                // of v in x: 1 and more, or about 0; far below 0 they undo each other
    const double changed = size - 2 * both + before;  // |x - v|^2
    const bool far = (1 - left) * (1 - left) * before * before * before > 4 * changed * fourth;  // by two deviations of noise
    const bool missing = left < 0.5 && left > -0.5 && 4 * size > before && far;
    missing_ += ((missing ? 1 : 0) - missing_) / 64;
    return missing_ > 0.15 && !said_;
  }
  void say_cleared(error_place const& where) noexcept {
    said_ = true;
    std::fprintf(
        stderr,
        "acco: rank %d: gradients() look as if they were cleared, or written over, between micro-batches that are to be "
        "added up: of what one micro-batch adds little is left behind the next one. Remove zero_grad from between them and "
        "add with +=: acco clears the gradients itself.\n",
        where.rank);
  }

  /// The first spots become elements that are not 0: of sparse gradients few are. Begins anywhere; looks at each at most once.
  void look_for_content() {
    const std::size_t elements = layout_.trainable_size(), begin = random_ % elements;
    std::size_t found = 0;
    for (std::size_t i = 0; i < elements && found < std::min(most_probes, count_); ++i) {
      const std::size_t at = accumulator_.offset_of((begin + i) % elements);
      const double value = number(there_is(accumulator_.gradient_at(at)));
      if (std::abs(value) > 1e-30 && std::abs(value) < 1e30) gradients_[found++] = {at, value};
    }
  }
  void begin_probe() {
    look_for_content();
    probes_ = 0;
    for (std::size_t k = 0; k < count_ && probes_ < most_probes; ++k) {
      const double value = gradients_[k].value;
      if (value == 0 || !(std::abs(value) < 1e30)) continue;
      probed_[probes_] = {k, value + ((probes_ + flip_) % 2 == 0 ? 8 : -8) * std::abs(value)};
      ++probes_;
    }
    if (probes_ < most_probes) probes_ = 0;  // a gradient could be what undoes so few
    for (std::size_t k = 0; k < probes_; ++k) {
      gradient_type& there = there_is(accumulator_.gradient_at(gradients_[probed_[k].at].at));
      there = gradient_type(static_cast<real>(probed_[k].value));
      probed_[k].value = number(there);
    }
    flip_ = 1 - flip_;
  }
  void end_probe(std::array<double, most>& seen, error_place const& where) {
    bool cleared = true;
    for (std::size_t k = 0; k < probes_; ++k) {
      const double marked = probed_[k].value, now = seen[probed_[k].at];
      cleared = cleared && std::abs(now - marked) > std::abs(now) && std::abs(now) < std::abs(marked);
    }
    if (!cleared) {
      for (std::size_t k = 0; k < probes_; ++k) seen[probed_[k].at] = take_away(k);
    }
    verdicts_ = cleared ? verdicts_ + probes_ : 0;
    probes_ = 0;
    if (verdicts_ < enough_verdicts) return;  // once more, to be sure
    throw usage_error(
        where, text("gradients() were cleared, or written over, between micro-batches that are to be added up"),
        text("options::in_place keeps the gradients of a coarse estimate there: remove zero_grad before the commit and add with "
             "+=, or leave in_place out"));
  }
  double take_away(std::size_t k) {
    spot const& marked = gradients_[probed_[k].at];
    gradient_type& there = there_is(accumulator_.gradient_at(marked.at));
    there = gradient_type(static_cast<real>(number(there) - (probed_[k].value - marked.value)));
    return number(there);
  }
  using real = std::conditional_t<std::is_same_v<gradient_type, double>, double, float>;

  parameter_layout const& layout_;
  accumulator_type const& accumulator_;
  bool on_, in_place_;
  std::size_t count_ = 0;  // of spots
  std::array<spot, most> parameters_{}, gradients_{};
  std::array<gradient_type, most> idle_{};
  std::uint64_t random_ = 0x9e3779b97f4a7c15ULL, random_of_parameters_ = random_;
  std::vector<std::size_t> unseen_;  // tensors that have had no gradient
  std::size_t parts_ = 0;
  bool content_ = false, watches_idle_ = false;  // content_: the accumulator is not empty
  double missing_ = 0;                           // of late, how often little was left of v
  bool said_ = false;
  std::array<spot, most_probes> probed_{};  // which of gradients_, and what was written there
  std::size_t probes_ = 0, verdicts_ = 0, flip_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
