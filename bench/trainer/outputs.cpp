// SPDX-License-Identifier: Apache-2.0
#include "outputs.hpp"

#include <cstddef>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "plot.hpp"
#include "screen.hpp"

namespace toy_gpt {
namespace {

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
nlohmann::json points(std::vector<point> const& curve) {
  nlohmann::json all = nlohmann::json::array();
  for (point const& p : curve) all.push_back({p.samples, p.seconds, p.loss});
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

}  // namespace

outputs::outputs(settings const& s, int rank) : settings_(s), speaks_(rank == 0), goes_on_(!s.resume.empty()) {
  if (!s.plot.empty() && speaks_) require_gnuplot();
  log_ = open(speaks_ ? s.log : "", goes_on_ ? std::ios::app : std::ios::out);
  trace_file_ = open(s.trace.empty() || speaks_ ? s.trace : s.trace + ".rank" + std::to_string(rank));
  if (!s.trace.empty()) trace_.emplace(std::size_t{1} << 20U);
}

/// The first line of a run that goes on from a checkpoint: the log loses the rounds that come again.
void outputs::go_on(std::size_t round) {
  if (!std::exchange(goes_on_, false)) return;
  log_.close();
  drop_rounds_since(round, settings_.log);
  log_ = open(settings_.log, std::ios::app);
}

round_sink outputs::sink() {
  if (!log_.is_open()) return {};
  return [this](acco::round_report const& r, double seconds) {
    go_on(r.round);
    log_ << to_json(r, seconds).dump() << '\n';
    if (!settings_.save.empty()) log_.flush();  // a run that is killed leaves what it has told
  };
}

void outputs::ended(summary const& result, settings const& one) {
  runs_.push_back(result);
  if (!log_.is_open()) return;
  go_on(std::numeric_limits<std::size_t>::max());  // nothing was left to be trained
  log_ << to_json(result, one).dump() << '\n' << std::flush;
}

void outputs::close(corpus const& text, std::string const& sample) {
  if (trace_) {
    trace_->write(trace_file_);
    trace_file_.close();
  }
  if (!speaks_) return;
  settings const& s = settings_;
  if (!s.plot.empty()) plot(runs_, s.plot);
  if (s.compare.size() > 1) {
    print_comparison(runs_, s, text);
  } else {
    if (!s.quiet) print_sample(sample);
    if (!s.quiet) print_curve(runs_.back(), text);
    print_result(runs_.back(), s, text);
  }
  if (!s.quiet) print_files(s);
}

}  // namespace toy_gpt
