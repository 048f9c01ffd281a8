// SPDX-License-Identifier: Apache-2.0
// A character model of two layers, the text that it learns, and the loop that trains it with acco.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/attach/eigen.hpp>
#include <acco/make.hpp>

namespace char_mlp {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using row = Eigen::Matrix<float, 1, Eigen::Dynamic>;
using symbols = std::vector<std::uint8_t>;

// printable ASCII, and one for all other bytes
constexpr Eigen::Index alphabet = 96, context = 6, width = 12, hidden = 64;

// [layout]
inline acco::parameter_layout make_layout() {
  acco::parameter_layout layout;
  acco::attach::add(layout, "embedding", matrix(alphabet, width));
  acco::attach::add(layout, "hidden.weight", matrix(hidden, context * width));
  acco::attach::add(layout, "hidden.bias", row(hidden));
  acco::attach::add(layout, "output.weight", matrix(alphabet, hidden));
  acco::attach::add(layout, "output.bias", row(alphabet));
  return layout.no_decay_for_vectors();
}
// [layout]

/// Sequences of context + 1 characters; the last one is to be guessed from the others.
using batch = std::vector<std::uint8_t const*>;

/// ADDS the gradient of the sum of the batch's losses; returns that sum.
inline double add_gradients(acco::parameter_layout const& layout, std::span<float const> parameters, std::span<float> gradients,
                            batch const& sequences) {
  // [maps]
  const auto p = [&]<class Matrix>(char const* name, Matrix*) { return acco::attach::map<Matrix>(layout, parameters, name); };
  const auto d = [&]<class Matrix>(char const* name, Matrix*) { return acco::attach::map<Matrix>(layout, gradients, name); };
  constexpr matrix* a_matrix = nullptr;
  constexpr row* a_row = nullptr;
  // [maps]
  const auto count = static_cast<Eigen::Index>(sequences.size());
  const auto embedding = p("embedding", a_matrix);
  matrix in(count, context * width);
  for (Eigen::Index s = 0; s < count; ++s)
    for (Eigen::Index t = 0; t < context; ++t)
      in.block(s, t * width, 1, width) = embedding.row(sequences[static_cast<std::size_t>(s)][t]);
  const auto weight = p("hidden.weight", a_matrix), out_weight = p("output.weight", a_matrix);
  const matrix active = ((in * weight.transpose()).rowwise() + p("hidden.bias", a_row)).array().tanh();
  matrix errors = (active * out_weight.transpose()).rowwise() + p("output.bias", a_row);  // logits, yet
  double loss = 0;
  for (Eigen::Index s = 0; s < count; ++s) {
    auto logits = errors.row(s);
    const Eigen::Index target = sequences[static_cast<std::size_t>(s)][context];
    logits.array() -= logits.maxCoeff();
    const float log_sum = std::log(logits.array().exp().sum());
    loss += static_cast<double>(log_sum - logits[target]);
    logits = (logits.array() - log_sum).exp();  // probabilities
    logits[target] -= 1;
  }
  d("output.weight", a_matrix).noalias() += errors.transpose() * active;
  d("output.bias", a_row) += errors.colwise().sum();
  const matrix inner = (errors * out_weight).array() * (1 - active.array().square());
  d("hidden.weight", a_matrix).noalias() += inner.transpose() * in;
  d("hidden.bias", a_row) += inner.colwise().sum();
  const matrix to_in = inner * weight;
  auto to_embedding = d("embedding", a_matrix);
  for (Eigen::Index s = 0; s < count; ++s)
    for (Eigen::Index t = 0; t < context; ++t)
      to_embedding.row(sequences[static_cast<std::size_t>(s)][t]) += to_in.block(s, t * width, 1, width);
  return loss;
}

inline std::uint64_t scrambled(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

inline std::vector<float> make_initial(acco::parameter_layout const& layout) {
  std::vector<float> values(layout.size(), 0);
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const tensor = layout[k];
    if (tensor.shape.size() < 2) continue;
    const double scale = k == 0 ? 1 : std::sqrt(3.0 / static_cast<double>(tensor.shape[1]));
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i)
      values[i] = static_cast<float>(scale * (2 * static_cast<double>(scrambled(i) >> 11U) * 0x1p-53 - 1));
  }
  return values;
}

/// The characters of a file, or of a folder's README and documentation.
inline symbols read_text(std::filesystem::path const& path) {
  std::set<std::filesystem::path> files{path};
  if (std::filesystem::is_directory(path)) {
    files = {path / "README.md"};
    for (auto const& entry : std::filesystem::directory_iterator(path / "docs")) {
      if (entry.path().extension() == ".md") files.insert(entry.path());
    }
  }
  symbols text;
  for (auto const& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + file.string());
    for (const char c : std::string(std::istreambuf_iterator<char>(in), {}))
      text.push_back(static_cast<std::uint8_t>(c >= 32 && c < 127 ? c - 31 : 0));
  }
  if (text.size() < 1000) throw std::runtime_error(path.string() + " has fewer than 1000 characters");
  return text;
}

/// Appends sequences from places that depend on the rank and on the number alone.
inline void draw(batch& into, symbols const& text, std::size_t count, int rank, std::uint64_t number) {
  const std::uint64_t first = (static_cast<std::uint64_t>(rank) << 48U) + (number << 16U);
  for (std::size_t k = 0; k < count; ++k) into.push_back(&text[scrambled(first + k) % (text.size() - context)]);
}

struct settings {
  std::string schedule = "two_phase";
  int steps = 200;
  std::size_t sequences = 32;  // of a micro-batch
  acco::adamw rule{.learning_rate = 3e-3, .weight_decay = 0.1};
};

/// Two micro-batches a step, on every rank, under every schedule.
template <class Backend>
acco::any_optimizer<float> make_optimizer(settings const& s, Backend const& world) {
  using schedules = acco::only<acco::named_schedules, "synchronous", "delayed", "two_phase", "two_phase+int4">;
  const acco::fixed_pace pace{s.schedule.starts_with("two_phase") ? 1U : 2U};
  return acco::make<schedules>(s.schedule, pace, s.rule, acco::host_storage<float>{}, world, make_layout(),
                               acco::options{.deadline = 60});
}

/// Trains on one rank; calls each_step(report) after every step. Returns the committed weights.
template <class Backend, class EachStep>
std::vector<float> train(settings const& s, Backend const& world, symbols const& text, EachStep&& each_step) {
  auto training = make_optimizer(s, world);
  auto const& layout = training.layout();
  training.initialize(make_initial(layout));
  std::uint64_t number = 0;
  for (int step = 0; step < s.steps; ++step) {
    each_step(training.step([&](std::span<float const> parameters, std::span<float> gradients) {
      batch sequences;
      draw(sequences, text, s.sequences, world.rank(), number++);
      return acco::micro_batch_sums{.weight = static_cast<double>(s.sequences),
                                    .loss_sum = add_gradients(layout, parameters, gradients, sequences)};
    }));
  }
  training.finish();
  return {training.parameters().begin(), training.parameters().end()};
}

inline double validation_loss(std::vector<float> const& parameters, symbols const& text) {
  std::vector<float> nobody(parameters.size());
  batch sequences;
  draw(sequences, text, 2000, 1000, 0);
  return add_gradients(make_layout(), parameters, nobody, sequences) / 2000;
}

}  // namespace char_mlp
