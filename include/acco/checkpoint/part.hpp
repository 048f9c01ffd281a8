// SPDX-License-Identifier: Apache-2.0
// What a rank leaves for rank 0 when it has written its part of a checkpoint, as a small file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/numbers_in_json.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// What one rank has written, or why it has not.
struct part {
  struct edge {
    std::string file;
    std::uint64_t at = 0;  ///< in the data
    std::vector<std::byte> bytes;
  };
  std::map<std::string, std::map<std::uint64_t, std::uint64_t>> sums;  ///< by file and chunk: of
                                                                       ///< this rank's whole blocks
  std::vector<edge> edges;
  std::uint64_t digest = 0, trainer_bytes = 0;
  rank_record own;
  std::string problem;  ///< why there is none; then nothing else counts

  [[nodiscard]] std::string text() const {
    if (!problem.empty())
      return nlohmann::json{{"problem", problem}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    nlohmann::json j{{"digest", hex(digest)},           {"trainer_bytes", trainer_bytes},
                     {"trainer", own.has_trainer},      {"micro_batches", own.micro_batches},
                     {"bytes_sent", own.bytes_sent},    {"sums", nlohmann::json::object()},
                     {"edges", nlohmann::json::array()}};
    if (own.level) j["level"] = json_details::level_to_json(*own.level).dump();
    for (auto const& [file, chunks] : sums) {
      for (auto const& [chunk, sum] : chunks) j["sums"][file].push_back({chunk, hex(sum)});
    }
    for (edge const& each : edges) {
      std::string digits;
      for (const std::byte b : each.bytes) digits += hex(static_cast<std::uint64_t>(b)).substr(14);
      j["edges"].push_back({each.file, each.at, digits});
    }
    return j.dump();
  }
  static part read(std::string_view text) {
    const auto j = nlohmann::json::parse(text);
    part p;
    if (j.contains("problem")) {
      p.problem = j.at("problem");
      return p;
    }
    const auto sum = [](nlohmann::json const& from) {
      std::uint64_t number = 0;
      if (!read_hex(from.get<std::string>(), number)) throw std::runtime_error("a sum is none");
      return number;
    };
    p.digest = sum(j.at("digest"));
    p.trainer_bytes = j.at("trainer_bytes");
    p.own = {j.at("micro_batches"), j.at("bytes_sent"), j.at("trainer"), {}};
    if (j.contains("level")) {
      const auto level = nlohmann::json::parse(j.at("level").get<std::string>());
      json_details::read_level({level, "level"}, p.own.level.emplace());
    }
    for (auto const& [file, chunks] : j.at("sums").items()) {
      for (auto const& each : chunks) p.sums[file][each.at(0)] = sum(each.at(1));
    }
    for (auto const& each : j.at("edges")) {
      edge found{each.at(0), each.at(1), {}};
      const auto digits = each.at(2).get<std::string>();
      for (std::size_t k = 0; k + 1 < digits.size(); k += 2) {
        std::uint64_t byte = 0;
        if (!read_hex("00000000000000" + digits.substr(k, 2), byte)) throw std::runtime_error("an edge is none");
        found.bytes.push_back(static_cast<std::byte>(byte));
      }
      p.edges.push_back(std::move(found));
    }
    return p;
  }
};

[[nodiscard]] inline std::string part_name(int rank) { return "part-" + std::to_string(rank); }

}  // namespace ACCO_NAMESPACE::checkpoints
