// SPDX-License-Identifier: Apache-2.0
// manifest.json, the last file of a checkpoint: everything but the tensors, and the sums of all other files. docs/checkpoints.md
// describes every key.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "acco/checkpoint/exact_text.hpp"
#include "acco/checkpoint/json.hpp"
#include "acco/checkpoint/named_counts.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// A file of a checkpoint as the manifest knows it.
struct file_record {
  std::string name;
  std::uint64_t bytes = 0, data = 0;  ///< in all; where the data begins
  std::uint64_t header = 0;           ///< sum of what is before it
  std::vector<std::uint64_t> chunks;  ///< sums of the data
};

/// What a rank had of its own.
struct rank_record {
  std::uint64_t micro_batches = 0, bytes_sent = 0;
  bool has_trainer = false;
};

struct manifest {
  static constexpr char const* format = "acco-checkpoint 1";

  std::string library, run, session;
  std::vector<std::string> from;  ///< the runs that this one was made of by a change, the nearest first
  std::uint64_t sequence = 0, restarts = 0, digest = 0;
  state_shape shape;
  std::vector<std::string> construction;
  run_numbers numbers;
  std::vector<file_record> files;
  std::vector<rank_record> ranks;

  [[nodiscard]] file_record const* find(std::string_view name) const noexcept {
    for (file_record const& each : files) {
      if (each.name == name) return &each;
    }
    return nullptr;
  }
};

/// The name of a rank's own file.
[[nodiscard]] inline std::string of_rank(char const* what, std::size_t rank, std::size_t ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "%s-%05zu-of-%05zu", what, rank, ranks);
  return name;
}
[[nodiscard]] inline std::string trainer_file(std::size_t rank, std::size_t ranks) { return of_rank("trainer", rank, ranks); }

namespace json_details {
using json = nlohmann::ordered_json;  // as it is written
using tree = nlohmann::json;

/// Numbers of a manifest that are larger are none: what is added to them stays a number.
inline constexpr std::uint64_t largest = std::uint64_t{1} << 62U;

/// Calls call(); what the JSON library says then is said behind `where`.
template <class Call>
auto said_behind(std::string const& where, Call&& call) {
  try {
    return call();
  } catch (tree::exception const& e) {
    throw std::runtime_error(where + ": " + e.what());
  }
}

/// A value in a manifest, and where it stands.
class field {
 public:
  field(tree const& value, std::string where) : value_(&value), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string const& what) const { throw std::runtime_error(where_ + " " + what); }
  [[nodiscard]] field operator[](std::string const& key) const {
    const std::string name = "\"" + key + "\"", where = where_.empty() ? name : where_ + "." + name;
    return {*said_behind(where, [&] { return &value_->at(key); }), where};
  }
  [[nodiscard]] bool has(std::string const& key) const { return value_->contains(key); }
  [[nodiscard]] bool is_list() const noexcept { return value_->is_array(); }
  /// Calls visit(field) for each value of an array.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (!value_->is_array()) refuse("is no array");
    for (std::size_t k = 0; k < value_->size(); ++k) visit(field((*value_)[k], where_ + "[" + std::to_string(k) + "]"));
  }
  [[nodiscard]] std::size_t size() const noexcept { return value_->size(); }
  template <class T>
  [[nodiscard]] T get() const {
    return said_behind(where_, [&] { return value_->get<T>(); });
  }
  [[nodiscard]] std::string text() const { return get<std::string>(); }
  [[nodiscard]] bool flag() const { return get<bool>(); }
  /// Of JSON.
  [[nodiscard]] double decimal() const { return get<double>(); }
  [[nodiscard]] std::uint64_t whole(std::uint64_t most = largest) const {
    if (!value_->is_number_unsigned() || get<std::uint64_t>() > most)
      refuse("is no whole number of at most " + std::to_string(most));
    return get<std::uint64_t>();
  }
  [[nodiscard]] double real() const {
    double number = 0;
    if (!read_exactly(text(), number)) refuse("is no number in hexadecimal digits");
    return number;
  }
  [[nodiscard]] double finite() const {
    const double number = real();
    if (!std::isfinite(number)) refuse("is not finite");
    return number;
  }
  [[nodiscard]] double positive() const {
    const double number = finite();
    if (!(number > 0)) refuse("is not positive");
    return number;
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t number = 0;
    if (!read_hex(text(), number)) refuse("is no sum");
    return number;
  }
  /// The number of a run or a session.
  [[nodiscard]] std::string id() const {
    std::string digits = text();
    if (digits.empty() || digits.size() > 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse("is no number of a run");
    return digits;
  }
  [[nodiscard]] element_type type() const {
    for (const element_type each :
         {element_type::float32, element_type::float64, element_type::bfloat16, element_type::float16}) {
      if (text() == dtype_of(each)) return each;
    }
    refuse("is " + in_quotes(text()) + ", which is no type of elements");
  }

 private:
  tree const* value_;
  std::string where_;
};

template <class Range>
json all_exactly(Range const& numbers) {
  json list = json::array();
  for (const double each : numbers) list.push_back(exactly(each));
  return list;
}

/// Calls one of the four with (key, number) for each, in both directions: `Numbers` is run_numbers, const where they are written.
/// `any` are those that a diverged training may have made infinite, or none.
template <class Numbers, class Whole, class Real, class Any, class Flag>
void for_numbers(Numbers& n, Whole&& whole, Real&& real, Any&& any, Flag&& flag) {
  whole("round", n.run.round);
  whole("updates before", n.run.steps);
  real("samples before", n.run.samples);
  real("step weight", n.run.step_weight);
  any("step loss sum", n.run.step_loss_sum);
  whole("skipped in a row", n.run.skipped);
  whole("empty in a row", n.run.empty);
  real("estimate seconds", n.run.estimate_seconds);
  real("commit seconds", n.run.commit_seconds);
  whole("rounds", n.rounds);
  whole("rounds skipped", n.rounds_skipped);
  real("weight dropped", n.dropped);
  flag("completed", n.completed);
  any("round squares", n.last.squares);
  real("round weight", n.last.step_weight);
  real("round loss scale", n.last.loss_scale);
  any("round norm", n.last.norm);
  any("round clip", n.last.clip);
  real("round rate", n.last.rate);
  real("round seconds", n.last.seconds);
  flag("round applied", n.last.apply);
  flag("round skipped", n.last.skip);
  flag("round spike", n.last.spike);
  flag("round differences", n.last.differences);
  flag("round digested", n.last.digested);
}
}  // namespace json_details

/// The file, whose last key is the sum of all bytes before `,"sum"`.
[[nodiscard]] inline std::string write_manifest(manifest const& m) {
  using namespace json_details;
  json j;
  j["format"] = manifest::format;
  j["library"] = m.library;
  j["run"] = m.run;
  j["session"] = m.session;
  if (!m.from.empty()) j["from"] = m.from;
  j["sequence"] = m.sequence;
  j["restarts"] = m.restarts;
  j["step"] = m.numbers.steps();
  j["samples"] = m.numbers.samples();
  j["digest"] = hex(m.digest);
  j["master"] = dtype_of(m.shape.master);
  j["parameter"] = dtype_of(m.shape.parameter);
  j["slots"] = m.shape.slots;
  j["averages"] = m.shape.averages;
  json state;
  for_numbers(
      m.numbers, [&](char const* key, std::uint64_t number) { state[key] = number; },
      [&](char const* key, double number) { state[key] = exactly(number); },
      [&](char const* key, double number) { state[key] = exactly(number); },
      [&](char const* key, bool number) { state[key] = number; });
  state["pace"] = all_exactly(m.numbers.pace);
  state["round digest"] = hex(m.numbers.last.digest);
  state["norms"] = all_exactly(std::span(m.numbers.norms.values.data(), m.numbers.norms.count));
  for_named_sums(m.numbers.last.counts,
                 [&counts = state["round counts"]](std::string const& name, double number) { counts[name] = exactly(number); });
  state["round regions"] = all_exactly(m.numbers.last.measured);
  if (!m.numbers.updates.empty()) state["updates"] = m.numbers.updates;
  j["state"] = state;
  j["ranks"] = json::array();
  for (rank_record const& each : m.ranks)
    j["ranks"].push_back({{"micro_batches", each.micro_batches}, {"bytes_sent", each.bytes_sent}, {"trainer", each.has_trainer}});
  j["construction"] = m.construction;
  j["files"] = json::array();
  for (file_record const& each : m.files) {
    json file{{"name", each.name}, {"bytes", each.bytes}, {"data", each.data}, {"header", hex(each.header)}};
    file["chunks"] = json::array();
    for (const std::uint64_t sum : each.chunks) file["chunks"].push_back(hex(sum));
    j["files"].push_back(file);
  }
  std::string text = j.dump(1);
  text.resize(text.size() - 2);  // "\n}"
  return text + ",\n \"sum\": \"" + hex(sum_of(std::as_bytes(std::span(text)))) + "\"\n}\n";
}

/// Throws std::runtime_error with what is wrong with it.
[[nodiscard]] inline manifest read_manifest(std::string_view text) {
  using namespace json_details;
  constexpr std::string_view before = ",\n \"sum\": \"", behind = "\"\n}\n";
  constexpr std::size_t end = before.size() + 16 + behind.size();
  std::uint64_t told = 0;
  if (text.size() < end || text.substr(text.size() - end, before.size()) != before || !text.ends_with(behind) ||
      !read_hex(text.substr(text.size() - behind.size() - 16, 16), told))
    throw std::runtime_error("it does not end as a manifest ends: it is damaged, or cut short");
  const std::string_view summed = text.substr(0, text.size() - end);
  if (sum_of(std::as_bytes(std::span(summed))) != told) throw std::runtime_error("its own sum is wrong: it is damaged");
  tree all;
  try {
    all = tree::parse(text);
  } catch (tree::exception const& e) {
    throw std::runtime_error(e.what());
  }
  const field j(all, "");
  if (j["format"].text() != manifest::format)
    throw std::runtime_error("its format is " + in_quotes(j["format"].text()) + ", and this library reads '" + manifest::format +
                             "'");
  manifest m;
  m.library = j["library"].text();
  m.run = j["run"].id();
  m.session = j["session"].id();
  if (j.has("from")) j["from"].for_each([&](field const& each) { m.from.push_back(each.id()); });
  m.sequence = j["sequence"].whole();
  m.restarts = j["restarts"].whole();
  m.digest = j["digest"].sum();
  m.shape = {.master = j["master"].type(), .parameter = j["parameter"].type(), .averages = j["averages"].flag()};
  m.shape.slots = j["slots"].whole(1000);
  const field state = j["state"];
  for_numbers(
      m.numbers, [&](char const* key, std::uint64_t& number) { number = state[key].whole(); },
      [&](char const* key, double& number) { number = state[key].finite(); },
      [&](char const* key, double& number) { number = state[key].real(); },
      [&](char const* key, bool& number) { number = state[key].flag(); });
  (void)state["round loss scale"].positive();
  const auto fill = [&](char const* key, auto& numbers) {
    std::size_t k = 0;
    if (state[key].size() != numbers.size()) state[key].refuse("does not have " + std::to_string(numbers.size()) + " numbers");
    state[key].for_each([&](field const& each) { numbers[k++] = each.real(); });
  };
  fill("pace", m.numbers.pace);
  m.numbers.last.digest = state["round digest"].sum();
  if (state["norms"].size() > recent_norms::most) state["norms"].refuse("has more than there can be");
  state["norms"].for_each([&](field const& each) { m.numbers.norms.values[m.numbers.norms.count++] = each.finite(); });
  read_counts(state["round counts"], m.numbers.last.counts);
  state["round regions"].for_each([&](field const& each) { m.numbers.last.measured.push_back(each.real()); });
  if (state.has("updates")) state["updates"].for_each([&](field const& each) { m.numbers.updates.push_back(each.whole()); });
  if (j["step"].whole() != m.numbers.steps()) j["step"].refuse("is not what \"state\" comes to");
  if (j["samples"].decimal() != m.numbers.samples()) j["samples"].refuse("is not what \"state\" comes to");
  j["ranks"].for_each([&](field const& each) {
    m.ranks.push_back({each["micro_batches"].whole(), each["bytes_sent"].whole(), each["trainer"].flag()});
  });
  if (m.ranks.empty()) j["ranks"].refuse("is empty");
  j["construction"].for_each([&](field const& each) { m.construction.push_back(each.text()); });
  std::set<std::string_view> names;
  m.files.reserve(j["files"].size());
  j["files"].for_each([&](field const& each) {
    file_record file{each["name"].text(), each["bytes"].whole(), each["data"].whole(), each["header"].sum(), {}};
    if (!plain_name(file.name)) each["name"].refuse("is " + in_quotes(file.name) + ", and no plain name of a file");
    if (file.data > file.bytes) each["data"].refuse("is more than the file has");
    if (each["chunks"].size() != (file.bytes - file.data + chunk_bytes - 1) / chunk_bytes)
      each["chunks"].refuse("has other sums than the size of " + in_quotes(file.name) + " asks for");
    file.chunks.reserve(each["chunks"].size());
    each["chunks"].for_each([&](field const& sum) { file.chunks.push_back(sum.sum()); });
    m.files.push_back(std::move(file));
    if (!names.insert(m.files.back().name).second) each["name"].refuse("is " + in_quotes(m.files.back().name) + " a second time");
  });
  for (std::size_t rank = 0; rank < m.ranks.size(); ++rank) {
    if (std::string const name = trainer_file(rank, m.ranks.size()); m.ranks[rank].has_trainer && !names.contains(name))
      j["files"].refuse("lacks " + name + ", which \"ranks\" tells of");
  }
  return m;
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
