// SPDX-License-Identifier: Apache-2.0
// What a checkpoint holds of the trainer's own: where a rank stands in its data, and, of rank 0, the curve so far.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

struct bookmark {
  std::uint64_t next = 0;         // micro-batch of this rank
  std::uint64_t rounds = 0;       // reports that have been seen
  double smooth = 0;              // training loss
  double seconds = 0;             // of training
  double next_validation = 0;     // samples
  double next_line = 0;           // share of the run after which a line of progress is due
  double own = 0;                 // samples of local updates, whose anchor holds fewer
  std::vector<point> training{};  // points of the curve
  std::vector<point> validation{};

  /// As `save` takes it, with what the data depend on.
  [[nodiscard]] std::vector<std::uint64_t> words(settings const& s, corpus const& text) const {
    const auto bits = [](double number) { return std::bit_cast<std::uint64_t>(number); };
    std::vector<std::uint64_t> all = {s.seed,          s.batch,        text.digest(), next,
                                      rounds,          bits(smooth),   bits(seconds), bits(next_validation),
                                      bits(next_line), training.size()};
    if (own != 0) all.push_back(bits(own));
    for (auto const* const points : {&training, &validation}) {
      for (point const& p : *points) all.insert(all.end(), {bits(p.samples), bits(p.seconds), bits(p.loss)});
    }
    return all;
  }
  /// Throws where they are none, or other data's.
  [[nodiscard]] static bookmark read(std::span<std::byte const> bytes, settings const& s, corpus const& text) {
    std::vector<std::uint64_t> all(bytes.size() / sizeof(std::uint64_t));
    const std::size_t fixed = all.size() % 3 == 2 ? 11 : 10;  // points have three words
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(std::uint64_t));
    if (all.size() < fixed || (all.size() - fixed) % 3 != 0 || all[9] > (all.size() - fixed) / 3)
      throw std::runtime_error("the checkpoint in " + s.resume + " was not written by toy_gpt");
    const auto same = [&](char const* what, std::uint64_t then, std::uint64_t now) {
      if (then != now) {
        throw std::runtime_error("the checkpoint in " + s.resume + " is of a run with " + what + " " + std::to_string(then) +
                                 ", not " + std::to_string(now) + ": its data would not go on where they stopped");
      }
    };
    same("--seed", all[0], s.seed);
    same("--batch", all[1], s.batch);
    same("a text whose hash is", all[2], text.digest());
    const auto number = [&](std::size_t k) { return std::bit_cast<double>(all[k]); };
    bookmark b{all[3], all[4], number(5), number(6), number(7), number(8), fixed == 11 ? number(10) : 0};
    for (std::size_t k = fixed; k < all.size(); k += 3)
      (k < fixed + 3 * all[9] ? b.training : b.validation).push_back({number(k), number(k + 1), number(k + 2)});
    return b;
  }
  /// From every rank's bytes: a rank's own where it was there; where the number of ranks has changed, all go on behind
  /// the
  /// data that any of them has seen.
  [[nodiscard]] static bookmark of(std::vector<std::vector<std::byte>> const& ranks, std::size_t rank, settings const& s,
                                   corpus const& text) {
    std::vector<bookmark> all;
    for (auto const& each : ranks) all.push_back(read(each, s, text));
    if (ranks.size() == static_cast<std::size_t>(s.ranks)) return all[rank];
    bookmark found = all[0];
    for (bookmark const& each : all) found.next = std::max(found.next, each.next);
    return found;
  }
};

}  // namespace toy_gpt
