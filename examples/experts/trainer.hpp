// SPDX-License-Identifier: Apache-2.0
// One rank of a training with experts: its worlds, its two optimizers, a micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include <acco/acco.hpp>

#include "model.hpp"
#include "one_norm.hpp"

namespace experts {

struct settings {
  shape model = {};
  std::size_t sequences = 8;  ///< of a micro-batch, on each rank the same
  acco::fixed_pace pace = {.first = 3, .second = 1};
  double tokens = 0;  ///< of the training, over all ranks
  double rate = 2e-3, clip_norm = 1, deadline = 600;
  std::uint64_t seed = 1;
};

template <class Real, class World>
class trainer {
 public:
  /// Collective. Ranks 0 to owners - 1 are a group, and so on: tokens travel inside. The ranks of one place in their
  /// groups own the same experts, and train them together; all ranks train the dense parameters.
  trainer(settings const& s, World const& world)
      : owners_(checked(s.model.experts.owners, static_cast<std::size_t>(world.size()))),
        group_(world.split(world.rank() / owners_)),
        same_experts_(world.split(world.rank() % owners_)),
        norm_(world, 2, s.deadline),
        model_(s.model, tensors(s.model, static_cast<std::size_t>(group_.rank()), dense_layout_, own_layout_),
               [this](std::span<Real const> in, std::span<Real> out) {
                 group_.all_to_all(queue_, std::as_bytes(in), std::as_writable_bytes(out));
                 queue_.wait();
               }) {
    queue_.deadline = s.deadline;
    // [optimizers]
    acco::options chosen{.clip_norm = s.clip_norm,
                         .learning_rate = acco::warmup_cosine{.warmup = s.tokens / 20, .total = s.tokens},
                         .deadline = s.deadline};
    const acco::two_phase schedule{.pace = s.pace};
    const acco::adamw rule{.learning_rate = s.rate, .beta2 = 0.99, .weight_decay = 0.1};
    const acco::host_storage<Real, Real, Real> storage;
    chosen.clip_with = norm_.over(world.size());
    dense_ = acco::optimizer{schedule, rule, storage, world, dense_layout_, chosen};
    chosen.clip_with = norm_.over(same_experts_.size());
    own_ = acco::optimizer{schedule, rule, storage, same_experts_, own_layout_, chosen};
    // [optimizers]
    dense_.initialize(initial<Real>(dense_layout_, s.model.trunk.layers, s.seed));
    own_.initialize(initial<Real>(own_layout_, s.model.trunk.layers, s.seed));
  }
  trainer(trainer const&) = delete;
  trainer& operator=(trainer const&) = delete;
  ~trainer() { norm_.end(); }  // before the optimizers, whose threads may wait there

  /// Gives the report of the dense optimizer's round, if one has ended: the other's round has, too.
  std::optional<acco::round_report> micro_batch(toy_gpt::batch const& data) {
    // [micro-batch]
    const double loss = model_.add_gradients(data, dense_.parameters(), own_.parameters(), dense_.gradients(), own_.gradients());
    const auto tokens = static_cast<double>(data.targets.size());
    auto report = dense_.accumulated(tokens, loss);
    own_.accumulated(tokens * group_.size());  // the gradients of all the group's tokens, those with other experts: zeros
    // [micro-batch]
    return report;
  }
  void finish() {
    dense_.finish();
    own_.finish();
  }
  /// Every rank of the group calls it, with as many tokens.
  double loss(toy_gpt::batch const& data) { return model_.loss(data, dense_.parameters(), own_.parameters()); }

  [[nodiscard]] acco::any_optimizer<Real>& dense() { return dense_; }
  [[nodiscard]] acco::any_optimizer<Real>& own() { return own_; }
  [[nodiscard]] model<Real> const& network() const { return model_; }

 private:
  static int checked(std::size_t owners, std::size_t ranks) {
    if (owners == 0 || ranks % owners != 0) {
      throw std::invalid_argument(std::to_string(ranks) + " ranks cannot be divided into groups of " + std::to_string(owners) +
                                  " that own the experts: take a multiple");
    }
    return static_cast<int>(owners);
  }

  int owners_;
  World group_, same_experts_;
  acco::host_queue queue_{acco::make_queue<acco::host_queue>(group_)};
  one_norm<World> norm_;
  acco::parameter_layout dense_layout_, own_layout_;
  model<Real> model_;
  acco::any_optimizer<Real> dense_, own_;
};

}  // namespace experts
