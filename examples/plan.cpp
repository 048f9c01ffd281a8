// SPDX-License-Identifier: Apache-2.0
// acco_plan: which schedule for a link, with the speed, loss and memory to expect. docs/links.md shows it. With
// --measure it asks the link itself: over Gloo where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, else among
// threads.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/advice.hpp>
#ifdef ACCO_PLAN_GLOO
#include <acco/gloo.hpp>
#endif

namespace {

struct flags {
  acco::situation in = {.ranks = 0};
  double loss = 1, memory = 1e9;
  unsigned local_steps = 8;
  std::size_t run_steps = 0, run_skipped = 0;
  bool measures = false;
};

constexpr char usage[] =
    "acco_plan proposes a schedule, with the speed, loss and memory to expect (docs/links.md).\n\n"
    "  --compute SECONDS      that a rank computes for a step: all its micro-batches, nothing sent\n"
    "  --parameters COUNT     of the model: 124e6\n"
    "  --rate MBITS           that a rank can send while all others do, Mbit/s\n"
    "  --latency MS           from one rank to another, one way (0)\n"
    "  --ranks N\n"
    "  --measure              rate and seconds an exchange, in place of --rate and --latency: among the processes that a\n"
    "                         launcher has given RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; else among N threads\n"
    "  --micro-batches K      of a step (8)\n"
    "  --type float|bfloat16  of parameters and gradients (float); masters are float\n"
    "  --slots K              of the rule: 2 of AdamW, 1 of SGD and Lion (2)\n"
    "  --loss PERCENT         validation loss that may be paid (1)\n"
    "  --memory BYTES         a parameter and rank that may be taken\n"
    "  --jitter SHARE         standard deviation of a step's seconds, in units of their mean (0)\n"
    "  --seconds SECONDS      of every exchange, whatever it carries (0.019, see acco::network_link)\n"
    "  --table                what to take by the ratio of exchange and computation, in Markdown; no other flag counts\n"
    "  --local-steps H        of local updates, between two exchanges (8; losses are known of 8 only: others are never\n"
    "                         the line to take)\n"
    "  --run STEPS:SKIPPED    computing share as a run of so few steps shows it, the first SKIPPED not counted\n";

[[noreturn]] void refuse(std::string const& flag, std::string const& value, char const* wanted) {
  throw std::invalid_argument(flag + ": '" + value + "' is not " + wanted + ". acco_plan --help lists all flags");
}
[[noreturn]] void no_flag(std::string const& flag) {
  throw std::invalid_argument("there is no flag '" + flag + "'. acco_plan --help lists all");
}
double number(std::string const& flag, std::string const& value, bool may_be_zero) {
  char* end = nullptr;
  const double read = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !std::isfinite(read) || read < 0 || (read == 0 && !may_be_zero))
    refuse(flag, value, may_be_zero ? "a number, 0 or more" : "a number above 0");
  return read;
}
unsigned count(std::string const& flag, std::string const& value, unsigned least, unsigned most) {
  const double read = number(flag, value, least == 0);
  if (read != std::floor(read) || read < least || read > most)
    refuse(flag, value, ("a whole number from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
  return static_cast<unsigned>(read);
}

void read(flags& f, std::string const& flag, std::string const& value) {
  acco::situation& in = f.in;
  if (flag == "--compute") {
    in.computing.step_seconds = number(flag, value, false);
  } else if (flag == "--parameters") {
    in.training.parameters = number(flag, value, false);
  } else if (flag == "--rate") {
    in.joined_by.bytes_per_second = number(flag, value, false) * 125000;
  } else if (flag == "--latency") {
    in.joined_by.latency = number(flag, value, true) / 1000;
  } else if (flag == "--ranks") {
    in.ranks = count(flag, value, 1, 1000000);
  } else if (flag == "--micro-batches") {
    in.micro_batches = count(flag, value, 1, 1000000);
  } else if (flag == "--slots") {
    in.training.slots = count(flag, value, 0, 16);
  } else if (flag == "--loss") {
    f.loss = number(flag, value, true);
  } else if (flag == "--memory") {
    f.memory = number(flag, value, false);
  } else if (flag == "--jitter") {
    in.computing.jitter = number(flag, value, true);
  } else if (flag == "--seconds") {
    in.joined_by.exchange_seconds = number(flag, value, true);
  } else if (flag == "--local-steps") {
    f.local_steps = count(flag, value, 2, 100000);
  } else if (flag == "--type") {
    if (value != "float" && value != "bfloat16") refuse(flag, value, "float or bfloat16");
    in.training.parameter_bytes = in.training.gradient_bytes = value == "float" ? 4 : 2;
  } else if (flag == "--run") {
    const std::size_t colon = value.find(':');
    if (colon == std::string::npos) refuse(flag, value, "STEPS:SKIPPED");
    f.run_steps = count(flag, value.substr(0, colon), 1, 1000000);
    f.run_skipped = count(flag, value.substr(colon + 1), 0, 1000000);
    if (f.run_skipped >= f.run_steps) refuse(flag, value, "more steps than are skipped");
  } else {
    no_flag(flag);
  }
}

/// Two ranks that are alike, by M / C: seconds of an exchange of all in fp32 over those of a step's computation.
void print_table() {
  std::printf("| M / C | take | x synchronous | computing | loss | memory |\n|---|---|---|---|---|---|\n");
  for (const double ratio : {0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0}) {
    const acco::proposal p = acco::advise({.ranks = 2,
                                           .computing = {.step_seconds = 1},
                                           .joined_by = acco::link_of(ratio, 8, 2),
                                           .training = {.parameters = 1}})
                                 .front();
    std::printf("| %g | `%s` | %.2f | %.0f %% | %+.2f %% | %.1f |\n", ratio, p.code().c_str(), p.speed, 100 * p.utilisation,
                p.of.loss_percent, p.memory);
  }
}

flags parse(int arguments, char** words) {
  flags f;
  for (int k = 1; k < arguments; ++k) {
    const std::string flag = words[k];
    if (flag == "--help" || flag == "-h") {
      std::printf("%s", usage);
      std::exit(0);
    }
    if (flag == "--table") {
      print_table();
      std::exit(0);
    }
    if (flag == "--measure") {
      f.measures = true;
    } else {
      const std::size_t at = flag.find('=');
      if (std::string(usage).find("\n  " + flag.substr(0, at) + " ") == std::string::npos) no_flag(flag);
      if (at != std::string::npos)
        throw std::invalid_argument("give '" + flag + "' as " + std::string(flag).replace(at, 1, " ") +
                                    ". acco_plan --help lists all flags");
      if (k + 1 == arguments) throw std::invalid_argument(flag + " needs a value. acco_plan --help lists all flags");
      read(f, flag, words[++k]);
    }
  }
  const auto needed = [](char const* flag, bool given) {
    if (!given) throw std::invalid_argument(std::string(flag) + " is needed. acco_plan --help lists all flags");
  };
  needed("--compute", f.in.computing.step_seconds > 0);
  needed("--parameters", f.in.training.parameters > 0);
  if (f.measures) return f;
  needed("--ranks, or --measure,", f.in.ranks > 0);
  needed("--rate, or --measure,", f.in.ranks == 1 || f.in.joined_by.bytes_per_second > 0);
  return f;
}

/// Seconds of a round of `synchronous` that computes nothing, alike on all ranks: the shortest of eight, after one.
template <class World>
double exchange(World const& world, std::size_t parameters) {
  acco::optimizer training{acco::synchronous{},
                           acco::sgd{.learning_rate = 1e-6},
                           acco::host_storage<float>{},
                           world,
                           parameters,
                           acco::options{.check_habits = acco::habit_checks::off}};
  training.initialize(std::vector<float>(parameters, 0.0F));
  double shortest[] = {std::numeric_limits<double>::max()};
  for (int step = 0; step < 9; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    training.accumulated(1);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (step > 0) shortest[0] = std::min(shortest[0], seconds.count());
  }
  training.finish();
  training.sum_over_ranks(shortest);
  return shortest[0] / world.size();
}

/// The link as rounds of this library find it, the update included: few numbers tell what every exchange takes, many
/// the rate.
template <class World>
acco::network_link measured(World const& world) {
  const double few = exchange(world, 1000);
  for (std::size_t parameters = std::size_t{1} << 18U;; parameters *= 4) {
    const double many = exchange(world, parameters);
    if (many < 0.5 && many < 20 * few + 0.2 && parameters < (std::size_t{1} << 25U)) continue;
    return acco::link_of(many, 8.0 * static_cast<double>(parameters), static_cast<unsigned>(world.size()),
                         std::min(few, 0.9 * many));
  }
}

/// Losses of local updates were measured with this number of steps between exchanges.
bool has_known_loss(acco::way const& of) { return !of.is_local() || of.every == 8; }
/// Ways with the number of steps between exchanges that was asked for. A loss that is not known is above any limit.
std::vector<acco::way> ways_of(flags const& f) {
  std::vector<acco::way> ways(std::begin(acco::measured_ways), std::end(acco::measured_ways));
  for (acco::way& each : ways) {
    if (!each.is_local()) continue;
    each.every = f.local_steps;
    if (each.every % each.fragments != 0) each.fragments = 1;
    if (!has_known_loss(each)) each.loss_percent = std::numeric_limits<double>::max();
  }
  return ways;
}
std::string code_of(acco::proposal const& p) {
  std::string code = p.code();
  const auto set = [&](std::string const& from, std::string const& to) {
    if (const std::size_t at = code.find(from); at != std::string::npos) code.replace(at, from.size(), to);
  };
  if (!p.of.is_local()) return code;
  set(".steps = 8", ".steps = " + std::to_string(p.of.every));
  if (p.of.fragments == 1) set(", .fragments = 2", "");
  return code;
}

void print(flags const& f) {
  acco::situation const& in = f.in;
  const std::vector<acco::way> ways = ways_of(f);
  const std::vector<acco::proposal> all = acco::advise(in, ways, f.loss, f.memory);
  acco::proposal const& best =
      *std::find_if(all.begin(), all.end(), [](acco::proposal const& p) { return has_known_loss(p.of); });
  std::printf("%u rank%s, %.4g M parameters, a step of %u micro-batches computes for %.4g s\n", in.ranks,
              in.ranks == 1 ? "" : "s", in.training.parameters / 1e6, in.micro_batches, in.computing.step_seconds);
  if (in.ranks == 1) {
    std::printf("one rank exchanges nothing\n\n");
  } else {
    std::printf("%.4g Mbit/s%s: an exchange of all gradients and parameters takes %.4g s\n\n",
                in.joined_by.bytes_per_second / 125000, f.measures ? " measured" : "", acco::seconds_of(in, {}, {}));
  }
  std::printf("  %-36s %6s %10s %8s %10s %8s %8s\n", "schedule", "split", "step, s", "speed", "computing", "loss", "memory");
  for (acco::proposal const& p : all) {
    double computing = p.utilisation;
    if (f.run_steps > 0) {
      const std::vector<acco::timed_part> period = acco::period_of(p.of, in, p.second);
      const std::size_t parts = p.of.in_parts ? 2 : 1;
      computing = acco::simulate(in.computing, in.ranks, period, parts * f.run_steps, parts * f.run_skipped).utilisation();
    }
    const std::string split = p.second == 0 ? "" : std::to_string(p.first) + "+" + std::to_string(p.second);
    char loss[16] = "?";
    if (has_known_loss(p.of)) std::snprintf(loss, sizeof loss, "%+.2f %%", p.of.loss_percent);
    std::printf("%c %-36s %6s %10.4g %6.2f x %8.2f %% %8s %6.1f B\n", &p == &best ? '>' : ' ', p.of.name, split.c_str(),
                p.step_seconds, p.speed, 100 * computing, loss, p.memory);
  }
  if (best.of.loss_percent > f.loss || best.memory > f.memory)
    std::printf("\nnone is within --loss %g and --memory %g\n", f.loss, f.memory);
  if (best.utilisation < 0.5 && f.local_steps == 8)
    std::printf(
        "\n  ranks compute for less than half of the time: a higher --loss allows local updates, --local-steps 100 rarer "
        "exchanges\n");
  std::printf(
      "\n  speed: x synchronous; computing: share of the time; loss: over synchronous, of a small GPT; memory: a parameter\n");
  std::printf("  and rank\n\n%s\nusing namespace acco;\noptimizer training{%s, adamw{}, host_storage<%s>{}, world, layout};\n",
              best.of.is_local() ? "#include <acco/outer.hpp>" : "#include <acco/acco.hpp>", code_of(best).c_str(),
              in.training.parameter_bytes == 2 ? "bfloat16" : "float");
}

template <class World>
void measure_and_print(World const& world, flags f) {
  f.in.ranks = static_cast<unsigned>(world.size());
  if (f.in.ranks > 1) f.in.joined_by = measured(world);
  if (world.rank() == 0) print(f);
}

}  // namespace

int main(int arguments, char** words) {
  try {
    const flags f = parse(arguments, words);
    if (!f.measures) {
      print(f);
      return 0;
    }
    if (std::getenv("WORLD_SIZE") != nullptr) {
#ifdef ACCO_PLAN_GLOO
      return acco::gloo_backend::run([&](acco::gloo_backend const& world) { measure_and_print(world, f); });
#else
      throw std::runtime_error(
          "this program was built without Gloo, and WORLD_SIZE is set: install libgloo-dev, and build it again");
#endif
    }
    if (f.in.ranks == 0)
      throw std::invalid_argument("--measure among threads needs --ranks; processes need RANK, WORLD_SIZE ...");
    acco::threads_backend::run(static_cast<int>(f.in.ranks),
                               [&](acco::threads_backend const& world) { measure_and_print(world, f); });
  } catch (std::exception const& e) {
    std::fprintf(stderr, "acco_plan: %s\n", e.what());
    return 1;
  }
}
