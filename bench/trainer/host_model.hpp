// SPDX-License-Identifier: Apache-2.0
// The model where parameters and gradients are in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpt.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// The model on the host.
template <class Parameter>
class host_model {
 public:
  using parameter = Parameter;
  using gradient = Parameter;

  explicit host_model(settings const& s) : model_(s.model) {
    if constexpr (!direct) {
      parameters_.resize(layout().size());
      gradients_.resize(layout().size());
    }
  }
  [[nodiscard]] acco::parameter_layout const& layout() const { return model_.layout(); }
  [[nodiscard]] std::vector<float> initial(std::uint64_t seed) const { return model_.initial(seed); }
  /// Called before every layer: the place to poll a network that makes no progress by itself.
  void between_layers(std::function<void()> work) { model_.between_layers = std::move(work); }
  /// A round begins (for profilers).
  void begin_round(std::size_t) {}

  /// Adds the gradient of the summed loss of the batch; returns that sum.
  double add_gradients(batch const& data, std::span<parameter const> parameters, std::span<gradient> gradients) {
    if constexpr (direct) {
      return model_.add_gradients(data, parameters, gradients);
    } else {
      std::fill(gradients_.begin(), gradients_.end(), 0.0F);
      const double loss = model_.add_gradients(data, on_host(parameters), gradients_);
      for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = gradient(static_cast<float>(gradients[i]) + gradients_[i]);
      return loss;
    }
  }
  /// The same work for nothing: a slower machine.
  void work_in_vain(batch const& data, std::span<parameter const> parameters) {
    gradients_.assign(layout().size(), 0.0F);
    model_.add_gradients(data, on_host(parameters), gradients_);
  }
  double loss(batch const& data, std::span<parameter const> parameters) { return model_.loss(data, on_host(parameters)); }
  std::span<float const> on_host(std::span<parameter const> parameters) {
    if constexpr (std::is_same_v<parameter, float>) {
      return parameters;
    } else {
      parameters_.assign(parameters.begin(), parameters.end());
      return parameters_;
    }
  }
  /// Room for committed parameters.
  std::span<parameter> room() {
    committed_.resize(layout().size());
    return committed_;
  }

 private:
  static constexpr bool direct = std::is_same_v<parameter, float> && std::is_same_v<gradient, float>;
  gpt<float> model_;
  std::vector<float> parameters_, gradients_;
  std::vector<parameter> committed_;
};

}  // namespace toy_gpt
