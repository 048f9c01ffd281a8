// SPDX-License-Identifier: Apache-2.0
// The clock beside closed forms; what is advised, in which order; what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <acco/advice.hpp>
#include <acco/error.hpp>

namespace {
using acco::way;
using acco::wire_bytes;

constexpr wire_bytes one_byte{.gradients = 0.5, .parameters = 0.5};
constexpr way waits{.name = "waits"};
constexpr way waits_coded{.name = "waits, coded", .commit = one_byte};
constexpr way in_parts{.name = "in parts", .in_parts = true, .estimate = one_byte, .commit = {.gradients = 1, .parameters = 1}};
constexpr way late{.name = "late", .delay = 1, .loss_percent = 7};
constexpr way rarely{.name = "rarely", .commit = {.gradients = 2, .parameters = 2}, .every = 8, .fragments = 4, .delay = 1};

// Of 8 bytes, of which an exchange takes `exchange` seconds, `fixed` whatever it carries; a step computes for 8.
acco::situation joined(double exchange, double fixed = 0, unsigned ranks = 2) {
  return {.ranks = ranks,
          .computing = {.step_seconds = 8},
          .joined_by = acco::link_of(exchange, 8, ranks, fixed),
          .training = {.parameters = 1}};
}
double step(way const& of, acco::situation const& in) { return acco::expect(of, in, 10).step_seconds; }
}  // namespace

TEST_CASE("a step takes what the closed forms say, where ranks are alike") {
  CHECK(step(waits, joined(16)) == doctest::Approx(8 + 16));
  CHECK(step(waits_coded, joined(16)) == doctest::Approx(8 + 2));
  CHECK(step(waits_coded, joined(16, 4)) == doctest::Approx(8 + 4 + 12.0 / 8));
  CHECK(step(late, joined(16)) == doctest::Approx(16));
  CHECK(step(late, joined(4)) == doctest::Approx(8));
  CHECK(step({.every = 4}, joined(16)) == doctest::Approx(8 + 16.0 / 4));
  CHECK(step({.every = 4, .delay = 4}, joined(16)) == doctest::Approx(8));
  CHECK(step({.every = 4, .delay = 4}, joined(64)) == doctest::Approx(64.0 / 4));
  CHECK(step(rarely, joined(64)) == doctest::Approx(8));  // a fragment of 8 s behind each second step of 8
  CHECK(step(rarely, joined(128)) == doctest::Approx((16 + 8) / 2.0));
  CHECK(step(waits, joined(16, 0, 5)) == doctest::Approx(8 + 16));

  // the commit takes 4 s, the estimate 2, a micro-batch 1: of 7 + 1, 6 + 2 the shorter one
  const acco::proposal split = acco::expect(in_parts, joined(16));
  CHECK(split.first == 6);
  CHECK(split.second == 2);
  CHECK(split.step_seconds == doctest::Approx(8));
  // no second part of more than a quarter, though 4 + 4 would hide all
  const acco::proposal whole = acco::expect({.in_parts = true}, joined(3));
  CHECK(whole.second == 2);
  CHECK(whole.step_seconds == doctest::Approx(6 + 3));
}

TEST_CASE("ranks that differ wait for the slowest, the less the more rarely they meet") {
  const std::array speeds{1.0, 1.0, 2.0, 1.0};
  const std::array<acco::timed_part, 1> each{{{.exchanges = true, .seconds = 1, .first_seconds = 1}}};
  const acco::timeline seen = acco::simulate({.of_ranks = speeds}, 4, each, 10);
  CHECK(seen.seconds == doctest::Approx(30));
  CHECK(seen.utilisation() == doctest::Approx(1.25 / 3));

  acco::situation in = joined(1e-9);
  in.ranks = 64;
  in.computing.jitter = 0.1;
  const double often = step(waits, in), rare = step({.every = 16}, in);
  CHECK(often > 8 * 1.18);  // the largest of 64 bells: 2.4 standard deviations
  CHECK(often < 8 * 1.3);
  CHECK(rare > 8 * 1.02);  // of means of 16: a quarter of that
  CHECK(rare < 8 * 1.09);
  CHECK(step(waits, in) == often);  // the seed's
  in.computing.seed = 2;
  CHECK(step(waits, in) != often);
  in.computing = {.of_ranks = speeds};
  in.ranks = 4;
  CHECK(acco::expect(in_parts, in).step_seconds == doctest::Approx(2));  // split by the slowest
}

TEST_CASE("exchanges follow each other on one link, and the first may take another time") {
  // one may be two parts late, but the link carries one after the other
  const std::array<acco::timed_part, 1> each{{{.exchanges = true, .seconds = 3, .first_seconds = 3, .delay = 2}}};
  CHECK(acco::simulate({.step_seconds = 1}, 3, each, 103, 3).step_seconds() == doctest::Approx(3));
  const std::array<acco::timed_part, 2> second{{{}, {.exchanges = true, .seconds = 3, .first_seconds = 5}}};
  CHECK(acco::simulate({.step_seconds = 1}, 3, second, 4).seconds == doctest::Approx(4 + 5 + 3));
  CHECK(acco::simulate({.step_seconds = 1}, 3, second, 4, 2).seconds == doctest::Approx(2 + 3));
  CHECK(acco::simulate({.step_seconds = 1}, 3, second, 3, 2).seconds == doctest::Approx(1));
}

TEST_CASE("a link's seconds are its formula") {
  const acco::network_link wire{.bytes_per_second = 100,
                                .latency = 0.5,
                                .exchange_seconds = 2,
                                .first_seconds = 3,
                                .loss = 0.4,
                                .loss_rate = 100,
                                .first_loss = 0.5};
  const double lost = 0.4 * std::exp(-1.0);
  CHECK(wire.seconds(400, 4) == doctest::Approx(3 * (1 + lost) + 0.5 * 9 + 2));
  CHECK(wire.seconds(400, 4, true) == doctest::Approx(3 * (1 + lost / 2) + 0.5 * 9 + 2 + 3));
  CHECK(acco::network_link::trips(1) == 0);
  CHECK(acco::network_link::trips(2) == 8);
  CHECK(acco::network_link::trips(1000) == 17);
  const acco::network_link seen = acco::link_of(6, 16, 4, 2);
  CHECK(seen.seconds(16, 4) == doctest::Approx(6));
  CHECK(seen.seconds(8, 4) == doctest::Approx(4));
}

TEST_CASE("the fastest that may be paid for comes first; of nearly equal ones that which costs less") {
  constexpr std::array ways{waits, waits_coded, in_parts, late};
  const auto first = [&](double exchange, double loss) {
    return std::string_view(acco::advise(joined(exchange), ways, loss).front().of.name);
  };
  CHECK(first(1e-9, 1) == "waits");  // all are as fast, and the first is as good as any
  CHECK(first(0.2, 1) == "waits");   // 2.5 % slower than what hides it
  CHECK(first(4, 1) == "in parts");  // late is as fast, and costs 7 %
  CHECK(first(64, 1) == "waits, coded");
  constexpr std::array two{waits, late};
  constexpr std::array nearly{way{.name = "one", .delay = 1, .loss_percent = 0.1}, way{.name = "two", .loss_percent = 0.4},
                              way{.name = "three", .loss_percent = 0.6}};
  CHECK(std::string_view(acco::advise(joined(0.1), nearly, 1).front().of.name) == "two");  // less memory
  CHECK(std::string_view(acco::advise(joined(8), two, 1).front().of.name) == "waits");
  CHECK(std::string_view(acco::advise(joined(8), two, 10).front().of.name) == "late");

  const std::vector<acco::proposal> all = acco::advise(joined(64), ways, 1);
  REQUIRE(all.size() == 4);
  CHECK(std::string_view(all.back().of.name) == "late");  // fast or not: it may not be paid for
  CHECK(std::is_sorted(all.begin(), all.end() - 1, [](auto const& a, auto const& b) { return a.step_seconds < b.step_seconds; }));
  CHECK(all[0].speed == doctest::Approx(72.0 / 16));
  CHECK(all[0].utilisation == doctest::Approx(8 / 16.0));
  // so it is with memory: late keeps one array more
  CHECK(std::string_view(acco::advise(joined(8), two, 10, 17).front().of.name) == "waits");

  for (const double exchange : {0.0, 16.0}) {  // who is alone sends nothing, whatever was measured
    acco::situation const alone = joined(exchange, 0, 1);
    CHECK(std::string_view(acco::advise(alone).front().of.name) == "synchronous");
    CHECK(acco::advise(alone).front().step_seconds == doctest::Approx(8));
  }
  acco::situation whole = joined(8);
  whole.micro_batches = 1;  // is not split
  CHECK(acco::advise(whole, ways, 1).size() == 3);
  CHECK_THROWS_AS((void)acco::expect(in_parts, whole), acco::usage_error);
}

TEST_CASE("what cannot be seconds, bytes, steps or losses is refused in words") {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](way const& of, acco::situation const& in, char const* words) {
    CHECK_THROWS_WITH_AS((void)acco::expect(of, in), doctest::Contains(words), acco::usage_error);
  };
  acco::situation in = joined(8);
  in.computing.step_seconds = 0;
  refuses(waits, in, "a rank's seconds of a step is 0. Give a finite number above 0.");
  in = joined(8);
  in.computing.jitter = 1.5;
  refuses(waits, in, "compute_times::jitter is 1.5. Give a number from 0 to 1.");
  const std::array speeds{1.0, 2.0, 3.0};
  in.computing = {.of_ranks = speeds};
  refuses(waits, in, "compute_times::of_ranks has 3 numbers for 2 ranks. Give one a rank, or none and step_seconds.");
  in = joined(8);
  in.joined_by.bytes_per_second = not_a_number;
  refuses(waits, in, "network_link::bytes_per_second is nan");
  in = joined(8);
  for (way const& wrong : {way{.every = 2, .fragments = 3}, way{.delay = 2}, way{.in_parts = true, .every = 8}})
    refuses(wrong, in, "Give fragments that divide the steps between exchanges");
  refuses({.every = 0}, in, "way::every is 0");
  in = joined(8);
  in.joined_by.bytes_per_second = 1e-320;
  refuses(waits, in, "a step of 'waits' would take ");
  refuses({.commit = {.gradients = -2}}, in, "bytes of a message is -2");
  refuses({.name = "odd", .loss_percent = not_a_number}, in, "way::loss_percent of 'odd' is nan. Give a finite number.");
  CHECK_THROWS_AS((void)acco::advise(in, std::array{waits}, -0.5), acco::usage_error);
  CHECK_THROWS_WITH_AS((void)acco::link_of(1, 8, 2, 5),
                       "acco: link_of's fixed_seconds is 5, and seconds, of which it is a part, 1. "
                       "Give the part that fewer bytes do not shorten; 0 where it is not known.",
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)acco::simulate({.step_seconds = 1}, 1, {}, 4),
                       doctest::Contains("simulate was given 0 parts as a period, 4 in all, 0 skipped"), acco::usage_error);
}
