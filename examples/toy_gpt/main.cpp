// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on real text with a schedule of your choice, on several ranks of this machine.
#include <fstream>
#include <iostream>
#include <variant>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <acco/acco.hpp>

#include "display.hpp"
#include "plot.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "train.hpp"

using toy_gpt::settings;
using toy_gpt::summary;

namespace {

settings parse(int count, char** words) {
  settings s;
  CLI::App app{"Trains a small GPT on real text with a sharded optimizer whose communication is hidden."};
  const std::vector<std::string> schedules = {"synchronous", "delayed", "two_phase", "weight_prediction"};
  std::string micro_batches = "1";
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a repeated flag: the last one counts
  app.add_option("--data", s.data, "Text file to learn; without it, the repository's own text")->check(CLI::ExistingFile);
  app.add_option("--ranks", s.ranks, "Ranks, each a thread with its own model")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--schedule", s.schedule, "When rounds happen and what they carry")
      ->check(CLI::IsMember(schedules))
      ->capture_default_str();
  app.add_option("--rule", s.rule, "Update rule")->check(CLI::IsMember({"adamw", "sgd", "lion"}))->capture_default_str();
  app.add_option("--samples", s.samples, "Sequences to train on, over all ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", s.batch, "Sequences of a micro-batch")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--context", s.model.context, "Bytes of a sequence")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--layers", s.model.layers, "Blocks of the model")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--width", s.model.width, "Width of the residual stream")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", s.model.heads, "Attention heads; must divide the width")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "Peak learning rate (default: adamw 3e-3, sgd 0.3, lion 3e-4)")
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", s.warmup, "Samples of linear warm-up; a cosine follows")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--micro-batches", micro_batches,
                 "K or K:K2: micro-batches in the first and second part of a step (schedules with one kind of round: K)")
      ->capture_default_str();
  app.add_flag("--elastic", s.elastic, "Go on accumulating while the network is busy, from K to 64 micro-batches");
  app.add_option("--clip", s.clip, "Largest gradient norm, 0 for none")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of weights and batches")->capture_default_str();
  app.add_option("--dtype", s.dtype, "Parameters and gradients; masters are always float")
      ->check(CLI::IsMember({"float", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--link", s.link_megabits, "Simulate a link of that many Mbit/s between the ranks")->check(CLI::PositiveNumber);
  app.add_option("--log", s.log, "Write one JSON object a round, and last a summary, to this file");
  app.add_option("--trace", s.trace, "Write a Chrome / Perfetto trace to this file");
  app.add_option("--compare", s.compare,
                 "Run these schedules one after the other with the same seed and, K + K2, the same samples a step")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check(CLI::IsMember(schedules));
  app.add_option("--plot", s.plot, "Draw loss against samples and seconds into this SVG file (needs gnuplot)");
  app.add_flag("--quiet", s.quiet, "Print the closing table only");
  try {
    app.parse(count, words);
    const std::size_t colon = micro_batches.find(':');
    const auto number = [](std::string const& text) {
      std::size_t used = 0;
      const unsigned long value = text.empty() || text.front() == '-' ? 0 : std::stoul(text, &used);
      if (value == 0 || value > 1000000 || used != text.size()) throw std::invalid_argument(text);
      return static_cast<unsigned>(value);
    };
    try {
      s.first = number(micro_batches.substr(0, colon));
      s.second = colon == std::string::npos ? 0 : number(micro_batches.substr(colon + 1));
    } catch (std::logic_error const&) {
      throw CLI::ValidationError("--micro-batches", "expected K or K:K2 with positive numbers, got " + micro_batches);
    }
    if (s.model.width % s.model.heads != 0) throw CLI::ValidationError("--heads", "the number of heads must divide the width");
    const bool synchronous = s.compare.empty() && s.schedule == "synchronous";
    if (s.elastic && synchronous)
      throw CLI::ValidationError("--elastic", "the synchronous schedule waits for every round: it has a fixed pace only");
  } catch (CLI::ParseError const& e) {
    std::exit(app.exit(e));
  }
  return s;
}

using any_rule = std::variant<acco::adamw, acco::sgd, acco::lion>;
using any_schedule = std::variant<acco::synchronous, acco::delayed<>, acco::two_phase<>, acco::weight_prediction<>,
                                  acco::delayed<acco::elastic_pace>, acco::two_phase<acco::elastic_pace>,
                                  acco::weight_prediction<acco::elastic_pace>>;
using any_storage = std::variant<acco::host_storage<float>, acco::host_storage<acco::bfloat16>>;

any_rule make_rule(settings const& s) {
  if (s.rule == "sgd") return acco::sgd{.learning_rate = s.rate(), .momentum = 0.9};
  if (s.rule == "lion") return acco::lion{.learning_rate = s.rate(), .weight_decay = 0.1};
  return acco::adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
}
any_storage make_storage(settings const& s) {
  if (s.dtype == "bfloat16") return acco::host_storage<acco::bfloat16>{};
  return acco::host_storage<float>{};
}
any_schedule make_schedule(settings const& s) {
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  const acco::elastic_pace elastic{.at_least = s.first, .at_most = std::max(64U, s.first)};
  if (s.schedule == "synchronous") return acco::synchronous{.pace = fixed};
  if (s.schedule == "delayed") return s.elastic ? any_schedule(acco::delayed{.pace = elastic}) : acco::delayed{.pace = fixed};
  if (s.schedule == "weight_prediction")
    return s.elastic ? any_schedule(acco::weight_prediction{.pace = elastic}) : acco::weight_prediction{.pace = fixed};
  return s.elastic ? any_schedule(acco::two_phase{.pace = elastic}) : acco::two_phase{.pace = fixed};
}

nlohmann::json to_json(acco::round_report const& r, double seconds) {
  return {{"round", r.round},
          {"kind", acco::label_of(r.plan)},
          {"committed", r.committed},
          {"step", r.step},
          {"samples", r.samples},
          {"seconds", seconds},
          {"loss", r.mean_loss},
          {"gradient_norm", r.gradient_norm},
          {"clip_scale", r.clip_scale},
          {"learning_rate_scale", r.learning_rate_scale},
          {"micro_batches", r.micro_batches},
          {"compute_seconds", r.compute_seconds},
          {"communication_seconds", r.communication_seconds},
          {"exposed_seconds", r.exposed_seconds},
          {"bytes_sent", r.bytes_sent}};
}
nlohmann::json to_json(summary const& r, settings const& s) {
  return {{"summary", true},
          {"schedule", r.schedule},
          {"rule", s.rule},
          {"dtype", s.dtype},
          {"seed", s.seed},
          {"ranks", s.ranks},
          {"parameters", r.parameters},
          {"steps", r.steps},
          {"samples", r.samples},
          {"seconds", r.seconds},
          {"train_loss", r.train_loss},
          {"validation_loss", r.validation_loss},
          {"samples_per_second", r.samples_per_second},
          {"hidden_fraction", r.hidden_fraction},
          {"bytes_sent", r.bytes_sent}};
}

std::ofstream open(std::string const& file) {
  std::ofstream out;
  if (!file.empty()) {
    out.open(file);
    if (!out) throw std::runtime_error("cannot write " + file);
  }
  return out;
}

/// Trains with one schedule on all ranks.
summary train(settings const& s, toy_gpt::corpus const& text, std::string const& source, std::ofstream& log, acco::trace* trace) {
  const toy_gpt::round_sink sink = s.log.empty() ? toy_gpt::round_sink() : [&log](acco::round_report const& r, double seconds) {
    log << to_json(r, seconds).dump() << '\n';
  };
  std::vector<summary> results(static_cast<std::size_t>(s.ranks));
  std::string sample;
  std::visit(
      [&](auto const& schedule, auto const& rule, auto const& storage) {
        acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
          const auto link =
              acco::rate_limited(world, {.bytes_per_second = s.link_megabits > 0 ? s.link_megabits * 125000 : 1e15});
          toy_gpt::train_rank(s, text, schedule, rule, storage, link, trace, sink, source,
                              results[static_cast<std::size_t>(world.rank())], sample);
        });
      },
      make_schedule(s), make_rule(s), make_storage(s));
  if (!s.log.empty()) log << to_json(results[0], s).dump() << '\n' << std::flush;
  if (!s.quiet) toy_gpt::print_sample(sample);
  return results[0];
}

int run(settings s) {
  toy_gpt::use_one_thread_for_products();
  if (!s.plot.empty()) toy_gpt::demand_gnuplot();
  const std::string source = s.data.empty() ? "this repository" : s.data;
  const toy_gpt::corpus text(s.data.empty() ? toy_gpt::repository_text(TOY_GPT_REPOSITORY) : toy_gpt::read_file(s.data),
                             s.model.context);
  std::ofstream log = open(s.log);
  std::ofstream trace_file = open(s.trace);
  std::optional<acco::trace> trace;
  if (!s.trace.empty()) trace.emplace(std::size_t{1} << 20U);

  std::vector<summary> runs;
  if (s.compare.empty()) s.compare = {s.schedule};
  for (std::string const& schedule : s.compare) {
    settings one = s;
    one.schedule = schedule;
    one.elastic = s.elastic && schedule != "synchronous";
    if (s.compare.size() > 1 && schedule != "two_phase")
      one.first += one.second != 0 ? one.second : one.first;  // the same samples a step
    runs.push_back(train(one, text, source, log, trace ? &*trace : nullptr));
    toy_gpt::print_result(runs.back(), text);
  }
  if (runs.size() > 1) toy_gpt::print_comparison(runs);
  if (trace) trace->write(trace_file);
  if (!s.plot.empty()) toy_gpt::plot(runs, s.plot);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(parse(count, words));
  } catch (std::exception const& e) {
    std::cerr << "toy_gpt: " << e.what() << '\n';
    return 1;
  }
}
