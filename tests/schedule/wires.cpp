// SPDX-License-Identifier: Apache-2.0
// A schedule whose rounds have three lengths and travel in three ways, each by its number.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

/// Two, one and three micro-batches.
struct three_lengths {
  static constexpr char const* name = "three_lengths";
  [[nodiscard]] constexpr unsigned minimum(acco::step_part part) const noexcept {
    constexpr unsigned of[] = {2, 1, 3};
    return of[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] constexpr unsigned maximum(acco::step_part part) const noexcept { return minimum(part); }
};

/// Two estimates, one from own gradients and one from coded ones, and a commit in full of all that was carried.
struct three_wires {
  three_lengths pace;
  static constexpr std::size_t period = 3;
  static constexpr char const* name = "three_wires";
  [[nodiscard]] constexpr auto wires() const noexcept {
    return std::tuple{acco::own_slice{}, acco::coded<acco::block_int4<>>{}, acco::full{}};
  }
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const noexcept {
    const auto k = static_cast<std::uint8_t>(round % 3);
    return {.parameters = k == 2 ? acco::update::commit : acco::update::predict,
            .part = static_cast<acco::step_part>(k),
            .keeps = k != 2,
            .wire = k};
  }
};
struct one_too_many : three_wires {
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const noexcept {
    acco::round_plan p = three_wires::plan(round);
    p.wire = round % 3 == 0 ? 3 : p.wire;
    return p;
  }
};

constexpr std::size_t parameters = 600;
float gradient(int rank, std::size_t batch, std::size_t index) {
  return static_cast<float>((7 * index + 5 * batch + 3 * static_cast<std::size_t>(rank)) % 17) - 8;
}

}  // namespace

static_assert(acco::flaw_of([](std::size_t round) { return three_wires{}.plan(round); }, acco::period_of(three_wires{}),
                            acco::means_of<three_wires>()) == acco::schedule_flaw::none);
static_assert(acco::flaw_of([](std::size_t round) { return one_too_many{}.plan(round); }, acco::period_of(one_too_many{}),
                            acco::means_of<one_too_many>()) == acco::schedule_flaw::no_such_wire);

TEST_CASE("rounds of three lengths travel in three ways, and commit what synchronous rounds of all of them commit") {
  constexpr int ranks = 2;
  constexpr std::size_t steps = 5, batches = 6 * steps;
  std::mutex one_at_a_time;
  acco::threads_backend::run(ranks, [&](acco::threads_backend world) {
    const auto train = [&](auto schedule, auto&& see) {
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.1}, acco::host_storage<float>{}, world, parameters};
      training.initialize(std::vector<float>(parameters, 1.0F));
      for (std::size_t batch = 0; batch < batches; ++batch) {
        for (std::size_t i = 0; i < parameters; ++i) training.gradients()[i] += gradient(world.rank(), batch, i);
        if (auto const report = training.accumulated(1)) see(*report);
      }
      training.finish();
      return std::vector<float>(training.parameters().begin(), training.parameters().end());
    };
    std::vector<std::uint64_t> bytes;
    std::vector<std::size_t> lengths;
    std::vector<int> wires;
    auto const three = train(three_wires{}, [&](acco::round_report const& report) {
      bytes.push_back(report.bytes_sent);
      lengths.push_back(report.micro_batches);
      wires.push_back(report.plan.wire);
    });
    auto const one = train(acco::synchronous{.pace = acco::fixed_pace{.first = 6}}, [](auto const&) {});
    const std::scoped_lock lock(one_at_a_time);
    CHECK(three == one);
    REQUIRE(lengths.size() >= 9);
    for (std::size_t round = 0; round < lengths.size(); ++round) {
      CHECK(wires[round] == static_cast<int>(round % 3));
      CHECK(lengths[round] == three_lengths{}.minimum(static_cast<acco::step_part>(round % 3)));
    }
    CHECK(bytes[3] < bytes[4]);
    CHECK(bytes[4] < bytes[5]);
  });
}
