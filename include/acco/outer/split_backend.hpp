// SPDX-License-Identifier: Apache-2.0
// One of the worlds into which a world is split, known before any rank has been asked: the split is made when an engine
// takes its channel.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "acco/collective/backend.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Ranks of a world that are `stride` apart, `size` of them: which of the worlds, and which rank in it, follow from the
/// world's.
struct split_of_world {
  int size = 1;
  int stride = 1;
  [[nodiscard]] constexpr int rank_of(int world_rank) const noexcept { return world_rank / stride % size; }
  [[nodiscard]] constexpr int color_of(int world_rank) const noexcept {
    return world_rank % stride + world_rank / (stride * size) * stride;
  }
  /// The world's rank of a rank of that one.
  [[nodiscard]] constexpr int world_rank(int color, int rank) const noexcept {
    return color % stride + (color / stride * size + rank) * stride;
  }
};

/// A handle of `Backend` on such a world. `duplicate` splits the world in `*world`, which is the level's own channel: a
/// collective of the whole world. Before that it has a rank and a size, and says nothing to anybody.
template <class Backend>
class split_backend : public Backend {
  static consteval backend_traits of_split() {
    backend_traits t = traits_of<Backend>;
    t.duplicates = t.duplicates_together = true;
    t.splits = false;
    return t;
  }

 public:
  static constexpr backend_traits traits = of_split();

  split_backend(std::shared_ptr<Backend> world, split_of_world one, double deadline)
      : Backend(*world), world_(std::move(world)), one_(one), deadline_(deadline) {}

  [[nodiscard]] int rank() const { return joined_ ? Backend::rank() : one_.rank_of(Backend::rank()); }
  [[nodiscard]] int size() const { return one_.size; }

  [[nodiscard]] split_backend duplicate() const {
    const int mine = world_->rank();
    split_backend joined = *this;
    static_cast<Backend&>(joined) = world_->split(one_.color_of(mine), one_.rank_of(mine), deadline_);
    joined.joined_ = true;
    return joined;
  }
  void abort(std::string_view reason) const noexcept
    requires has_abort<Backend>
  {
    if (joined_) Backend::abort(reason);
  }
  void close() const noexcept
    requires has_close<Backend>
  {
    if (joined_) Backend::close();
  }
  void split() = delete;  // what is split is not split again

 private:
  std::shared_ptr<Backend> world_;
  split_of_world one_;
  double deadline_;
  bool joined_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE
