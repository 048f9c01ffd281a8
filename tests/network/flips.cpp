// SPDX-License-Identifier: Apache-2.0
// Messages with checksums: whichever bit is flipped on the way, the message is named and nobody uses it.
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "network/letters.hpp"
#include "support/patience.hpp"

namespace {

/// Every step is a bijection of what came before and of the byte: two messages that differ in one have different sums.
std::uint64_t sum_of(void const* from, std::size_t bytes) noexcept {
  std::uint64_t sum = bytes;
  for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<unsigned char const*>(from)[i]) * 0x9e3779b97f4a7c15U;
  return sum;
}

constexpr std::size_t piece_bytes = acco::message_window::smallest_piece;

/// What a rank has got when each collective has ended; the last one begins beside the one before.
struct results {
  std::vector<std::vector<float>> all;
  std::string error;
  int peer = -1;
  bool damaged = false;
  // until the world ends messages are on their way to these
  std::vector<float> few{}, whole{}, own{}, gathered{}, passed{}, told{};
};
void work(letters::backend const& world, results& got) {
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  constexpr std::size_t slice = 2 * piece_bytes / sizeof(float) + 300;  // 3 pieces
  auto& [all, error, peer, damaged, few, whole, own, gathered, passed, told] = got;
  few.resize(10);
  own.resize(slice);
  for (auto* each : {&whole, &gathered, &passed}) each->resize(slice * ranks);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i * (rank + 1) % 257) - 100;
  told = {whole.begin(), whole.begin() + slice};
  acco::host_queue queue;
  queue.deadline = 60 * patience();
  const auto ended = [&](std::vector<float> const& result) {
    queue.wait();
    all.push_back(result);
  };
  try {
    world.all_reduce(queue, acco::partial<float const>(std::span(whole).first(few.size())), acco::replicated<float>(few));
    ended(few);
    world.broadcast(queue, acco::replicated<float>(told), 1);
    ended(told);
    world.all_to_all(queue, std::as_bytes(std::span(whole)), std::as_writable_bytes(std::span(passed)));
    ended(passed);
    world.reduce_scatter(queue, acco::partial<float const>(whole), acco::sharded<float>(own));
    ended(own);
    world.reduce_scatter(queue, acco::partial<float const>(whole), acco::sharded<float>(own), acco::accumulate);
    world.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(gathered));
    queue.beside();
    world.all_gather(queue, acco::sharded<float const>(std::span<float const>(told).first(slice)),
                     acco::replicated<float>(passed));
    ended(gathered);
  } catch (acco::error const& e) {
    error = e.what();
    peer = e.peer();
    damaged = error.find(" is damaged (operation ") != std::string::npos && error.find(" tells ") == std::string::npos;
  }
  queue.stop();
}
std::vector<results> everybody(letters::office& mail, acco::message_sum sum) {
  std::vector<results> all(static_cast<std::size_t>(mail.ranks()));
  letters::run_over(mail, piece_bytes, sum, [&](letters::backend const& world, letters::office&) {
    work(world, all[static_cast<std::size_t>(world.rank())]);
  });
  return all;
}

}  // namespace

TEST_CASE("a thousand flipped bits: all are found, the sender is named, and no rank gets a wrong result") {
  for (const int ranks : {2, 3, 7}) {
    CAPTURE(ranks);
    letters::office sound(ranks);
    auto const expected = everybody(sound, sum_of);
    for (results const& each : expected) REQUIRE(each.error.empty());
    std::mt19937_64 chance(static_cast<unsigned>(ranks));
    for (int k = 0; k < (ranks == 7 ? 200 : 400); ++k) {
      letters::office mail(ranks);
      // among seven the first collective's messages are passed on, and damage to them must not be: half of the flips
      const std::uint64_t among = ranks == 7 && k % 2 == 0 ? 50 : sound.deliveries();
      const std::uint64_t delivery = chance() % among, bit = chance();
      mail.flip(delivery, bit);
      auto const got = everybody(mail, sum_of);
      CAPTURE(delivery);
      CAPTURE(bit);
      auto const [from, to] = mail.damaged();
      REQUIRE(from >= 0);
      int found = 0;
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        CAPTURE(rank);
        CAPTURE(got[rank].error);
        found += got[rank].damaged ? 1 : 0;
        if (got[rank].damaged) {
          CHECK(static_cast<int>(rank) == to);
          CHECK(got[rank].peer == from);
          CHECK(got[rank].error.find("a message from rank " + std::to_string(from) + " is damaged") != std::string::npos);
        }
        for (std::size_t i = 0; i < got[rank].all.size(); ++i) CHECK(got[rank].all[i] == expected[rank].all[i]);
      }
      CHECK(found == 1);
    }
  }
}

TEST_CASE("without checksums a flipped bit is believed") {
  letters::office sound(3), mail(3);
  auto const expected = everybody(sound, nullptr);
  mail.flip(0, 22);
  auto const got = everybody(mail, nullptr);
  bool same = true;
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    CHECK(got[rank].error.empty());
    same = same && got[rank].all == expected[rank].all;
  }
  CHECK_FALSE(same);
  letters::office checked(3);
  (void)everybody(checked, sum_of);
  // one from rank to rank in each operation: of the broadcast from its root to both others and between these
  CHECK(checked.deliveries() - sound.deliveries() == 6 * 6 + 4);
}
