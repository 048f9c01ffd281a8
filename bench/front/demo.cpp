// SPDX-License-Identifier: Apache-2.0
// What readers of DeMo (Peng et al., arXiv 2411.19870) asked of it, asked of a small GPT on ranks that are threads:
//
//   bench_demo size     loss over the coefficients that travel of a chunk, and the length of a chunk
//   bench_demo sign     with the sign of what arrives and without, over all ranks and over senders
//   bench_demo rules    sign rules, momentum and AdamW without any code, with weight decay and without
//   bench_demo ranks    1 to 16 ranks, at a fixed batch of all and at a fixed batch of each
//   bench_demo models   two that are no GPT: one whose best value is known, and one without attention
//   bench_demo length   the budget, and three times that
//   bench_demo basis    how much of a momentum's energy the largest of a chunk hold, in four bases and two shapes, and what lasts
//   bench_demo state    what ranks keep apart: the length of their momenta and how alike they are
//
// [--data TEXT] [--samples 12800] [--seeds 1,2,3] [--rates 3e-4,1e-3,3e-3]: the rate that is best for the first seed counts.
// Prints Markdown.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>

#include "host.hpp"
#include "host_model.hpp"
#include "matrix.hpp"
#include "other_models.hpp"

namespace {

using acco::threads_backend;
constexpr toy_gpt::shape small{.context = 64, .layers = 2, .width = 64, .heads = 4};
using maker = std::function<acco::any_optimizer<float>(threads_backend const&, acco::parameter_layout const&,
                                                       acco::options const&, double rate)>;

enum class basis : std::uint8_t { cosine, as_it_is, hadamard, random };

/// An orthonormal matrix of a basis, rows are its vectors.
std::vector<float> matrix_of(basis of, std::size_t n) {
  std::vector<double> m(n * n, 0.0);
  std::uint64_t state = 7;
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      if (of == basis::cosine)
        m[k * n + i] = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
                       std::cos(3.14159265358979323846 * (2.0 * static_cast<double>(i) + 1) * static_cast<double>(k) /
                                (2.0 * static_cast<double>(n)));
      if (of == basis::as_it_is) m[k * n + i] = i == k ? 1 : 0;
      if (of == basis::hadamard) m[k * n + i] = ((std::popcount(i & k) & 1) != 0 ? -1 : 1) / std::sqrt(static_cast<double>(n));
      if (of == basis::random) {  // made orthonormal below; sums of twelve uniform numbers
        for (int j = 0; j < 12; ++j) {
          state = state * 6364136223846793005ULL + 1442695040888963407ULL;
          m[k * n + i] += static_cast<double>(state >> 33U) * 0x1p-31 - 0.5;
        }
      }
    }
    if (of != basis::random) continue;
    double* const row = m.data() + k * n;
    for (int twice = 0; twice < 2; ++twice) {
      for (std::size_t j = 0; j < k; ++j) {
        double const* const other = m.data() + j * n;
        const double along = std::inner_product(row, row + n, other, 0.0);
        for (std::size_t i = 0; i < n; ++i) row[i] -= along * other[i];
      }
      const double norm = std::sqrt(std::inner_product(row, row + n, row, 0.0));
      for (std::size_t i = 0; i < n; ++i) row[i] /= norm;
    }
  }
  return {m.begin(), m.end()};
}

/// y[k] = sum over i of m[k][i] x[i], or, back, y[i] = sum over k of m[k][i] x[k].
void turn(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  for (std::size_t k = 0; k < n; ++k) y[k] = std::inner_product(x, x + n, m.data() + k * n, 0.0F);
}
void turn_back(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  std::fill_n(y, n, 0.0F);
  for (std::size_t k = 0; k < n; ++k) {
    if (x[k] == 0) continue;
    for (std::size_t i = 0; i < n; ++i) y[i] += m[k * n + i] * x[k];
  }
}
/// All but the `count` largest magnitudes become 0.
void keep_largest(float* x, std::size_t n, std::size_t count) {
  std::array<float, 256> sizes;
  for (std::size_t i = 0; i < n; ++i) sizes[i] = std::abs(x[i]);
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(count - 1),
                   sizes.begin() + static_cast<std::ptrdiff_t>(n), std::greater<>());
  const float least = sizes[count - 1];
  std::size_t equal = count;
  for (std::size_t i = 0; i < n; ++i) equal -= std::abs(x[i]) > least ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::abs(x[i]) < least) {
      x[i] = 0;
    } else if (std::abs(x[i]) == least) {
      if (equal == 0)
        x[i] = 0;
      else
        --equal;
    }
  }
}

/// What arrives of a chunk's largest coefficients in 8 bits each: for trying sizes, so what travels are the numbers themselves,
/// and the bytes that a code of its own would have are told by `bytes`.
struct some_coefficients {
  static constexpr char const* name = "some_coefficients";
  static constexpr bool biased = true, loose = true, no_zero = true;
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);
  std::vector<float> const* cosines;
  std::size_t chunk, count;

  void encode(float const* values, std::byte* bytes) const {
    std::array<float, block_size> sent;
    for (std::size_t at = 0; at < block_size; at += chunk) {
      std::array<float, block_size> c;
      turn(*cosines, chunk, values + at, c.data());
      float most = 0;
      for (std::size_t i = 0; i < chunk; ++i) most = std::max(most, std::abs(c[i]));
      keep_largest(c.data(), chunk, count);
      const float scale = most / 127;
      for (std::size_t i = 0; i < chunk && scale > 0; ++i) c[i] = std::nearbyint(c[i] / scale) * scale;
      turn_back(*cosines, chunk, c.data(), sent.data() + at);
    }
    std::memcpy(bytes, sent.data(), block_bytes);
  }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
  /// Of a number: a scale of 2 bytes a chunk; a byte and the fewest bits of a place a coefficient.
  [[nodiscard]] double bytes() const {
    const auto k = static_cast<double>(count), of = static_cast<double>(chunk);
    return (2 + k * (1 + (count == chunk ? 0 : std::log2(of) / 8))) / of;
  }
};
static_assert(acco::encoding<some_coefficients>);

struct asked {
  std::string what, data;
  double samples = 12800;
  std::vector<std::uint64_t> seeds{1, 2, 3};
  std::vector<double> rates{3e-4, 1e-3, 3e-3};
};

struct trained {
  double loss = 0, gap = 0, bytes = 0;  // of validation; above the training's; that a rank sends a parameter and step
};

/// Means over the seeds of one(rate, seed), at the rate that is best for the first one.
template <class One>
trained tuned_over(std::vector<double> const& rates, std::vector<std::uint64_t> const& seeds, double* best, One&& one) {
  std::vector<trained> first;
  for (const double rate : rates) first.push_back(one(rate, seeds[0]));
  const auto at =
      std::min_element(first.begin(), first.end(), [](trained const& x, trained const& y) { return x.loss < y.loss; }) -
      first.begin();
  trained sum = first[static_cast<std::size_t>(at)];
  const double rate = rates[static_cast<std::size_t>(at)];
  for (std::size_t k = 1; k < seeds.size(); ++k) {
    const trained next = one(rate, seeds[k]);
    sum.loss += next.loss;
    sum.gap += next.gap;
  }
  if (best != nullptr) *best = rate;
  const auto count = static_cast<double>(seeds.size());
  return {sum.loss / count, sum.gap / count, sum.bytes};
}

class trainings {
 public:
  explicit trainings(asked const& a)
      : asked_(a),
        source_(a.data.empty() ? "this repository" : a.data),
        text_(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), 64) {}

  /// Means over the seeds, at the rate that is best for the first one.
  trained tuned(int ranks, unsigned micro_batches, std::size_t batch, maker const& make, double* best = nullptr,
                std::vector<double> const& rates = {}) {
    return tuned_over(rates.empty() ? asked_.rates : rates, asked_.seeds, best,
                      [&](double rate, std::uint64_t seed) { return one(ranks, micro_batches, batch, make, rate, seed); });
  }

 private:
  trained one(int ranks, unsigned micro_batches, std::size_t batch, maker const& make, double rate, std::uint64_t seed) {
    toy_gpt::settings s;
    s.model = small;
    s.ranks = ranks;
    s.samples = static_cast<std::size_t>(asked_.samples);
    s.batch = batch;
    s.first = micro_batches;
    s.schedule = "synchronous";
    s.warmup = asked_.samples / 20;
    s.validations = 1;
    s.seed = seed;
    s.quiet = true;
    std::vector<toy_gpt::summary> results(static_cast<std::size_t>(ranks));
    toy_gpt::job job{s, text_, source_, nullptr, {}, {}, {}};
    try {
      threads_backend::run(ranks, [&](threads_backend const& world) {
        toy_gpt::train_on_host<float>(
            job, world.rank(),
            [&](acco::parameter_layout const& layout, acco::options const& options) {
              return make(world, layout, options, rate);
            },
            results[static_cast<std::size_t>(world.rank())]);
      });
    } catch (acco::error const&) {
      return {5.5452, 0, 0};  // diverged: as bad as a guess
    }
    toy_gpt::summary const& r = results[0];
    return {std::min(5.5452, r.validation_loss), r.validation_loss - r.train_loss,
            static_cast<double>(r.bytes_sent) / static_cast<double>(r.parameters) / static_cast<double>(r.steps)};
  }

  asked asked_;
  std::string source_;
  toy_gpt::corpus text_;
};

template <class Schedule, class Rule>
maker of(Schedule const& schedule, Rule const& rule) {
  return [=](threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options,
             double rate) -> acco::any_optimizer<float> {
    Rule mine = rule;
    mine.learning_rate = rate;
    return acco::optimizer{schedule, mine, acco::host_storage<float>{}, world, layout, options};
  };
}
constexpr acco::fixed_pace eight{.first = 8};

void size(asked const& a) {
  trainings all(a);
  std::printf(
      "Validation loss (bytes of gradients a parameter and step), with keep = 0.99, signs of parameters back, signum\n\n| k | "
      "chunks of 16 | 32 | 64 | 128 | 256 |\n|---|---|---|---|---|---|\n");
  constexpr std::size_t chunks[] = {16, 32, 64, 128, 256};
  std::vector<std::vector<float>> cosines;
  for (const std::size_t chunk : chunks) cosines.push_back(matrix_of(basis::cosine, chunk));
  for (const std::size_t count : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 256U}) {
    std::printf("| %s |", count == 256 ? "all" : std::to_string(count).c_str());
    for (std::size_t c = 0; c < std::size(chunks); ++c) {
      if (count > chunks[c] && count != 256) {
        std::printf(" |");
        continue;
      }
      some_coefficients code;
      code.cosines = &cosines[c];
      code.chunk = chunks[c];
      code.count = std::min<std::size_t>(count, chunks[c]);
      const acco::coded<acco::with_error_feedback<some_coefficients>, acco::block_sign> commit{{code, 0.99F}, {}};
      const trained t = all.tuned(
          4, 8, 4, of(acco::synchronous{.commit = commit, .pace = eight}, acco::signum{.momentum = 0, .weight_decay = 0.1}));
      std::printf(" %.4f (%.3f) |", t.loss, code.bytes());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void sign(asked const& a) {
  trainings all(a);
  std::printf("| update | mean over | validation loss | best rate |\n|---|---|---|---|\n");
  using kept =
      acco::with_error_feedback<acco::one_of<acco::block_dct_top<16>, acco::block_dct_top<16, acco::mean_over::senders>>>;
  for (const std::size_t over : {0U, 1U}) {
    const acco::coded<kept, acco::full> commit{{{over}, 0.99F}, {}};
    const acco::coded<acco::loosely<kept>, acco::full> of_means{{commit.gradients}, {}};  // sgd's steps are not bounded
    for (const bool signs : {true, false}) {
      double best = 0;
      const trained t =
          signs ? all.tuned(
                      4, 8, 4,
                      of(acco::synchronous{.commit = commit, .pace = eight}, acco::signum{.momentum = 0, .weight_decay = 0.1}),
                      &best)
                : all.tuned(4, 8, 4, of(acco::synchronous{.commit = of_means, .pace = eight}, acco::sgd{.momentum = 0}), &best,
                            {0.03, 0.1, 0.3, 1, 3});
      std::printf("| %s | %s | %.4f | %g |\n", signs ? "sign" : "mean", over == 0 ? "all" : "senders", t.loss, best);
      std::fflush(stdout);
    }
  }
}

void rules(asked const& a) {
  trainings all(a);
  std::printf("| rule | weight decay | validation loss | above training | best rate |\n|---|---|---|---|---|\n");
  const auto row = [&](char const* name, auto rule, std::vector<double> const& rates) {
    for (const double decay : {0.0, 0.1}) {
      rule.weight_decay = decay;
      double best = 0;
      const trained t = all.tuned(4, 8, 4, of(acco::synchronous{.pace = eight}, rule), &best, rates);
      std::printf("| %s | %g | %.4f | %.4f | %g |\n", name, decay, t.loss, t.gap, best);
      std::fflush(stdout);
    }
  };
  row("sgd, momentum 0.9", acco::sgd{.momentum = 0.9}, {0.03, 0.1, 0.3, 1});
  row("signum, momentum 0.9", acco::signum{.momentum = 0.9}, {});
  row("signum, momentum 0.999", acco::signum{.momentum = 0.999}, {});
  row("lion", acco::lion{}, {});
  row("adamw", acco::adamw{.beta2 = 0.99}, {1e-3, 3e-3, 1e-2});
  const acco::coded<acco::with_error_feedback<acco::block_dct_top<16>>, acco::block_sign> demo{{{}, 0.99F}, {}};
  for (const double decay : {0.0, 0.1}) {
    double best = 0;
    const trained t = all.tuned(
        4, 8, 4, of(acco::synchronous{.commit = demo, .pace = eight}, acco::signum{.momentum = 0, .weight_decay = decay}), &best);
    std::printf("| DeMo, sharded, 16 of 256, keep 0.99 | %g | %.4f | %.4f | %g |\n", decay, t.loss, t.gap, best);
    std::fflush(stdout);
  }
}

void ranks(asked const& a) {
  std::printf(
      "Validation loss (bytes that a rank sends, a parameter and step)\n\n| ranks | batch of all | adamw | gauss4 and ternary, "
      "adamw | DeMo, sharded | DeMo, replicas |\n|---|---|---|---|---|---|\n");
  const std::vector<double> of_adamw{1e-3, 3e-3, 1e-2};
  const acco::coded<acco::block_gauss4, acco::block_ternary> bits{};
  const acco::coded<acco::with_error_feedback<acco::block_dct_top<16>>, acco::block_sign> demo{{{}, 0.99F}, {}};
  const acco::coded<acco::with_error_feedback<acco::block_dct_top<16>>, acco::full> published{{{}, 0.99F}, {}};
  const acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0.1};
  const acco::signum signs{.momentum = 0, .weight_decay = 0.1};
  for (const bool fixed : {true, false}) {
    for (const int n : {1, 2, 4, 8, 16}) {
      const unsigned pieces = fixed ? 32U / static_cast<unsigned>(n) : 8U;
      asked mine = a;
      if (!fixed) mine.samples = a.samples * n / 4;  // as many steps
      trainings all(mine);
      const acco::fixed_pace pace{.first = pieces};
      std::printf("| %d | %u |", n, 4 * pieces * static_cast<unsigned>(n));
      const auto cell = [&](maker const& make, std::vector<double> const& rates) {
        const trained t = all.tuned(n, pieces, 4, make, nullptr, rates);
        std::printf(" %.4f (%.3f) |", t.loss, t.bytes);
        std::fflush(stdout);
      };
      cell(of(acco::synchronous{.pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = bits, .pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = demo, .pace = pace}, signs), {});
      cell(
          [=](threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options,
              double rate) -> acco::any_optimizer<float> {
            acco::signum rule = signs;
            rule.learning_rate = rate;
            return acco::optimizer{acco::synchronous{.commit = published, .pace = pace},
                                   rule,
                                   acco::host_storage<float>{},
                                   acco::replicas(world),
                                   layout,
                                   options};
          },
          {});
      std::printf("\n");
    }
  }
}

/// What is compared by `models` and `length`: on 4 ranks, in steps of 8 micro-batches.
struct method {
  char const* name;
  maker make;
  std::vector<double> rates;
};
std::vector<method> methods() {
  const acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0};
  const acco::signum signs{.momentum = 0, .weight_decay = 0};
  const acco::coded<acco::without_feedback<acco::sign_vote>, acco::block_sign> votes;
  const acco::coded<acco::with_error_feedback<acco::block_dct_top<16>>, acco::block_sign> demo{{{}, 0.99F}, {}};
  const std::vector<double> of_adamw{1e-3, 3e-3, 1e-2, 3e-2}, of_signs{3e-4, 1e-3, 3e-3, 1e-2};
  return {{"adamw", of(acco::synchronous{.pace = eight}, adamw), of_adamw},
          {"adamw, gauss4/gauss4", of(acco::synchronous{.commit = acco::block_gauss4{}, .pace = eight}, adamw), of_adamw},
          {"votes/signs, signum", of(acco::synchronous{.commit = votes, .pace = eight}, signs), of_signs},
          {"DeMo, sharded, 16 of 256, keep 0.99", of(acco::synchronous{.commit = demo, .pace = eight}, signs), of_signs}};
}

/// Trains a model of other_models.hpp on 4 ranks; measured(model, parameters) afterwards is the loss.
template <class Model, class Measured>
trained train_other(asked const& a, toy_gpt::corpus const& text, method const& m, double rate, std::uint64_t seed,
                    Measured&& measured) {
  trained result;
  try {
    threads_backend::run(4, [&](threads_backend const& world) {
      toy_gpt::use_one_thread_for_products();
      toy_gpt::flush_subnormal_numbers();
      Model model;
      acco::any_optimizer<float> training =
          m.make(world, Model::layout(),
                 {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = a.samples / 20, .total = a.samples}}, rate);
      training.initialize(Model::initial(seed));
      toy_gpt::batch data;
      for (std::uint64_t next = 0; training.samples() < a.samples; ++next) {
        text.draw(data, 4, seed, static_cast<std::uint64_t>(world.rank()), next);
        (void)training.accumulated(4, model.add_gradients(data, training.parameters(), training.gradients()));
      }
      training.finish();
      if (world.rank() != 0) return;
      result.loss = measured(model, training.parameters());
      result.bytes = static_cast<double>(training.totals().bytes_sent) / static_cast<double>(training.parameters().size()) /
                     static_cast<double>(training.steps());
    });
  } catch (acco::error const&) {
    return {5.5452, 0, 0};  // diverged: as bad as a guess
  }
  return result;
}

void models(asked const& a) {
  const toy_gpt::corpus text(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), 64);
  std::printf(
      "| method | bytes | softmax regression on the byte before: training loss above the least | best rate | eight bytes and one "
      "hidden layer: validation loss | best rate |\n|---|---|---|---|---|---|\n");
  for (method const& m : methods()) {
    double best[2];
    std::vector<double> rates = m.rates;  // of logits that are parameters, updates are smaller than of weights
    for (const double more : {3.0, 10.0}) rates.push_back(more * m.rates.back());
    const trained convex = tuned_over(rates, a.seeds, &best[0], [&](double rate, std::uint64_t seed) {
      return train_other<other_models::bigram>(a, text, m, rate, seed, [&](auto&, std::span<float const> parameters) {
        return other_models::bigram::above_least(text.training(), parameters);
      });
    });
    const trained window = tuned_over(rates, a.seeds, &best[1], [&](double rate, std::uint64_t seed) {
      return train_other<other_models::window_mlp>(a, text, m, rate, seed, [&](auto& model, std::span<float const> parameters) {
        toy_gpt::batch data;
        double sum = 0;
        for (std::uint64_t k = 0; k < 32; ++k) {
          text.draw_validation(data, 32, k);
          sum += model.loss(data, parameters) / (32 * 32);
        }
        return sum;
      });
    });
    std::printf("| %s | %.3f | %.4f | %g | %.4f | %g |\n", m.name, convex.bytes, convex.loss, best[0], window.loss, best[1]);
    std::fflush(stdout);
  }
}

void length(asked const& a) {
  std::printf("Validation loss of the GPT (best rate)\n\n| method | %.0f sequences | %.0f |\n|---|---|---|\n", a.samples,
              3 * a.samples);
  for (method const& m : methods()) {
    std::printf("| %s |", m.name);
    for (const double times : {1.0, 3.0}) {
      asked mine = a;
      mine.samples *= times;
      double best = 0;
      const trained t = trainings(mine).tuned(4, 8, 4, m.make, &best, m.rates);
      std::printf(" %.4f (%g) |", t.loss, best);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

/// One rank's gradients along a training by signum, each given to f(step, gradient): the sum over a step's sequences.
void along_training(asked const& a, int ranks, std::size_t steps,
                    std::function<void(int rank, std::size_t step, std::span<float const> gradient)> const& f) {
  toy_gpt::settings s;
  s.model = small;
  const toy_gpt::corpus text(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), 64);
  toy_gpt::use_one_thread_for_products();
  threads_backend::run(ranks, [&](threads_backend const& world) {
    toy_gpt::host_model<float> model(s);
    acco::optimizer training{
        acco::synchronous{.pace = {.first = 8}},
        acco::signum{.learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 0.1},
        acco::host_storage<float>{},
        world,
        model.layout(),
        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = a.samples / 20, .total = a.samples}}};
    training.initialize(model.initial(1));
    toy_gpt::batch data;
    std::uint64_t next = 0;
    for (std::size_t step = 0; step < steps;) {
      text.draw(data, 4, 1, static_cast<std::uint64_t>(world.rank()), next++);
      const double loss = model.add_gradients(data, training.parameters(), training.gradients());
      if (next % 8 == 0) f(world.rank(), step, training.gradients());
      if (training.accumulated(4, loss)) ++step;
    }
    training.finish();
  });
}

/// The matrix of a basis for a square of side x side numbers, row by row: of rows and of columns.
std::vector<float> square_of(std::vector<float> const& line, std::size_t side) {
  const std::size_t n = side * side;
  std::vector<float> m(n * n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) m[k * n + i] = line[k / side * side + i / side] * line[k % side * side + i % side];
  }
  return m;
}

/// Of matrices: where the numbers of each chunk of 256 lie, neighbours or squares of 16 by 16.
std::vector<std::array<std::size_t, 256>> chunks_of(acco::parameter_layout const& layout, bool squares) {
  std::vector<std::array<std::size_t, 256>> all;
  for (std::size_t t = 0; t < layout.tensor_count(); ++t) {
    auto const& each = layout[t];
    if (each.shape.size() != 2 || each.shape[0] % 16 != 0 || each.shape[1] % 16 != 0) continue;
    const std::size_t columns = each.shape[1], across = columns / 16;
    for (std::size_t chunk = 0; chunk < each.size / 256; ++chunk) {
      std::array<std::size_t, 256>& at = all.emplace_back();
      for (std::size_t i = 0; i < 256; ++i)
        at[i] =
            each.offset + (squares ? (chunk / across * 16 + i / 16) * columns + chunk % across * 16 + i % 16 : chunk * 256 + i);
    }
  }
  return all;
}

void energy(asked const& a) {
  const auto steps = static_cast<std::size_t>(a.samples / 32);
  constexpr std::size_t chunk = 256, travel = 16, kept[] = {4, 16, 64};
  constexpr basis bases[] = {basis::cosine, basis::as_it_is, basis::hadamard, basis::random};
  constexpr char const* names[] = {"cosine", "none", "Hadamard", "random rotation"};
  struct kind {
    bool squares = false;
    std::size_t basis = 0;
    std::vector<float> matrix = {}, momentum = {}, before = {};  // the last: coefficients of the gradient, a step ago
    std::array<double, std::size(kept)> held{};                  // sums over the steps, each of the same weight
    std::array<double, 2> alike{};                               // of what stays, and of what travels
  };
  std::vector<kind> all;
  for (const bool squares : {false, true}) {
    for (std::size_t b = 0; b < std::size(bases); ++b) {
      all.push_back({.squares = squares, .basis = b, .matrix = matrix_of(bases[b], chunk)});
      if (squares && bases[b] != basis::random) all.back().matrix = square_of(matrix_of(bases[b], 16), 16);
    }
  }
  toy_gpt::settings s;
  s.model = small;
  const toy_gpt::host_model<float> model(s);
  const std::array places{chunks_of(model.layout(), false), chunks_of(model.layout(), true)};
  std::size_t looks = 0;
  along_training(a, 1, steps, [&](int, std::size_t step, std::span<float const> g) {
    const bool looked = step >= steps / 10 && step % 4 == 0;
    looks += looked ? 1 : 0;
    for (kind& mine : all) {
      auto const& chunks = places[mine.squares ? 1 : 0];
      mine.momentum.resize(chunks.size() * chunk);
      mine.before.resize(chunks.size() * chunk);
      std::array<double, std::size(kept)> held{};
      std::array<double, 2> products{}, sizes{};
      double whole = 0;
      for (std::size_t n = 0; n < chunks.size(); ++n) {
        float* const momentum = mine.momentum.data() + n * chunk;
        float* const before = mine.before.data() + n * chunk;
        std::array<float, chunk> of_chunk, c, now, sent;
        for (std::size_t i = 0; i < chunk; ++i) {
          of_chunk[i] = g[chunks[n][i]];
          momentum[i] = 0.99F * momentum[i] + of_chunk[i];
        }
        turn(mine.matrix, chunk, momentum, c.data());
        turn(mine.matrix, chunk, of_chunk.data(), now.data());
        std::array<double, chunk> squares;
        for (std::size_t i = 0; i < chunk; ++i) squares[i] = static_cast<double>(c[i]) * static_cast<double>(c[i]);
        keep_largest(c.data(), chunk, travel);
        if (looked) {
          std::sort(squares.begin(), squares.end(), std::greater<>());
          for (std::size_t k = 0; k < std::size(kept); ++k)
            held[k] += std::accumulate(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(kept[k]), 0.0);
          whole += std::accumulate(squares.begin(), squares.end(), 0.0);
          for (std::size_t i = 0; i < chunk; ++i) {
            const double x = static_cast<double>(now[i]), y = static_cast<double>(before[i]);
            products[c[i] != 0] += x * y;
            sizes[c[i] != 0] += (x * x + y * y) / 2;
          }
        }
        std::copy(now.begin(), now.end(), before);
        turn_back(mine.matrix, chunk, c.data(), sent.data());
        for (std::size_t i = 0; i < chunk; ++i) momentum[i] -= sent[i];
      }
      for (std::size_t k = 0; looked && k < std::size(kept); ++k) mine.held[k] += held[k] / whole;
      for (std::size_t k = 0; looked && k < 2; ++k) mine.alike[k] += products[k] / sizes[k];
    }
  });
  std::printf(
      "One rank's momentum of matrices (keep = 0.99), of which the %zu largest of each chunk of %zu travel: the part of its "
      "energy that the k largest hold, and the correlation of a "
      "gradient's coefficient with itself a step before, of those that travel and of those that stay; means over %zu steps\n\n| "
      "chunk | transform | k = 4 | 16 | 64 | travels | stays |\n|---|---|---|---|---|---|---|\n",
      travel, chunk, looks);
  for (kind const& each : all) {
    std::printf("| %s | %s |", each.squares ? "16 by 16 of a matrix" : "256 neighbours", names[each.basis]);
    for (const double part : each.held) std::printf(" %.3f |", part / static_cast<double>(looks));
    std::printf(" %.3f | %.3f |\n", each.alike[1] / static_cast<double>(looks), each.alike[0] / static_cast<double>(looks));
  }
}

void state(asked const& a) {
  const auto steps = static_cast<std::size_t>(a.samples / 128);
  constexpr int n = 4;
  constexpr std::size_t block = 256;
  std::vector<std::vector<float>> momenta(n), gradients(n);
  std::vector<std::array<double, 3>> told(steps);
  std::printf(
      "What 4 ranks keep apart: the momentum that has not travelled (16 of 256, keep = 0.999), over the length of a gradient, "
      "and the cosine of the angle between those of two ranks\n\n| step | momentum | of one gradient | alike "
      "|\n|---|---|---|---|\n");
  std::mutex together;
  along_training(a, n, steps, [&](int rank, std::size_t step, std::span<float const> g) {
    std::vector<float>& mine = momenta[static_cast<std::size_t>(rank)];
    mine.resize((g.size() + block - 1) / block * block);
    for (std::size_t i = 0; i < g.size(); ++i) mine[i] = 0.999F * mine[i] + g[i];
    for (std::size_t at = 0; at < mine.size(); at += block) {
      std::array<std::byte, acco::block_dct_top<16>::block_bytes> code;
      std::array<float, block> sent;
      acco::block_dct_top<16>::encode(mine.data() + at, code.data());
      acco::block_dct_top<16>::decode(code.data(), sent.data());
      for (std::size_t i = 0; i < block; ++i) mine[at + i] -= sent[i];
    }
    const auto square = [](auto const& x, auto const& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); };
    const std::lock_guard hold(together);
    if (rank == 0) {
      told[step][0] = std::sqrt(square(mine, mine));
      told[step][1] = std::sqrt(square(g, g));
    }
    gradients[static_cast<std::size_t>(rank)] = mine;
    if (std::all_of(gradients.begin(), gradients.end(), [](auto const& each) { return !each.empty(); })) {
      told[step][2] =
          square(gradients[0], gradients[1]) / std::sqrt(square(gradients[0], gradients[0]) * square(gradients[1], gradients[1]));
      for (auto& each : gradients) each.clear();
    }
  });
  for (std::size_t step = steps / 10; step <= steps; step += std::max<std::size_t>(steps / 10, 1)) {
    auto const& [momentum, gradient, alike] = told[std::min(step, steps - 1)];
    std::printf("| %zu | %.3g | %.2f | %.3f |\n", std::min(step, steps - 1) + 1, momentum, momentum / gradient, alike);
  }
}

template <class Number>
std::vector<Number> numbers_of(std::string const& words) {
  std::vector<Number> all;
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(',', at), words.size());
    all.push_back(static_cast<Number>(std::stod(words.substr(at, end - at))));
    at = end + 1;
  }
  return all;
}

}  // namespace

int main(int count, char** words) {
  asked a;
  try {
    for (int k = 1; k < count; ++k) {
      const std::string_view word = words[k];
      if (!word.starts_with("--")) {
        a.what = word;
        continue;
      }
      if (k + 1 == count) throw std::invalid_argument(std::string(word) + " is followed by nothing");
      const std::string value = words[++k];
      if (word == "--data")
        a.data = value;
      else if (word == "--samples")
        a.samples = std::stod(value);
      else if (word == "--seeds")
        a.seeds = numbers_of<std::uint64_t>(value);
      else if (word == "--rates")
        a.rates = numbers_of<double>(value);
      else
        throw std::invalid_argument(std::string(word) + " is none of --data, --samples, --seeds, --rates");
    }
    if (a.what == "size")
      size(a);
    else if (a.what == "sign")
      sign(a);
    else if (a.what == "rules")
      rules(a);
    else if (a.what == "ranks")
      ranks(a);
    else if (a.what == "models")
      models(a);
    else if (a.what == "length")
      length(a);
    else if (a.what == "basis")
      energy(a);
    else if (a.what == "state")
      state(a);
    else
      throw std::invalid_argument("one of size, sign, rules, ranks, models, length, basis, state");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_demo: %s\n", e.what());
    return 1;
  }
}
