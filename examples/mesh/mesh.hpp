// SPDX-License-Identifier: Apache-2.0
// Data parallelism beside a model that is split over some ranks. acco's worlds are of ranks that hold the same part of
// the model; the trainer's own collectives go over the ranks whose parts make one model. docs/mesh.md says why.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <acco/acco.hpp>

namespace mesh {

// [worlds]
template <class World>
struct worlds {
  World model;  ///< whose parts make one model
  World data;   ///< that hold the same part
};
/// A world of models of so many parts; the ranks of one model are neighbours. Collective.
template <class World>
worlds<World> split(World const& world, int parts) {
  if (world.size() % parts != 0)
    throw std::invalid_argument("a model of " + std::to_string(parts) + " parts does not divide " + std::to_string(world.size()) +
                                " ranks: start a multiple of it");
  World model = world.split(world.rank() / parts);
  return {std::move(model), world.split(world.rank() % parts)};
}
// [worlds]

// [joint norm]
/// The world of an optimizer whose parameters are one part of a model: rounds decide by the norm of the whole model.
/// Of what is summed over its ranks, a lone double is summed over those of `model`, too. In a round these are the
/// squares of the gradients (and the changes that a code refused, on which the ranks of a model must agree as well).
/// Not for local updates, which sum a lone weight.
template <class World>
class joint_norm : public World {
 public:
  static constexpr acco::backend_traits traits = [] {
    acco::backend_traits of_both = acco::traits_of<World>;
    of_both.splits = false;
    of_both.tasks_of_a_call *= 2;
    return of_both;
  }();

  /// Throws where the squares would travel by group or tensor, several numbers together: norms or a `clip_norm` of their
  /// own ask for it, and `leave_without_gradient`.
  joint_norm(World data, World model, acco::parameter_layout const& layout, acco::options const& chosen)
      : joint_norm(std::move(data), std::move(model)) {
    if (acco::update_regions(layout, chosen.norms).measured())
      throw std::invalid_argument(
          "joint_norm sums one norm: leave options::norms at total, clip_norm to the options, and leave_without_gradient out");
  }

  template <class T>
  void all_reduce(acco::host_queue& queue, acco::partial<T const> in, acco::replicated<T> out) const {
    if constexpr (std::is_same_v<T, double>) {
      if (out.whole().size() == 1) {
        const std::span<double> of_part(of_part_.get(), 1);
        World::all_reduce(queue, in, acco::replicated<double>(of_part));
        return model_.all_reduce(queue, acco::partial<double const>(of_part), out);
      }
    }
    World::all_reduce(queue, in, out);
  }
  void abort(std::string_view reason) const noexcept {
    World::abort(reason);
    model_.abort(reason);
  }
  void close() const noexcept {
    World::close();
    model_.close();
  }
  [[nodiscard]] joint_norm duplicate() const { return {World::duplicate(), model_.duplicate()}; }

 private:
  joint_norm(World data, World model) : World(std::move(data)), model_(std::move(model)) {}

  World model_;
  std::shared_ptr<double> of_part_ = std::make_shared<double>(0);  // where tasks find it
};
// [joint norm]

/// Collectives of the trainer's own.
template <class World>
class group {
 public:
  explicit group(World const& ranks) : ranks_(ranks.duplicate()), queue_(acco::make_queue<acco::host_queue>(ranks_)) {
    queue_.place.rank = ranks_.rank();
  }
  [[nodiscard]] int rank() const { return ranks_.rank(); }

  /// Replaces values by their sums over the ranks; blocks.
  void sum(std::span<float> values) {
    sums_.resize(values.size());
    ranks_.all_reduce(queue_, acco::partial<float const>(values), acco::replicated<float>(sums_));
    wait();
    std::copy(sums_.begin(), sums_.end(), values.begin());
  }
  /// Every rank gets the root's; blocks. Of two ranks that is a message.
  void broadcast(std::span<float> values, int root) {
    start_broadcast(values, root);
    wait();
  }
  /// The same, which travels while the caller computes: the values must stay until `wait`, or the group's next call.
  void start_broadcast(std::span<float> values, int root) {
    wait();
    ranks_.broadcast(queue_, acco::replicated<float>(values), root);
  }
  void wait() { queue_.wait(); }

 private:
  World ranks_;
  acco::host_queue queue_;
  std::vector<float> sums_;
};

// [copies]
/// Parameters that every rank of a model has, and rank 0 trains: no other optimizer has them.
template <class World>
class copies {
 public:
  copies(group<World>& model, std::span<float> parameters, std::span<float> gradients)
      : model_(model), parameters_(parameters), gradients_(gradients) {}

  /// After `initialize`, each report and `finish`: the parameters are others then.
  void spread() {
    model_.broadcast(parameters_, 0);
    if (model_.rank() != 0) std::fill(gradients_.begin(), gradients_.end(), 0.0F);  // no optimizer clears them
  }
  /// Before a part of a step ends, where each rank has a part of their gradient, not all of it.
  void collect() { model_.sum(gradients_); }

 private:
  group<World>& model_;
  std::span<float> parameters_, gradients_;
};
// [copies]

}  // namespace mesh
