// SPDX-License-Identifier: Apache-2.0
// manifest.json, the last file of a checkpoint: everything but the tensors, and the sums of all other files.
// docs/checkpoints.md describes every key.
#pragma once

#include <cstddef>
#include <cstdint>
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

[[nodiscard]] inline std::string trainer_file(std::size_t rank, std::size_t ranks) {
  return name_of_rank("trainer", rank, ranks);
}
/// The value of a line "what = value" among lines.
[[nodiscard]] inline std::string value_of(std::vector<std::string> const& lines, std::string_view what) {
  for (std::string const& line : lines) {
    if (line.size() > what.size() + 3 && line.starts_with(what) && line.compare(what.size(), 3, " = ") == 0)
      return line.substr(what.size() + 3);
  }
  return "";
}

inline constexpr char const* tensors_end = ".safetensors";
inline constexpr char const* words_of_extents[] = {"shard", "whole"};
inline constexpr char const* words_of_uses[] = {"state", "feedback"};

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
  j["arrays"] = json::array();
  for (kept_array const& each : m.shape.kept) {
    j["arrays"].push_back({{"name", each.name},
                           {"type", dtype_of(each.type)},
                           {"extent", words_of_extents[static_cast<std::size_t>(each.extent)]},
                           {"use", words_of_uses[static_cast<std::size_t>(each.use)]}});
  }
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

namespace json_details {
/// What is written, where its own sum is right.
[[nodiscard]] inline tree summed_tree(std::string_view text) {
  constexpr std::string_view before = ",\n \"sum\": \"", behind = "\"\n}\n";
  constexpr std::size_t end = before.size() + 16 + behind.size();
  std::uint64_t told = 0;
  if (text.size() < end || text.substr(text.size() - end, before.size()) != before || !text.ends_with(behind) ||
      !read_hex(text.substr(text.size() - behind.size() - 16, 16), told))
    throw std::runtime_error("it does not end as a manifest ends: it is damaged, or cut short");
  const std::string_view summed = text.substr(0, text.size() - end);
  if (sum_of(std::as_bytes(std::span(summed))) != told) throw std::runtime_error("its own sum is wrong: it is damaged");
  try {
    return tree::parse(text);
  } catch (tree::exception const& e) {
    throw std::runtime_error(e.what());
  }
}
/// Older manifests say how many slots the rule has, and whether averages are kept.
inline void read_arrays(field const& j, std::string const& rule, state_shape& shape) {
  if (j.has("slots")) {
    shape.add({.name = "master", .type = shape.master});
    for (std::size_t k = 0, slots = j["slots"].whole(1000); k < slots; ++k)
      shape.add({.name = name_of_slot(rule, k), .type = shape.master});
    if (j["averages"].flag()) shape.add({.name = state_shape::average, .type = shape.master});
    return;
  }
  j["arrays"].for_each([&](field const& each) {
    shape.add({.name = each["name"].text(),
               .type = each["type"].type(),
               .extent = static_cast<array_extent>(each["extent"].one_of(words_of_extents)),
               .use = static_cast<array_use>(each["use"].one_of(words_of_uses))});
  });
  if (shape.shards() == 0) j["arrays"].refuse("lacks the masters");
}
inline void read_files(field const& files, manifest& m) {
  std::set<std::string_view> names;
  m.files.reserve(files.size());
  files.for_each([&](field const& each) {
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
      files.refuse("lacks " + name + ", which \"ranks\" tells of");
  }
}
/// Each array has a file, or one of every rank.
inline void require_files(field const& arrays, manifest const& m) {
  arrays.for_each([&](field const& each) {
    const std::string name = each["name"].text();
    const bool whole = each["extent"].text() == words_of_extents[static_cast<std::size_t>(array_extent::whole)];
    for (std::size_t rank = 0; rank < (whole ? m.ranks.size() : 1); ++rank) {
      if (m.find((whole ? name_of_rank(name, rank, m.ranks.size()) : name) + tensors_end) == nullptr)
        each["name"].refuse("is " + in_quotes(name) + ", of which a file is missing");
    }
  });
}
}  // namespace json_details

/// Throws std::runtime_error with what is wrong with it.
[[nodiscard]] inline manifest read_manifest(std::string_view text) {
  using namespace json_details;
  const tree all = summed_tree(text);
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
  m.shape = {.master = j["master"].type(), .parameter = j["parameter"].type(), .kept = {}};
  j["construction"].for_each([&](field const& each) { m.construction.push_back(each.text()); });
  read_arrays(j, value_of(m.construction, "rule"), m.shape);
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
  read_files(j["files"], m);
  if (j.has("arrays") && !m.ranks.front().level) require_files(j["arrays"], m);
  return m;
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
