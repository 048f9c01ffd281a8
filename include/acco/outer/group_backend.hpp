// SPDX-License-Identifier: Apache-2.0
// One of the groups into which a world is split, known before any rank has been asked: the split is made when an engine
// takes its channel.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "acco/collective/backend.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Ranks of a world that are `stride` apart, `size` of them: which group, and which rank in it, follow from the
/// world's.
struct group_of_world {
  int size = 1;
  int stride = 1;
  [[nodiscard]] constexpr int rank_of(int world_rank) const noexcept { return world_rank / stride % size; }
  [[nodiscard]] constexpr int color_of(int world_rank) const noexcept {
    return world_rank % stride + world_rank / (stride * size) * stride;
  }
  /// The world's rank of a rank of that group.
  [[nodiscard]] constexpr int world_rank(int color, int rank) const noexcept {
    return color % stride + (color / stride * size + rank) * stride;
  }
};

/// A handle of `Backend` on such a group. `duplicate` splits the world in `*world`, which is the level's own channel: a
/// collective of the whole world. Before that it has a rank and a size, and says nothing to anybody.
template <class Backend>
class group_backend : public Backend {
  static consteval backend_traits of_group() {
    backend_traits t = traits_of<Backend>;
    t.duplicates = t.duplicates_together = true;
    t.splits = false;
    return t;
  }

 public:
  static constexpr backend_traits traits = of_group();

  group_backend(std::shared_ptr<Backend> world, group_of_world group, double deadline)
      : Backend(*world), world_(std::move(world)), group_(group), deadline_(deadline) {}

  [[nodiscard]] int rank() const { return joined_ ? Backend::rank() : group_.rank_of(Backend::rank()); }
  [[nodiscard]] int size() const { return group_.size; }

  [[nodiscard]] group_backend duplicate() const {
    const int mine = world_->rank();
    group_backend joined = *this;
    static_cast<Backend&>(joined) = world_->split(group_.color_of(mine), group_.rank_of(mine), deadline_);
    joined.joined_ = true;
    return joined;
  }
  void abandon(std::string_view reason) const noexcept
    requires has_abandon<Backend>
  {
    if (joined_) Backend::abandon(reason);
  }
  void retire() const noexcept
    requires has_retire<Backend>
  {
    if (joined_) Backend::retire();
  }
  void split() = delete;  // a group's own groups are nobody's business

 private:
  std::shared_ptr<Backend> world_;
  group_of_world group_;
  double deadline_;
  bool joined_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE
