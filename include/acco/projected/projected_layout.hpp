// SPDX-License-Identifier: Apache-2.0
// Which tensors of a layout are trained in a basis, and the layout of what is trained then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/projected/projection_settings.hpp"
#include "acco/storage/projection.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The layout of z, of tensors that are trained as they are, and of frozen ones, of which nothing is left. Tensors keep their
/// numbers, names and groups.
class projected_layout {
 public:
  /// Throws `usage_error` where no tensor is projected.
  projected_layout(parameter_layout const& whole, projection_settings const& settings, error_place where) {
    std::size_t extents[2], z = 0;
    inner_ = whole.reshaped([&](std::size_t k) -> std::span<std::size_t const> {
      auto const each = whole[k];
      const std::size_t rows = each.shape.size() < 2 ? 0 : each.shape[0], columns = rows == 0 ? 0 : each.size / rows;
      if (whole.groups()[each.group].frozen) {
        extents[0] = 0;
        return {extents, 1};
      }
      if (std::min(rows, columns) <= settings.rank || !settings.projects(each)) {
        z += each.size;
        return each.shape;
      }
      projected_matrix const& made =
          matrices_.emplace_back(projected_matrix{k, rows, columns, settings.rank, each.group, base_, basis_, thin_, z});
      const std::size_t numbers = made.rank * made.other();
      base_ += made.size();
      basis_ += made.rank * made.side();
      thin_ += numbers;
      z += numbers;
      largest_ = std::max(largest_, made.size());
      largest_thin_ = std::max(largest_thin_, numbers);
      extents[0] = made.rank;
      extents[1] = made.other();
      return {extents, 2};
    });
    if (matrices_.empty()) {
      throw usage_error(
          where, text("galore: no trainable tensor is a matrix whose smaller side is longer than the rank, ", settings.rank),
          text("Give the layout its tensors with their shapes, and galore a smaller rank; `projects` chooses"));
    }
  }

  [[nodiscard]] parameter_layout const& inner() const noexcept { return inner_; }
  [[nodiscard]] std::vector<projected_matrix> const& matrices() const noexcept { return matrices_; }
  /// A tensor's matrix; null where it is not projected.
  [[nodiscard]] projected_matrix const* of(std::size_t tensor) const noexcept {
    const auto found = std::lower_bound(matrices_.begin(), matrices_.end(), tensor,
                                        [](projected_matrix const& m, std::size_t k) { return m.tensor < k; });
    return found != matrices_.end() && found->tensor == tensor ? &*found : nullptr;
  }
  /// Numbers of all matrices, of their bases, of their coordinates, and of the largest matrix and coordinates.
  [[nodiscard]] std::size_t base() const noexcept { return base_; }
  [[nodiscard]] std::size_t basis() const noexcept { return basis_; }
  [[nodiscard]] std::size_t thin() const noexcept { return thin_; }
  [[nodiscard]] std::size_t largest() const noexcept { return largest_; }
  [[nodiscard]] std::size_t largest_thin() const noexcept { return largest_thin_; }

 private:
  parameter_layout inner_;
  std::vector<projected_matrix> matrices_;
  std::size_t base_ = 0, basis_ = 0, thin_ = 0, largest_ = 0, largest_thin_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
