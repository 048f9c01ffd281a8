// SPDX-License-Identifier: Apache-2.0
// How many messages are under way on a long link.
#include <algorithm>
#include <cstddef>

#include <doctest/doctest.h>

#include <acco/network/message_window.hpp>

namespace {

constexpr std::size_t stage = std::size_t{512} << 10U;
constexpr double round_trip = 0.1;  // seconds

/// What a link of so many bytes a second makes of a window: stages a second.
double speed(std::size_t stages, double rate) { return std::min(static_cast<double>(stages) / round_trip, rate / stage); }

}  // namespace

TEST_CASE("a window holds twice what 1 Gbit/s brings, and doubles while more comes") {
  acco::message_window window(stage, round_trip);
  CHECK(window.stages() == 48);  // twice 125e6 * 0.1 / 512 KiB, and one
  CHECK_FALSE(window.ended(1000, 999 / speed(window.stages(), 125e6)));
  acco::message_window fast(stage / 4, 0.02);
  CHECK(fast.stages() == 39);
  constexpr double rate = 1e9 / 4;  // in units of `stage`
  int operations = 0;
  for (; operations < 20; ++operations) {
    const std::size_t before = fast.stages();
    const double a_second = std::min(static_cast<double>(before) / 0.02, rate * 4 / stage);
    if (!fast.ended(1000, 999 / a_second)) break;
    CHECK(fast.stages() <= 2 * before + 1);
  }
  CHECK(operations == 1);
  CHECK(fast.stages() == 77);  // twice what the link holds, 38
  acco::message_window other(stage, round_trip);
  other.as_wide_as(fast);
  CHECK(other.stages() == 77);
}

TEST_CASE("it stays on a short link, where too little came to tell, and below 64 MiB or 128 stages") {
  acco::message_window near(stage, 0.0009), few(stage, 0.002), far(stage, 10), small(8192, 10), large(std::size_t{40} << 20U, 10);
  CHECK(near.stages() == 4);
  CHECK_FALSE(near.ended(1000, 1e-6));
  CHECK(few.stages() == 4);
  CHECK_FALSE(few.ended(2, 1e-6));
  CHECK_FALSE(few.ended(1000, 0));
  CHECK(few.ended(1000, 0.1));
  CHECK(few.stages() == 40);
  CHECK(far.stages() == 128);
  CHECK(small.stages() == 128);
  CHECK_FALSE(large.ended(1000, 1e-6));
  CHECK(large.stages() == 4);
}

TEST_CASE("messages leave as the widest window in 1.67 round trips") {
  CHECK(acco::message_window::pace(0.3) == doctest::Approx(0.6 * 67108864 / 0.3));
}

TEST_CASE("pieces are whole units, fewer bytes for more ranks") {
  CHECK(acco::message_window::piece_bytes(0, stage, 2) == stage);
  CHECK(acco::message_window::piece_bytes(0, stage, 5) == stage / 4);
  CHECK(acco::message_window::piece_bytes(0, stage, 1000) == 32768);
  CHECK(acco::message_window::piece_bytes(100000, stage, 5) == 98304);
  CHECK(acco::message_window::piece_bytes(1, stage, 5) == 8192);
}
