// SPDX-License-Identifier: Apache-2.0
// Which ranges of a layout are updated by numbers of their own: constants of the rule, a scale, a norm.
#pragma once

#include <cstddef>
#include <vector>

#include "acco/layout/parameter_layout.hpp"

namespace ACCO_NAMESPACE {

/// Whose norms `any_optimizer::norms` tells, beside the norm of everything in each report.
enum class norm_detail {
  total,   ///< nobody's
  groups,  ///< one norm for each group of the layout
  tensors  ///< one for each tensor
};

/// What decides about a region, as it is read when a round decides.
struct update_region {
  std::size_t group;          ///< of the layout
  std::size_t clips_with;     ///< the group with whose norm it is clipped
  bool clips_itself, leaves;  ///< `update_group::clip_norm` is given; `leave_without_gradient`
  double clip_norm;           ///< where it clips itself
};

/// The trainable tensors of a layout, divided: a region is a group, or a tensor alone where its own norm is wanted, or
/// decides whether it is updated.
class update_regions {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  update_regions(parameter_layout const& layout, norm_detail detail);

  [[nodiscard]] std::size_t size() const noexcept { return regions_.size(); }
  [[nodiscard]] update_region const& operator[](std::size_t k) const noexcept { return regions_[k]; }
  /// That of a tensor; `none` for a frozen one.
  [[nodiscard]] std::size_t of_tensor(std::size_t tensor) const noexcept { return of_tensor_[tensor]; }
  /// Whether the norm of each is needed: then as many numbers travel each round, instead of one.
  [[nodiscard]] bool measured() const noexcept { return measured_; }

 private:
  std::vector<update_region> regions_;
  std::vector<std::size_t> of_tensor_;
  bool measured_;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE update_regions::update_regions(parameter_layout const& layout, norm_detail detail)
    : measured_(detail != norm_detail::total) {
  std::vector<std::size_t> of_group(layout.groups().size(), none);
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    const std::size_t g = layout[k].group;
    update_group const& group = layout.groups()[g];
    if (group.frozen) {
      of_tensor_.push_back(none);
      continue;
    }
    const bool alone = detail == norm_detail::tensors || group.leave_without_gradient;
    if (alone || of_group[g] == none) {
      of_group[g] = regions_.size();
      regions_.push_back(
          {g, layout.clips_with(g), group.clip_norm.has_value(), group.leave_without_gradient, group.clip_norm.value_or(0)});
    }
    of_tensor_.push_back(of_group[g]);
    measured_ = measured_ || group.clip_norm || group.leave_without_gradient;
  }
}
#endif

}  // namespace ACCO_NAMESPACE
