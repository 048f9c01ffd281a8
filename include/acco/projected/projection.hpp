// SPDX-License-Identifier: Apache-2.0
// Matrices as W = B + scale P z: the fixed B, the basis P, and what happens between W, its gradient and z, wherever they lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/encoding/mix_bits.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/digest.hpp"
#include "acco/number/finite_arrays.hpp"
#include "acco/number/low_rank.hpp"
#include "acco/number/singular_vectors.hpp"
#include "acco/projected/projected_layout.hpp"
#include "acco/projected/projection_settings.hpp"
#include "acco/storage/projection.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's; every rank holds the same numbers, because all are made of sums that are the same on all. The trainer's thread
/// calls all members; what they do to arrays is done between the trainer's own computations (on a GPU, in the order of its
/// stream). Those that say so wait.
///
///   W = shrink B + scale P z        of fewer rows than columns; else W = shrink B + scale z P'
///
/// `shrink`, of a group, is 1, unless weights decay: then z decays by the rule, and B beside it.
template <class Storage>
class projection {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using master_type = typename Storage::master_type;
  using real = typename Storage::sum_type;
  using queue = typename Storage::queue;
  using trainers = tensor_memory<parameter_type, gradient_type>;

  projection(parameter_layout const& whole, projection_settings const& settings, int ranks, error_place where)
      : settings_(checked(settings, where)),
        layout_(whole, settings, where),
        shrinks_(whole.groups().size(), 1.0),
        of_thin_(padded(layout_.thin(), static_cast<std::size_t>(ranks))),
        of_bases_(padded(layout_.basis(), static_cast<std::size_t>(ranks))),
        message_(std::max(of_thin_, of_bases_)) {
    for (projected_matrix const& m : layout_.matrices()) {
      if (std::find(groups_.begin(), groups_.end(), m.group) == groups_.end()) groups_.push_back(m.group);
    }
  }

  [[nodiscard]] projected_layout const& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return Storage::allocation_size(layout_.base() * sizeof(real), 0) +
           Storage::allocation_size(layout_.basis() * sizeof(real), 1) + Storage::allocation_size(thin() * sizeof(real), 2) +
           Storage::allocation_size(message_ * sizeof(real), 3) + Storage::allocation_size(message_ * sizeof(real), 4) +
           Storage::allocation_size(converted() * sizeof(real), 5);
  }
  void allocate(Storage const& storage) {
    base_ = storage.allocate(layout_.base() * sizeof(real), 0);
    bases_ = storage.allocate(layout_.basis() * sizeof(real), 1);
    thin_ = storage.allocate(thin() * sizeof(real), 2);
    leaving_ = storage.allocate(message_ * sizeof(real), 3);
    arriving_ = storage.allocate(message_ * sizeof(real), 4);
    converted_ = storage.allocate(converted() * sizeof(real), 5);
    squares_.resize(settings_.rank);
  }
  /// Once what is allocated may be used: the trainer's tensors, by number, which stay where they are. The first bases point
  /// anywhere, the same way on every rank. Waits for the queue.
  void begin(Storage const& storage, queue& q, std::span<trainers const> of_trainer) {
    Storage::clear(q, leaving_.template as<real>(), message_);
    Storage::clear(q, arriving_.template as<real>(), message_);
    matrices_ = {storage, layout_.matrices().size()};
    as_they_are_ = 0;
    std::vector<trained_tensor<parameter_type, gradient_type>> tensors;
    const auto add = [&](std::size_t tensor) {
      trainers const& at = of_trainer[tensor];
      auto const trained = layout_.inner()[tensor];
      tensors.push_back({at.parameters, at.gradients, trained.offset, trained.size});
    };
    for (projected_matrix const& m : layout_.matrices()) {
      matrices_[tensors.size()] = m;
      add(m.tensor);
    }
    for (std::size_t k = 0; k < layout_.inner().tensor_count(); ++k) {
      if (layout_.inner()[k].size == 0 || layout_.of(k) != nullptr) continue;  // frozen
      as_they_are_ += layout_.inner()[k].size;
      add(k);
    }
    tensors_ = {storage, tensors.size()};
    for (std::size_t k = 0; k < tensors.size(); ++k) tensors_[k] = tensors[k];
    tensor_count_ = tensors.size();
    q.after_computation();
    matrices_.upload(q);
    tensors_.upload(q);
    settle(q);
    on_host(q, bases_.template as<real>(), layout_.basis(), [&](real* vectors) {
      std::fill_n(vectors, layout_.basis(), real(0));
      for (projected_matrix const& m : layout_.matrices()) complete(m, vectors + m.basis);
    });
  }

  /// B, which whoever begins fills in.
  [[nodiscard]] std::span<real> base(projected_matrix const& m) const noexcept {
    return {base_.template as<real>() + m.base, m.size()};
  }
  /// By which B is multiplied now, by group, and the groups that have matrices.
  [[nodiscard]] std::span<double> shrinks() noexcept { return shrinks_; }
  [[nodiscard]] std::span<std::size_t const> groups() const noexcept { return groups_; }

  /// The trainer's parameters become those of the inner layout's `z`; `shrinks`, by group.
  template <class Z>
  void show(queue& q, Z const* z, std::span<double const> shrinks) const {
    for (const std::size_t group : groups_) Storage::projection_show(q, view(), group, shrinks[group], settings_.scale, z);
    Storage::projection_show_others(q, view(), z);
  }
  /// to = W at coordinates, m's own, of the inner layout's `z`.
  template <class Z, class To>
  void expand(queue& q, projected_matrix const& m, Z const* z, double shrink, To* to) const {
    Storage::projection_expand(q, view(), number_of(m), shrink, settings_.scale, z + m.z, to);
  }
  /// The trainer's gradients, of matrices as P' G or G P, are added to those of the inner layout.
  void project(queue& q, gradient_type* to) const { Storage::projection_project(q, view(), to); }
  /// B <- W at these coordinates: from now on they are to be 0.
  template <class Z>
  void fold(queue& q, Z const* z) {
    for (projected_matrix const& m : layout_.matrices()) expand(q, m, z, shrinks_[m.group], base(m).data());
    std::fill(shrinks_.begin(), shrinks_.end(), 1.0);
  }

  /// What a search for bases comes to.
  enum class search { nothing, not_finite, bases };
  /// Looks for the `rank` largest left singular vectors (right ones where there are more rows) of the sum of all ranks'
  /// gradients, by subspace iteration. It begins at random: the bases in use would be the worst beginning, because training in
  /// them has left little of the gradient there. Every half of an iteration the ranks sum thin matrices, which sum(from, to,
  /// count) does: nobody ever has the sum of the gradients. What comes back is made orthonormal in host memory, and at last its
  /// singular vectors are taken there. Where gradients are all zero, on all ranks, or any is not finite, there is nothing to take
  /// up; the bases in use stay. All ranks find the same. Waits, and may allocate.
  template <class Sum>
  [[nodiscard]] search find_bases(queue& q, Sum&& sum) {
    auto *const from = leaving_.template as<real>(), *const to = arriving_.template as<real>();
    bool any = false, finite = true;
    ++searches_;
    on_host(q, to, layout_.basis(), [&](real* bases) {
      for (projected_matrix const& m : layout_.matrices()) {
        for (std::size_t v = 0; v < m.rank; ++v) point_anywhere(m, v, searches_, bases + m.basis + v * m.side());
      }
    });
    for (unsigned iteration = 0; iteration < settings_.iterations; ++iteration) {
      Storage::projection_multiply(q, view(), thin_product::of_basis, static_cast<real const*>(to), from);
      sum(static_cast<real const*>(from), to, of_thin_);
      on_host(q, to, layout_.thin(), [&](real* thin) {
        finite = elementwise::all_finite(static_cast<real const*>(thin), layout_.thin());
        any = any || !is_zero(thin, layout_.thin());
        if (!finite) return;
        for (projected_matrix const& m : layout_.matrices()) matrices::orthonormalize(thin + m.thin, m.other(), m.rank);
      });
      if (!finite) return search::not_finite;
      if (!any) return search::nothing;
      Storage::projection_multiply(q, view(), thin_product::of_coordinates, static_cast<real const*>(to), from);
      sum(static_cast<real const*>(from), to, of_bases_);
      on_host(q, to, layout_.basis(), [&](real* wide) {
        finite = elementwise::all_finite(static_cast<real const*>(wide), layout_.basis());
        if (!finite) return;
        for (projected_matrix const& m : layout_.matrices()) {
          if (iteration + 1 < settings_.iterations) {  // the span is what matters so far
            matrices::orthonormalize(wide + m.basis, m.side(), m.rank);
          } else {
            matrices::singular_vectors(wide + m.basis, m.side(), m.rank, squares_.data());
          }
        }
      });
      if (!finite) return search::not_finite;
    }
    return search::bases;
  }
  /// They are in use from now on; z has been folded. A matrix of whose gradient there was nothing keeps its basis. Each vector
  /// points to the side of the one before, of the same number, so that the moments, which stay, are not turned round. Returns the
  /// share of the old bases that lies in the new ones. Waits, and may allocate.
  double take_bases(queue& q) {
    std::vector<real> before(layout_.basis());
    Storage::visit_on_host(
        q, static_cast<real const*>(bases_.template as<real>()), before.size(),
        [&](real const* from, std::size_t index, std::size_t count) { std::copy_n(from, count, before.data() + index); });
    double overlap = 0;
    auto* const found = arriving_.template as<real>();
    on_host(q, found, layout_.basis(), [&](real* bases) {
      for (projected_matrix const& m : layout_.matrices()) overlap += take_basis(m, bases + m.basis, before.data() + m.basis);
    });
    Storage::copy(q, static_cast<real const*>(found), bases_.template as<real>(), layout_.basis());
    return overlap / static_cast<double>(settings_.rank * layout_.matrices().size());
  }

  /// Of all that every rank must hold alike. Waits.
  [[nodiscard]] std::uint64_t digest(queue& q) const {
    const auto of = [&](real const* from, std::size_t count) {
      std::uint64_t sum = 0;
      Storage::visit_on_host(q, from, count, [&](real const* values, std::size_t index, std::size_t n) {
        sum += digest_of(values, n, {.first = index + 1});
      });
      return sum;
    };
    std::uint64_t found = of(base_.template as<real>(), layout_.base()) + mix(of(bases_.template as<real>(), layout_.basis()));
    for (std::size_t k = 0; k < shrinks_.size(); ++k) found += mix(digest_part(shrinks_[k], k));
    return found;
  }

 private:
  static projection_settings const& checked(projection_settings const& settings, error_place where) {
    settings.check(where);
    return settings;
  }

  /// So many that every rank sums as many, whole cache lines.
  static std::size_t padded(std::size_t count, std::size_t ranks) noexcept {
    constexpr std::size_t line = 64;
    return (count + ranks * line - 1) / (ranks * line) * (ranks * line);
  }
  static bool is_zero(real const* from, std::size_t count) noexcept {
    return std::all_of(from, from + count, [](real x) { return x == 0; });
  }
  [[nodiscard]] std::size_t number_of(projected_matrix const& m) const noexcept {
    return static_cast<std::size_t>(&m - layout_.matrices().data());
  }
  // Room of the loops on the host.
  [[nodiscard]] std::size_t thin() const noexcept { return Storage::host_memory ? layout_.largest_thin() : 0; }
  [[nodiscard]] std::size_t converted() const noexcept {
    return !Storage::host_memory || std::is_same_v<gradient_type, real> ? 0 : layout_.largest();
  }
  [[nodiscard]] projection_view<parameter_type, gradient_type, real> view() const noexcept {
    return {.matrices = matrices_.there(),
            .tensors = tensors_.there(),
            .count = layout_.matrices().size(),
            .tensor_count = tensor_count_,
            .base = base_.template as<real>(),
            .bases = bases_.template as<real>(),
            .thin = thin_.template as<real>(),
            .converted = converted_.template as<real>(),
            .rank = settings_.rank,
            .elements = layout_.base(),
            .sides = layout_.basis() / settings_.rank,
            .others = layout_.thin() / settings_.rank,
            .as_they_are = as_they_are_};
  }

  /// What has been enqueued is done, on the trainer's stream too.
  static void settle(queue& q) {
    q.after_computation();
    q.wait();
    q.before_computation();
  }
  /// action(array), in host memory, on these numbers, which are where they were when it has ended. Waits.
  template <class Action>
  void on_host(queue& q, real* there, std::size_t count, Action&& action) {
    if constexpr (Storage::host_memory) {
      action(there);
    } else {
      here_.resize(count);
      Storage::visit_on_host(q, static_cast<real const*>(there), count, [&](real const* from, std::size_t index, std::size_t n) {
        std::copy_n(from, n, here_.data() + index);
      });
      action(here_.data());
      Storage::copy(q, static_cast<real const*>(here_.data()), there, count);
      settle(q);
    }
  }
  static void point_anywhere(projected_matrix const& m, std::size_t v, std::uint32_t time, real* vector) {
    const std::uint32_t seed =
        mix_bits(mix_bits(static_cast<std::uint32_t>(m.tensor)) + 977 * time) + static_cast<std::uint32_t>(v);
    for (std::size_t i = 0; i < m.side(); ++i) {
      const std::uint32_t bits = mix_bits(mix_bits(seed) + static_cast<std::uint32_t>(i));
      vector[i] = static_cast<real>(static_cast<double>(bits) / 2147483648.0 - 1);
    }
  }
  /// In place of vectors that are zero come others, until all are orthonormal.
  static void complete(projected_matrix const& m, real* vectors) {
    bool lacks = true;
    for (std::uint32_t time = 0; lacks && time < 8; ++time) {
      lacks = false;
      for (std::size_t v = 0; v < m.rank; ++v) {
        real* const vector = vectors + v * m.side();
        if (!is_zero(vector, m.side())) continue;
        lacks = true;
        point_anywhere(m, v, 0x10000U * (time + 1), vector);
      }
      if (lacks) matrices::orthonormalize(vectors, m.side(), m.rank);
    }
  }
  /// What has been found becomes a basis. Returns the sum of squares of the inner products with the one before.
  static double take_basis(projected_matrix const& m, real* next, real const* now) {
    if (is_zero(next, m.rank * m.side())) {  // of this matrix nothing was learnt
      std::copy_n(now, m.rank * m.side(), next);
      return static_cast<double>(m.rank);
    }
    complete(m, next);
    double overlap = 0;
    for (std::size_t v = 0; v < m.rank; ++v) {
      real* const vector = next + v * m.side();
      if (matrices::inner_product<real>(vector, now + v * m.side(), m.side()) < 0) {
        for (std::size_t i = 0; i < m.side(); ++i) vector[i] = -vector[i];
      }
      for (std::size_t w = 0; w < m.rank; ++w) {
        const double product = matrices::inner_product<real>(vector, now + w * m.side(), m.side());
        overlap += product * product;
      }
    }
    return overlap;
  }

  projection_settings settings_;
  projected_layout layout_;
  std::vector<std::size_t> groups_;
  std::vector<double> shrinks_, squares_;
  std::size_t of_thin_, of_bases_, message_;  // numbers of the two sums, and of the larger
  std::size_t as_they_are_ = 0, tensor_count_ = 0;
  std::uint32_t searches_ = 0;
  typename Storage::template numbers<projected_matrix> matrices_;
  typename Storage::template numbers<trained_tensor<parameter_type, gradient_type>> tensors_;
  typename Storage::buffer base_, bases_, thin_, leaving_, arriving_, converted_;
  std::vector<real> here_;  // where buffers are not in host memory: what is worked on there
};

}  // namespace ACCO_SIMD_NAMESPACE
