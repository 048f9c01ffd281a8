// SPDX-License-Identifier: Apache-2.0
// One rank of a load whose computation and traffic are known exactly: so many milliseconds of arithmetic a micro-batch,
// so many parameters. Rank 0 prints one JSON object. bench/network/run.py starts it on rate-limited links.
#include "synthetic.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <acco/mpi.hpp>

namespace {

using namespace synthetic;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

/// What the rounds of a rank have taken, and the exchanges of local updates, of which the totals have the bytes alone.
struct spent {
  acco::round_totals rounds;
  double communication = 0, exposed = 0, samples = 0, at = 0;
};

/// `memory_slope`: bytes that a parameter takes, if the model has more of them.
nlohmann::json measure(settings const& s, acco::any_optimizer<float> training, double memory_slope, int rank, int ranks) {
  const std::size_t parameters = layout_of(s).size();
  const std::size_t memory = training.memory().total();
  training.initialize(std::vector<float>(parameters, 1.0F));
  const long unit = s.unit > 0 ? s.unit : units_per_millisecond();
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

  // A step is one of this rank: what a local method has exchanged moves every so many steps only, so they are counted
  // here, and whole rounds of exchanges are measured, two of them at least, after one that is not.
  const bool local = where_made(s.schedule) == made::locally;
  const std::uint64_t updates_a_step = s.every_micro_batch ? s.micro_batches() : 1, whole = local ? 2 * s.local_steps : 1;
  const std::uint64_t warm_up = local         ? s.local_steps
                                : s.auto_pace ? acco::auto_pace::warm_up + acco::auto_pace::measurements + 2
                                              : 2;
  const std::uint64_t steps = (static_cast<std::uint64_t>(s.steps) + whole - 1) / whole * whole;
  spent seen, warm;
  unsigned first = 0, second = 0;
  std::string progress;
  for (std::uint64_t updates = 0; updates < (warm_up + steps) * updates_a_step;) {
    compute();
    const auto report = training.accumulated(1);
    if (!report) continue;
    progress = report->progress;
    first = report->first;
    second = report->second;
    if (report->outer) {
      seen.communication += report->outer->communication_seconds;
      seen.exposed += report->outer->exposed_seconds;
    }
    if (!acco::commits(report->plan)) continue;
    seen.samples += report->step_weight;
    ++updates;
    if (updates != warm_up * updates_a_step && updates != (warm_up + steps) * updates_a_step) continue;
    seen.rounds = training.totals();
    seen.at = now();
    if (updates != warm_up * updates_a_step) continue;
    warm = seen;
    if (rank == 0) std::cerr << "begin" << std::endl;
  }
  if (rank == 0) std::cerr << "end" << std::endl;
  training.finish();
  const auto a_step = [&](double difference) { return difference / static_cast<double>(steps); };
  const double communication =
      local ? seen.communication - warm.communication : seen.rounds.communication_seconds - warm.rounds.communication_seconds;
  const double exposed = local ? seen.exposed - warm.exposed : seen.rounds.exposed_seconds - warm.rounds.exposed_seconds;
  const double workers = local ? ranks : 1;  // a worker's report is of its own samples
  return {{"schedule", s.schedule},
          {"backend", s.backend},
          {"progress", progress},
          {"ranks", ranks},
          {"parameters", parameters},
          {"memory_bytes", memory},
          {"memory_slope", memory_slope},
          {"unit", unit},
          {"steps", static_cast<double>(steps)},
          {"first", first},
          {"second", second},
          {"step_seconds", a_step(seen.at - warm.at)},
          {"alone_seconds", alone},  // a micro-batch without communication
          {"compute_seconds", a_step(seen.rounds.compute_seconds - warm.rounds.compute_seconds)},
          {"communication_seconds", a_step(communication)},
          {"exposed_seconds", a_step(exposed)},
          {"hidden_fraction", communication > 0 ? 1 - exposed / communication : 0},
          {"bytes_sent", a_step(static_cast<double>(seen.rounds.bytes_sent - warm.rounds.bytes_sent))},
          {"bytes_between", a_step(static_cast<double>(seen.rounds.bytes_between - warm.rounds.bytes_between))},
          {"total_bytes_sent", training.totals().bytes_sent},
          {"samples_per_second", workers * (seen.samples - warm.samples) / (seen.at - warm.at)}};
}

template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
#if defined(SYNTHETIC_FAMILY)
  if constexpr (std::is_same_v<World, acco::gloo_backend>) {
    if (s.ranks_a_group != 0) return make_groups(s, world);
  }
  if constexpr (std::is_same_v<World, acco::gloo_backend> || std::is_same_v<World, acco::solo_backend>) {
    if (where_made(s.schedule) == made::locally) return make_local(s, world);
    if (where_made(s.schedule) == made::decorated) return make_decorated(s, world);
  }
#endif
  return acco::with_schedule<shared_engine>(s.schedule, [&](auto const& schedule) { return optimizer_with(schedule, s, world); });
}

/// Why this program does not make what is asked for; empty: it does.
std::string not_made(settings const& s) {
#if defined(SYNTHETIC_FAMILY)
  constexpr bool family_is_here = true;
#else
  constexpr bool family_is_here = false;  // in the test's program, which is compiled sooner
#endif
  const made where = where_made(s.schedule);
  if (where != made::everywhere && (!family_is_here || s.backend == "mpi" || s.traced))
    return "--schedule " + s.schedule + " is made by bench_network_synthetic, over --backend gloo or solo, without --traced";
  if (s.every_micro_batch && s.schedule != "synchronous" && s.schedule != "synchronous+coded")
    return "--every-micro-batch is for --schedule synchronous and synchronous+coded, and that is " + s.schedule;
  if (s.ranks_a_group != 0 && (!family_is_here || s.backend != "gloo" || s.traced || !s.schedule.starts_with("synchronous")))
    return "--ranks-a-group is for bench_network_synthetic, --backend gloo and --schedule synchronous and synchronous+coded";
  if (s.exchange != "full" && where != made::locally) return "--exchange is for local updates, and --schedule is " + s.schedule;
  return "";
}

/// For programs that run this one, as bench/network/run.py does: of local updates also which of them wait for an
/// exchange.
void print_names() {
  using others = acco::together<shared_engine, acco::decorated_schedules>;
  for (const std::string_view name : acco::list_names<others>::all) std::cout << "schedule " << name << '\n';
  acco::for_each(acco::local_methods<>{}, [place = 0](auto const& local) mutable {
    std::cout << "local " << acco::list_names<acco::local_methods<>>::all[place++]
              << (local.method.settings().delay == 0 ? " waits" : "") << '\n';
  });
}

template <class World>
void run_over(settings const& s, World const& world) {
  acco::any_optimizer<float> training = make(s, world);
  settings larger = s;
  larger.parameters = 2 * s.parameters;
  const auto more = static_cast<double>(make(larger, world).memory().total() - training.memory().total());
  const double slope = more / static_cast<double>(layout_of(larger).size() - layout_of(s).size());
  const nlohmann::json result = measure(s, std::move(training), slope, world.rank(), world.size());
  if (world.rank() == 0) std::cout << result.dump() << std::endl;
}

template <class World>
void run(settings const& s, World const& world) {
  if (!s.traced) return run_over(s, world);
  acco::trace all(std::size_t{1} << 20U);
  run_over(s, acco::traced(world, all));
  if (all.size() == 0) throw std::runtime_error("the trace is empty");
}

acco::checksums checksums_of(settings const& s) {
  return s.checksums == "none"     ? acco::checksums::none
         : s.checksums == "always" ? acco::checksums::always
                                   : acco::checksums::long_links;
}
}  // namespace

int main(int count, char** words) {
  settings s;
  const std::vector<std::string> names(std::begin(acco::list_names<family>::all), std::end(acco::list_names<family>::all));
  CLI::App app{"A load of exact computation and exact traffic."};
  app.add_option("--backend", s.backend)->check(CLI::IsMember({"mpi", "gloo", "solo"}));
  app.add_option("--schedule", s.schedule)->check(CLI::IsMember(names));
  app.add_option("--progress", s.progress)->check(CLI::IsMember({"helper_thread", "poll", "none"}));
  app.add_option("--parameters", s.parameters);
  app.add_option("--layers", s.layers, "Of a GPT whose tensors the parameters are; 0: they are one tensor");
  app.add_flag("--traced", s.traced, "Every collective goes into a trace");
  app.add_option("--piece", s.piece_kib, "KiB");
  app.add_option("--checksums", s.checksums, "Of messages")->check(CLI::IsMember({"usual", "none", "always"}));
  app.add_option("--milliseconds", s.milliseconds, "Of arithmetic in a micro-batch");
  app.add_option("--unit", s.unit, "Of arithmetic, what a millisecond is: as a run before has printed; default: it is measured")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--micro-batches", s.first, "Of the first part of a step of two_phase; the others take all of a step");
  app.add_option("--second", s.second, "Of the second part, if not as many");
  app.add_flag("--auto-pace", s.auto_pace, "two_phase: split the step by measuring");
  app.add_flag("--elastic", s.elastic);
  app.add_flag("--every-micro-batch", s.every_micro_batch,
               "synchronous, with a round for every micro-batch; all those of a step count as one step")
      ->excludes("--auto-pace")
      ->excludes("--elastic");
  app.add_option("--local-steps", s.local_steps, "Of local updates, from one exchange to the next")->check(CLI::PositiveNumber);
  app.add_option("--exchange", s.exchange, "How the exchanges of local updates travel")
      ->check(CLI::IsMember({"full", "int8", "int4"}));
  app.add_option("--fragments", s.fragments, "Of streaming_diloco; they divide --local-steps");
  app.add_option("--ranks-a-group", s.ranks_a_group, "Two levels: groups of so many ranks; 0: one level")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slow-rank", s.slow_rank, "This rank computes everything twice");
  app.add_option("--steps", s.steps);
  app.add_option("--clip", s.clip);
  bool lists = false;
  app.add_flag("--list", lists, "Print the names of all schedules");
  CLI11_PARSE(app, count, words);
  if (lists) {
    print_names();
    return 0;
  }
  if (const std::string why = not_made(s); !why.empty()) return std::cerr << why << '\n', 1;
  if (s.backend == "solo") {
    try {
      run(s, acco::solo_backend{});
      return 0;
    } catch (std::exception const& e) {  // over a network the backend's `run` does so
      std::cerr << e.what() << '\n';
      return 1;
    }
  }
  if (s.backend == "gloo") {
    acco::gloo_options options{.deadline = 60};
    if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
    options.checksums = checksums_of(s);
    return acco::gloo_backend::run([&](acco::gloo_backend const& world) { run(s, world); }, options);
  }
  acco::mpi_options options;
  options.progress = s.progress == "poll"   ? acco::mpi_progress::poll
                     : s.progress == "none" ? acco::mpi_progress::none
                                            : acco::mpi_progress::helper_thread;
  if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
  options.checksums = checksums_of(s);
  return acco::mpi_backend::run(count, words, [&](acco::mpi_backend const& world) { run(s, world); }, options);
}
