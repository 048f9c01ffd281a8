// SPDX-License-Identifier: Apache-2.0
// A checkpoint's numbers, compiled with -ffinite-math-only: one that is not finite is written, read and refused as it is without.
#include <bit>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <acco/checkpoint.hpp>

#if !__FINITE_MATH_ONLY__
#error "this test proves something only with -ffinite-math-only"
#endif

TEST_CASE("with -ffast-math: a number of a manifest that is not finite is written and read") {
  std::uint64_t volatile hidden = 0x7ff0'0000'0000'0000;
  const auto infinite = std::bit_cast<double>(std::uint64_t{hidden});
  const std::string written = acco::checkpoints::exactly(infinite);
  CHECK(written == "inf");
  double back = 0;
  CHECK(acco::checkpoints::read_exactly(written, back));
  CHECK(std::bit_cast<std::uint64_t>(back) == hidden);
  CHECK(acco::checkpoints::exactly(-12.0) == "-0x1.8p+3");
}

TEST_CASE("with -ffast-math: habits that are not finite are refused") {
  acco::habit_numbers habits;
  habits.random = 1;
  auto list = acco::checkpoints::habits_text(habits);
  CHECK_NOTHROW((void)acco::checkpoints::read_habits(list));
  list[1] = "inf";
  CHECK_THROWS_WITH((void)acco::checkpoints::read_habits(list), "the numbers of habits are none");
}
