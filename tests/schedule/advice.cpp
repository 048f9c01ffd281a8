// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_integer.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/error.hpp>
#include <acco/outer.hpp>
#include <acco/schedule/advice.hpp>
#include <acco/schedule/synchronous.hpp>
#include <acco/schedule/two_phase.hpp>

namespace {
using acco::hidden_part;
using acco::way;

constexpr way waits{.name = "waits"};
constexpr way waits_coded{.name = "waits, coded", .commit = 1};
constexpr way in_parts{.name = "in parts", .hides = hidden_part::parts, .estimate = 1, .commit = 2};
constexpr way in_parts_in_full{.name = "in parts, in full", .hides = hidden_part::parts, .estimate = way::in_full};
constexpr way late{.name = "late", .hides = hidden_part::whole, .loss_percent = 7};
constexpr way rarely{.name = "rarely", .hides = hidden_part::whole, .commit = 0.5, .every = 8, .fragments = 8};

// Bytes a number of what travels; of what travels in full none are told.
template <class Code>
constexpr double bytes_of() {
  if constexpr (acco::encoding<Code>) return static_cast<double>(Code::block_bytes) / Code::block_size;
  return 0;
}
template <class Wire>
constexpr double bytes_of_both(Wire const& both) {
  using coded = decltype(acco::as_coded(both));
  return bytes_of<typename coded::gradient_encoding>() + bytes_of<typename coded::parameter_encoding>();
}
double told(double bytes) { return bytes == way::in_full ? 0 : bytes; }
template <class Schedule>
void check_bytes(way const& w, Schedule const& schedule) {
  if constexpr (requires { schedule.exchange; }) {
    CHECK(w.every == schedule.steps);
    CHECK(w.fragments == schedule.fragments);
    CHECK(told(w.commit) == doctest::Approx(bytes_of_both(schedule.exchange) / w.every));
  } else {
    CHECK(w.every == 1);
    CHECK(told(w.commit) == doctest::Approx(bytes_of_both(schedule.commit)));
  }
  if constexpr (requires { schedule.estimate; }) {
    CHECK((w.hides == hidden_part::parts));
    CHECK(told(w.estimate) == doctest::Approx(bytes_of_both(schedule.estimate)));
  }
}

std::string without_spaces(std::string of) {  // which the formatter of this file chooses
  of.erase(std::remove(of.begin(), of.end(), ' '), of.end());
  return of;
}

acco::proposal only(way const& w, acco::step_costs const& costs) {
  const std::vector<acco::proposal> all = acco::advise(costs, std::array{w}, 100);
  REQUIRE(all.size() == 1);
  return all[0];
}
}  // namespace

TEST_CASE("the expected seconds of a step are those of the formulas") {
  const acco::step_costs costs{.compute_seconds = 8, .exchange_seconds = 16, .bytes = 8};  // 2 s a byte, 1 s a micro-batch
  CHECK(only(waits, costs).step_seconds == doctest::Approx(8 + 16));
  CHECK(only(waits, costs).speed == doctest::Approx(1));
  CHECK(only(waits_coded, costs).step_seconds == doctest::Approx(8 + 2));
  CHECK(only(waits_coded, costs).speed == doctest::Approx(2.4));
  CHECK(only(waits_coded, costs).of_computation == doctest::Approx(0.8));
  CHECK(only(late, costs).step_seconds == doctest::Approx(16));
  CHECK(only(rarely, costs).step_seconds == doctest::Approx(8));
  way in_two = rarely;  // every 4 steps an exchange of 4 s behind one step of 8, then on a link on which it takes 16
  in_two.fragments = 2;
  CHECK(only(in_two, costs).step_seconds == doctest::Approx(8));
  CHECK(only(in_two, {.compute_seconds = 8, .exchange_seconds = 64}).step_seconds == doctest::Approx((16 + 3 * 8) / 4.0));
  // commit 4 s behind 6 or 7 of 8 micro-batches, estimate 2 s behind 2
  const acco::proposal split = only(in_parts, costs);
  CHECK(split.first == 6);
  CHECK(split.second == 2);
  CHECK(split.step_seconds == doctest::Approx(8));
  // no second part of more than a quarter: 6 + 2, though 4 + 4 would hide all
  const acco::proposal whole = only(in_parts_in_full, {.compute_seconds = 8, .exchange_seconds = 3});
  CHECK(whole.first == 6);
  CHECK(whole.second == 2);
  CHECK(whole.step_seconds == doctest::Approx(6 + 3));
}

TEST_CASE("what fewer bytes do not shorten is paid with every exchange") {
  const acco::step_costs costs{.compute_seconds = 8, .exchange_seconds = 16, .fixed_seconds = 4, .bytes = 8};
  CHECK(only(waits, costs).step_seconds == doctest::Approx(8 + 16));
  CHECK(only(waits_coded, costs).step_seconds == doctest::Approx(8 + 4 + 12.0 / 8));
  way rarely_and_waits = rarely;
  rarely_and_waits.hides = hidden_part::nothing;
  rarely_and_waits.fragments = 1;
  CHECK(only(rarely_and_waits, costs).step_seconds == doctest::Approx(8 + 4.0 / 8 + 12.0 / 16));
  CHECK(only(waits_coded, {.compute_seconds = 8, .exchange_seconds = 1, .fixed_seconds = 1, .bytes = 8}).step_seconds ==
        doctest::Approx(9));  // all of it
}

TEST_CASE("what travels in full now and then is spread over the steps between") {
  constexpr way told{.hides = hidden_part::whole, .commit = 1, .every = 8}, in_full{.hides = hidden_part::whole, .every = 8};
  const acco::step_costs costs{.compute_seconds = 1, .exchange_seconds = 8, .bytes = 8};
  const auto both = acco::advise(costs, std::array{told, in_full});
  CHECK(both[0].step_seconds == doctest::Approx((8 + 7) / 8.0));
  CHECK(both[1].step_seconds == both[0].step_seconds);
}
TEST_CASE("the fastest that may be paid for comes first; of nearly equal ones that which costs less") {
  constexpr std::array ways{waits, waits_coded, in_parts, late};
  const auto first = [&](double exchange, double loss) {
    return std::string_view(acco::advise({.compute_seconds = 8, .exchange_seconds = exchange}, ways, loss).front().of.name);
  };
  CHECK(first(0, 1) == "waits");     // all are as fast, and the first is as good as any
  CHECK(first(0.2, 1) == "waits");   // 2.5 % slower than what hides it
  CHECK(first(4, 1) == "in parts");  // late is as fast, and costs 7 %
  CHECK(first(4, 10) == "in parts");
  CHECK(first(64, 1) == "waits, coded");  // 16 to 16 + 8
  constexpr std::array two{waits, late};
  const auto of_two = [&](double exchange, double loss) {
    return std::string_view(acco::advise({.compute_seconds = 8, .exchange_seconds = exchange}, two, loss).front().of.name);
  };
  CHECK(of_two(8, 1) == "waits");
  CHECK(of_two(8, 10) == "late");

  const std::vector<acco::proposal> all = acco::advise({.compute_seconds = 8, .exchange_seconds = 64}, ways, 1);
  REQUIRE(all.size() == 4);
  CHECK(std::string_view(all.back().of.name) == "late");  // fast or not: it may not be paid for
  CHECK(std::is_sorted(all.begin(), all.end() - 1, [](auto const& a, auto const& b) { return a.step_seconds < b.step_seconds; }));
}

#define CHECK_SCHEDULE(called, ...)                                                                           \
  do {                                                                                                        \
    using namespace acco;                                                                                     \
    [[maybe_unused]] const auto schedule = __VA_ARGS__;                                                       \
    const auto found = std::find_if(std::begin(measured_ways), std::end(measured_ways),                       \
                                    [](way const& w) { return std::string_view(w.name) == (called); });       \
    REQUIRE(found != std::end(measured_ways));                                                                \
    const acco::proposal p{.of = *found, .first = 6, .second = found->hides == hidden_part::parts ? 2U : 0U}; \
    CHECK(without_spaces(p.code()) == without_spaces(#__VA_ARGS__));                                          \
    check_bytes(*found, schedule);                                                                            \
    ++checked;                                                                                                \
  } while (false)

TEST_CASE("the ways that were measured: their code compiles, and their bytes are those of their codes") {
  std::size_t checked = 0;
  CHECK_SCHEDULE("synchronous", synchronous{.pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("synchronous+;gauss4/gauss4", synchronous{.commit = block_gauss4{}, .pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE(
      "synchronous+;gauss4/gauss3",
      synchronous{.commit = coded{.gradients = block_gauss4{}, .parameters = block_gauss3{}}, .pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("two_phase", two_phase{.pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+own/gauss3;gauss4/gauss3",
                 two_phase{.estimate = coded{.gradients = own_slice{}, .parameters = block_gauss3{}},
                           .commit = coded{.gradients = block_gauss4{}, .parameters = block_gauss3{}},
                           .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+own/gauss3;gauss4/ternary",
                 two_phase{.estimate = coded{.gradients = own_slice{}, .parameters = block_gauss3{}},
                           .commit = coded{.gradients = block_gauss4{}, .parameters = block_ternary{}},
                           .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("streaming_diloco+int4",
                 streaming_diloco{
                     .inner = synchronous{.pace = fixed_pace{.first = 6}}, .steps = 8, .fragments = 2, .exchange = block_int4{}});
  CHECK(checked == std::size(acco::measured_ways));
}

TEST_CASE("a step of one micro-batch is not split") {
  constexpr std::array ways{in_parts, waits};
  const std::vector<acco::proposal> all =
      acco::advise({.compute_seconds = 8, .exchange_seconds = 8, .micro_batches = 1}, ways, 1);
  REQUIRE(all.size() == 1);
  CHECK(std::string_view(all[0].of.name) == "waits");
  CHECK(all[0].first == 1);
  CHECK(all[0].second == 0);
  const acco::proposal halves = only(in_parts, {.compute_seconds = 8, .exchange_seconds = 8, .micro_batches = 2});
  CHECK(halves.first == 1);
  CHECK(halves.second == 1);
}

TEST_CASE("what cannot be seconds is refused") {
  constexpr std::array ways{waits};
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 0, .exchange_seconds = 1}, ways), acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = -1}, ways), acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = not_a_number}, ways), acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = 1, .bytes = 0}, ways), acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = 1, .micro_batches = 0}, ways), acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = 1, .fixed_seconds = -1}, ways),
                  acco::usage_error);
  for (way const& wrong : {way{.commit = -2}, way{.estimate = not_a_number}, way{.every = 0}, way{.fragments = 0},
                           way{.every = 2, .fragments = 3}, way{.every = 8, .fragments = 3}})
    CHECK_THROWS_AS((void)acco::advise({.compute_seconds = 1, .exchange_seconds = 1}, std::array{wrong}), acco::usage_error);
}

TEST_CASE("losses that are none, and a part of the exchange that is longer than all of it, are refused in words") {
  constexpr std::array ways{waits, waits_coded};
  const double not_a_number = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  const acco::step_costs costs{.compute_seconds = 8, .exchange_seconds = 16};
  CHECK_THROWS_WITH_AS((void)acco::advise(costs, ways, -0.5),
                       "acco: advise's loss_percent is -0.5. Give a finite number, 0 or more.", acco::usage_error);
  CHECK_THROWS_WITH_AS((void)acco::advise(costs, ways, not_a_number), doctest::Contains("advise's loss_percent is nan"),
                       acco::usage_error);
  CHECK_THROWS_AS((void)acco::advise(costs, ways, infinite), acco::usage_error);
  CHECK(acco::advise(costs, ways, 0).size() == 2);
  CHECK_THROWS_WITH_AS((void)acco::advise({.compute_seconds = 8, .exchange_seconds = 1, .fixed_seconds = 5}, ways),
                       "acco: step_costs::fixed_seconds is 5, more than exchange_seconds, 1, of which it is a part. "
                       "Give the part that fewer bytes do not shorten; 0 where it is not known.",
                       acco::usage_error);
  for (const double loss : {not_a_number, infinite, -infinite})
    CHECK_THROWS_WITH_AS((void)acco::advise(costs, std::array{waits, way{.name = "odd", .loss_percent = loss}}),
                         doctest::Contains("way::loss_percent of 'odd' is "), acco::usage_error);
  CHECK(acco::advise(costs, std::array{way{.name = "gains", .loss_percent = -0.5}}).size() == 1);
}
