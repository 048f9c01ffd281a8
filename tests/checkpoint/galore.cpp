// SPDX-License-Identifier: Apache-2.0
// A run in bases that was killed goes on in every bit: matrices, bases and coordinates are in its checkpoints.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/galore.hpp>

#include "checkpoint/scratch.hpp"

namespace {

constexpr std::size_t micro_batches = 24;
acco::parameter_layout layout() { return acco::parameter_layout().add("wide", {7, 12}).add("tall", {11, 6}).add("vector", {13}); }

/// synchronous or two_phase: one engine for both.
struct either {
  bool halves = false;
  acco::fixed_pace pace = {};
  static constexpr char const* name = "either";
  static constexpr std::size_t period = 2;
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const {
    return halves ? acco::two_phase<>{}.plan(round) : acco::synchronous<>{}.plan(round);
  }
};

acco::any_optimizer<float> make(bool halves, acco::threads_backend const& world, std::uint64_t every = 3) {
  acco::options chosen{.check_habits = acco::habit_checks::off, .keep_checkpoints = 100};
  chosen.learning_rate = [](acco::training_position const& at) { return 1 / (1 + 0.05 * at.samples); };
  return acco::optimizer{acco::galore{.inner = either{.halves = halves}, .rank = 2, .every = every},
                         acco::adamw{.learning_rate = 0.02, .weight_decay = 0.5},
                         acco::host_storage<float>{},
                         world,
                         layout(),
                         chosen};
}

struct history {
  std::vector<std::vector<float>> parameters = std::vector<std::vector<float>>(micro_batches + 1);  // the last: at the end
  std::vector<std::uint64_t> bytes = std::vector<std::uint64_t>(micro_batches);
  std::uint64_t digest = 0;
};
void train(acco::any_optimizer<float>& t, int rank, std::size_t from, history& h, std::string const& run = "",
           std::size_t save_at = micro_batches) {
  std::size_t at = from;
  for (std::size_t m = from; m < micro_batches; ++m) {
    at = m;
    for (std::size_t i = 0; i < t.gradients().size(); ++i)
      t.gradients()[i] +=
          t.parameters()[i] + std::sin(static_cast<float>(i * i % 31 + 7 * m + 3 * static_cast<std::size_t>(rank)));
    if (!run.empty() && (m == 2 || m == save_at)) t.save(run, [&at] { return at; });  // matrices have moved in between
    if (auto const report = t.accumulated(1)) h.bytes[m] = report->bytes_sent;
    h.parameters[m].assign(t.parameters().begin(), t.parameters().end());
  }
  t.finish();
  h.parameters.back().assign(t.parameters().begin(), t.parameters().end());
  h.digest = t.world_digest();
}

}  // namespace

TEST_CASE("a resumed run in bases is the uninterrupted one, in every bit, wherever it was cut") {
  for (const bool halves : {false, true}) {
    history whole[2];
    const auto each = [&](int ranks, auto&& action) {
      acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
        auto t = make(halves, world);
        action(t, world.rank());
      });
    };
    each(2, [&](auto& t, int rank) {
      t.initialize(std::vector<float>(layout().size(), 0.5F));
      train(t, rank, 0, whole[rank]);
    });
    for (std::size_t save_at = 5; save_at < 8; ++save_at) {  // one of the cuts is a round with new bases
      CAPTURE(halves);
      CAPTURE(save_at);
      const scratch folder(in_memory());
      each(2, [&](auto& t, int rank) {
        history ignored;
        t.initialize(std::vector<float>(layout().size(), 0.5F));
        train(t, rank, 0, ignored, folder.run(), save_at);
      });
      each(2, [&](auto& t, int rank) {
        auto const found = t.restore(folder.run());
        CHECK(found.exact);
        const std::size_t from = found.template position<std::size_t>() + 1;
        history resumed;
        train(t, rank, from, resumed);
        for (std::size_t m = from; m <= micro_batches; ++m) CHECK(resumed.parameters[m] == whole[rank].parameters[m]);
        for (std::size_t m = from; m < micro_batches; ++m) CHECK(resumed.bytes[m] == whole[rank].bytes[m]);
        CHECK(resumed.digest == whole[rank].digest);
      });
      if (save_at != 5) continue;
      each(3, [&](auto& t, int) {  // another world goes on from the same weights
        auto const found = t.restore(folder.run());
        CHECK(!found.exact);
        t.finish();
      });
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        auto other = make(halves, world, 4);
        CHECK_THROWS_WITH_AS(other.restore(folder.run()), doctest::Contains("galore.every = 3"), acco::checkpoint_error);
        auto under = make(!halves, world);
        CHECK_THROWS_WITH_AS(under.restore(folder.run(), acco::changes::allowed), doctest::Contains("another schedule"),
                             acco::usage_error);
      });
    }
  }
}

TEST_CASE("a training in bases that was saved at its end shows what it showed, where its commits are coded") {
  const scratch folder(in_memory());
  std::vector<float> then, now;
  const auto each = [&](auto&& action) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::any_optimizer<float> t = acco::optimizer{
          acco::galore{.inner = acco::synchronous{.commit = acco::coded{acco::full{}, acco::block_int4<>{}}}, .rank = 2},
          acco::adamw{.learning_rate = 0.02}, acco::host_storage<float>{}, world, layout()};
      action(t);
      if (world.rank() == 0) (then.empty() ? then : now).assign(t.parameters().begin(), t.parameters().end());
    });
  };
  each([&](auto& t) {
    t.initialize(std::vector<float>(layout().size(), 0.5F));
    for (std::size_t m = 0; m < 3; ++m) {
      for (std::size_t i = 0; i < t.gradients().size(); ++i) t.gradients()[i] += std::sin(static_cast<float>(i * i % 31 + 7 * m));
      (void)t.accumulated(1);
    }
    t.save(folder.run());
    t.finish();
  });
  each([&](auto& t) { CHECK(t.restore(folder.run()).exact); });
  CHECK(now == then);
}
