// SPDX-License-Identifier: Apache-2.0
// One rank of a load whose computation and traffic are known exactly: so many milliseconds of arithmetic a micro-batch, so many
// parameters. Rank 0 prints one JSON object. bench/network/run.py starts it on rate-limited links.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>
#include <acco/mpi.hpp>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct settings {
  std::string backend = "gloo", schedule = "two_phase", progress = "helper_thread";
  std::size_t parameters = 1'000'000, piece_kib = 0, layers = 0;
  bool traced = false;
  double milliseconds = 50;        // of arithmetic in a micro-batch
  unsigned first = 1, second = 0;  // micro-batches of a step's two parts; 0: as many as in the first
  bool auto_pace = false;          // split them by measuring
  bool elastic = false;
  int slow_rank = -1;  // computes everything twice
  int steps = 20;
  double clip = 0;
};

/// One nameless tensor, or about as many parameters in the tensors of a GPT, matrices with decay, gains and biases without.
acco::parameter_layout layout_of(settings const& s) {
  if (s.layers == 0) return acco::parameter_layout(s.parameters);
  acco::parameter_layout layout;
  const auto without_decay = layout.add_group({.weight_decay = 0.0});
  const auto d = static_cast<std::size_t>(std::sqrt(static_cast<double>(s.parameters) / (12.0 * static_cast<double>(s.layers))));
  for (std::size_t layer = 0; layer < s.layers; ++layer) {
    const auto add = [&](char const* name, std::size_t rows, std::size_t columns) {
      layout.add(std::to_string(layer) + "." + name, {rows, columns}, rows == 1 ? without_decay : 0);
    };
    const auto linear = [&](std::string const& name, std::size_t to, std::size_t from) {
      add((name + ".weight").c_str(), to, from);
      add((name + ".bias").c_str(), 1, to);
    };
    for (char const* norm : {"attention", "feed_forward"}) {
      add((std::string(norm) + ".gain").c_str(), 1, d);
      add((std::string(norm) + ".shift").c_str(), 1, d);
      if (norm[0] == 'a') {
        linear("qkv", 3 * d, d);
        linear("projection", d, d);
      } else {
        linear("up", 4 * d, d);
        linear("down", d, 4 * d);
      }
    }
  }
  return layout;
}

volatile double sink = 1;

/// Arithmetic on registers, in units; it begins and ends in memory that the compiler must not guess at.
void arithmetic(long units) {
  double x = sink;
  for (long k = 0; k < units * 100; ++k) x = x * 0.999999 + 1e-6;
  sink = x;
}

/// How many units take a millisecond, while all ranks measure at the same time.
long units_per_millisecond() {
  long units = 100;
  for (;;) {
    const double begin = now();
    arithmetic(units);
    const double seconds = now() - begin;
    if (seconds > 0.3) return static_cast<long>(static_cast<double>(units) / seconds / 1000);
    units = units * 2;
  }
}

nlohmann::json measure(settings const& s, acco::any_optimizer<float> training, int rank, int ranks) {
  const std::size_t parameters = layout_of(s).size();
  training.initialize(std::vector<float>(parameters, 1.0F));
  const long unit = units_per_millisecond();
  double ready[1] = {0};
  training.sum_over_ranks(ready);
  const bool slow = rank == s.slow_rank;
  const auto compute = [&] {
    for (int k = 0; k < static_cast<int>(s.milliseconds);
         ++k) {  // a millisecond at a time: a polled network is polled in between
      arithmetic(unit * (slow ? 2 : 1));
      if (s.progress == "poll") training.poll();
    }
    training.gradients()[0] += 1;
  };
  // The computation alone, to compare with; then steps, the first ones not counted.
  double begin = now();
  for (int k = 0; k < 4; ++k) compute();
  const double alone = (now() - begin) / 4;
  std::fill(training.gradients().begin(), training.gradients().end(), 0.0F);

  acco::round_totals warm;
  double from = 0, samples_from = 0;
  unsigned first = 0, second = 0;
  const std::uint64_t warm_up = s.auto_pace ? acco::auto_pace::warm_up + acco::auto_pace::measurements + 2 : 2;
  std::uint64_t steps_from = 0, last = 0;
  double samples_to = 0, to = 0;
  std::uint64_t steps_to = 0;
  acco::round_totals done;
  std::string progress;
  while (training.steps() < static_cast<std::uint64_t>(s.steps) + warm_up) {
    compute();
    const auto report = training.accumulated(1);
    if (!report) continue;
    progress = report->progress;
    first = report->first;
    second = report->second;
    if (training.steps() == last) continue;
    last = training.steps();
    if (last == warm_up) {
      from = now();
      samples_from = training.samples();
      steps_from = last;
      warm = training.totals();
      if (rank == 0) std::cerr << "begin" << std::endl;
    }
    to = now();
    samples_to = training.samples();
    steps_to = last;
    done = training.totals();
  }
  if (rank == 0) std::cerr << "end" << std::endl;
  training.finish();
  const auto steps = static_cast<double>(steps_to - steps_from);
  const double communication = done.communication_seconds - warm.communication_seconds;
  const double exposed = done.exposed_seconds - warm.exposed_seconds;
  return {{"schedule", s.schedule},
          {"backend", s.backend},
          {"progress", progress},
          {"ranks", ranks},
          {"parameters", parameters},
          {"steps", steps},
          {"first", first},
          {"second", second},
          {"step_seconds", (to - from) / steps},
          {"alone_seconds", alone},  // a micro-batch without communication
          {"compute_seconds", (done.compute_seconds - warm.compute_seconds) / steps},
          {"communication_seconds", communication / steps},
          {"exposed_seconds", exposed / steps},
          {"hidden_fraction", communication > 0 ? 1 - exposed / communication : 0},
          {"bytes_sent", static_cast<double>(done.bytes_sent - warm.bytes_sent) / steps},
          {"total_bytes_sent", training.totals().bytes_sent},
          {"samples_per_second", (samples_to - samples_from) / (to - from)}};
}

template <class World>
void run_over(settings const& s, World const& world) {
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  const unsigned step = s.first + (s.second != 0 ? s.second : s.first);
  const acco::fixed_pace whole{.first = step};  // one kind of round: as many micro-batches a step
  const acco::auto_pace found{.micro_batches = step};
  const acco::coded<acco::block_int8<>, acco::block_int4<>> few;
  const acco::block_int8<> int8;
  const acco::block_int4<> int4;
  const acco::elastic_pace elastic{.at_least = s.first, .at_most = 64};
  const auto with = [&](auto schedule) {
    return acco::any_optimizer<float>(acco::optimizer{schedule, acco::adamw{.learning_rate = 1e-3}, acco::host_storage<float>{},
                                                      world, layout_of(s), acco::options{.clip_norm = s.clip, .deadline = 60}});
  };
  const auto chosen = [&] {
    if (s.schedule == "two_phase")
      return s.elastic     ? with(acco::two_phase{.pace = elastic})
             : s.auto_pace ? with(acco::two_phase{.pace = found})
                           : with(acco::two_phase{.pace = fixed});
    if (s.schedule == "two_phase+int8")
      return s.auto_pace ? with(acco::two_phase{.estimate = int8, .pace = found})
                         : with(acco::two_phase{.estimate = int8, .pace = fixed});
    if (s.schedule == "two_phase+int4")
      return s.auto_pace ? with(acco::two_phase{.estimate = int4, .pace = found})
                         : with(acco::two_phase{.estimate = int4, .pace = fixed});
    if (s.schedule == "two_phase+coded")
      return s.auto_pace ? with(acco::two_phase{.estimate = int4, .commit = few, .pace = found})
                         : with(acco::two_phase{.estimate = int4, .commit = few, .pace = fixed});
    if (s.schedule == "delayed+coded") return with(acco::delayed{.commit = few, .pace = whole});
    if (s.schedule == "synchronous+coded") return with(acco::synchronous{.commit = few, .pace = whole});
    if (s.schedule == "delayed") return s.elastic ? with(acco::delayed{.pace = elastic}) : with(acco::delayed{.pace = whole});
    if (s.schedule == "weight_prediction") return with(acco::weight_prediction{.pace = whole});
    return with(acco::synchronous{.pace = whole});
  };
  const nlohmann::json result = measure(s, chosen(), world.rank(), world.size());
  if (world.rank() == 0) std::cout << result.dump() << std::endl;
}

template <class World>
void run(settings const& s, World const& world) {
  if (!s.traced) return run_over(s, world);
  acco::trace all(std::size_t{1} << 20U);
  run_over(s, acco::traced(world, all));
  if (all.size() == 0) throw std::runtime_error("the trace is empty");
}

}  // namespace

int main(int count, char** words) {
  settings s;
  CLI::App app{"A load of exact computation and exact traffic."};
  app.add_option("--backend", s.backend)->check(CLI::IsMember({"mpi", "gloo", "solo"}));
  app.add_option("--schedule", s.schedule)
      ->check(CLI::IsMember({"synchronous", "delayed", "two_phase", "weight_prediction", "synchronous+coded", "delayed+coded",
                             "two_phase+int8", "two_phase+int4", "two_phase+coded"}));
  app.add_option("--progress", s.progress)->check(CLI::IsMember({"helper_thread", "poll", "none"}));
  app.add_option("--parameters", s.parameters);
  app.add_option("--layers", s.layers, "Of a GPT whose tensors the parameters are; 0: they are one tensor");
  app.add_flag("--traced", s.traced, "Every collective goes into a trace");
  app.add_option("--piece", s.piece_kib, "KiB");
  app.add_option("--milliseconds", s.milliseconds, "Of arithmetic in a micro-batch");
  app.add_option("--micro-batches", s.first, "Of the first part of a step of two_phase; the others take all of a step");
  app.add_option("--second", s.second, "Of the second part, if not as many");
  app.add_flag("--auto-pace", s.auto_pace, "two_phase: split the step by measuring");
  app.add_flag("--elastic", s.elastic);
  app.add_option("--slow-rank", s.slow_rank, "This rank computes everything twice");
  app.add_option("--steps", s.steps);
  app.add_option("--clip", s.clip);
  CLI11_PARSE(app, count, words);
  if (s.backend == "solo") {
    run(s, acco::solo_backend{});
    return 0;
  }
  if (s.backend == "gloo") {
    acco::gloo_options options{.deadline = 60};
    if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
    return acco::gloo_backend::run([&](acco::gloo_backend const& world) { run(s, world); }, options);
  }
  acco::mpi_options options;
  options.progress = s.progress == "poll"   ? acco::mpi_progress::poll
                     : s.progress == "none" ? acco::mpi_progress::none
                                            : acco::mpi_progress::helper_thread;
  if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
  return acco::mpi_backend::run(count, words, [&](acco::mpi_backend const& world) { run(s, world); }, options);
}
