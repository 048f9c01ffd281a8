// SPDX-License-Identifier: Apache-2.0
// What a wire sees of the round that it carries: the queue, the arrays, and how the round's numbers are spread over
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "acco/collective/backend_in_use.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/tiles.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/observe/planned_bucket.hpp"
#include "acco/stage/decision.hpp"
#include "acco/stage/pipeline.hpp"
#include "acco/stage/stagger.hpp"
#include "acco/stage/state_arrays.hpp"
#include "acco/storage/refused.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// This rank's shards of what the rule keeps of a reference point (rule/update_rule.hpp); null where it has none.
template <class Storage>
struct reference_place {
  typename Storage::master_type *gradient = nullptr, *ahead = nullptr;
};

/// A rank's round in flight. The trainer's thread fills it before the stages are enqueued; tasks read what it points
/// to.
template <class Storage>
struct round_view {
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  using master_type = typename Storage::master_type;

  // The same in every round.
  typename Storage::queue& queue;
  partition const& shares;
  int rank;
  int sources;  ///< ranks whose gradients come: all of the world; `shares` may have one share, which all of them have
  state_arrays<Storage>& arrays;
  parameter_layout const& layout;
  block_places tiles{};              ///< of all shares, where some wire has a code of tiles and the layout matrices
  round_numbers* numbers = nullptr;  ///< where the stages find them
  sum_type* reduced = nullptr;       ///< this rank's shard of the sums
  master_type* others = nullptr;     ///< this rank's shard of the others' mean gradient, where the rule has it
  reference_place<Storage> reference{};

  // Of this round.
  partial<gradient_type const> carried{std::span<gradient_type const>()};
  replicated<parameter_type> arriving{std::span<parameter_type>()};  ///< what the ranks will get
  trainable_view<parameter_type> in_use{};
  bool adds = false;                        ///< to the sums of the round before
  bool contributes = false;                 ///< this rank carries samples
  bool encoded_early = false;               ///< `encode_kept` has been called
  std::uint64_t rounding = 0;               ///< the seed of rounding at random; 0: to nearest
  std::uint64_t steps = 0;                  ///< updates before
  double rate = 1;                          ///< the learning rate's factor
  double loss_scale = 1;                    ///< by which the carried gradients are multiplied
  std::uint64_t ring_bytes = 0;             ///< that a rank would send of it in a ring
  std::span<planned_bucket const> codes{};  ///< by which its gradients travel, where they are planned

  [[nodiscard]] int ranks() const noexcept { return shares.ranks(); }
  [[nodiscard]] std::size_t whole_of(bucket const& b) const noexcept { return b.share * static_cast<std::size_t>(ranks()); }
  /// Elements of this rank's share of a bucket that are no padding.
  [[nodiscard]] std::size_t real(bucket const& b) const noexcept {
    const std::size_t count = shares.count(rank);
    return std::min(b.share, count - std::min(count, b.offset));
  }
  /// A bucket's gradients, and this rank's share of them: those that are carried lie bucket by bucket.
  [[nodiscard]] gradient_type const* gradients(bucket const& b) const noexcept {
    return carried.local().data() + b.offset * static_cast<std::size_t>(ranks());
  }
  [[nodiscard]] gradient_type const* own_gradients(bucket const& b) const noexcept {
    return gradients(b) + shares.share_of_rank(rank) * b.share;
  }
  /// A bucket's arriving parameters, and this rank's share of them.
  [[nodiscard]] std::span<parameter_type> parameters(bucket const& b) const noexcept {
    return arriving.whole().subspan(b.begin, whole_of(b));
  }
  [[nodiscard]] std::span<parameter_type> own_parameters(bucket const& b) const noexcept {
    return parameters(b).subspan(shares.share_of_rank(rank) * b.share, b.share);
  }
  /// This rank's share of a bucket's sum.
  [[nodiscard]] std::span<sum_type> sums(bucket const& b) const noexcept { return {reduced + b.offset, b.share}; }
  /// Where what is not finite is noted: of gradients, and of changes of parameters.
  [[nodiscard]] coding::refused refused_gradients() const noexcept { return {&numbers->found, &numbers->first}; }
  [[nodiscard]] coding::refused refused_parameters() const noexcept { return {&numbers->diverged, &numbers->diverged_first}; }

  void sends(collective operation, std::uint64_t whole_bytes) noexcept {
    ring_bytes += bytes_sent(operation, sources, whole_bytes);
  }
  void all_reduce(backend_in_use<Storage>& world, double const* from, double* to, std::size_t count) {
    world.all_reduce(queue, partial<double const>({from, count}), replicated<double>({to, count}));
    sends(collective::all_reduce, count * sizeof(double));
  }
  void all_gather(backend_in_use<Storage>& world, bucket const& b, replicated<parameter_type> of) {
    if (ranks() != sources) return;  // this rank's share is the whole
    const std::span<parameter_type> whole = of.whole().subspan(b.begin, whole_of(b));
    world.all_gather(queue, sharded<parameter_type const>(whole.subspan(static_cast<std::size_t>(rank) * b.share, b.share)),
                     replicated<parameter_type>(whole));
    sends(collective::all_gather, whole.size_bytes());
  }

  // Rooms that wires share: a round in flight needs one of each.

  /// An array that is indexed like this rank's shard, for sums, or own gradients, that are not yet in `reduced`.
  std::size_t declare_received(std::size_t bytes) {
    return arrays.declare_room("sums that arrive", bytes, {stagger::reduced + 1, &memory_table::reduced});
  }
};

/// Enqueues the squares of this rank's share of bucket k: of the sums; of sums in the gradient's type, which become
/// those, or are added to them, on the way.
template <class Storage>
class squares_in_use {
 public:
  virtual void measure(std::size_t k) = 0;
  virtual void take(std::size_t k, typename Storage::gradient_type const* from, bool adds) = 0;

 protected:
  squares_in_use() = default;
  squares_in_use(squares_in_use const&) = default;
  squares_in_use& operator=(squares_in_use const&) = default;
  ~squares_in_use() = default;
};

/// How gradients travel: makes of every rank's gradients this rank's shard of their sum.
template <class Storage>
class reducer_in_use {
 public:
  using stages_type = pipeline<typename Storage::queue>;
  using view_type = round_view<Storage>;
  using world_type = backend_in_use<Storage>;

  reducer_in_use() = default;
  reducer_in_use(reducer_in_use const&) = delete;
  reducer_in_use& operator=(reducer_in_use const&) = delete;
  virtual ~reducer_in_use() = default;

  /// Whether it has a code of tiles.
  [[nodiscard]] virtual bool has_tiles() const noexcept { return false; }
  /// Whether its senders are groups of ranks.
  [[nodiscard]] virtual bool sums_groups() const noexcept { return false; }
  /// Its arrays; `adds`: some round adds to the sums of the round before.
  virtual void declare(view_type& v, world_type const& world, bool adds) = 0;
  /// At once, before the trainer adds to gradients that stay in its own array (`options::in_place`). Where `keeps()`.
  virtual void encode_kept(view_type& /*v*/) const {}
  /// Whether it has that.
  [[nodiscard]] virtual bool keeps() const noexcept { return false; }
  /// The stages in which gradients travel.
  virtual void reduce(stages_type& stages, view_type& v, world_type& world) = 0;
  /// Enqueues, in an update stage, bucket k's share of the sums and, by `squares`, their squares.
  virtual void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) = 0;
  /// Enqueues the search, where the round has found that something is not finite.
  virtual void find_non_finite(view_type& v) const = 0;
  /// Enqueues what it keeps of bucket k, behind the decision, in front of the update.
  virtual void settle(view_type& /*v*/, std::size_t /*k*/) {}
  /// The stages in which it learns from a round that commits; whether it does.
  virtual void learn(stages_type& /*stages*/, view_type& /*v*/) {}
  [[nodiscard]] virtual bool learns() const noexcept { return false; }
  /// This rank's gradients stand for all ranks'; what is not finite has its index in the shard.
  [[nodiscard]] virtual bool stands_for_all() const noexcept { return false; }
  [[nodiscard]] virtual bool found_in_shard() const noexcept { return false; }
};

/// How parameters travel: brings every rank's share of the new parameters to all ranks.
template <class Storage>
class gatherer_in_use {
 public:
  using stages_type = pipeline<typename Storage::queue>;
  using view_type = round_view<Storage>;
  using world_type = backend_in_use<Storage>;

  gatherer_in_use() = default;
  gatherer_in_use(gatherer_in_use const&) = delete;
  gatherer_in_use& operator=(gatherer_in_use const&) = delete;
  virtual ~gatherer_in_use() = default;

  virtual void declare(view_type& /*v*/) {}
  /// Enqueues, behind the update of bucket k.
  virtual void encode(view_type& /*v*/, std::size_t /*k*/) {}
  /// The stages in which parameters travel.
  virtual void gather(stages_type& stages, view_type& v, world_type& world) = 0;
};

/// Those of a kind: specialisations are in the other headers of this room.
template <class Wire, class Storage>
class reducer;
template <class Wire, class Storage>
class gatherer;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
