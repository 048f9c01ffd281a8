// SPDX-License-Identifier: Apache-2.0
// Ranks of a world exchange what a part of them needs to be connected anew, over the world itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

/// The members of each part of a world that is split bring something to each other. Collective over the world: every rank makes
/// one call, whatever its part. Waits at most `deadline` seconds for any rank.
template <class Backend>
class through_backend {
 public:
  through_backend(Backend world, split_part part, double deadline)
      : world_(std::move(world)), part_(std::move(part)), deadline_(deadline) {}

  /// Everybody's contributions, in the order of ranks in the part.
  [[nodiscard]] contributions exchange(std::string const& brought) {
    return exchange_parts(contributions(part_.members.size(), brought));
  }
  /// What the others bring for this rank; `parts` is what it brings for each.
  [[nodiscard]] contributions exchange_parts(contributions const& parts) {
    auto queue = make_queue<host_queue>(world_);
    queue.place = {world_.rank(), -1, "split"};
    queue.deadline = deadline_;
    std::uint64_t longest = 0;
    for (std::string const& each : parts) longest = std::max<std::uint64_t>(longest, each.size());
    std::vector<std::uint64_t> lengths(static_cast<std::size_t>(world_.size()));
    world_.all_gather(queue, sharded<std::uint64_t const>(std::span(&longest, 1)), replicated<std::uint64_t>(std::span(lengths)));
    queue.wait();
    const std::size_t part = sizeof longest + *std::max_element(lengths.begin(), lengths.end());
    std::vector<std::byte> out(part * lengths.size()), in(part * lengths.size());
    const auto at = [&](std::vector<std::byte>& whole, std::size_t member) {
      return whole.data() + static_cast<std::size_t>(part_.members[member]) * part;
    };
    for (std::size_t to = 0; to < parts.size(); ++to) {
      const std::uint64_t length = parts[to].size();
      std::memcpy(at(out, to), &length, sizeof length);
      std::memcpy(at(out, to) + sizeof length, parts[to].data(), parts[to].size());
    }
    world_.all_to_all(queue, out, in);
    queue.wait();
    contributions found(parts.size());
    for (std::size_t from = 0; from < found.size(); ++from) {
      std::uint64_t length = 0;
      std::memcpy(&length, at(in, from), sizeof length);
      found[from].assign(reinterpret_cast<char const*>(at(in, from) + sizeof length), length);
    }
    return found;
  }

 private:
  Backend world_;
  split_part part_;
  double deadline_;
};

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous

#include "acco/restore_macros.hpp"
