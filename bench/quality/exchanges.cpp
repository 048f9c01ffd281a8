// SPDX-License-Identifier: Apache-2.0
// What the bytes of local updates' exchanges cost: validation loss of a small GPT at equal samples, all workers as
// threads of this process.
//
//   bench_quality_exchanges TEXT [--samples 25600] [--workers 4] [--steps 30] [--rates 1e-3,3e-3] [--seeds 1]
//                           [--only mu_loco]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/outer.hpp>
#include <acco/rule/muon.hpp>
#include <acco/rule/rules.hpp>

#include "gpt.hpp"
#include "muon_layout.hpp"
#include "text.hpp"

namespace {

using toy_gpt::corpus;
using training = acco::any_optimizer<float>;

struct settings {
  std::size_t samples = 25600, batch = 4;
  int workers = 4;
  unsigned steps = 30;
  double rate = 0;
  std::uint64_t seed = 1;
};
struct outcome {
  double loss = 0, bytes = 0;  // of a parameter and step, in units of (workers - 1) / workers
};
using maker = std::function<training(acco::threads_backend const&, acco::parameter_layout const&, acco::options const&)>;

outcome train(settings const& s, corpus const& text, maker const& make) {
  toy_gpt::shape shape;
  shape.layers = 2;
  shape.width = 64;
  outcome found;
  acco::threads_backend::run(s.workers, [&](acco::threads_backend const& world) {
    toy_gpt::gpt<float> model(shape);
    const auto samples = static_cast<double>(s.samples);
    training one = make(world, model.layout(),
                        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = samples / 20, .total = samples}});
    one.initialize(model.initial(s.seed));
    toy_gpt::batch data;
    const std::size_t steps = s.samples / s.batch / static_cast<std::size_t>(s.workers);
    for (std::size_t t = 0; t < steps; ++t) {
      text.draw(data, s.batch, s.seed, static_cast<std::uint64_t>(world.rank()), t);
      const double loss = model.add_gradients(data, one.parameters(), one.gradients());
      (void)one.accumulated(static_cast<double>(s.batch), loss);
    }
    const auto sent = static_cast<double>(one.totals().bytes_sent);
    one.finish();
    if (world.rank() != 0) return;
    constexpr std::size_t batches = 16, sequences = 32;
    for (std::size_t k = 0; k < batches; ++k) {
      text.draw_validation(data, sequences, k);
      found.loss += model.loss(data, one.parameters()) / (batches * sequences);
    }
    found.bytes = sent / static_cast<double>(model.layout().size() * steps) * s.workers / (s.workers - 1);
  });
  return found;
}

/// By name: `muon ...` has it inside workers, with AdamW beside it.
struct row {
  std::string name;
  maker make;
};
template <class Schedule>
maker with(settings const& s, bool muon, Schedule const& schedule) {
  return [=](acco::threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options) -> training {
    const acco::adamw rule{.learning_rate = s.rate};
    if (!muon) return acco::optimizer{schedule, rule, acco::host_storage<float>{}, world, layout, options};
    return acco::optimizer{schedule,
                           acco::rules{acco::muon{.learning_rate = s.rate}, rule},
                           acco::host_storage<float>{},
                           world,
                           toy_gpt::for_muon(layout),
                           options};
  };
}
std::vector<row> rows(settings const& s) {
  std::vector<row> all;
  const auto add = [&](char const* name, auto schedule, bool muon = false) { all.push_back({name, with(s, muon, schedule)}); };
  const auto local = [&](auto method, auto exchange) {
    return acco::local_updates{.method = method, .steps = s.steps, .exchange = exchange};
  };
  add("synchronous", acco::synchronous{});
  add("local_sgd", local(acco::local_sgd, acco::full{}));
  add("local_sgd, sparse_exchange", local(acco::local_sgd, acco::sparse_exchange));
  add("diloco", local(acco::diloco, acco::full{}));
  add("diloco, block_int4", local(acco::diloco, acco::block_int4{}));
  add("mu_loco", local(acco::mu_loco, acco::full{}));
  add("mu_loco, block_stat2", local(acco::mu_loco, acco::block_stat2{}));
  add("muon, synchronous", acco::synchronous{}, true);
  add("muon, mu_loco", local(acco::mu_loco, acco::full{}), true);
  add("muon, mu_loco, block_stat2", local(acco::mu_loco, acco::block_stat2{}), true);
  return all;
}

std::vector<double> numbers(std::string const& list) {
  std::vector<double> found;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) found.push_back(std::stod(word));
  return found;
}

}  // namespace

int main(int count, char** words) {
  std::map<std::string, std::string> given{{"--samples", "25600"},   {"--workers", "4"}, {"--steps", "30"},
                                           {"--rates", "1e-3,3e-3"}, {"--seeds", "1"},   {"--only", ""}};
  for (int k = 2; k + 1 < count; k += 2) given.at(words[k]) = words[k + 1];
  if (count < 2) return std::fputs("bench_quality_exchanges TEXT [--samples 25600] ...\n", stderr), 1;
  settings s{.samples = std::stoul(given["--samples"]),
             .workers = std::stoi(given["--workers"]),
             .steps = static_cast<unsigned>(std::stoul(given["--steps"]))};
  const corpus text(toy_gpt::read_file(words[1]), toy_gpt::shape{}.context);
  std::printf("| exchange | bytes a parameter and step | rate | loss of each seed |\n|---|---|---|---|\n");
  for (std::size_t k = 0; k < rows(s).size(); ++k) {
    if (!given["--only"].empty() && rows(s)[k].name != given["--only"]) continue;
    for (const double rate : numbers(given["--rates"])) {
      s.rate = rate;
      row const now = rows(s)[k];
      std::string losses;
      outcome one;
      for (const double seed : numbers(given["--seeds"])) {
        s.seed = static_cast<std::uint64_t>(seed);
        one = train(s, text, now.make);
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.4f ", one.loss);
        losses += digits;
      }
      std::printf("| %s | %.4f | %g | %s|\n", now.name.c_str(), one.bytes, rate, losses.c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}
