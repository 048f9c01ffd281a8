// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on real text with a schedule of your choice, on several ranks: threads of this process, or processes over a
// network.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <acco/number/finite.hpp>
#include <acco/observe/round_report.hpp>
#include <acco/observe/trace.hpp>
#ifdef TOY_GPT_CHECKPOINTS
#include <acco/checkpoint/folder.hpp>
#endif

#include "advice.hpp"
#include "interrupt.hpp"
#include "plot.hpp"
#include "programs.hpp"
#include "runner.hpp"
#include "screen.hpp"
#include "settings.hpp"
#include "text.hpp"

using toy_gpt::settings;
using toy_gpt::summary;

namespace {

/// Fills in what --save and --resume leave open. Throws where they cannot be meant.
void complete_checkpoints(settings& s, bool resumes) {
  if (s.save_every != 0 && s.save.empty()) throw CLI::ValidationError("--save-every", "name the folder: --save DIR");
  if (s.save_every == 0) s.save_every = 100;
  [[maybe_unused]] const bool goes_on_if_it_can =
      resumes && s.resume.empty();  // the same command begins a run, and takes it up again
  if (resumes && s.resume.empty()) s.resume = s.save;
  if (resumes && s.resume.empty()) throw CLI::ValidationError("--resume", "name the folder: --resume DIR, or --save DIR");
  if (s.save.empty() && !resumes) return;
#ifndef TOY_GPT_CHECKPOINTS
  throw CLI::ValidationError(resumes ? "--resume" : "--save",
                             "this program was built without checkpoints, which need nlohmann's JSON and xxHash "
                             "(nlohmann-json3-dev, libxxhash-dev): install them, and configure and build it again");
#else
  if (!s.compare.empty()) throw CLI::ValidationError("--compare", "checkpoints are of one run: leave --save and --resume out");
  std::error_code failed;
  if (goes_on_if_it_can && !acco::has_checkpoints(s.save)) {
    s.resume.clear();
    resumes = false;
  }
  if (resumes && !std::filesystem::is_directory(s.resume, failed))
    throw CLI::ValidationError("--resume", "there is no folder " + s.resume);
  if (s.save.empty()) return;
  std::filesystem::create_directories(s.save, failed);
  if (failed) throw CLI::ValidationError("--save", "cannot make the folder " + s.save + ": " + failed.message());
  if (acco::has_checkpoints(s.save) && !resumes) {
    throw CLI::ValidationError("--save", s.save +
                                             " has checkpoints of an earlier run: add --resume to go on with it, or name "
                                             "another folder");
  }
  toy_gpt::saves_when_stopped = true;
#endif
}

/// What is in toy_gpt_family is not made everywhere; and local updates have flags of their own.
void check_family(settings const& s) {
  std::vector<settings> each(std::max<std::size_t>(1, s.compare.size()), s);
  for (std::size_t k = 0; k < s.compare.size(); ++k) each[k].choose(s.compare[k]);
  bool local = false;
  for (settings const& one : each) {
    const bool plain = s.backend == "threads" && s.device != "cuda" && s.dtype == "float";
    if (s.rule == "muon" && (!toy_gpt::goes_with_muon(one.label()) || !plain))
      throw CLI::ValidationError("--rule",
                                 "muon is made on threads, in floats, whole, and under synchronous, delayed and two_phase only");
    const toy_gpt::words_of_wire commit = toy_gpt::wire_of(one.commit);
    const bool demo_ahead = one.schedule == "two_phase" && toy_gpt::is_code(toy_gpt::wire_of(one.estimate).gradients) &&
                            !toy_gpt::is_vote(commit.gradients) && !toy_gpt::is_published(one.commit);
    const bool plain_schedule = one.estimate == "full" && (one.schedule == "synchronous" || one.schedule == "delayed");
    const bool signs = s.rule == "signum" && one.any_codes() && (plain_schedule || demo_ahead);  // votes, and DeMo
    if (toy_gpt::is_published(one.commit) &&
        (!signs || !(commit.gradients == "dct16" || commit.gradients == "senders16") || !s.save.empty() || !s.resume.empty()))
      throw CLI::ValidationError("--commit",
                                 "of dct16/none and senders16/none: synchronous and delayed, with signum, no checkpoints");
    if (one.needs_family() && s.rule != "muon" && (!plain || (s.rule != "adamw" && !signs)))
      throw CLI::ValidationError("--schedule", one.label() + " is made on threads, in floats and with adamw only");
    if (s.galore_rank != 0 &&
        (!toy_gpt::goes_with_galore(one.wire_label()) || s.rule != "adamw" || !s.save.empty() || !s.resume.empty() || s.elastic))
      throw CLI::ValidationError("--galore",
                                 "is made under synchronous, two_phase and two_phase --estimate int4 only, with adamw, and keeps "
                                 "no checkpoints");
    if (one.any_codes() && (toy_gpt::is_decorated(one.schedule) || one.estimate == "own_corrected" || s.rule == "muon"))
      throw CLI::ValidationError("--commit", "codes are for synchronous, delayed, weight_prediction and two_phase, with adamw");
    if (one.any_codes() && !s.compare.empty())
      throw CLI::ValidationError("--compare", "codes of --estimate and --commit are for one schedule, not for several");
    if (one.needs_family() && !one.any_codes() && s.commit != "full")
      throw CLI::ValidationError("--commit", one.label() + " is made with whole commits only");
    if (one.schedule == "elastic" && (s.elastic || !s.save.empty() || !s.resume.empty()))
      throw CLI::ValidationError("--schedule", "elastic is two optimizers of a fixed pace, and keeps no checkpoints here");
    if (!toy_gpt::is_local(one.schedule)) continue;
    local = true;
    if (s.elastic) throw CLI::ValidationError("--elastic", one.label() + " has a fixed pace within a worker");
    if (!s.save.empty() || !s.resume.empty()) throw CLI::ValidationError("--save", "local updates keep no checkpoints");
    if (s.ranks % s.group != 0) throw CLI::ValidationError("--group", "must divide the ranks");
    if (one.schedule == "co2" && s.group != 1) throw CLI::ValidationError("--group", "co2 has one rank a worker");
    if (one.schedule == "streaming_diloco" && s.local_steps % 2 != 0 && s.local_steps % 3 != 0)
      throw CLI::ValidationError("--local-steps", "streaming_diloco cuts its steps into 3 or 2 fragments: give a multiple");
  }
  if (!local && (s.exchange != "full" || s.group != 1))
    throw CLI::ValidationError(s.group != 1 ? "--group" : "--exchange", s.label() + " has none: it is for local updates");
  for (settings const& one : each) {
    if (one.needs_family() && !toy_gpt::has_family)
      throw CLI::ValidationError("--schedule", toy_gpt::how_to_get_family(one.label()));
  }
}

/// RANK, RANK:EVERY or RANK:EVERY:SCALE.
void read_galore(std::string const& words, settings& s) {
  std::istringstream in(words + ":");  // so that every number ends
  const auto more = [&in] { return in.good() && in.peek() != std::istringstream::traits_type::eof(); };
  const auto read = [&in](auto& number) {
    char colon = 0;
    if (!(in >> number >> colon) || colon != ':') in.setstate(std::ios::failbit);
  };
  read(s.galore_rank);
  if (more()) read(s.galore_every);
  if (more()) read(s.galore_scale);
  if (!in || more() || words.find('-') == 0 || s.galore_rank == 0 || s.galore_every == 0 || !(s.galore_scale > 0))
    throw CLI::ValidationError("--galore", words + " is no RANK, RANK:EVERY or RANK:EVERY:SCALE, positive numbers");
}

/// One of these words, or codes: GRADIENTS/PARAMETERS, or one for both.
/// KEEP, KEEP:STORE or ef21.
void read_feedback(std::string const& words, settings& s) {
  s.feedback = 0;
  s.kept_as = words;
  if (words == "ef21") return;
  const std::size_t colon = words.find(':');
  s.kept_as = colon == std::string::npos ? "" : words.substr(colon + 1);
  const bool known = colon == std::string::npos ||
                     std::find(std::begin(toy_gpt::stores), std::end(toy_gpt::stores), s.kept_as) != std::end(toy_gpt::stores);
  if (!known || !CLI::detail::lexical_cast(words.substr(0, colon), s.feedback) || !(s.feedback >= 0 && s.feedback <= 1))
    throw CLI::ValidationError("--feedback", "is KEEP, 0 to 1, or KEEP:float32, KEEP:bfloat16, KEEP:int8, or ef21");
}

CLI::Validator words_of(std::vector<std::string> const& usual, bool may_be_own) {  // or else may be planned
  const auto check = [=](std::string const& word) -> std::string {
    if (std::find(usual.begin(), usual.end(), word) != usual.end()) return {};
    const toy_gpt::words_of_wire wire = toy_gpt::wire_of(word);
    const bool own = may_be_own ? wire.gradients == "own"
                                : toy_gpt::is_planned(wire.gradients) || toy_gpt::is_vote(wire.gradients) ||
                                      toy_gpt::rank_of_power(wire.gradients) != 0;
    if ((own || toy_gpt::is_code(wire.gradients)) && toy_gpt::is_code(wire.parameters)) return {};
    if (!may_be_own && toy_gpt::is_code(wire.gradients) && toy_gpt::is_published(word)) return {};
    std::string all;
    for (std::string_view const each : toy_gpt::codes) all += " " + std::string(each);
    return word + " is none of its words, and no GRADIENTS/PARAMETERS of" + all;
  };
  return {check, "WORD or GRADIENTS/PARAMETERS"};
}

settings parse(int count, char** words) {
  settings s;
  CLI::App app{"Trains a small GPT on real text with a sharded optimizer whose communication is hidden."};
  std::vector<std::string> schedules;  // of the labels, those without anything about how they travel
  for (std::string_view const label : toy_gpt::labels) {
    if (label.find('+') == std::string_view::npos) schedules.emplace_back(label);
  }
  std::string micro_batches = "1";
  toy_gpt::place const& usual = *toy_gpt::find_place("", "");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a repeated flag: the last one counts
  app.add_option("--data", s.data, "Text file to learn; without it, the repository's own text")->check(CLI::ExistingFile);
  app.add_option(
         "--backend", s.backend,
         "threads: ranks are threads of this process; mpi, gloo, nccl: this process is one rank, started by mpirun, or with "
         "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment. Networks have programs of their own: toy_gpt_mpi ...")
      ->check(CLI::IsMember({"threads", "mpi", "gloo", "nccl"}))
      ->default_str(usual.backend);
  app.add_option("--device", s.device,
                 "Where model and optimizer are: cpu, or cuda with --backend threads or nccl (toy_gpt_cuda)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->default_str(usual.device);
  app.add_flag("--nvtx", s.nvtx, "With --device cuda: name micro-batches and rounds for NVIDIA's profilers");
  app.add_option("--progress", s.progress, "Who makes MPI progress while the model computes")
      ->check(CLI::IsMember({"helper_thread", "poll", "none"}))
      ->capture_default_str();
  app.add_option("--piece", s.piece_kib, "KiB of a rank's part that travel as one over mpi or gloo (default: the backend's)")
      ->check(CLI::PositiveNumber);
  app.add_option("--deadline", s.deadline, "Seconds that any rank waits for another")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--slow-rank", s.slow_rank, "This rank computes every micro-batch twice: a slower machine")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", s.ranks, "Ranks as threads, each with its own model")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--schedule", s.schedule, "When rounds happen and what they carry")
      ->check(CLI::IsMember(schedules))
      ->capture_default_str();
  app.add_option("--rule", s.rule, "Update rule")
      ->check(CLI::IsMember({"adamw", "sgd", "lion", "signum", "muon"}))
      ->capture_default_str();
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
  const CLI::Validator above_zero(
      [](std::string const& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good = end != text.c_str() && *end == '\0' && acco::is_finite(value) && value > 0;
        return good ? "" : text + " is no finite number above 0";
      },
      "ABOVE 0");
  app.add_option("--learning-rate", s.learning_rate,
                 "Peak learning rate (default: adamw and muon 3e-3, sgd 0.3, lion and signum 3e-4)")
      ->check(above_zero);
  app.add_option("--warmup", s.warmup, "Samples of linear warm-up; a cosine follows")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--micro-batches", micro_batches,
                 "K or K:K2: micro-batches in the first and second part of a step (schedules with one kind of round: K)")
      ->capture_default_str();
  app.add_option("--estimate", s.estimate,
                 "How two_phase's estimates travel: the whole numbers, or 8 or 4 bits each; own: parameters only, each owner "
                 "predicts from its own gradients; own_corrected: from these and the others' of the last step; or "
                 "GRADIENTS/PARAMETERS, as of --commit: own/gauss3, say")
      ->check(words_of({"full", "int8", "int4", "own", "own_corrected"}, true))
      ->capture_default_str();
  app.add_option(
         "--commit", s.commit,
         "How commits travel: the whole numbers; coded: gradients in 8 bits and parameters as differences in 4; or "
         "GRADIENTS/PARAMETERS, of float32, bfloat16, int8, int4, gauss4, gauss3, gauss2, rotated3, rotated2, ternary, "
         "top16, top32, sign, random32, dct16, senders16; auto/PARAMETERS: each stretch of gradients in the code with the fewest "
         "bytes within --budget; vote/PARAMETERS: signs, of which the majority counts, with --rule signum; "
         "dct16/none, senders16/none: DeMo as published, nothing travels back, with --rule signum "
         "(toy_gpt_family)")
      ->check(words_of({"full", "coded"}, false))
      ->capture_default_str();
  CLI::Option const* const feedback = app.add_option_function<std::string>(
      "--feedback", [&s](std::string const& given) { read_feedback(given, s); },
      "Of --commit GRADIENTS/PARAMETERS: what a rank keeps of what its codes have lost, and sends later: 1 for error "
      "feedback, 0.9, say, for a momentum of its own, 0 for none. KEEP:float32, KEEP:bfloat16, KEEP:int8: in what it is "
      "kept; ef21: ranks send what estimates of their gradients lack (toy_gpt_family)");
  CLI::Option const* const budget =
      app.add_option("--budget", s.budget, "Of --commit auto/PARAMETERS: the part of the gradients' squares that codes may lose")
          ->check(CLI::Range(0.0, 1.0))
          ->capture_default_str();
  app.add_option("--local-steps", s.local_steps, "Of local updates (local_sgd ... co2): steps from one exchange to the next")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--group", s.group, "Of local updates: ranks that train together, synchronously")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--exchange", s.exchange, "How exchanges of local updates travel: the whole numbers, or 8 or 4 bits each")
      ->check(CLI::IsMember({"full", "int8", "int4"}))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--galore", [&s](std::string const& given) { read_galore(given, s); },
      "RANK, RANK:EVERY or RANK:EVERY:SCALE: matrices of the blocks are trained in bases of RANK directions of their gradients, "
      "renewed every EVERY steps (200); their updates count SCALE times (0.25). Under synchronous and two_phase "
      "(toy_gpt_family)");
  app.add_flag("--auto-pace", s.auto_pace, "Split the K + K2 micro-batches of two_phase's steps by measuring what hides most");
  app.add_flag("--elastic", s.elastic, "Go on accumulating while the network is busy, from K to 64 micro-batches");
  app.add_option("--clip", s.clip, "Largest gradient norm, 0 for none")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--validations", s.validations, "How often to validate, the last time at the end")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of weights and batches")->capture_default_str();
  app.add_option("--dtype", s.dtype, "Parameters and gradients; masters are always float")
      ->check(CLI::IsMember({"float", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--link", s.link_megabits, "Simulate a link of that many Mbit/s between the ranks")->check(above_zero);
  app.add_option("--log", s.log, "Write one JSON object a round, and last a summary, to this file");
  app.add_option("--trace", s.trace, "Write a Chrome / Perfetto trace to this file");
  app.add_option("--save", s.save, "Keep checkpoints in this folder: the last two, and one at the end or at Ctrl-C");
  app.add_option("--save-every", s.save_every, "Steps between two checkpoints (default: 100)")
      ->check(CLI::Range(1U, 1000000000U));
  CLI::Option const* const resume =
      app.add_option("--resume", s.resume,
                     "Go on from the newest checkpoint of this folder, or from this one; without a name that of --save, where a "
                     "run begins if there is none yet")
          ->expected(0, 1);
  app.add_option("--compare", s.compare,
                 "Run these schedules one after the other with the same seed and, K + K2, the same samples a step; "
                 "two_phase+int4 is two_phase with --estimate int4, delayed+coded is delayed with --commit coded")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(toy_gpt::labels), std::end(toy_gpt::labels))));
  app.add_option("--plot", s.plot, "Draw loss against samples and seconds into this SVG file (needs gnuplot)");
  CLI::Option const* const advises =
      app.add_flag("--advise", s.advise,
                   "Measure a few steps of synchronous with the K + K2 micro-batches, tell what each schedule would make of this "
                   "link, and train no further");
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
    complete(s);
    complete_checkpoints(s, resume->count() > 0);
    if (advises->count() != 0 && (!s.compare.empty() || !s.save.empty() || !s.resume.empty() || !s.log.empty() ||
                                  !s.trace.empty() || !s.plot.empty() || s.elastic || s.quiet))
      throw CLI::ValidationError(
          "--advise",
          "it trains nothing that could be compared, kept or drawn: name ranks, model, batch, micro-batches and the link only");
    if (s.link_megabits > 0 && s.backend != "threads")
      throw CLI::ValidationError("--link", "a link is simulated between threads only: " + s.backend + " uses a real one");
    if ((s.device == "cuda") != (s.backend == "nccl") && s.backend != "threads")
      throw CLI::ValidationError("--device", "on cuda the backend is threads or nccl, and nccl needs --device cuda");
    if (s.link_megabits > 0 && s.device == "cuda") throw CLI::ValidationError("--link", "a link is simulated on the cpu only");
    const bool synchronous = s.compare.empty() && s.schedule == "synchronous";
    if (s.elastic && synchronous)
      throw CLI::ValidationError("--elastic", "the synchronous schedule waits for every round: it has a fixed pace only");
    if (s.estimate != "full" && s.compare.empty() && s.schedule != "two_phase")
      throw CLI::ValidationError("--estimate", s.schedule + " has no estimates: they are what two_phase has");
    if (s.commit != "full" && s.schedule == "two_phase" && s.estimate == "full") s.estimate = "int4";
    const std::string_view committed = toy_gpt::wire_of(s.commit).gradients;
    if (toy_gpt::is_vote(committed) && (s.rule != "signum" || s.schedule != "synchronous" || s.feedback != 0))
      throw CLI::ValidationError("--commit", "votes are for --schedule synchronous --rule signum, without --feedback");
    if (toy_gpt::rank_of_power(committed) != 0 && ((s.schedule != "synchronous" && s.schedule != "delayed") || s.feedback != 0))
      throw CLI::ValidationError("--commit",
                                 "power is for --schedule synchronous and delayed, and feeds back without --feedback");
    if (toy_gpt::is_biased(committed) && feedback->count() == 0) {
      throw CLI::ValidationError(
          "--commit", "what " + std::string(committed) + " loses of gradients adds up: say --feedback 1, or 0 for none");
    }
    if (budget->count() != 0 && !toy_gpt::is_planned(committed))
      throw CLI::ValidationError("--budget", "is for --commit auto/PARAMETERS: --commit auto/int4, say");
    if (!s.kept_as.empty() &&
        (!toy_gpt::is_with_feedback(committed) || !toy_gpt::is_with_feedback(toy_gpt::wire_of(s.commit).parameters) ||
         (s.schedule != "synchronous" && s.schedule != "delayed") || s.rule != "adamw"))
      throw CLI::ValidationError("--feedback",
                                 "KEEP:STORE and ef21 are for synchronous and delayed, with adamw, and --commit of "
                                 "int8, int4, gauss3, gauss2, ternary, top16");
    check_family(s);
    if ((s.feedback != 0 || !s.kept_as.empty()) && (s.commit == "full" || s.commit == "coded"))
      throw CLI::ValidationError("--feedback", "is for --commit GRADIENTS/PARAMETERS: --commit gauss2/ternary, say");
    if (!s.any_codes() && s.commit != "full" && s.estimate != "full" && s.estimate != "int4")
      throw CLI::ValidationError("--estimate", "beside --commit coded this example's estimates travel in 4 bits: int4");
    if (s.auto_pace && s.elastic) throw CLI::ValidationError("--auto-pace", "--elastic has no fixed split to find");
    if (s.auto_pace && s.compare.empty() && s.schedule != "two_phase")
      throw CLI::ValidationError("--auto-pace", "it splits the steps of two_phase; " + s.schedule + " has one kind of round");
  } catch (CLI::ParseError const& e) {
    std::exit(app.exit(e));
  }
  return s;
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
          {"first", r.first},
          {"second", r.second},
          {"compute_seconds", r.compute_seconds},
          {"communication_seconds", r.communication_seconds},
          {"exposed_seconds", r.exposed_seconds},
          {"bytes_sent", r.bytes_sent},
          {"progress", r.progress}};
}
nlohmann::json points(std::vector<toy_gpt::point> const& curve) {
  nlohmann::json all = nlohmann::json::array();
  for (toy_gpt::point const& p : curve) all.push_back({p.samples, p.seconds, p.loss});
  return all;
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
          {"stopped", r.stopped},
          {"seconds", r.seconds},
          {"train_loss", r.train_loss},
          {"validation_loss", r.validation_loss},
          {"samples_per_second", r.samples_per_second},
          {"hidden_fraction", r.hidden_fraction},
          {"bytes_sent", r.bytes_sent},
          {"memory_bytes", r.memory_bytes},
          {"backend", s.backend},
          {"first", r.first},
          {"second", r.second},
          {"progress", r.progress},
          {"rounds", r.rounds},
          {"compute_seconds", r.compute_seconds},
          {"communication_seconds", r.communication_seconds},
          {"exposed_seconds", r.exposed_seconds},
          {"validation", points(r.validation)}};
}

std::ofstream open(std::string const& file, std::ios::openmode mode = std::ios::out) {
  std::ofstream out;
  if (!file.empty()) {
    out.open(file, mode);
    if (!out) throw std::runtime_error("cannot write " + file);
  }
  return out;
}

/// Leaves only the rounds before this one in a log: a run that goes on from a checkpoint brings the others again.
void drop_rounds_since(std::size_t round, std::string const& file) {
  std::vector<std::string> kept;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    auto const j = nlohmann::json::parse(line, nullptr, false);  // the last one may be cut short
    if (j.is_object() && j.contains("round") && j["round"].get<std::size_t>() < round) kept.push_back(line);
  }
  std::ofstream out(file + ".new");
  for (std::string const& line : kept) out << line << '\n';
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file + ".new");
  std::filesystem::rename(file + ".new", file);
}

/// Returns the exit status.
int run(settings s, toy_gpt::runner& ranks) {
  const bool speaks = ranks.first_rank() == 0;
  s.ranks = ranks.size();
  s.quiet = s.quiet || !speaks;
  if (!s.plot.empty() && speaks) toy_gpt::demand_gnuplot();
  const std::string source = s.data.empty() ? "this repository" : s.data;
  const toy_gpt::corpus text(s.data.empty() ? toy_gpt::repository_text(TOY_GPT_REPOSITORY) : toy_gpt::read_file(s.data),
                             s.model.context);
  if (s.advise) return toy_gpt::advise(s, ranks, text, source), 0;
  std::ofstream log = open(speaks ? s.log : "", s.resume.empty() ? std::ios::out : std::ios::app);
  std::ofstream trace_file = open(s.trace.empty() || speaks ? s.trace : s.trace + ".rank" + std::to_string(ranks.first_rank()));
  std::optional<acco::trace> trace;
  if (!s.trace.empty()) trace.emplace(std::size_t{1} << 20U);

  std::vector<summary> runs;
  const bool compares = s.compare.size() > 1, same_step = !s.compare.empty();
  if (s.compare.empty()) s.compare = {s.label()};
  std::string sample;
  for (std::string const& schedule : s.compare) {
    settings one = s;
    if (same_step) one.choose(schedule);
    one.elastic = s.elastic && one.schedule != "synchronous";
    if (same_step && one.schedule != "two_phase")
      one.first += one.second != 0 ? one.second : one.first;  // the same samples a step
    toy_gpt::job job{one, text, source, trace ? &*trace : nullptr, {}, {}, {}, {}};
    auto go_on_log = [&log, &s, due = !s.resume.empty()](std::size_t round) mutable {
      if (!std::exchange(due, false)) return;
      log.close();
      drop_rounds_since(round, s.log);
      log = open(s.log, std::ios::app);
    };
    if (log.is_open()) {
      job.sink = [&](acco::round_report const& r, double seconds) {
        go_on_log(r.round);
        log << to_json(r, seconds).dump() << '\n';
        if (!s.save.empty()) log.flush();  // a run that is killed leaves what it has told
      };
    }
    ranks.train(job);
    runs.push_back(job.result);
    sample = job.sample;
    if (log.is_open()) go_on_log(std::numeric_limits<std::size_t>::max());  // nothing was left to be trained
    if (log.is_open()) log << to_json(job.result, one).dump() << '\n' << std::flush;
    if (job.result.stopped) break;  // on all ranks
  }
  if (trace) {
    trace->write(trace_file);
    trace_file.close();
  }
  if (speaks) {
    if (!s.plot.empty()) toy_gpt::plot(runs, s.plot);
    if (compares) {
      toy_gpt::print_comparison(runs, s, text);
    } else {
      if (!s.quiet) toy_gpt::print_sample(sample);
      if (!s.quiet) toy_gpt::print_curve(runs.back(), text);
      toy_gpt::print_result(runs.back(), s, text);
    }
    if (!s.quiet) toy_gpt::print_files(s);
  }
  if (!runs.back().stopped) return 0;
  const int signal = toy_gpt::stop_signal;
  return 128 + (signal != 0 ? signal : SIGINT);  // 0: another rank was asked to stop
}

}  // namespace

int main(int count, char** words) {
  toy_gpt::stop_on_signals();
  std::unique_ptr<toy_gpt::runner> ranks;
  try {
    const settings s = parse(count, words);
    ranks = toy_gpt::make_runner(s, count, words);
    return run(s, *ranks);
  } catch (std::exception const& e) {
    std::cerr << "toy_gpt: " << e.what() << '\n' << std::flush;
    if (ranks) ranks->give_up();
    return 1;
  }
}
