// SPDX-License-Identifier: Apache-2.0
// The trainer of examples/experts: its layer against the formulas, and four ranks with two owners in each group against
// one rank that has all experts, in one optimizer that clips by its own norm.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "experts/trainer.hpp"
#include "support/patience.hpp"

namespace {

[[maybe_unused]] const bool one_thread = (toy_gpt::use_one_thread_for_products(), true);

constexpr int ranks = 4;
using drawing = std::function<void(toy_gpt::batch&, int rank, std::uint64_t number)>;

experts::settings small() {
  return {.model = {.trunk = {.context = 6, .layers = 2, .width = 8, .heads = 2}, .experts = {}},
          .sequences = 2,
          .pace = {.first = 2, .second = 1},
          .tokens = ranks * 3 * 2 * 6 * 40,  // 40 steps
          .rate = 1e-2,
          .clip_norm = 0.3,
          .deadline = 60 * patience()};
}

/// Bytes of a text, another place for each rank and micro-batch.
void draw_text(toy_gpt::batch& into, int rank, std::uint64_t number) {
  const std::string text = "The quick brown fox jumps over the lazy dog; 0123456789, and then some more of it.";
  into = {2, {}, {}};
  for (std::size_t i = 0; i < 12; ++i) {
    const std::size_t at = i + 7 * static_cast<std::size_t>(rank) + 31 * static_cast<std::size_t>(number);
    into.inputs.push_back(static_cast<unsigned char>(text[at % text.size()]));
    into.targets.push_back(static_cast<unsigned char>(text[(at + 1) % text.size()]));
  }
}
/// One letter for each rank and micro-batch, of few: its tokens go one way.
void draw_letters(toy_gpt::batch& into, int rank, std::uint64_t number) {
  const auto letter = static_cast<unsigned char>("aadaab"[(static_cast<std::uint64_t>(rank) + number / 4) % 6]);
  into = {6, std::vector<unsigned char>(12, letter), std::vector<unsigned char>(12, letter)};
}

struct outcome {
  std::vector<double> losses, norms, scales, rates;  // of each step
  std::vector<double> dense;
  std::vector<std::vector<double>> own;  // by owner
  // [micro-batch][rank][layer][expert]
  std::vector<std::array<std::vector<std::vector<std::size_t>>, ranks>> tokens;
};
void record(outcome& into, acco::round_report const& report) {
  if (!commits(report.plan)) return;
  into.losses.push_back(report.step_loss);
  into.norms.push_back(report.gradient_norm);
  into.scales.push_back(report.clip_scale);
  into.rates.push_back(report.learning_rate_scale);
}

outcome four_ranks(experts::settings const& s, drawing const& draw) {
  outcome found;
  found.own.resize(s.model.experts.owners);
  const std::size_t micro_batches = static_cast<std::size_t>(s.tokens) / ranks / 12 + 2;
  found.tokens.resize(micro_batches);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    experts::trainer<double, acco::threads_backend> training(s, world);
    toy_gpt::batch data;
    for (std::uint64_t k = 0; training.dense().samples() < s.tokens; ++k) {
      draw(data, world.rank(), k);
      auto const report = training.micro_batch(data);
      for (std::size_t l = 0; l < s.model.trunk.layers; ++l) {
        auto const tokens = training.network().experts_of(l).tokens();
        found.tokens.at(k)[static_cast<std::size_t>(world.rank())].emplace_back(tokens.begin(), tokens.end());
      }
      if (report && world.rank() == 0) record(found, *report);
    }
    training.finish();
    CHECK(training.own().samples() == training.dense().samples());
    if (world.rank() == 0) found.dense.assign(training.dense().parameters().begin(), training.dense().parameters().end());
    if (const auto owner = static_cast<std::size_t>(world.rank()); owner < found.own.size())
      found.own[owner].assign(training.own().parameters().begin(), training.own().parameters().end());
  });
  return found;
}

/// The same micro-batches, one after the other.
struct alone {
  outcome found;
  acco::parameter_layout layout;
  std::vector<double> parameters;
};
alone one_rank(experts::settings s, drawing const& draw) {
  alone result;
  s.model.experts.owners = 1;
  const experts::tensors at(s.model, 0, result.layout, result.layout);
  experts::model<double> network(
      s.model, at, [](std::span<double const> in, std::span<double> out) { std::copy(in.begin(), in.end(), out.begin()); });
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{s.pace.first * ranks, s.pace.second * ranks}},
                             acco::adamw{.learning_rate = s.rate, .beta2 = 0.99, .weight_decay = 0.1},
                             acco::host_storage<double, double, double>{},
                             world,
                             result.layout,
                             acco::options{.clip_norm = s.clip_norm,
                                           .learning_rate = acco::warmup_cosine{.warmup = s.tokens / 20, .total = s.tokens}}};
    training.initialize(experts::initial<double>(result.layout, s.model.trunk.layers, s.seed));
    toy_gpt::batch data;
    for (std::uint64_t k = 0; training.samples() < s.tokens; ++k) {
      draw(data, static_cast<int>(k % ranks), k / ranks);
      const double loss =
          network.add_gradients(data, training.parameters(), training.parameters(), training.gradients(), training.gradients());
      if (auto const report = training.accumulated(static_cast<double>(data.targets.size()), loss)) record(result.found, *report);
    }
    training.finish();
    result.parameters.assign(training.parameters().begin(), training.parameters().end());
  });
  return result;
}

/// The largest difference of any parameter: of the dense ones, and of each owner's.
double distance(experts::settings const& s, outcome const& four, alone const& one) {
  double most = 0;
  for (std::size_t owner = 0; owner < four.own.size(); ++owner) {
    acco::parameter_layout dense, own;
    const experts::tensors at(s.model, owner, dense, own);
    const auto compare = [&](acco::parameter_layout const& layout, std::vector<double> const& values) {
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const tensor = layout[k], same = one.layout[layout[k].name];
        for (std::size_t i = 0; i < tensor.size; ++i)
          most = std::max(most, std::abs(values[tensor.offset + i] - one.parameters[same.offset + i]));
      }
    };
    compare(dense, four.dense);
    compare(own, four.own[owner]);
  }
  return most;
}
void compare_steps(outcome const& four, outcome const& one) {
  REQUIRE(four.losses.size() == one.losses.size());
  for (std::size_t k = 0; k < one.losses.size(); ++k) {
    CAPTURE(k);
    CHECK(four.losses[k] == doctest::Approx(one.losses[k]).epsilon(1e-9));
    CHECK(four.norms[k] == doctest::Approx(one.norms[k]).epsilon(1e-7));
    CHECK(four.scales[k] == doctest::Approx(one.scales[k]).epsilon(1e-7));
    CHECK(four.rates[k] == one.rates[k]);
  }
}

}  // namespace

TEST_CASE("the layer is gate times expert of each token, of which each expert takes its first ones") {
  const experts::routing how{.experts = 3, .owners = 1, .capacity = 1.0, .auxiliary = 0.1};
  constexpr std::size_t rows = 10, w = 4, slots = 4;  // the ceiling of 10 / 3
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal(0, 1);
  const auto some = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& v : values) v = normal(generator);
    return values;
  };
  const auto x = some(rows * w), router = some(3 * w), parameters = some(3 * (8 * w * w + 5 * w)), before = some(rows * w);
  std::vector<experts::expert_at> own;
  for (std::size_t e = 0; e < 3; ++e) {
    const std::size_t at = e * (8 * w * w + 5 * w);
    own.push_back({{at, at + 4 * w * w}, {at + 4 * w * w + 4 * w, at + 8 * w * w + 4 * w}});
  }
  experts::switch_layer<double> layer(how, w, [](auto in, auto out) { std::copy(in.begin(), in.end(), out.begin()); });
  auto out = before;
  const double auxiliary = layer.forward(x.data(), rows, router.data(), parameters.data(), own, out.data());

  std::vector<std::size_t> taken(3, 0), chosen(3, 0);
  std::vector<double> mean(3, 0.0);
  std::size_t dropped = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> p(3);
    double sum = 0;
    for (std::size_t e = 0; e < 3; ++e) {
      p[e] = std::exp(std::inner_product(&x[r * w], &x[r * w] + w, &router[e * w], 0.0));
      sum += p[e];
    }
    for (std::size_t e = 0; e < 3; ++e) mean[e] += p[e] / sum / rows;
    const auto e = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
    ++chosen[e];
    const bool fits = taken[e] < slots;
    taken[e] += fits ? 1 : 0;
    dropped += fits ? 0 : 1;
    for (std::size_t j = 0; j < w; ++j) {
      double y = parameters[own[e].down.bias + j];
      for (std::size_t i = 0; i < 4 * w; ++i) {
        const double u = parameters[own[e].up.bias + i] +
                         std::inner_product(&x[r * w], &x[r * w] + w, &parameters[own[e].up.weight + i * w], 0.0);
        const double inner = std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u);
        y += parameters[own[e].down.weight + j * 4 * w + i] * 0.5 * u * (1 + std::tanh(inner));
      }
      CHECK(out[r * w + j] == doctest::Approx(before[r * w + j] + (fits ? p[e] / sum * y : 0)).epsilon(1e-9));
    }
  }
  double expected = 0;
  for (std::size_t e = 0; e < 3; ++e) expected += 3.0 * static_cast<double>(chosen[e]) / rows * mean[e];
  CHECK(auxiliary == doctest::Approx(expected).epsilon(1e-12));
  CHECK(layer.dropped() == dropped);
  CHECK(dropped > 0);  // or this says nothing of it
}

TEST_CASE("gradients of every tensor agree with finite differences, through routing and the auxiliary loss") {
  experts::settings s = small();
  s.model.experts = {.experts = 4, .owners = 1, .capacity = 1.0, .auxiliary = 0.5};
  acco::parameter_layout layout;
  const experts::tensors at(s.model, 0, layout, layout);
  experts::model<double> network(s.model, at, [](auto in, auto out) { std::copy(in.begin(), in.end(), out.begin()); });
  auto p = experts::initial<double>(layout, s.model.trunk.layers, 5);
  std::mt19937_64 generator(11);
  std::normal_distribution<double> normal(0, 0.15);
  for (double& each : p) each += normal(generator);
  toy_gpt::batch data;
  draw_text(data, 1, 2);
  std::vector<double> g(p.size(), 0.25);  // the model must ADD
  const double loss = network.add_gradients(data, p, p, g, g);
  CHECK(loss == doctest::Approx(network.loss(data, p, p)).epsilon(1e-14));
  const auto objective = [&] {
    const double sum = network.loss(data, p, p);
    return sum + 0.5 * network.auxiliary() * static_cast<double>(data.targets.size());
  };
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const tensor = layout[k];
    const std::string name(tensor.name);
    CAPTURE(name);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < tensor.size; i += std::max<std::size_t>(1, tensor.size / 20)) {
      const std::size_t where = tensor.offset + (name == "wte" ? i % 8 + 8 * data.inputs[i % data.inputs.size()] : i);
      constexpr double h = 1e-6;
      const double kept = p[where];
      p[where] = kept + h;
      const double up = objective();
      p[where] = kept - h;
      const double down = objective();
      p[where] = kept;
      worst = std::max(worst, std::abs(g[where] - 0.25 - (up - down) / (2 * h)));
      largest = std::max(largest, std::abs(g[where] - 0.25));
    }
    CHECK(worst < 1e-6);
    if (!name.starts_with("h1.expert") && !name.starts_with("h0.expert")) CHECK(largest > 1e-4);  // the tensor matters
  }
}

TEST_CASE("four ranks that own two experts each train like one rank that has all, clipped by one norm") {
  for (const std::size_t owners : {2U, 4U}) {
    experts::settings s = small();
    s.model.experts.owners = owners;
    const outcome four = four_ranks(s, draw_text);
    const alone one = one_rank(s, draw_text);
    REQUIRE(one.found.losses.size() == 40);
    compare_steps(four, one.found);
    CHECK(std::count_if(one.found.scales.begin(), one.found.scales.end(), [](double scale) { return scale < 1; }) > 10);
    CHECK(one.found.losses.back() < one.found.losses.front() - 1);
    CHECK(distance(s, four, one) < 1e-6);
  }
}

TEST_CASE("an expert without a token on some rank has the right weight, one without any keeps its parameters") {
  experts::settings s = small();
  s.model.trunk.context = 2;
  s.model.experts.experts = 16;
  s.tokens /= 2;
  s.model.experts.auxiliary = 0;  // let them be unequal
  const outcome four = four_ranks(s, draw_letters);
  const alone one = one_rank(s, draw_letters);
  compare_steps(four, one.found);
  CHECK(distance(s, four, one) < 1e-6);

  std::size_t here_not_there = 0, in_some_steps = 0, nowhere = 0;
  for (std::size_t l = 0; l < s.model.trunk.layers; ++l) {
    for (std::size_t e = 0; e < s.model.experts.experts; ++e) {
      std::size_t with_some = 0;
      for (std::size_t step = 0; step < four.losses.size(); ++step) {
        std::size_t all = 0;
        for (std::size_t m = 3 * step; m < 3 * step + 3; ++m) {
          std::size_t with = 0;
          for (auto const& rank : four.tokens[m]) with += rank[l][e] != 0 ? 1 : 0;
          here_not_there += with != 0 && with < ranks ? 1 : 0;
          all += with;
        }
        with_some += all != 0 ? 1 : 0;
      }
      in_some_steps += with_some != 0 && with_some < four.losses.size() ? 1 : 0;
      if (with_some != 0) continue;
      ++nowhere;
      const std::size_t owner = e / s.model.experts.own();
      acco::parameter_layout dense, own;
      const experts::tensors at(s.model, owner, dense, own);
      auto const begun = experts::initial<double>(own, s.model.trunk.layers, s.seed);
      const std::string prefix =
          std::string("h").append(std::to_string(l)).append(".expert").append(std::to_string(e)).append(".");
      std::size_t compared = 0;
      for (std::size_t k = 0; k < own.tensor_count(); ++k) {
        if (!own[k].name.starts_with(prefix)) continue;
        for (std::size_t i = own[k].offset; i < own[k].offset + own[k].size; ++i, ++compared)
          REQUIRE(four.own[owner][i] == begun[i]);  // weight decay, too, leaves it alone
      }
      CHECK(compared == 8 * 8 * 8 + 5 * 8);
    }
  }
  CHECK(here_not_there > 20);
  CHECK(nowhere > 3);
  CHECK(in_some_steps > 3);
}

TEST_CASE("a rank that fails ends the training of all: nobody waits for the deadline") {
  experts::settings s = small();
  s.deadline = 1e6;
  const auto fails = [&] {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      experts::trainer<double, acco::threads_backend> training(s, world);
      toy_gpt::batch data;
      for (std::uint64_t k = 0; training.dense().samples() < s.tokens; ++k) {
        draw_text(data, world.rank(), k);
        if (world.rank() == 2 && k == 7) throw std::runtime_error("the disk is full");
        training.micro_batch(data);
      }
    });
  };
  CHECK_THROWS_WITH(fails(), "the disk is full");
}

TEST_CASE("what cannot be divided is refused") {
  experts::settings s = small();
  s.model.experts = {.experts = 4, .owners = 3};
  acco::parameter_layout layout;
  CHECK_THROWS_WITH(experts::tensors(s.model, 0, layout, layout), "4 experts cannot be divided among 3 ranks: take a multiple");
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    using trainer = experts::trainer<double, acco::threads_backend>;
    CHECK_THROWS_WITH(trainer(s, world), "1 ranks cannot be divided into groups of 3 that own the experts: take a multiple");
  });
}
