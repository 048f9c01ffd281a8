// SPDX-License-Identifier: Apache-2.0
// What readers of DeMo (Peng et al., arXiv 2411.19870) asked of it, asked of a small GPT on ranks that are threads:
//
//   bench_demo time     seconds of a step on links of a given rate, what of them is exposed, and seconds to a loss
//   bench_demo equal    codes at equal bytes, each at its own rate
//   bench_demo size     loss over how many coefficients of a chunk travel, and how long it is
//   bench_demo sign     the sign of what arrives, or its mean, over all ranks or over senders
//   bench_demo rules    sign rules, momentum and AdamW without any code, with weight decay and without
//   bench_demo ranks    1 to 16 ranks, at a fixed batch of all and at a fixed batch of each
//   bench_demo length   the budget, and three times that
//   bench_demo basis    how much of a momentum's energy the largest of a chunk hold, in four bases; what lasts
//   bench_demo state    what ranks keep apart: the length of their momenta, and how alike they are
//
// [--data TEXT] [--samples 12800] [--seeds 1,2,3] [--rates 3e-4,1e-3,3e-3]: the rate that is best for the first seed
// counts. Prints Markdown. docs/demo.md says which question each answers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <acco/acco.hpp>
#include <acco/code/block_top.hpp>
#include <acco/schedule/named.hpp>

#include "host.hpp"
#include "host_model.hpp"
#include "matrix.hpp"

bool toy_gpt::is_local(std::string_view) { return false; }  // flags.cpp knows all schedules; here is one

namespace {

using acco::threads_backend;
constexpr toy_gpt::shape small{.context = 64, .layers = 2, .width = 64, .heads = 4};
constexpr acco::fixed_pace eight{.first = 8};
using maker = std::function<acco::any_optimizer<float>(threads_backend const&, acco::parameter_layout const&,
                                                       acco::options const&, double rate)>;

struct asked {
  std::string what, data;
  double samples = 12800;
  std::vector<std::uint64_t> seeds{1, 2, 3};
  std::vector<double> rates{3e-4, 1e-3, 3e-3};
};
struct outcome {
  double loss = 0, gap = 0, bytes = 0;  // of validation; above the training's; that a rank sends a parameter and step
};

/// Trains the GPT by what a maker makes.
class trainings {
 public:
  explicit trainings(asked const& a)
      : asked_(a),
        source_(a.data.empty() ? "this repository" : a.data),
        text_(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), small.context) {}

  /// Means over the seeds, at the rate that is best for the first one.
  outcome tuned(int ranks, unsigned micro_batches, maker const& make, double* best = nullptr,
                std::vector<double> const& rates = {}) {
    std::vector<double> const& all = rates.empty() ? asked_.rates : rates;
    std::vector<outcome> first;
    for (const double rate : all) first.push_back(one(ranks, micro_batches, make, rate, asked_.seeds[0]));
    const auto at = static_cast<std::size_t>(
        std::min_element(first.begin(), first.end(), [](outcome const& x, outcome const& y) { return x.loss < y.loss; }) -
        first.begin());
    outcome mean = first[at];
    for (std::size_t k = 1; k < asked_.seeds.size(); ++k) {
      const outcome next = one(ranks, micro_batches, make, all[at], asked_.seeds[k]);
      mean.loss += next.loss;
      mean.gap += next.gap;
    }
    if (best != nullptr) *best = all[at];
    mean.loss /= static_cast<double>(asked_.seeds.size());
    mean.gap /= static_cast<double>(asked_.seeds.size());
    return mean;
  }
  toy_gpt::summary run(int ranks, unsigned micro_batches, maker const& make, double rate, std::uint64_t seed,
                       std::size_t validations) {
    toy_gpt::settings s;
    s.model = small;
    s.ranks = ranks;
    s.samples = static_cast<std::size_t>(asked_.samples);
    s.batch = 4;
    s.first = micro_batches;
    s.schedule = "synchronous";
    s.warmup = asked_.samples / 20;
    s.validations = validations;
    s.save_every = s.samples;  // never
    s.seed = seed;
    s.quiet = true;
    std::vector<toy_gpt::summary> results(static_cast<std::size_t>(ranks));
    toy_gpt::job job{s, text_, source_, nullptr, {}, {}, {}};
    threads_backend::run(ranks, [&](threads_backend const& world) {
      toy_gpt::train_on_host<float>(
          job, world.rank(),
          [&](acco::parameter_layout const& layout, acco::options const& options) { return make(world, layout, options, rate); },
          results[static_cast<std::size_t>(world.rank())]);
    });
    return results[0];
  }

 private:
  outcome one(int ranks, unsigned micro_batches, maker const& make, double rate, std::uint64_t seed) {
    constexpr double of_a_guess = 5.5452;
    try {
      toy_gpt::summary const r = run(ranks, micro_batches, make, rate, seed, 1);
      return {std::min(of_a_guess, r.validation_loss), r.validation_loss - r.train_loss,
              static_cast<double>(r.bytes_sent) / static_cast<double>(r.parameters) / static_cast<double>(r.steps)};
    } catch (acco::error const&) {
      return {of_a_guess, 0, 0};  // diverged
    }
  }

  asked asked_;
  std::string source_;
  toy_gpt::corpus text_;
};

template <class Schedule, class Rule>
maker of(Schedule const& schedule, Rule const& rule, double gigabits = 0) {
  return [=](threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options,
             double rate) -> acco::any_optimizer<float> {
    Rule mine = rule;
    mine.learning_rate = rate;
    if (gigabits == 0) return acco::optimizer{schedule, mine, acco::host_storage<float>{}, world, layout, options};
    return acco::optimizer{schedule, mine,   acco::host_storage<float>{}, acco::rate_limited(world, {gigabits * 1.25e8}),
                           layout,   options};
  };
}

template <class Parameters, class Code = acco::block_dct_top<16>>
auto demo_of() {
  acco::demo_wire<Parameters, Code> wire;
  wire.gradients.policy.decay = 0.99;  // the trainings are short
  return wire;
}
constexpr acco::lion signs(double decay) { return {.beta1 = 0, .beta2 = 0, .weight_decay = decay}; }
const std::vector<double> of_adamw{1e-3, 3e-3, 1e-2};

/// Of ranks that wait for rounds, and of ranks that do not.
void time(asked const& a) {
  trainings all(a);
  std::printf(
      "4 ranks, threads of one machine with %u processors; the links are simulated. Milliseconds of a step; of a round in "
      "flight; of the computation, lost; the loss after %.0f sequences; seconds to a loss of 2.9, validations left out\n\n"
      "| Gbit/s | training | step | communication | exposed | hidden | loss | seconds to 2.9 "
      "|\n|---|---|---|---|---|---|---|---|\n",
      std::thread::hardware_concurrency(), a.samples);
  const auto row = [&](double gigabits, char const* name, maker const& make, unsigned parts, double rate) {
    toy_gpt::summary const r = all.run(4, parts, make, rate, a.seeds[0], 16);
    const double steps = static_cast<double>(r.steps), to_ms = 1000 / steps;
    const auto reached =
        std::find_if(r.validation.begin(), r.validation.end(), [](toy_gpt::point const& p) { return p.loss <= 2.9; });
    std::printf("| %s | %s | %.2f | %.2f | %.2f | %.2f | %.3f | %s |\n",
                gigabits == 0 ? "-" : std::to_string(gigabits).substr(0, 4).c_str(), name, r.seconds * to_ms,
                r.communication_seconds * to_ms, r.exposed_seconds * to_ms, r.hidden_fraction, r.validation_loss,
                reached == r.validation.end() ? "-" : std::to_string(reached->seconds).substr(0, 5).c_str());
    std::fflush(stdout);
  };
  const acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0.1};
  const acco::fixed_pace split{.first = 6, .second = 2};
  const auto shared = demo_of<acco::block_int4<>>();
  const acco::coded ahead{.gradients = acco::with_feedback_ahead{shared.gradients}, .parameters = acco::block_int4<>{}};
  for (const double g : {0.1, 1.0, 10.0, 0.0}) {
    row(g, "adamw, synchronous", of(acco::synchronous{.pace = eight}, adamw, g), 8, 3e-3);
    row(g, "adamw, two_phase", of(acco::two_phase{.pace = split}, adamw, g), 8, 3e-3);
    row(g, "adamw, two_phase, int4 and int8/int4",
        of(acco::two_phase{.estimate = acco::block_int4<>{}, .commit = acco::coded_commit{}, .pace = split}, adamw, g), 8, 3e-3);
    row(g, "DeMo as published", of(acco::synchronous{.commit = demo_of<acco::updated_by_all>(), .pace = eight}, signs(0.1), g), 8,
        1e-3);
    row(g, "DeMo, sharded", of(acco::synchronous{.commit = shared, .pace = eight}, signs(0.1), g), 8, 1e-3);
    row(g, "DeMo, delayed", of(acco::delayed{.commit = shared, .pace = eight}, signs(0.1), g), 8, 1e-3);
    row(g, "DeMo, two_phase", of(acco::two_phase{.estimate = ahead, .commit = shared, .pace = split}, signs(0.1), g), 8, 1e-3);
  }
}

void equal(asked const& a) {
  trainings all(a);
  std::printf(
      "| gradients; parameters in 4 bits but for the last | bytes sent a parameter and step | validation loss | best rate "
      "|\n|---|---|---|---|\n");
  const auto row = [&](char const* name, maker const& make, std::vector<double> const& rates) {
    double best = 0;
    const outcome t = all.tuned(4, 8, make, &best, rates);
    std::printf("| %s | %.3f | %.4f | %g |\n", name, t.bytes, t.loss, best);
    std::fflush(stdout);
  };
  const auto with = [](auto code) {
    return acco::synchronous{.commit = acco::coded{.gradients = code, .parameters = acco::block_int4<>{}}, .pace = eight};
  };
  const acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0.1};
  const acco::error_feedback kept;
  row("full, adamw", of(acco::synchronous{.pace = eight}, adamw), of_adamw);
  row("int8, adamw", of(with(acco::block_int8<>{}), adamw), of_adamw);
  row("top 16 of 256 and feedback (DGC, SparCML), adamw", of(with(acco::with_feedback{acco::block_top<16>{}, kept}), adamw),
      of_adamw);
  row("top 16 of 256 and feedback, lion",
      of(with(acco::with_feedback{acco::block_top<16>{}, kept}), acco::lion{.weight_decay = 0.1}), {});
  row("top 16 of 256, decoupled momentum, sign",
      of(acco::synchronous{.commit = demo_of<acco::block_int4<>, acco::block_top<16>>(), .pace = eight}, signs(0.1)), {});
  row("DeMo, 16 of 256", of(acco::synchronous{.commit = demo_of<acco::block_int4<>>(), .pace = eight}, signs(0.1)), {});
  row("DeMo, 16 of 256, signs of parameters",
      of(acco::synchronous{.commit = demo_of<acco::loosely<acco::block_sign>>(), .pace = eight}, signs(0.1)), {});
}

/// An orthonormal matrix of a basis, rows are its vectors.
enum class basis : std::uint8_t { cosine, as_it_is, hadamard, random };
std::vector<float> matrix_of(basis of, std::size_t n) {
  std::vector<double> m(n * n, 0.0);
  const auto size = static_cast<double>(n);
  std::uint64_t state = 7;
  for (std::size_t k = 0; k < n; ++k) {
    double* const row = m.data() + k * n;
    for (std::size_t i = 0; i < n; ++i) {
      if (of == basis::cosine)
        row[i] =
            std::sqrt((k == 0 ? 1 : 2) / size) * std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) / (2 * size));
      if (of == basis::as_it_is) row[i] = i == k ? 1 : 0;
      if (of == basis::hadamard) row[i] = ((std::popcount(i & k) & 1) != 0 ? -1 : 1) / std::sqrt(size);
      for (int j = 0; j < 12 && of == basis::random; ++j) {  // nearly normal; made orthonormal below
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        row[i] += static_cast<double>(state >> 33U) * 0x1p-31 - 0.5;
      }
    }
    for (int twice = 0; twice < 2 && of == basis::random; ++twice) {
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
/// y[k] = sum over i of m[k][i] x[i]; back, y[i] = sum over k of m[k][i] x[k].
void turn(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  for (std::size_t k = 0; k < n; ++k) y[k] = std::inner_product(x, x + n, m.data() + k * n, 0.0F);
}
void turn_back(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  std::fill_n(y, n, 0.0F);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n && x[k] != 0; ++i) y[i] += m[k * n + i] * x[k];
}
/// All but the `count` largest magnitudes become 0.
void keep_largest(float* x, std::size_t n, std::size_t count) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(count, n - 1)), order.end(),
                   [x](std::size_t p, std::size_t q) { return std::abs(x[p]) > std::abs(x[q]); });
  for (std::size_t k = count; k < n; ++k) x[order[k]] = 0;
}

/// What arrives of a chunk's largest coefficients, in 8 bits each. For trying sizes: the numbers themselves travel, and
/// `bytes` tells what a code of its own would take.
struct some_coefficients {
  static constexpr char const* name = "some_coefficients";
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);
  std::vector<float> const* cosines = nullptr;
  std::size_t chunk = 0, count = 0;

  void encode(float const* values, std::byte* bytes) const {
    std::array<float, block_size> sent, c;
    for (std::size_t at = 0; at < block_size; at += chunk) {
      turn(*cosines, chunk, values + at, c.data());
      keep_largest(c.data(), chunk, count);
      float most = 0;
      for (std::size_t i = 0; i < chunk; ++i) most = std::max(most, std::abs(c[i]));
      for (std::size_t i = 0; i < chunk && most > 0; ++i) c[i] = std::nearbyint(c[i] / most * 127) / 127 * most;
      turn_back(*cosines, chunk, c.data(), sent.data() + at);
    }
    std::memcpy(bytes, sent.data(), block_bytes);
  }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
  /// Of a number: a scale of 2 bytes a chunk; a byte and the fewest bits of a place a coefficient.
  [[nodiscard]] double bytes() const {
    const auto k = static_cast<double>(count), n = static_cast<double>(chunk);
    return (2 + k * (1 + (count == chunk ? 0 : std::log2(n) / 8))) / n;
  }
};
static_assert(acco::encoding<some_coefficients>);

void size(asked const& a) {
  trainings all(a);
  std::printf(
      "Validation loss (bytes of gradients a parameter and step)\n\n| k | chunks of 16 | 32 | 64 | 128 | 256 "
      "|\n|---|---|---|---|---|---|\n");
  for (const std::size_t count : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 256U}) {
    std::printf("| %s |", count == 256 ? "all" : std::to_string(count).c_str());
    for (const std::size_t chunk : {16U, 32U, 64U, 128U, 256U}) {
      if (count > chunk && count != 256) {
        std::printf(" |");
        continue;
      }
      const std::vector<float> cosines = matrix_of(basis::cosine, chunk);
      auto commit = demo_of<acco::block_int4<>, some_coefficients>();
      static_cast<some_coefficients&>(commit.gradients) = {&cosines, chunk, std::min(count, chunk)};
      const outcome t = all.tuned(4, 8, of(acco::synchronous{.commit = commit, .pace = eight}, signs(0.1)));
      std::printf(" %.4f (%.3f) |", t.loss, commit.gradients.bytes());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void sign(asked const& a) {
  trainings all(a);
  std::printf("| update | mean over | validation loss | best rate |\n|---|---|---|---|\n");
  const auto rows = [&]<acco::mean_over Over>(char const* over) {
    const acco::synchronous schedule{.commit = demo_of<acco::full, acco::block_dct_top<16, 256, 8, Over>>(), .pace = eight};
    double best = 0;
    double loss = all.tuned(4, 8, of(schedule, signs(0.1)), &best).loss;
    std::printf("| sign | %s | %.4f | %g |\n", over, loss, best);
    loss = all.tuned(4, 8, of(schedule, acco::sgd{.momentum = 0}), &best, {0.03, 0.1, 0.3, 1, 3}).loss;
    std::printf("| mean | %s | %.4f | %g |\n", over, loss, best);
    std::fflush(stdout);
  };
  rows.operator()<acco::mean_over::all>("all");
  rows.operator()<acco::mean_over::senders>("senders");
}

void rules(asked const& a) {
  trainings all(a);
  std::printf("| rule | weight decay | validation loss | above training | best rate |\n|---|---|---|---|---|\n");
  const auto row = [&](char const* name, auto const& schedule, auto rule, std::vector<double> const& rates) {
    for (const double decay : {0.0, 0.1}) {
      rule.weight_decay = decay;
      double best = 0;
      const outcome t = all.tuned(4, 8, of(schedule, rule), &best, rates);
      std::printf("| %s | %g | %.4f | %.4f | %g |\n", name, decay, t.loss, t.gap, best);
      std::fflush(stdout);
    }
  };
  const acco::synchronous<> full{.pace = eight};
  row("sgd, momentum 0.9", full, acco::sgd{.momentum = 0.9}, {0.03, 0.1, 0.3, 1});
  row("signSGD", full, signs(0), {});
  row("signum, momentum 0.9", full, acco::lion{.beta1 = 0.9, .beta2 = 0.9}, {});
  row("signum, momentum 0.999", full, acco::lion{.beta1 = 0.999, .beta2 = 0.999}, {});
  row("lion", full, acco::lion{}, {});
  row("adamw", full, acco::adamw{.beta2 = 0.99}, of_adamw);
  row("DeMo, 16 of 256", acco::synchronous{.commit = demo_of<acco::block_int4<>>(), .pace = eight}, signs(0), {});
}

void ranks(asked const& a) {
  std::printf(
      "Validation loss (bytes that a rank sends, a parameter and step)\n\n| ranks | batch of all | adamw | adamw, int8/int4 | "
      "DeMo, "
      "sharded | DeMo as published |\n|---|---|---|---|---|---|\n");
  const acco::adamw adamw{.beta2 = 0.99, .weight_decay = 0.1};
  for (const bool fixed : {true, false}) {
    for (const int n : {1, 2, 4, 8, 16}) {
      const unsigned pieces = fixed ? 32U / static_cast<unsigned>(n) : 8U;
      asked mine = a;
      if (!fixed) mine.samples = a.samples * n / 4;  // as many steps
      trainings all(mine);
      const acco::fixed_pace pace{.first = pieces};
      std::printf("| %d | %u |", n, 4 * pieces * static_cast<unsigned>(n));
      const auto cell = [&](maker const& make, std::vector<double> const& rates) {
        const outcome t = all.tuned(n, pieces, make, nullptr, rates);
        std::printf(" %.4f (%.3f) |", t.loss, t.bytes);
        std::fflush(stdout);
      };
      cell(of(acco::synchronous{.pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = acco::coded_commit{}, .pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = demo_of<acco::block_int4<>>(), .pace = pace}, signs(0.1)), {});
      cell(of(acco::synchronous{.commit = demo_of<acco::updated_by_all>(), .pace = pace}, signs(0.1)), {});
      std::printf("\n");
    }
  }
}

void length(asked const& a) {
  std::printf("Validation loss (best rate)\n\n| training | %.0f sequences | %.0f |\n|---|---|---|\n", a.samples, 3 * a.samples);
  const auto row = [&](char const* name, maker const& make, std::vector<double> const& rates) {
    std::printf("| %s |", name);
    for (const double times : {1.0, 3.0}) {
      asked mine = a;
      mine.samples *= times;
      double best = 0;
      const outcome t = trainings(mine).tuned(4, 8, make, &best, rates);
      std::printf(" %.4f (%g) |", t.loss, best);
      std::fflush(stdout);
    }
    std::printf("\n");
  };
  row("adamw", of(acco::synchronous{.pace = eight}, acco::adamw{.beta2 = 0.99, .weight_decay = 0.1}), of_adamw);
  row("DeMo, sharded", of(acco::synchronous{.commit = demo_of<acco::block_int4<>>(), .pace = eight}, signs(0.1)), {});
}

/// Gradients along a training by signs, each given to f(rank, step, gradient): the sum over a step's sequences.
void along_training(asked const& a, int ranks, std::size_t steps,
                    std::function<void(int rank, std::size_t step, std::span<float const> gradient)> const& f) {
  toy_gpt::settings s;
  s.model = small;
  const toy_gpt::corpus text(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), small.context);
  toy_gpt::use_one_thread_for_products();
  threads_backend::run(ranks, [&](threads_backend const& world) {
    toy_gpt::host_model<float> model(s);
    acco::optimizer training{
        acco::synchronous{.pace = eight},
        acco::lion{.learning_rate = 1e-3, .beta2 = 0.9, .weight_decay = 0.1},
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

void energy(asked const& a) {
  constexpr std::size_t chunk = 64, travel = 4, kept[] = {1, 4, 16};
  constexpr basis bases[] = {basis::cosine, basis::as_it_is, basis::hadamard, basis::random};
  constexpr char const* names[] = {"cosine", "none", "Hadamard", "random rotation"};
  struct sums {
    std::vector<float> matrix = {}, momentum = {}, before = {};  // the last: coefficients of the gradient, a step ago
    double held[3] = {}, products[2] = {}, sizes[2] = {}, whole = 0;
  };
  std::array<sums, 4> all;
  const auto steps = static_cast<std::size_t>(a.samples / 32);
  along_training(a, 1, steps, [&](int, std::size_t step, std::span<float const> g) {
    const std::size_t chunks = g.size() / chunk;
    const bool looks = step >= steps / 10 && step % 4 == 0;
    for (std::size_t b = 0; b < all.size(); ++b) {
      sums& mine = all[b];
      if (mine.matrix.empty()) mine.matrix = matrix_of(bases[b], chunk);
      mine.momentum.resize(chunks * chunk);
      mine.before.resize(chunks * chunk);
      for (std::size_t n = 0; n < chunks * chunk; n += chunk) {
        float *const momentum = mine.momentum.data() + n, *const before = mine.before.data() + n;
        for (std::size_t i = 0; i < chunk; ++i) momentum[i] = 0.99F * momentum[i] + g[n + i];
        std::array<float, chunk> c, now, sent;
        std::array<double, chunk> squares;
        turn(mine.matrix, chunk, momentum, c.data());
        turn(mine.matrix, chunk, g.data() + n, now.data());
        for (std::size_t i = 0; i < chunk; ++i) squares[i] = static_cast<double>(c[i]) * static_cast<double>(c[i]);
        std::sort(squares.begin(), squares.end(), std::greater<>());
        keep_largest(c.data(), chunk, travel);
        for (std::size_t k = 0; k < 3 && looks; ++k)
          mine.held[k] += std::accumulate(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(kept[k]), 0.0);
        if (looks) mine.whole += std::accumulate(squares.begin(), squares.end(), 0.0);
        for (std::size_t i = 0; i < chunk && looks; ++i) {
          const double x = static_cast<double>(now[i]), y = static_cast<double>(before[i]);
          mine.products[c[i] != 0] += x * y;
          mine.sizes[c[i] != 0] += (x * x + y * y) / 2;
        }
        std::copy(now.begin(), now.end(), before);
        turn_back(mine.matrix, chunk, c.data(), sent.data());
        for (std::size_t i = 0; i < chunk; ++i) momentum[i] -= sent[i];
      }
    }
  });
  std::printf(
      "One rank's momentum (decay 0.99), of which the %zu largest of each chunk of %zu travel: the part of its energy that the k "
      "largest hold; the correlation of a gradient's coefficient with itself a step before, of those that travel and of those "
      "that stay\n\n| transform | k = 1 | 4 | 16 | travels | stays |\n|---|---|---|---|---|---|\n",
      travel, chunk);
  for (std::size_t b = 0; b < all.size(); ++b) {
    std::printf("| %s |", names[b]);
    for (const double part : all[b].held) std::printf(" %.3f |", part / all[b].whole);
    std::printf(" %.3f | %.3f |\n", all[b].products[1] / all[b].sizes[1], all[b].products[0] / all[b].sizes[0]);
  }
}

void state(asked const& a) {
  using code = acco::block_dct_top<16>;
  const auto steps = static_cast<std::size_t>(a.samples / 128);
  constexpr int n = 4;
  std::vector<std::vector<float>> momenta(n);
  std::vector<std::array<double, 3>> told(steps);
  std::mutex together;
  std::size_t come = 0;
  along_training(a, n, steps, [&](int rank, std::size_t step, std::span<float const> g) {
    std::vector<float> mine;
    {
      const std::lock_guard hold(together);
      mine = momenta[static_cast<std::size_t>(rank)];
    }
    mine.resize((g.size() + code::block_size - 1) / code::block_size * code::block_size);
    for (std::size_t i = 0; i < g.size(); ++i) mine[i] = 0.999F * mine[i] + g[i];
    for (std::size_t at = 0; at < mine.size(); at += code::block_size) {
      std::array<std::byte, code::block_bytes> bytes;
      std::array<float, code::block_size> sent;
      code::encode(mine.data() + at, bytes.data());
      code::decode(bytes.data(), sent.data());
      for (std::size_t i = 0; i < sent.size(); ++i) mine[at + i] -= sent[i];
    }
    const auto square = [](auto const& x, auto const& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); };
    const std::lock_guard hold(together);
    momenta[static_cast<std::size_t>(rank)] = mine;
    if (rank == 0) {
      told[step][0] = std::sqrt(square(mine, mine));
      told[step][1] = std::sqrt(square(g, g));
    }
    if (++come % n != 0) return;  // the others of this step come first: all wait for its round
    auto const &x = momenta[0], &y = momenta[1];
    told[step][2] = square(x, y) / std::sqrt(square(x, x) * square(y, y));
  });
  std::printf(
      "What 4 ranks keep apart: the momentum that has not travelled (16 of 256, decay 0.999), over the length of a gradient, and "
      "the "
      "cosine of the angle between those of two ranks\n\n| step | momentum | of one gradient | alike |\n|---|---|---|---|\n");
  for (std::size_t step = std::max<std::size_t>(steps / 10, 1); step <= steps; step += std::max<std::size_t>(steps / 10, 1)) {
    auto const& [momentum, gradient, alike] = told[step - 1];
    std::printf("| %zu | %.3g | %.2f | %.3f |\n", step, momentum, momentum / gradient, alike);
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
  constexpr std::pair<std::string_view, void (*)(asked const&)> answers[] = {
      {"time", time},   {"equal", equal},   {"size", size},    {"sign", sign},  {"rules", rules},
      {"ranks", ranks}, {"length", length}, {"basis", energy}, {"state", state}};
  try {
    asked a;
    for (int k = 1; k < count; ++k) {
      const std::string word = words[k];
      if (!word.starts_with("--")) {
        a.what = word;
        continue;
      }
      if (k + 1 == count) throw std::invalid_argument(word + " is followed by nothing");
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
        throw std::invalid_argument(word + " is none of --data, --samples, --seeds, --rates");
    }
    for (auto const& [name, answer] : answers) {
      if (name != a.what) continue;
      answer(a);
      return 0;
    }
    throw std::invalid_argument("one of time, equal, size, sign, rules, ranks, length, basis, state");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_demo: %s\n", e.what());
    return 1;
  }
}
