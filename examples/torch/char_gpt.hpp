// SPDX-License-Identifier: Apache-2.0
// A character model of LibTorch, the text that it learns, and the loop that trains it with acco.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/functional/linear.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <acco/acco.hpp>
#include <acco/attach/torch.hpp>
#include <acco/make.hpp>

namespace char_gpt {

constexpr std::int64_t symbols = 96, context = 24, width = 32;  // printable ASCII, and one for all other bytes

/// One block of a transformer over characters. Its output matrix is the embedding's (tied), its positions are not
/// trained.
struct model_impl : torch::nn::Module {
  model_impl()
      : characters(register_module("characters", torch::nn::Embedding(symbols, width))),
        block(register_module("block",
                              torch::nn::TransformerEncoderLayer(
                                  torch::nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(4 * width).dropout(0)))),
        head(register_parameter("head", characters->weight)),
        mask(torch::triu(torch::full({context, context}, -std::numeric_limits<float>::infinity()), 1)) {
    const torch::NoGradGuard no_graph;
    characters->weight.mul_(0.1);
    const auto angles = torch::arange(context).unsqueeze(1) * torch::exp(-0.5 * torch::arange(width / 2)).unsqueeze(0);
    positions = register_parameter("positions", 0.1 * torch::cat({angles.sin(), angles.cos()}, 1), false);
  }
  /// Logits of the next character at each place: (sequences, context, symbols).
  torch::Tensor forward(torch::Tensor const& sequences) {
    const auto in = (characters->forward(sequences) + positions).transpose(0, 1);
    return torch::nn::functional::linear(block->forward(in, mask).transpose(0, 1), head);
  }

  torch::nn::Embedding characters;
  torch::nn::TransformerEncoderLayer block;
  torch::Tensor head, positions, mask;
};
TORCH_MODULE_IMPL(model, model_impl);

/// The same weights whenever it is called. torch's random numbers belong to the process: one rank at a time.
inline model make_model() {
  static std::mutex one_at_a_time;
  const std::scoped_lock alone(one_at_a_time);
  torch::manual_seed(11);
  return {};
}

struct batch {
  torch::Tensor inputs, targets;  // (sequences, context)
};

/// The characters of a file, or of a folder's README and documentation.
inline torch::Tensor read_text(std::filesystem::path const& path) {
  std::set<std::filesystem::path> files{path};
  if (std::filesystem::is_directory(path)) {
    files = {path / "README.md"};
    for (auto const& entry : std::filesystem::directory_iterator(path / "docs")) {
      if (entry.path().extension() == ".md") files.insert(entry.path());
    }
  }
  std::vector<std::int64_t> text;
  for (auto const& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + file.string());
    for (const char c : std::string(std::istreambuf_iterator<char>(in), {})) text.push_back(c >= 32 && c < 127 ? c - 31 : 0);
  }
  if (text.size() < 1000) throw std::runtime_error(path.string() + " has fewer than 1000 characters");
  return torch::tensor(text, torch::kInt64);
}

/// Sequences from places that depend on the rank and on the number alone.
inline batch draw(torch::Tensor const& text, std::int64_t sequences, int rank, std::uint64_t number) {
  std::vector<torch::Tensor> inputs, targets;
  std::uint64_t state = (static_cast<std::uint64_t>(rank) << 40U) + (number << 8U) + 1;
  for (std::int64_t k = 0; k < sequences; ++k) {
    std::uint64_t x = state += 0x9e3779b97f4a7c15ULL;  // splitmix64
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    const auto at = static_cast<std::int64_t>((x ^ (x >> 31U)) % static_cast<std::uint64_t>(text.size(0) - context - 1));
    inputs.push_back(text.slice(0, at, at + context));
    targets.push_back(text.slice(0, at + 1, at + 1 + context));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}

inline torch::Tensor mean_loss(model& net, batch const& of) {
  return torch::nn::functional::cross_entropy(net->forward(of.inputs).reshape({-1, symbols}), of.targets.reshape({-1}));
}

struct settings {
  std::string schedule = "two_phase";
  int steps = 100;
  std::int64_t sequences = 8;  // of a micro-batch
  acco::adamw rule{.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1};
};

/// Two micro-batches a step, on every rank, under every schedule.
template <class Backend>
acco::any_optimizer<float> make_optimizer(settings const& s, Backend const& world, acco::parameter_layout const& layout) {
  using schedules = acco::only<acco::named_schedules, "synchronous", "two_phase", "two_phase+int4">;
  const acco::fixed_pace pace{s.schedule.starts_with("two_phase") ? 1U : 2U};
  return acco::make<schedules>(s.schedule, pace, s.rule, acco::host_storage<float>{}, world, layout,
                               acco::options{.deadline = 120});
}

/// Trains on one rank; calls each_step(report) after every step. Afterwards the module holds the committed weights.
template <class Backend, class EachStep>
model train(settings const& s, Backend const& world, torch::Tensor const& text, EachStep&& each_step) {
  torch::set_num_threads(1);  // of this rank
  model net = make_model();
  // [attach]
  auto const layout = acco::attach::layout_of(*net, {.no_decay_for_vectors = true});
  acco::attach::torch_training training{*net, make_optimizer(s, world, layout)};
  std::uint64_t number = 0;
  for (int step = 0; step < s.steps; ++step) {
    const auto report = training.step([&] {
      net->zero_grad();  // a habit of loops of torch: harmless
      auto loss = mean_loss(net, draw(text, s.sequences, world.rank(), number++));
      loss.backward();
      return acco::attach::micro_batch_means{.weight = static_cast<double>(s.sequences), .mean_loss = loss.item().toDouble()};
    });
    each_step(report);
  }
  training.finish();
  // [attach]
  return net;
}

}  // namespace char_gpt
