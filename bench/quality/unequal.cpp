// SPDX-License-Identifier: Apache-2.0
// Local updates among workers of which the last is slower than the others: how much of their summed speed is left
// behind the first exchange, and the loss at equal samples. Ranks are threads of this process; a micro-batch lasts as
// long as it is told to, which is longer than its computation, so that a machine of few cores will do.
//
//   bench_quality_unequal TEXT [--samples 12800] [--ranks 4] [--slower 4] [--milliseconds 50] [--steps 8] [--rate 2e-3]
//                         [--seeds 1,2,3] [--width 32]
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "gpt.hpp"
#include "text.hpp"
#include "tuning.hpp"

namespace {

using clock_type = std::chrono::steady_clock;
constexpr std::size_t batch = 4;

struct settings {
  double samples = 0, slower = 1, milliseconds = 0, rate = 0;
  int ranks = 4;
  std::size_t width = 32;
  unsigned steps = 32;
  std::uint64_t seed = 1;
};
struct outcome {
  double loss = 0, share = 0, late = 0;  // of the summed speed; micro-batches that were not in time
};

template <class Level>
outcome train(settings const& s, toy_gpt::corpus const& text, Level const& level) {
  outcome found;
  acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
    const bool slow = world.rank() == s.ranks - 1;
    const auto lasts = std::chrono::duration_cast<clock_type::duration>(
        std::chrono::duration<double, std::milli>(s.milliseconds * (slow ? s.slower : 1)));
    toy_gpt::shape shape;
    shape.width = s.width;
    toy_gpt::gpt<float> model(shape);
    acco::optimizer one{level,
                        acco::adamw{.learning_rate = s.rate},
                        acco::host_storage<float>{},
                        world,
                        model.layout(),
                        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = s.samples / 20, .total = s.samples}}};
    one.initialize(model.initial(s.seed));
    toy_gpt::batch data;
    double late = 0;
    auto begin = clock_type::now();
    double before = 0;  // the first exchange, by which speeds are not known
    for (std::uint64_t t = 0; one.samples() < s.samples; ++t) {
      auto const ends = clock_type::now() + lasts;
      text.draw(data, batch, s.seed, static_cast<std::uint64_t>(world.rank()), t);
      const double loss = model.add_gradients(data, one.parameters(), one.gradients());
      late += clock_type::now() > ends ? 1 : 0;
      std::this_thread::sleep_until(ends);
      (void)one.accumulated(static_cast<double>(batch), loss);
      if (before == 0 && one.samples() > 0) {
        before = one.samples();
        begin = clock_type::now();
      }
    }
    const double seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
    const double speed = (one.samples() - before) / seconds;
    one.finish();
    if (!slow) return;
    const double one_alone = batch / s.milliseconds * 1000;
    found.share = speed / (one_alone * (s.ranks - 1 + 1 / s.slower));
    found.late = late;
    toy_gpt::batch validation;
    constexpr std::size_t batches = 16, sequences = 32;
    for (std::size_t k = 0; k < batches; ++k) {
      text.draw_validation(validation, sequences, k);
      found.loss += model.loss(validation, one.parameters()) / (batches * sequences);
    }
  });
  return found;
}

constexpr char usage[] =
    "bench_quality_unequal TEXT [--samples 12800] [--ranks 4] [--slower 4] [--milliseconds 50] [--steps 8] [--rate 2e-3] "
    "[--seeds 1,2,3] [--width 32]";

int print_table(toy_gpt::command_line const& given) {
  settings s{.samples = given.number<double>("--samples"),
             .milliseconds = given.number<double>("--milliseconds"),
             .rate = given.number<double>("--rate"),
             .ranks = given.number<int>("--ranks", 1),
             .width = given.number<std::size_t>("--width"),
             .steps = given.number<unsigned>("--steps")};
  const auto slower = given.number<double>("--slower");
  auto const seeds = given.numbers<std::uint64_t>("--seeds", -1);
  const toy_gpt::corpus text(toy_gpt::read_file(given.text()), toy_gpt::shape{}.context);
  double first = 0;
  std::printf("| | of the summed speed | loss | over the first row |\n|---|---|---|---|\n");
  const auto print = [&](char const* name, double slower_now, auto level) {
    s.slower = slower_now;
    level.steps = s.steps;
    outcome mean;
    for (const std::uint64_t seed : seeds) {
      s.seed = seed;
      const outcome each = train(s, text, level);
      const auto part = 1 / static_cast<double>(seeds.size());
      mean.loss += part * each.loss;
      mean.share += part * each.share;
      mean.late += each.late;
    }
    if (first == 0) first = mean.loss;
    std::printf("| %s | %.3f | %.4f | %+.2f %% |\n", name, mean.share, mean.loss, 100 * (mean.loss / first - 1));
    if (mean.late > 0) std::printf("(%g micro-batches lasted longer than they should)\n", mean.late);
    std::fflush(stdout);
  };
  const acco::waiting<acco::sgd> diloco_by_samples{.rule = acco::diloco.rule, .weights = acco::worker_weights::samples};
  const acco::restarting<acco::sgd> delayed_by_samples{.rule = acco::delayed_diloco.rule,
                                                       .weights = acco::worker_weights::samples};
  using acco::local_updates;
  print("fedavg, all as fast", 1, local_updates{.method = acco::fedavg});
  print("fedavg, one slower", slower, local_updates{.method = acco::fedavg});
  print("fedavg, one slower, steps_by_speed", slower, local_updates{.method = acco::fedavg, .steps_by_speed = true});
  print("diloco by samples, all as fast", 1, local_updates{.method = diloco_by_samples});
  print("diloco by samples, one slower, steps_by_speed", slower,
        local_updates{.method = diloco_by_samples, .steps_by_speed = true});
  print("delayed_diloco by samples, all as fast", 1, local_updates{.method = delayed_by_samples});
  print("delayed_diloco by samples, one slower, steps_by_speed", slower,
        local_updates{.method = delayed_by_samples, .steps_by_speed = true});
  return 0;
}

}  // namespace

int main(int count, char** words) {
  toy_gpt::use_one_thread_for_products();
  const toy_gpt::command_line given(count, words, usage,
                                    {{"--samples", "12800"},
                                     {"--ranks", "4"},
                                     {"--slower", "4"},
                                     {"--milliseconds", "50"},
                                     {"--steps", "8"},
                                     {"--rate", "2e-3"},
                                     {"--seeds", "1,2,3"},
                                     {"--width", "32"}});
  try {
    return print_table(given);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_quality_unequal: %s\n", e.what());
    return 1;
  }
}
