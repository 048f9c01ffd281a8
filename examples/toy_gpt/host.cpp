// SPDX-License-Identifier: Apache-2.0
#include "host.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <type_traits>
#include <utility>

#include "gpt.hpp"
#include "matrix.hpp"
#include "train.hpp"

namespace toy_gpt {
namespace {

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

/// Continues a prompt, one byte at a time, at temperature 0.7.
std::string generate(gpt<float>& model, shape const& s, std::span<float const> parameters, std::string const& prompt,
                     std::size_t length, std::uint64_t seed) {
  std::string text = prompt;
  std::mt19937_64 generator(seed);
  for (std::size_t k = 0; k < length; ++k) {
    const std::string recent = text.substr(text.size() > s.context ? text.size() - s.context : 0);
    const std::vector<unsigned char> bytes(recent.begin(), recent.end());
    const auto logits = model.logits_after(bytes, parameters);
    std::vector<double> weights;
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) weights.push_back(std::exp(static_cast<double>(logit - largest) / 0.7));
    std::discrete_distribution<int> choose(weights.begin(), weights.end());
    text += static_cast<char>(choose(generator));
  }
  return text;
}

}  // namespace

std::string sample_of(settings const& s, corpus const& text, std::span<float const> parameters) {
  batch data;
  text.draw_validation(data, 1, 3);
  const std::string prompt(data.inputs.begin(), data.inputs.begin() + static_cast<std::ptrdiff_t>(s.model.context / 2));
  gpt<float> speaker(s.model);
  return generate(speaker, s.model, parameters, prompt, 400, s.seed);
}

template <class Parameter>
void train_on_host(job& one, int rank, optimizer_maker<Parameter> const& make, summary& result) {
  use_one_thread_for_products();
  host_model<Parameter> model(one.chosen);
  acco::any_optimizer<Parameter> training = make(model.layout(), options_of(one.chosen));
  train_rank(one, rank, model, training, result);
}
template void train_on_host(job&, int, optimizer_maker<float> const&, summary&);
template void train_on_host(job&, int, optimizer_maker<acco::bfloat16> const&, summary&);

}  // namespace toy_gpt
