// SPDX-License-Identifier: Apache-2.0
// How many messages are under way on a long link.
#include <algorithm>
#include <cstddef>

#include <doctest/doctest.h>

#include <acco/network/message_window.hpp>

namespace {

constexpr std::size_t stage = std::size_t{512} << 10U;
constexpr double rate = 125e6, round_trip = 0.1;  // bytes a second, seconds

/// What a link of that rate and round trip makes of a window: stages a second.
double speed(std::size_t stages) { return std::min(static_cast<double>(stages) / round_trip, rate / stage); }

}  // namespace

TEST_CASE("the window doubles until the link is full, and stays between once and twice what the link holds") {
  acco::message_window window(stage, round_trip);
  CHECK(window.stages() == 4);
  int operations = 0;
  for (; speed(window.stages()) < rate / stage && operations < 20; ++operations) {
    const std::size_t before = window.stages();
    CHECK(window.ended(1000, 999 / speed(before)));
    CHECK(window.stages() >= 2 * before);
    CHECK(window.stages() <= 2 * before + 1);
  }
  CHECK(operations == 3);  // 4, 9, 19, 39: the link holds 24
  (void)window.ended(1000, 999 / speed(window.stages()));
  CHECK(window.stages() == 48);
  CHECK_FALSE(window.ended(1000, 999 / speed(window.stages())));
  acco::message_window other(stage, round_trip);
  other.as_wide_as(window);
  CHECK(other.stages() == 48);
}

TEST_CASE("it stays on a short link, where too little came to tell, and below 64 MiB or 128 stages") {
  acco::message_window near(stage, 0.0009), few(stage, round_trip), far(stage, 10), small(8192, 10),
      large(std::size_t{40} << 20U, 10);
  CHECK_FALSE(near.ended(1000, 1e-6));
  CHECK_FALSE(few.ended(2, 1e-6));
  CHECK_FALSE(few.ended(1000, 0));
  CHECK(far.ended(1000, 1e-6));
  CHECK(far.stages() == 128);
  CHECK(small.ended(1000, 1e-6));
  CHECK(small.stages() == 128);
  CHECK_FALSE(large.ended(1000, 1e-6));
  CHECK(large.stages() == 4);
}

TEST_CASE("pieces are whole units, fewer bytes for more ranks") {
  CHECK(acco::message_window::piece_bytes(0, stage, 2) == stage);
  CHECK(acco::message_window::piece_bytes(0, stage, 5) == stage / 4);
  CHECK(acco::message_window::piece_bytes(0, stage, 1000) == 32768);
  CHECK(acco::message_window::piece_bytes(100000, stage, 5) == 98304);
  CHECK(acco::message_window::piece_bytes(1, stage, 5) == 8192);
}
