// SPDX-License-Identifier: Apache-2.0
// manifest.json, the last file of a checkpoint: everything but the tensors, and the sums of all other files. docs/checkpoints.md
// describes every key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
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
#include "acco/checkpoint/numbers_in_json.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/stage/level_copy.hpp"
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
  std::optional<level_numbers> level;
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
  j["state"] = numbers_to_json(m.numbers);
  j["ranks"] = json::array();
  for (rank_record const& each : m.ranks) {
    j["ranks"].push_back({{"micro_batches", each.micro_batches}, {"bytes_sent", each.bytes_sent}, {"trainer", each.has_trainer}});
    if (each.level) j["ranks"].back()["local updates"] = level_to_json(*each.level);
  }
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
  read_numbers(j["state"], m.numbers);
  if (j["step"].whole() != m.numbers.steps()) j["step"].refuse("is not what \"state\" comes to");
  if (j["samples"].decimal() != m.numbers.samples()) j["samples"].refuse("is not what \"state\" comes to");
  j["ranks"].for_each([&](field const& each) {
    m.ranks.push_back({each["micro_batches"].whole(), each["bytes_sent"].whole(), each["trainer"].flag(), {}});
    if (!each.has("local updates")) return;
    read_level(each["local updates"], m.ranks.back().level.emplace());
    m.ranks.back().level->worker.micro_batches = m.ranks.back().micro_batches;
    m.ranks.back().level->worker.bytes_sent = m.ranks.back().bytes_sent;
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
