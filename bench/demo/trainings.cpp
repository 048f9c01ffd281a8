// SPDX-License-Identifier: Apache-2.0
// What readers of DeMo (Peng et al., arXiv 2411.19870) asked of it, asked of a small GPT on ranks that are threads:
//
//   bench_demo time     seconds of a step on links of a given rate, what of them is exposed, and seconds to a loss
//   bench_demo equal    codes at about equal bytes, each at its own rate
//   bench_demo size     loss over how many coefficients of a chunk travel, and how long it is
//   bench_demo sign     the sign of what arrives, or its mean, over all ranks or over senders
//   bench_demo rules    sign rules, momentum and AdamW without any code, with weight decay and without
//   bench_demo ranks    1 to 16 ranks, at a fixed batch of all and at a fixed batch of each
//   bench_demo length   the budget, and three times that
// and of others:
//   bench_demo models   a convolutional network, and a convex problem whose optimum is known
//   bench_demo basis    how much of a momentum's energy the largest of a chunk hold, in four bases; what lasts
//   bench_demo state    what ranks keep apart: the length of their momenta, and how far they drift
//
// [--data TEXT] [--samples 12800] [--seeds 1,2,3] [--rates 3e-4,1e-3,3e-3] [--loss 2.9]: rates of sign rules; those of
// AdamW and SGD are these times a factor. The one that is best for the first seed counts. `--loss`: which `time` waits
// for. Prints Markdown. docs/demo.md says which question each answers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "bases.hpp"
#include "host.hpp"
#include "tuning.hpp"

bool toy_gpt::is_local(std::string_view) { return false; }  // flags.cpp knows all schedules; here is one

namespace {

using namespace asked;  // NOLINT(google-build-using-namespace): its answers
using acco::threads_backend;

struct outcome {
  double loss = 0, gap = 0, bytes = 0;  // of validation; above the training's; that a rank sends a parameter and step
};

/// Trains the GPT by what a maker makes.
class trainings {
 public:
  explicit trainings(question const& a)
      : asked_(a),
        source_(a.data.empty() ? "this repository" : a.data),
        text_(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), small.context) {}

  /// Over the seeds, at the rate that is best for the first one.
  toy_gpt::tuned<outcome> tuned(int ranks, unsigned micro_batches, maker const& make, double factor = 1) {
    return toy_gpt::tune(asked_.rates_times(factor), asked_.seeds,
                         [&](double rate, std::uint64_t seed) { return one(ranks, micro_batches, make, rate, seed); });
  }
  toy_gpt::summary run(int ranks, unsigned micro_batches, maker const& make, double rate, std::uint64_t seed, double samples,
                       std::size_t validations) {
    toy_gpt::settings s;
    s.model = small;
    s.ranks = ranks;
    s.samples = static_cast<std::size_t>(samples);
    s.batch = 4;
    s.first = micro_batches;
    s.schedule = "synchronous";
    s.warmup = samples / 20;
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
      toy_gpt::summary const r = run(ranks, micro_batches, make, rate, seed, asked_.samples, 1);
      return {std::min(of_a_guess, r.validation_loss), r.validation_loss - r.train_loss,
              static_cast<double>(r.bytes_sent) / static_cast<double>(r.parameters) / static_cast<double>(r.steps)};
    } catch (acco::error const&) {
      return {of_a_guess, 0, 0};  // diverged
    }
  }

  question asked_;
  std::string source_;
  toy_gpt::corpus text_;
};

/// A maker over links of so many Gbit/s; 0: none.
template <class Schedule, class Rule>
auto over_links(Schedule const& schedule, Rule const& rule) {
  return [=](double gigabits) -> maker {
    if (gigabits == 0) return of(schedule, rule);
    return [=](threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options,
               double rate) -> acco::any_optimizer<float> {
      Rule mine = rule;
      mine.learning_rate = rate;
      return acco::optimizer{schedule, mine,   acco::host_storage<float>{}, acco::rate_limited(world, {gigabits * 1.25e8}),
                             layout,   options};
    };
  };
}

std::string of_number(char const* format, double number) {
  char text[32];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

/// Losses do not depend on the link: each training runs once as a whole, and its beginning once a link.
void time(question const& a) {
  trainings all(a);
  constexpr std::size_t validations = 16;
  const double some = std::min(a.samples, std::max(640.0, a.samples / 8));
  std::printf(
      "4 ranks, threads of one machine with %u processors; the links are simulated. The loss after %.0f sequences; sequences "
      "to a loss of %g, which is asked %zu times. In the mean of the first %.0f, milliseconds of a step, of its rounds in "
      "flight, of the computation that they hold up; seconds to that loss at that speed\n\n"
      "| training | loss | sequences to it | Gbit/s | step | communication | exposed | hidden | seconds to it "
      "|\n|---|---|---|---|---|---|---|---|---|\n",
      std::thread::hardware_concurrency(), a.samples, a.loss, validations, some);
  const auto rows = [&](char const* name, auto const& make, double rate) {
    toy_gpt::summary const whole = all.run(4, 8, make(0), rate, a.seeds[0], a.samples, validations);
    const auto reached =
        std::find_if(whole.validation.begin(), whole.validation.end(), [&](toy_gpt::point const& p) { return p.loss <= a.loss; });
    const bool never = reached == whole.validation.end();
    std::printf("| %s | %.4f | %s |", name, whole.validation_loss, never ? "-" : of_number("%.0f", reached->samples).c_str());
    for (const double gigabits : {0.1, 1.0, 10.0, 0.0}) {
      toy_gpt::summary const r = all.run(4, 8, make(gigabits), rate, a.seeds[0], some, 1);
      const double to_ms = 1000 / static_cast<double>(r.steps);
      std::printf("%s %s | %.2f | %.2f | %.2f | %.2f | %s |\n", gigabits == 0.1 ? "" : "| | | |",
                  gigabits == 0 ? "none" : of_number("%g", gigabits).c_str(), r.seconds * to_ms, r.communication_seconds * to_ms,
                  r.exposed_seconds * to_ms, r.hidden_fraction,
                  never ? "-" : of_number("%.1f", reached->samples / r.samples_per_second).c_str());
      std::fflush(stdout);
    }
  };
  constexpr acco::block_int4<> int4;
  rows("adamw, synchronous", over_links(acco::synchronous{.pace = eight}, adamw), 3e-3);
  rows("adamw, two_phase", over_links(acco::two_phase{.pace = split}, adamw), 3e-3);
  rows("adamw, two_phase, int4 and coded",
       over_links(acco::two_phase{.estimate = int4, .commit = acco::coded_commit{}, .pace = split}, adamw), 3e-3);
  rows("DeMo as published", over_links(acco::synchronous{.commit = published, .pace = eight}, signs(0.1)), 1e-3);
  rows("DeMo, sharded", over_links(acco::synchronous{.commit = sharded, .pace = eight}, signs(0.1)), 1e-3);
  rows("DeMo, delayed", over_links(acco::delayed{.commit = sharded, .pace = eight}, signs(0.1)), 1e-3);
  rows("DeMo, two_phase", over_links(acco::two_phase{.estimate = ahead, .commit = sharded, .pace = split}, signs(0.1)), 1e-3);
}

void equal(question const& a) {
  trainings all(a);
  std::printf(
      "Parameters in 4 bits, but for the first and the last\n\n"
      "| gradients | bytes sent a parameter and step | validation loss | best rate |\n|---|---|---|---|\n");
  const auto row = [&](char const* name, maker const& make, double factor) {
    auto const t = all.tuned(4, 8, make, factor);
    std::printf("| %s | %.3f | %.4f | %.2g |\n", name, t.mean(&outcome::bytes), t.mean(&outcome::loss), t.rate);
    std::fflush(stdout);
  };
  const auto with = [](auto code) {
    return acco::synchronous{.commit = acco::coded{.gradients = code, .parameters = acco::block_int4<>{}}, .pace = eight};
  };
  const acco::error_feedback kept;
  const acco::with_feedback top{acco::block_top<16>{}, kept};
  row("full, adamw", of(acco::synchronous{.pace = eight}, adamw), of_adamw);
  row("int8, adamw", of(with(acco::block_int8<>{}), adamw), of_adamw);
  row("majority vote (signSGD)", of(with(acco::without_feedback<acco::majority_vote>{}), signs(0.1)), 1);
  row("top 16 of 256 and feedback (DGC, SparCML), adamw", of(with(top), adamw), of_adamw);
  row("top 16 of 256 and feedback, lion", of(with(top), acco::lion{.weight_decay = 0.1}), 1);
  for (const unsigned rank : {1U, 4U})
    row(("PowerSGD, rank " + std::to_string(rank) + ", and feedback, adamw").c_str(),
        of(with(acco::with_feedback{acco::power_sgd{.rank = rank}, kept}), adamw), of_adamw);
  row("top 16 of 256, decoupled momentum, sign",
      of(acco::synchronous{.commit = demo_of<acco::block_int4<>, acco::block_top<16>>(), .pace = eight}, signs(0.1)), 1);
  row("DeMo, 16 of 256", of(acco::synchronous{.commit = sharded, .pace = eight}, signs(0.1)), 1);
  row("DeMo, 16 of 256, signs of parameters",
      of(acco::synchronous{.commit = demo_of<acco::loosely<acco::block_sign>>(), .pace = eight}, signs(0.1)), 1);
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

void size(question const& a) {
  trainings all(a);
  std::printf(
      "Validation loss (bytes of gradients a parameter and step)\n\n| k | chunks of 16 | 32 | 64 | 128 "
      "|\n|---|---|---|---|---|\n");
  constexpr std::size_t whole = 128;
  for (const std::size_t count : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U}) {
    std::printf("| %s |", count == whole ? "all" : std::to_string(count).c_str());
    for (const std::size_t chunk : {16U, 32U, 64U, 128U}) {
      if (count >= chunk && count != whole) {
        std::printf(" |");
        continue;
      }
      const std::vector<float> cosines = matrix_of(transform::cosine, chunk);
      auto commit = demo_of<acco::block_int4<>, some_coefficients>();
      static_cast<some_coefficients&>(commit.gradients) = {&cosines, chunk, std::min(count, chunk)};
      auto const t = all.tuned(4, 8, of(acco::synchronous{.commit = commit, .pace = eight}, signs(0.1)));
      std::printf(" %.4f (%.3f) |", t.mean(&outcome::loss), commit.gradients.bytes());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void sign(question const& a) {
  trainings all(a);
  std::printf("| update | mean over | validation loss | best rate |\n|---|---|---|---|\n");
  const auto rows = [&]<acco::mean_over Over>(char const* over) {
    using code = acco::block_dct_top<16, 256, 8, Over>;
    const auto row = [&](char const* update, maker const& make, double factor) {
      auto const t = all.tuned(4, 8, make, factor);
      std::printf("| %s | %s | %.4f | %.2g |\n", update, over, t.mean(&outcome::loss), t.rate);
      std::fflush(stdout);
    };
    row("sign", of(acco::synchronous{.commit = demo_of<acco::full, code>(), .pace = eight}, signs(0.1)), 1);
    row("mean",
        of(acco::synchronous{.commit = demo_of<acco::full, acco::loosely<code>>(), .pace = eight},
           acco::sgd{.momentum = 0, .weight_decay = 0.1}),
        3 * of_sgd);
  };
  rows.operator()<acco::mean_over::all>("all");
  rows.operator()<acco::mean_over::senders>("senders");
}

void rules(question const& a) {
  trainings all(a);
  std::printf("| rule | weight decay | validation loss | above training | best rate |\n|---|---|---|---|---|\n");
  const auto row = [&](char const* name, auto const& schedule, auto rule, double factor) {
    for (const double decay : {0.0, 0.1}) {
      rule.weight_decay = decay;
      auto const t = all.tuned(4, 8, of(schedule, rule), factor);
      std::printf("| %s | %g | %.4f | %.4f | %.2g |\n", name, decay, t.mean(&outcome::loss), t.mean(&outcome::gap), t.rate);
      std::fflush(stdout);
    }
  };
  const acco::synchronous<> full{.pace = eight};
  row("sgd, momentum 0.9", full, acco::sgd{.momentum = 0.9}, of_sgd);
  row("signSGD", full, signs(0), 1);
  row("signum, momentum 0.9", full, acco::lion{.beta1 = 0.9, .beta2 = 0.9}, 1);
  row("signum, momentum 0.999", full, acco::lion{.beta1 = 0.999, .beta2 = 0.999}, 1);
  row("lion", full, acco::lion{}, 1);
  row("adamw", full, acco::adamw{.beta2 = 0.99}, of_adamw);
  row("DeMo, 16 of 256", acco::synchronous{.commit = sharded, .pace = eight}, signs(0), 1);
}

void ranks(question const& a) {
  std::printf(
      "Validation loss (bytes that a rank sends, a parameter and step)\n\n| ranks | batch of all | adamw | "
      "adamw, coded | DeMo, sharded | DeMo as published |\n|---|---|---|---|---|---|\n");
  for (const bool fixed : {true, false}) {
    for (const int n : {1, 2, 4, 8, 16}) {
      const unsigned pieces = fixed ? 32U / static_cast<unsigned>(n) : 8U;
      question mine = a;
      if (!fixed) mine.samples = a.samples * n / 4;  // as many steps
      trainings all(mine);
      const acco::fixed_pace pace{.first = pieces};
      std::printf("| %d | %u |", n, 4 * pieces * static_cast<unsigned>(n));
      const auto cell = [&](maker const& make, double factor) {
        auto const t = all.tuned(n, pieces, make, factor);
        std::printf(" %.4f (%.3f) |", t.mean(&outcome::loss), t.mean(&outcome::bytes));
        std::fflush(stdout);
      };
      cell(of(acco::synchronous{.pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = acco::coded_commit{}, .pace = pace}, adamw), of_adamw);
      cell(of(acco::synchronous{.commit = sharded, .pace = pace}, signs(0.1)), 1);
      cell(of(acco::synchronous{.commit = published, .pace = pace}, signs(0.1)), 1);
      std::printf("\n");
    }
  }
}

void length(question const& a) {
  std::printf("Validation loss (best rate)\n\n| training | %.0f sequences | %.0f |\n|---|---|---|\n", a.samples, 3 * a.samples);
  const auto row = [&](char const* name, maker const& make, double factor) {
    std::printf("| %s |", name);
    for (const double times : {1.0, 3.0}) {
      question mine = a;
      mine.samples *= times;
      auto const t = trainings(mine).tuned(4, 8, make, factor);
      std::printf(" %.4f (%.2g) |", t.mean(&outcome::loss), t.rate);
      std::fflush(stdout);
    }
    std::printf("\n");
  };
  row("adamw", of(acco::synchronous{.pace = eight}, adamw), of_adamw);
  row("DeMo, sharded", of(acco::synchronous{.commit = sharded, .pace = eight}, signs(0.1)), 1);
}

}  // namespace

int main(int count, char** words) {
  constexpr std::pair<std::string_view, void (*)(question const&)> answers[] = {
      {"time", time},   {"equal", equal},   {"size", size},     {"sign", sign},   {"rules", rules},
      {"ranks", ranks}, {"length", length}, {"models", models}, {"basis", basis}, {"state", state}};
  try {
    question a;
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
        a.seeds = toy_gpt::numbers_of<std::uint64_t>(value);
      else if (word == "--rates")
        a.rates = toy_gpt::numbers_of<double>(value);
      else if (word == "--loss")
        a.loss = std::stod(value);
      else
        throw std::invalid_argument(word + " is none of --data, --samples, --seeds, --rates, --loss");
    }
    for (auto const& [name, answer] : answers) {
      if (name != a.what) continue;
      answer(a);
      return 0;
    }
    throw std::invalid_argument("one of time, equal, size, sign, rules, ranks, length, models, basis, state");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_demo: %s\n", e.what());
    return 1;
  }
}
