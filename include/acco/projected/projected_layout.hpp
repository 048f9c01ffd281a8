// SPDX-License-Identifier: Apache-2.0
// Which matrices are trained in a basis, and the layout of an engine that trains their coordinates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

struct projection_settings {
  std::size_t rank;
  std::uint64_t every;
  double scale;
  unsigned iterations;
  bool (*projects)(parameter_layout::tensor const&);

  /// Throws `usage_error` on settings that mean nothing.
  void check(error_place where) const {
    if (rank == 0) throw usage_error(where, text("galore::rank is 0"), text("Choose 1 or more; a quarter of the width is usual"));
    if (every == 0)
      throw usage_error(where, text("galore::every is 0"), text("Give the updates from one basis to the next, 200 say"));
    require_positive("galore::scale", scale, where);
    if (iterations == 0) throw usage_error(where, text("galore::iterations is 0"), text("Choose 1 or more; 2 is usual"));
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("rank", rank);
    visit("every", every);
    visit("scale", scale);
    visit("iterations", iterations);
  }
};

/// One that is trained in a basis: W = ... + scale P z with P on its smaller side.
struct projected_matrix {
  std::size_t tensor, coordinates, basis;  ///< tensors of the engine's layout: W, z, and P with what else is kept
  std::size_t rows, columns, rank, group;

  [[nodiscard]] bool is_wide() const noexcept { return rows < columns; }
  [[nodiscard]] std::size_t side() const noexcept { return std::min(rows, columns); }
  [[nodiscard]] std::size_t other() const noexcept { return std::max(rows, columns); }
  /// Numbers of z: `rank` vectors of the longer side.
  [[nodiscard]] std::size_t count() const noexcept { return rank * other(); }
  /// Numbers of P: `rank` vectors of the smaller side.
  [[nodiscard]] std::size_t of_basis() const noexcept { return rank * side(); }
};

/// The engine's layout has the trainer's tensors first, at the same offsets; matrices among them are frozen there: the
/// level around the engine moves them. Behind them lie z of each, which is trained, and P, which is frozen, too: what
/// is frozen every rank has whole, and checkpoints have it.
struct projected_layout {
  parameter_layout whole, inner;
  std::vector<projected_matrix> matrices;

  /// Throws `usage_error` where no tensor is projected.
  projected_layout(parameter_layout layout, projection_settings const& settings, error_place where)
      : whole(std::move(layout)), inner(whole) {
    settings.check(where);
    const std::size_t frozen = inner.add_group({.frozen = true});
    for (std::size_t k = 0; k < whole.tensor_count(); ++k) {
      auto const each = whole[k];
      const std::size_t rows = each.shape.size() < 2 ? 0 : each.shape[0], columns = rows == 0 ? 0 : each.size / rows;
      if (std::min(rows, columns) <= settings.rank || whole.groups()[each.group].frozen || !settings.projects(each)) continue;
      refuse_taken_names(each.name, where);
      projected_matrix const& m = matrices.emplace_back(
          projected_matrix{k, inner.tensor_count(), inner.tensor_count() + 1, rows, columns, settings.rank, each.group});
      inner.move_to(k, frozen);
      inner.add(std::string(each.name) + ".coordinates", {m.rank, m.other()}, each.group);
      inner.add(std::string(each.name) + ".basis", {m.of_basis() + m.count() + 1}, frozen);
    }
    if (matrices.empty()) {
      throw usage_error(
          where, text("galore: no trainable tensor is a matrix whose smaller side is longer than the rank, ", settings.rank),
          text("Give the layout its tensors with their shapes, and galore a smaller rank; `projects` chooses"));
    }
  }

 private:
  /// Each matrix has two tensors beside it.
  void refuse_taken_names(std::string_view name, error_place const& where) const {
    for (std::string const& beside : {std::string(name) + ".coordinates", std::string(name) + ".basis"}) {
      bool taken = beside.size() > parameter_layout::longest_name;
      for (std::size_t k = 0; k < whole.tensor_count(); ++k) taken = taken || whole[k].name == beside;
      if (!taken) continue;
      throw usage_error(where, text("galore: '", name, "' cannot have '", beside, "' beside it: the name is too long, or taken"),
                        text("Give that tensor another name, or let `projects` leave the matrix out"));
    }
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
