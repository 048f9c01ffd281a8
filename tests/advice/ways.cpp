// SPDX-License-Identifier: Apache-2.0
// The ways that were measured: their code compiles, their bytes are those of their codes, their memory is memory()'s.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/advice.hpp>
#include <acco/outer.hpp>

namespace {

constexpr std::size_t count = 102400;  // shares are whole blocks, and what is rounded less than a tenth of a byte each
constexpr int ranks = 4;

// Bytes a number of what travels.
template <class Code>
constexpr double bytes_of() {
  if constexpr (acco::encoding<Code>) return static_cast<double>(Code::block_bytes) / Code::block_size;
  return std::is_same_v<Code, acco::own_slice> ? 0 : acco::wire_bytes::in_full;
}
template <class Wire>
acco::wire_bytes message_of(Wire const& both) {
  using coded = decltype(acco::as_coded(both));
  return {bytes_of<typename coded::gradient_encoding>(), bytes_of<typename coded::parameter_encoding>()};
}
void check_equal(acco::wire_bytes const& a, acco::wire_bytes const& b) {
  CHECK(a.gradients == b.gradients);
  CHECK(a.parameters == b.parameters);
}

std::string without_spaces(std::string of) {  // which the formatter of this file chooses
  of.erase(std::remove(of.begin(), of.end(), ' '), of.end());
  return of;
}

template <class Schedule>
void check(char const* name, char const* code, Schedule const& schedule) {
  CAPTURE(name);
  const auto found = std::find_if(std::begin(acco::measured_ways), std::end(acco::measured_ways),
                                  [&](acco::way const& w) { return std::string_view(w.name) == name; });
  REQUIRE(found != std::end(acco::measured_ways));
  acco::way const& w = *found;
  CHECK(without_spaces(acco::proposal{.of = w, .first = 6, .second = w.in_parts ? 2U : 0U}.code()) == without_spaces(code));
  if constexpr (requires { schedule.exchange; }) {
    CHECK(w.every == schedule.steps);
    CHECK(w.fragments == schedule.fragments);
    CHECK(w.delay == schedule.method.settings().delay);
    CHECK(w.keeps_meanwhile == (w.delay > 0 && schedule.method.settings().work == acco::work_meanwhile::keep));
    check_equal(w.commit, message_of(schedule.exchange));
  } else {
    check_equal(w.commit, message_of(schedule.commit));
    CHECK(w.every == 1);
  }
  if constexpr (requires { schedule.estimate; }) {
    CHECK(w.in_parts);
    check_equal(w.estimate, message_of(schedule.estimate));
  }
}

double memory_of(char const* name) {
  const auto found = std::find_if(std::begin(acco::measured_ways), std::end(acco::measured_ways),
                                  [&](acco::way const& w) { return std::string_view(w.name) == name; });
  REQUIRE(found != std::end(acco::measured_ways));
  return acco::memory_per_parameter(*found, {.parameters = count}, ranks);
}

}  // namespace

#define CHECK_SCHEDULE(name, ...)           \
  do {                                      \
    using namespace acco;                   \
    check(name, #__VA_ARGS__, __VA_ARGS__); \
    ++checked;                              \
  } while (false)

TEST_CASE("the ways that were measured are schedules, and have their bytes") {
  std::size_t checked = 0;
  CHECK_SCHEDULE("synchronous", synchronous{.pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("synchronous+int4", synchronous{.commit = block_int4{}, .pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("synchronous+coded",
                 synchronous{.commit = coded<without_feedback<block_gauss4>, block_gauss3>{}, .pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE(
      "synchronous+rotated_gauss3/ternary",
      synchronous{.commit = coded<without_feedback<rotated<block_gauss3>>, block_ternary>{}, .pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("two_phase", two_phase{.pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+int4", two_phase{.estimate = block_int4{}, .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+coded", two_phase{.estimate = block_int4{},
                                              .commit = coded<without_feedback<block_gauss4>, block_gauss3>{},
                                              .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+own/gauss3;gauss4/gauss3", two_phase{.estimate = coded<own_slice, block_gauss3>{},
                                                                 .commit = coded<without_feedback<block_gauss4>, block_gauss3>{},
                                                                 .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("two_phase+own/gauss3;gauss4/ternary",
                 two_phase{.estimate = coded<own_slice, block_gauss3>{},
                           .commit = coded<without_feedback<block_gauss4>, block_ternary>{},
                           .pace = fixed_pace{.first = 6, .second = 2}});
  CHECK_SCHEDULE("weight_prediction", weight_prediction{.pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("delayed", delayed{.pace = fixed_pace{.first = 6}});
  CHECK_SCHEDULE("local_sgd",
                 local_updates{.method = local_sgd, .inner = synchronous{.pace = fixed_pace{.first = 6}}, .steps = 8});
  CHECK_SCHEDULE("local_sgd_late+int4", local_updates{.method = keeping<>{.delay = 1},
                                                      .inner = synchronous{.pace = fixed_pace{.first = 6}},
                                                      .steps = 8,
                                                      .fragments = 2,
                                                      .exchange = block_int4{}});
  CHECK_SCHEDULE("local_sgd_late+stat2", local_updates{.method = keeping<>{.delay = 1},
                                                       .inner = synchronous{.pace = fixed_pace{.first = 6}},
                                                       .steps = 8,
                                                       .fragments = 2,
                                                       .exchange = block_stat2{}});
  CHECK_SCHEDULE(
      "local_sgd+sparse_exchange",
      local_updates{
          .method = local_sgd, .inner = synchronous{.pace = fixed_pace{.first = 6}}, .steps = 8, .exchange = sparse_exchange});
  CHECK(checked == std::size(acco::measured_ways));
}

TEST_CASE("memory is what memory() says") {
  const auto allocated = [](auto const& schedule) {
    double bytes = 0;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      const acco::options unchecked{.check_habits = acco::habit_checks::off};
      const acco::optimizer training{schedule, acco::adamw{}, acco::host_storage<float>{}, world, count, unchecked};
      if (world.rank() == 0) bytes = static_cast<double>(training.memory().total()) / count;
    });
    return doctest::Approx(bytes).epsilon(0.005);
  };
  CHECK(memory_of("synchronous") == allocated(acco::synchronous{}));
  CHECK(memory_of("synchronous+int4") == allocated(acco::synchronous{.commit = acco::block_int4{}}));
  CHECK(memory_of("local_sgd+sparse_exchange") ==
        allocated(acco::local_updates{.method = acco::local_sgd, .steps = 8, .exchange = acco::sparse_exchange}));
  CHECK(memory_of("local_sgd_late+int4") ==
        allocated(acco::local_updates{
            .method = acco::keeping<>{.delay = 1}, .steps = 8, .fragments = 2, .exchange = acco::block_int4{}}));
  CHECK(memory_of("two_phase+int4") == allocated(acco::two_phase{.estimate = acco::block_int4{}}));
  // docs/performance.md, "The loss of the family", which has measured it
  CHECK(memory_of("two_phase") == doctest::Approx(16.0));
  CHECK(memory_of("delayed") == doctest::Approx(16.0));
  CHECK(memory_of("local_sgd") == doctest::Approx(34.0));
  const acco::way streaming{.every = 8, .fragments = 2, .delay = 1, .outer_slots = 1};  // DiLoCo's
  CHECK(acco::memory_per_parameter(streaming, {.parameters = count}, ranks) == doctest::Approx(39.1).epsilon(0.005));
}
