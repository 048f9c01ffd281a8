// SPDX-License-Identifier: Apache-2.0
// The command line: its flags, what they leave open, what does not go together, and which program has what is asked
// for.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include <acco/number/finite.hpp>
#include <acco/outer.hpp>
#include <acco/rule/all.hpp>
#ifdef TOY_GPT_CHECKPOINTS
#include <acco/checkpoint/folder.hpp>
#endif

#include "interrupt.hpp"
#include "programs.hpp"
#include "runner.hpp"
#include "schedules.hpp"
#include "settings.hpp"

namespace toy_gpt {

std::vector<std::string> const& labels() {
  static const std::vector<std::string> all = [] {
    using made = acco::together<shared_engine, of_family, acco::local_methods<>>;
    std::vector<std::string> names(std::begin(acco::list_names<made>::all), std::end(acco::list_names<made>::all));
    names.emplace_back("elastic");
    return names;
  }();
  return all;
}
bool is_decorated(std::string_view label) {
  return label == "elastic" || acco::find_name(of_family{}, label) != of_family::count;
}
bool is_local(std::string_view schedule) {
  using methods = acco::local_methods<>;
  return acco::find_name(methods{}, schedule.substr(0, schedule.find('+'))) != methods::count;
}
bool goes_with_muon(std::string_view label) { return acco::find_name(with_muon{}, label) != with_muon::count; }

std::vector<settings> runs_of(settings const& s) {
  if (s.compare.empty()) return {s};
  std::vector<settings> runs;
  for (std::string const& schedule : s.compare) {
    settings one = s;
    one.choose(schedule);
    one.elastic = s.elastic && one.schedule != "synchronous";
    if (one.schedule != "two_phase") one.first += one.second != 0 ? one.second : one.first;  // the same samples a step
    runs.push_back(one);
  }
  return runs;
}

namespace {

/// Of acco's rules, and muon, which updates matrices.
std::vector<std::string> rules() {
  std::vector<std::string> names(std::begin(acco::list_names<acco::all_rules>::all),
                                 std::end(acco::list_names<acco::all_rules>::all));
  names.emplace_back("muon");
  return names;
}
/// For programs that run this one, as bench/quality/run.py and cmake/demo.cmake do.
void print_names() {
  for (std::string const& label : labels()) std::cout << (is_local(label) ? "local " : "schedule ") << label << '\n';
  for (std::string const& rule : rules()) std::cout << "rule " << rule << '\n';
}

void print_program(settings const& s) {
  const std::vector<settings> runs = runs_of(s);
  const bool of_family = std::any_of(runs.begin(), runs.end(), [](settings const& one) { return one.needs_family(); });
  std::cout << (of_family ? "toy_gpt_family\n" : "toy_gpt\n");
}

/// What `s` asks for, the program that has it, what that needs, and how it is built and started.
std::string how_to_get(settings const& s) {
  const std::string kind = s.device == "cuda" ? "cuda" : s.backend;
  const std::string target = "toy_gpt_" + kind;
  struct {
    char const *asked, *is, *needs, *start;
  } words{"--device cuda", "training on NVIDIA GPUs is", "the CUDA toolkit, 12 or newer", ""};
  if (kind == "mpi")
    words = {"--backend mpi", "ranks as processes that mpirun starts are", "MPI (libopenmpi-dev or libmpich-dev)",
             "mpirun -n 2 "};
  if (kind == "gloo") {
    words = {"--backend gloo", "ranks as processes joined by Gloo are", "Gloo (libgloo-dev)",
             "(once a rank) RANK=0 WORLD_SIZE=2 MASTER_ADDR=HOST_OF_RANK_0 MASTER_PORT=29500 "};
  }
  const bool found = std::string_view(" " TOY_GPT_FOUND " ").find(" " + kind + " ") != std::string_view::npos;
  return words.asked + (": " + std::string(words.is)) + " the work of another program, " + target + ", which needs " +
         words.needs + (found ? "." : ", not found when this build was configured.") +
         "\n  build it:  " + (found ? "" : "cmake " TOY_GPT_BUILD " && ") + "cmake --build " TOY_GPT_BUILD " --target " + target +
         "\n  start it:  " + words.start + TOY_GPT_PROGRAMS "/" + target;
}

/// CLI11's own words for these name the ends of the range, of which one has 300 digits.
CLI::Validator number_where(bool (*is_good)(double), char const* wanted, char const* name) {
  return {[is_good, wanted](std::string const& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool good = end != text.c_str() && *end == '\0' && acco::is_finite(value) && is_good(value);
            return good ? "" : text + " is no finite number" + wanted;
          },
          name};
}
const CLI::Validator above_zero = number_where([](double value) { return value > 0; }, " above 0", "ABOVE 0");
const CLI::Validator not_negative = number_where([](double value) { return value >= 0; }, ", 0 or more", "0 OR MORE");

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
  saves_when_stopped = true;
#endif
}

/// What is in toy_gpt_family is not made everywhere; and local updates have flags of their own.
void check_family(settings const& s) {
  const std::vector<settings> each = runs_of(s);
  bool local = false;
  for (settings const& one : each) {
    const bool plain = s.backend == family_backend && s.device != "cuda" && s.dtype == "float";
    if (s.rule == "muon" && (!goes_with_muon(one.label()) || !plain))
      throw CLI::ValidationError("--rule",
                                 "muon is made on threads, in floats, whole, and under synchronous, delayed and two_phase only");
    if (one.needs_family() && s.rule != "muon" && (!plain || s.rule != "adamw"))
      throw CLI::ValidationError("--schedule", one.label() + " is made on threads, in floats and with adamw only");
    const bool has_feedback = one.commit == "feedback" && is_decorated(one.label());
    if (one.needs_family() && s.commit != "full" && !has_feedback)
      throw CLI::ValidationError("--commit", one.label() + " is made with whole commits only");
    if (one.schedule == "elastic" && (s.elastic || !s.save.empty() || !s.resume.empty()))
      throw CLI::ValidationError("--schedule", "elastic is two optimizers of a fixed pace, and keeps no checkpoints here");
    if (!is_local(one.schedule)) continue;
    local = true;
    if (s.elastic) throw CLI::ValidationError("--elastic", one.label() + " has a fixed pace within a worker");
    if (s.ranks % s.group != 0) throw CLI::ValidationError("--group", "must divide the ranks");
    if (one.schedule == "co2" && s.group != 1) throw CLI::ValidationError("--group", "co2 has one rank a worker");
    if (one.schedule == "streaming_diloco" && s.local_steps % 2 != 0 && s.local_steps % 3 != 0)
      throw CLI::ValidationError("--local-steps", "streaming_diloco cuts its steps into 3 or 2 fragments: give a multiple");
  }
  if (!local && (s.exchange != "full" || s.group != 1))
    throw CLI::ValidationError(s.group != 1 ? "--group" : "--exchange", s.label() + " has none: it is for local updates");
  for (settings const& one : each) {
    if (one.needs_family() && !has_family) throw CLI::ValidationError("--schedule", how_to_get_family(one.label()));
  }
}

/// Where ranks are, and what is between them.
void add_places(CLI::App& app, settings& s) {
  place const& usual = *find_place("", "");
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
      ->check(above_zero);
  app.add_option("--deadline", s.deadline, "Seconds that any rank waits for another")->check(above_zero)->capture_default_str();
  app.add_option("--slow-rank", s.slow_rank, "This rank computes every micro-batch twice: a slower machine")->check(not_negative);
  app.add_option("--ranks", s.ranks, "Ranks as threads, each with its own model")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--link", s.link_megabits, "Simulate a link of that many Mbit/s between the ranks")->check(above_zero);
}

/// What is trained, on what, for how long.
void add_model(CLI::App& app, settings& s) {
  app.add_option("--samples", s.samples, "Sequences to train on, over all ranks")->check(above_zero)->capture_default_str();
  app.add_option("--batch", s.batch, "Sequences of a micro-batch")->check(above_zero)->capture_default_str();
  app.add_option("--context", s.model.context, "Bytes of a sequence")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--layers", s.model.layers, "Blocks of the model")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--width", s.model.width, "Width of the residual stream")->check(above_zero)->capture_default_str();
  app.add_option("--heads", s.model.heads, "Attention heads; must divide the width")->check(above_zero)->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "Peak learning rate (default: adamw and muon 3e-3, sgd 0.3, lion 3e-4)")
      ->check(above_zero);
  app.add_option("--warmup", s.warmup, "Samples of linear warm-up; a cosine follows")->check(not_negative)->capture_default_str();
  app.add_option("--rule", s.rule, "Update rule")->check(CLI::IsMember(rules()))->capture_default_str();
  app.add_option("--clip", s.clip, "Largest gradient norm, 0 for none")->check(not_negative)->capture_default_str();
  app.add_option("--validations", s.validations, "How often to validate, the last time at the end")
      ->check(above_zero)
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of weights and batches")->capture_default_str();
  app.add_option("--dtype", s.dtype, "Parameters and gradients; masters are always float")
      ->check(CLI::IsMember({"float", "bfloat16"}))
      ->capture_default_str();
}

/// When rounds happen, and how they travel.
void add_schedule(CLI::App& app, settings& s, std::string& micro_batches) {
  std::vector<std::string> schedules;  // of the labels, those without anything about how they travel
  for (std::string const& label : labels()) {
    if (label.find('+') == std::string::npos) schedules.push_back(label);
  }
  schedules.emplace_back("auto");
  app.add_option("--schedule", s.schedule,
                 "When rounds happen and what they carry; auto: what some steps of synchronous, measured first, call for")
      ->check(CLI::IsMember(schedules))
      ->capture_default_str();
  app.add_option("--micro-batches", micro_batches,
                 "K or K:K2: micro-batches in the first and second part of a step (schedules with one kind of round: K)")
      ->capture_default_str();
  app.add_option("--estimate", s.estimate,
                 "How two_phase's estimates travel: the whole numbers, or 8 or 4 bits each; own: parameters only, each owner "
                 "predicts from its own gradients; own_corrected: from these and the others' of the last step")
      ->check(CLI::IsMember({"full", "int8", "int4", "own", "own_corrected"}))
      ->capture_default_str();
  app.add_option(
         "--commit", s.commit,
         "How commits travel: the whole numbers; gradients in 4 bits and parameters as differences in 3 (coded); or both in "
         "4 bits, gradients with error feedback (feedback: toy_gpt_family)")
      ->check(CLI::IsMember({"full", "coded", "feedback"}))
      ->capture_default_str();
  app.add_option("--local-steps", s.local_steps, "Of local updates (local_sgd ... co2): steps from one exchange to the next")
      ->check(above_zero)
      ->capture_default_str();
  app.add_option("--group", s.group, "Of local updates: ranks that train together, synchronously")
      ->check(above_zero)
      ->capture_default_str();
  app.add_option("--exchange", s.exchange, "How exchanges of local updates travel: the whole numbers, or 8 or 4 bits each")
      ->check(CLI::IsMember({"full", "int8", "int4"}))
      ->capture_default_str();
  app.add_flag("--auto-pace", s.auto_pace, "Split the K + K2 micro-batches of two_phase's steps by measuring what hides most");
  app.add_flag("--elastic", s.elastic, "Go on accumulating while the network is busy, from K to 64 micro-batches");
  app.add_option("--compare", s.compare,
                 "Run these schedules one after the other with the same seed and, K + K2, the same samples a step; "
                 "two_phase+int4 is two_phase with --estimate int4, delayed+coded is delayed with --commit coded")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check(CLI::IsMember(labels()));
}

/// What a run leaves behind. Returns the flag --resume.
CLI::Option const* add_files(CLI::App& app, settings& s) {
  app.add_option("--log", s.log, "Write one JSON object a round, and last a summary, to this file");
  app.add_option("--trace", s.trace, "Write a Chrome / Perfetto trace to this file");
  app.add_option("--save", s.save, "Keep checkpoints in this folder: the last two, and one at the end or at Ctrl-C");
  app.add_option("--save-every", s.save_every, "Steps between two checkpoints (default: 100)")
      ->check(CLI::Range(1U, 1000000000U));
  app.add_option("--plot", s.plot, "Draw loss against samples and seconds into this SVG file (needs gnuplot)");
  app.add_flag("--quiet", s.quiet, "Print the closing table only");
  return app
      .add_option("--resume", s.resume,
                  "Go on from the newest checkpoint of this folder, or from this one; without a name that of --save, where a "
                  "run begins if there is none yet")
      ->expected(0, 1);
}

/// K or K:K2.
void read_micro_batches(settings& s, std::string const& text) {
  const auto number = [](std::string const& digits) {
    std::size_t used = 0;
    const unsigned long value = digits.empty() || digits.front() == '-' ? 0 : std::stoul(digits, &used);
    if (value == 0 || value > 1000000 || used != digits.size()) throw std::invalid_argument(digits);
    return static_cast<unsigned>(value);
  };
  const std::size_t colon = text.find(':');
  try {
    s.first = number(text.substr(0, colon));
    s.second = colon == std::string::npos ? 0 : number(text.substr(colon + 1));
  } catch (std::logic_error const&) {
    throw CLI::ValidationError("--micro-batches", "expected K or K:K2 with positive numbers, got " + text);
  }
}

/// Throws where flags do not go together; fills in what one says about another.
void check(settings& s) {
  if (s.link_megabits > 0 && s.backend != "threads")
    throw CLI::ValidationError("--link", "a link is simulated between threads only: " + s.backend + " uses a real one");
  if ((s.device == "cuda") != (s.backend == "nccl") && s.backend != "threads")
    throw CLI::ValidationError("--device", "on cuda the backend is threads or nccl, and nccl needs --device cuda");
  if (s.link_megabits > 0 && s.device == "cuda") throw CLI::ValidationError("--link", "a link is simulated on the cpu only");
  if (s.schedule == "auto" && s.compare.empty() &&
      (s.estimate != "full" || s.commit != "full" || s.exchange != "full" || s.elastic || s.auto_pace || !s.resume.empty()))
    throw CLI::ValidationError(
        "--schedule",
        "auto chooses how rounds travel, and the split, and chooses anew in each run: leave --estimate, "
        "--commit, --exchange, --elastic, --auto-pace and --resume out, or name the schedule that it printed");
  const bool synchronous = s.compare.empty() && s.schedule == "synchronous";
  if (s.elastic && synchronous)
    throw CLI::ValidationError("--elastic", "the synchronous schedule waits for every round: it has a fixed pace only");
  if (s.estimate != "full" && s.compare.empty() && s.schedule != "two_phase")
    throw CLI::ValidationError("--estimate", s.schedule + " has no estimates: they are what two_phase has");
  if (s.commit != "full" && s.schedule == "two_phase" && s.estimate == "full") s.estimate = "int4";
  check_family(s);
  if (s.commit != "full" && s.estimate != "full" && s.estimate != "int4")
    throw CLI::ValidationError("--estimate", "beside --commit " + s.commit + " this example's estimates travel in 4 bits: int4");
  if (s.auto_pace && s.elastic) throw CLI::ValidationError("--auto-pace", "--elastic has no fixed split to find");
  if (s.auto_pace && s.compare.empty() && s.schedule != "two_phase")
    throw CLI::ValidationError("--auto-pace", "it splits the steps of two_phase; " + s.schedule + " has one kind of round");
}

}  // namespace

settings parse(int count, char** words) {
  settings s;
  std::string micro_batches = "1";
  CLI::App app{"Trains a small GPT on real text with a sharded optimizer whose communication is hidden."};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a repeated flag: the last one counts
  add_places(app, s);
  add_schedule(app, s, micro_batches);
  add_model(app, s);
  CLI::Option const* const resume = add_files(app, s);
  bool lists = false, asks = false;
  app.add_flag("--list", lists, "Print the names of all schedules and rules");
  app.add_flag("--program", asks, "Print which program trains on threads what the other flags say: toy_gpt or toy_gpt_family");
  try {
    app.parse(count, words);
    if (lists) {
      print_names();
      std::exit(0);
    }
    if (asks) {
      print_program(s);
      std::exit(0);
    }
    read_micro_batches(s, micro_batches);
    if (s.model.width % s.model.heads != 0) throw CLI::ValidationError("--heads", "the number of heads must divide the width");
    complete(s);
    complete_checkpoints(s, resume->count() > 0);
    check(s);
  } catch (CLI::ParseError const& e) {
    std::exit(app.exit(e));
  }
  return s;
}

void complete(settings& s) {
  if (place const* const found = find_place(s.backend, s.device); found != nullptr) {
    s.backend = found->backend;
    s.device = found->device;
  }
  if (s.backend.empty()) s.backend = "threads";
  if (s.device.empty()) s.device = s.backend == "nccl" ? "cuda" : "cpu";
}
std::string how_to_get_family(std::string const& label) {
  return label + " is the work of another program, toy_gpt_family.\n  build it:  cmake --build " TOY_GPT_BUILD " --target " +
         "toy_gpt_family\n  start it:  " TOY_GPT_PROGRAMS "/toy_gpt_family";
}

std::unique_ptr<runner> make_runner(settings const& s, int& count, char**& words) {
  place const* const found = find_place(s.backend, s.device);
  if (found != nullptr) return found->make(s, count, words);
  if (s.backend == "nccl" && find_place("threads", "cuda") != nullptr)
    throw std::runtime_error(
        "--backend nccl: NCCL was not found when this program was built (libnccl-dev; NCCL_ROOT says where it is)");
  throw std::runtime_error(how_to_get(s));
}

}  // namespace toy_gpt
