// SPDX-License-Identifier: Apache-2.0
#include "host.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

#include "gpt.hpp"
#include "host_model.hpp"
#include "matrix.hpp"
#include "train.hpp"

namespace toy_gpt {
namespace {

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
  flush_subnormal_numbers();
  host_model<Parameter> model(one.chosen);
  acco::any_optimizer<Parameter> training = make(model.layout(), options_of(one.chosen));
  train_rank(one, rank, model, training, result);
}
template void train_on_host(job&, int, optimizer_maker<float> const&, summary&);
template void train_on_host(job&, int, optimizer_maker<acco::bfloat16> const&, summary&);

}  // namespace toy_gpt
