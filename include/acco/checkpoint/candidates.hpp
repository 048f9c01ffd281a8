// SPDX-License-Identifier: Apache-2.0
// The checkpoints that a path leads to, and in which order a restore tries them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

enum class likeness { same, changed, other };  // of a training in a checkpoint to this one
struct several_trainings : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The checkpoints that a path leads to, each once: those of the training that is meant, the newest first, and then
/// those of
/// the trainings that it was made of by a change. A training may be saving there meanwhile: what is deleted before it
/// could be read has a newer one beside it.
class candidates {
  using known = std::vector<known_checkpoint>;

 public:
  /// `own`: this training's number, or none.
  candidates(std::string_view from, std::string own, std::function<likeness(manifest const&)> compare)
      : from_(from), own_(std::move(own)), compare_(std::move(compare)) {}
  /// Empty: there is none that has not been given. What cannot be read is told to `skipped`. Throws where the folder
  /// cannot be listed, what is no path, and `several_trainings` where nobody can tell which is meant.
  std::string next(std::vector<std::string>& skipped) {
    const std::string path = plain_path(from_);
    std::error_code unknown;
    if (std::filesystem::exists(path + "/" + std::string(manifest_name), unknown)) return given_.insert(path).second ? path : "";
    for (;;) {
      const std::vector<std::string> names = names_in(path);
      std::vector<std::string> passed;
      const known all = known_checkpoints(path, &passed);
      for (std::string const& each : passed) {
        if (told_.insert(each).second) skipped.push_back(each);
      }
      for (std::string const& each : in_turn(all)) {
        if (given_.insert(each).second) return each;
      }
      if (names_in(path) == names) return "";
    }
  }

 private:
  [[nodiscard]] std::vector<std::string> in_turn(known const& all) const {
    const auto has_own_number = [this](auto const& each) { return each.is.run == own_; };
    const bool numbered = std::ranges::any_of(all, has_own_number);
    std::vector<likeness> like;
    for (auto const& each : all) like.push_back(compare_(each.is));
    const likeness most = like.empty() ? likeness::other : std::ranges::min(like);
    std::set<std::string> runs, before;
    std::vector<std::string> paths;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (numbered ? !has_own_number(all[k]) : like[k] != most) continue;
      runs.insert(all[k].is.run);
      before.insert(all[k].is.from.begin(), all[k].is.from.end());
      paths.push_back(all[k].path);
    }
    if (most == likeness::other) return paths;  // all of them: the newest one is refused by what differs
    std::erase_if(runs, [&](std::string const& run) { return before.contains(run); });
    if (runs.size() > 1) throw several_trainings(list(all, runs));
    for (const bool own : {true, false}) {
      if (own) paths.clear();
      for (std::size_t k = 0; k < all.size(); ++k) {
        const bool is_own = runs.contains(all[k].is.run);
        if (like[k] != likeness::other && is_own == own && (is_own || before.contains(all[k].is.run)))
          paths.push_back(all[k].path);
      }
    }
    return paths;
  }
  /// The newest checkpoint of each.
  static std::string list(known const& all, std::set<std::string> runs) {
    constexpr std::size_t most = 8;
    std::string words;
    std::size_t told = 0;
    for (auto const& each : all) {
      if (runs.erase(each.is.run) == 0) continue;
      if (told++ < most)
        words += (words.empty() ? "" : ", ") + std::filesystem::path(each.path).filename().string() + " of run " + each.is.run;
    }
    return told > most ? words + ", and " + std::to_string(told - most) + " more" : words;
  }

  std::string from_, own_;
  std::function<likeness(manifest const&)> compare_;
  std::set<std::string> given_, told_;
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
