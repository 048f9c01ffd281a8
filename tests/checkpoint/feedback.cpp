// SPDX-License-Identifier: Apache-2.0
// What senders keep of coded gradients is part of the state: a run that was killed goes on with it, and among other
// ranks nothing of it is lost.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/hierarchical.hpp>

#include "checkpoint/scratch.hpp"

namespace {
std::size_t rows = 20, columns = 25, elements = 700;
acco::parameter_layout layout() {
  return acco::parameter_layout().add("matrix", {rows, columns}).add("vector", {elements - rows * columns});
}
/// While it lives, the matrix has tiles.
struct larger {
  larger() { set(96, 64, 6344); }
  ~larger() { set(20, 25, 700); }
  larger(larger const&) = delete;
  larger& operator=(larger const&) = delete;
  static void set(std::size_t of_rows, std::size_t of_columns, std::size_t all) {
    rows = of_rows, columns = of_columns, elements = all;
  }
};

float gradient(int rank, std::size_t m, std::size_t index) {
  return std::sin(static_cast<float>(7 * index + 131 * m + 17 * static_cast<std::size_t>(rank)));
}
template <class Schedule, class World>
acco::any_optimizer<float> make(Schedule schedule, World const& world, double momentum, double loss_scale = 1) {
  return acco::optimizer{schedule,
                         acco::sgd{.learning_rate = 1, .momentum = momentum},
                         acco::host_storage<float>{},
                         world,
                         layout(),
                         acco::options{.on_non_finite = acco::non_finite::skip,
                                       .loss_scale = loss_scale,
                                       .check_habits = acco::habit_checks::off,
                                       .bucket_elements = 300}};
}
template <class Policy>
auto sending(Policy policy) {
  return acco::coded{acco::with_feedback{acco::block_int4{}, policy}, acco::full{}};
}
const acco::power_sgd of_rank_1{.rank = 1};  // of gradients whose matrix has rank 2
const acco::with_error_feedback<acco::power_sgd> products{of_rank_1, {}};

/// Kept in another type than gradients are, and fading.
auto narrow() {
  return acco::coded{acco::with_error_feedback<acco::block_int4<>, acco::bfloat16>{{}, {.decay = 0.9}}, acco::full{}};
}
/// As tiles.
auto tiled() {
  return acco::coded{acco::with_feedback{acco::loosely<acco::block_dct2_top<32>>{}, acco::error_feedback{}}, acco::full{}};
}
/// By a code that sends what lies where no element is, too.
auto without_zeros() {
  return acco::coded{acco::with_feedback{acco::loosely<acco::block_sign>{}, acco::error_feedback{}}, acco::full{}};
}
/// In eight bits; zeros are cleared where no element is.
auto packed() {
  return acco::coded{acco::with_error_feedback<acco::loosely<acco::block_sign>, acco::int8_blocks>{{}, {.decay = 0.9}},
                     acco::full{}};
}

// A run with disasters: a rank that brings nothing, rounds that nobody brings anything to, a gradient that is infinite.
constexpr std::size_t micro_batches = 26;
double weight(int rank, std::size_t m) { return m % 8 >= 6 || (rank == 1 && m % 5 == 1) ? 0 : 1 + 0.5 * rank; }

struct history {
  // after each micro-batch
  std::vector<std::vector<float>> parameters = std::vector<std::vector<float>>(micro_batches);
  std::uint64_t end = 0, skipped = 0;
};
/// `save_at`: the micro-batch at which a save into `run` is asked for.
void train(acco::any_optimizer<float>& t, int rank, std::size_t from, history& h, std::string const& run = "",
           std::size_t save_at = micro_batches) {
  std::size_t at = from;
  for (std::size_t m = from; m < micro_batches; ++m) {
    at = m;
    for (std::size_t i = 0; weight(rank, m) > 0 && i < elements; ++i) t.gradients()[i] += gradient(rank, m, i);
    if (m == 12 && rank == 0) t.gradients()[5] = std::numeric_limits<float>::infinity();
    if (m == save_at) t.save(run, [&at] { return at; });
    (void)t.accumulated(weight(rank, m));
    h.parameters[m].assign(t.parameters().begin(), t.parameters().end());
  }
  t.finish(acco::unfinished::commit);
  h.end = t.world_digest();
  h.skipped = t.totals().skipped;
}
template <class Schedule>
void compare(Schedule const& schedule, int ranks) {
  const scratch folder(in_memory());
  const auto each = [&](auto&& action) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto t = make(schedule, world, 0.5);
      action(t, world.rank(), static_cast<std::size_t>(world.rank()));
    });
  };
  const auto all = static_cast<std::size_t>(ranks);
  std::vector<history> whole(all), resumed(all);
  std::vector<std::size_t> from(all);
  each([&](auto& t, int rank, std::size_t k) {
    t.initialize(std::vector<float>(elements, 0.0F));
    train(t, rank, 0, whole[k]);
  });
  each([&](auto& t, int rank, std::size_t) {
    t.initialize(std::vector<float>(elements, 0.0F));
    history ignored;
    train(t, rank, 0, ignored, folder.run(), 7);
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
  });
  each([&](auto& t, int rank, std::size_t k) {
    auto const found = t.restore(folder.run());
    CHECK(found.exact);
    from[k] = found.template position<std::size_t>() + 1;
    CHECK(from[k] < 12);
    train(t, rank, from[k], resumed[k]);
  });
  for (std::size_t k = 0; k < all; ++k) {
    CAPTURE(k);
    for (std::size_t m = from[k]; m < micro_batches; ++m) CHECK((resumed[k].parameters[m] == whole[k].parameters[m]));
    CHECK(resumed[k].end == whole[k].end);
    CHECK(resumed[k].skipped == whole[k].skipped);
    CHECK(whole[k].skipped >= 1);
  }
}

// The sum of all that was computed is what was applied, and what ranks still keep.
struct sums {
  std::vector<double> computed = std::vector<double>(elements), applied = computed, kept = computed;
  std::size_t m = 0;
};
void add_kept(std::string const& run, std::size_t ranks, std::vector<double>& kept) {
  kept.assign(elements, 0.0);
  std::vector<double> values(elements);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const acco::model_file file(acco::latest_checkpoint(run).value() + "/" + acco::name_of_rank("residual", rank, ranks) +
                                ".safetensors");
    for (std::size_t k = 0; k < layout().tensor_count(); ++k)
      file.read(layout()[k].name, 0, std::span(values).subspan(layout()[k].offset, layout()[k].size));
    for (std::size_t i = 0; i < elements; ++i) kept[i] += values[i];
  }
}
/// Some rounds on so many ranks, from the state in `from`, if any, to that in `to`.
template <class Schedule>
void go_on(Schedule const& schedule, sums& s, int ranks, std::string const& from, std::string const& to) {
  constexpr std::size_t rounds = 6;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto t = make(schedule, world, 0);
    from.empty() ? t.initialize(std::vector<float>(elements, 0.0F)) : static_cast<void>(t.restore(from));
    std::vector<float> before(t.parameters().begin(), t.parameters().end());
    for (std::size_t m = s.m; m < s.m + rounds; ++m) {
      for (std::size_t i = 0; i < elements; ++i) t.gradients()[i] += gradient(world.rank(), m, i);
      auto const report = t.accumulated(1);
      REQUIRE(report);
      for (std::size_t i = 0; world.rank() == 0 && i < elements; ++i)
        s.applied[i] += (static_cast<double>(before[i]) - static_cast<double>(t.parameters()[i])) * report->weight;
      before.assign(t.parameters().begin(), t.parameters().end());
    }
    t.finish();
    t.save(to);
    t.finish();
    REQUIRE(t.saved() != nullptr);
    REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
  });
  for (std::size_t m = s.m; m < s.m + rounds; ++m) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < elements; ++i) s.computed[i] += static_cast<double>(gradient(rank, m, i));
    }
  }
  s.m += rounds;
  add_kept(to, static_cast<std::size_t>(ranks), s.kept);
}
template <class Schedule>
void change_ranks(Schedule const& schedule) {
  const scratch folder(in_memory());
  sums s;
  std::string from;
  for (const int ranks : {3, 2, 5, 1}) {
    CAPTURE(ranks);
    const std::string to = folder.run("of " + std::to_string(ranks));
    go_on(schedule, s, ranks, from, to);
    std::size_t wrong = 0;
    double largest = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      wrong += std::abs(s.applied[i] + s.kept[i] - s.computed[i]) > 1e-3 ? 1 : 0;
      largest = std::max(largest, std::abs(s.kept[i]));
    }
    CHECK(wrong == 0);
    CHECK(largest > 0.01);
    from = to;
  }
}
}  // namespace

TEST_CASE("a run with feedback, killed at a cut, goes on as if it had not been, on one rank, two and three") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    compare(acco::synchronous{.commit = sending(acco::error_feedback{})}, ranks);
    compare(acco::two_phase{.commit = sending(acco::error_feedback{}), .pace = acco::fixed_pace{1}}, ranks);
    compare(acco::two_phase{.estimate = acco::block_int4{},
                            .commit = acco::with_error_feedback<acco::block_int4<>>{},
                            .pace = acco::fixed_pace{1}},
            ranks);
    compare(acco::delayed{.commit = sending(acco::decoupled_momentum{.decay = 0.9})}, ranks);
    compare(acco::delayed{.commit = sending(acco::ef21{})}, ranks);
    compare(acco::delayed{.commit = narrow()}, ranks);
    compare(acco::delayed{.commit = without_zeros()}, ranks);
    compare(acco::delayed{.commit = packed()}, ranks);
    compare(acco::two_phase{.estimate = of_rank_1, .commit = products, .pace = acco::fixed_pace{1}}, ranks);
  }
}

TEST_CASE(
    "a run whose matrices travel as tiles, killed at a cut, goes on as if it had not been, and among other ranks nothing is "
    "lost") {
  const larger matrix;
  compare(acco::synchronous{.commit = tiled()}, 2);
  change_ranks(acco::synchronous{.commit = tiled()});
}

TEST_CASE("among other ranks nothing is lost of what was not sent") {
  change_ranks(acco::synchronous{.commit = sending(acco::error_feedback{})});
  change_ranks(acco::synchronous{.commit = products});
}

TEST_CASE("what a wire keeps is dropped, or begins empty, where the schedule was changed, and says so") {
  const scratch folder(in_memory());
  const auto save = [](auto& t, std::string const& run) {
    for (std::size_t i = 0; i < elements; ++i) t.gradients()[i] += gradient(0, 0, i);
    (void)t.accumulated(1);
    t.finish();
    t.save(run);
    t.finish();
  };
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto with = make(acco::synchronous{.commit = sending(acco::error_feedback{})}, world, 0);
    with.initialize(std::vector<float>(elements, 0.0F));
    save(with, folder.run("with"));
    auto without = make(acco::synchronous{}, world, 0);
    CHECK_THROWS_WITH_AS((void)without.restore(folder.run("with")), doctest::Contains("commit"), acco::checkpoint_error);
    auto changed = make(acco::synchronous{}, world, 0);
    CHECK(changed.restore(folder.run("with"), acco::changes::allowed).dropped == std::vector<std::string>{"residual"});
    save(changed, folder.run("without"));
    auto back = make(acco::synchronous{.commit = sending(acco::error_feedback{})}, world, 0);
    CHECK(back.restore(folder.run("without"), acco::changes::allowed).dropped.empty());
    save(back, folder.run("back"));
    auto narrower = make(acco::synchronous{.commit = narrow()}, world, 0);
    CHECK(with.memory().encoded - narrower.memory().encoded == acco::partition(elements, 2, 300).padded_size() * 2);
    CHECK_THROWS_WITH_AS((void)narrower.restore(folder.run("with")), doctest::Contains("commit feedback.decay = 1'"),
                         acco::checkpoint_error);
    auto converted = make(acco::synchronous{.commit = narrow()}, world, 0);
    CHECK(converted.restore(folder.run("with"), acco::changes::allowed).dropped.empty());
    auto scaled = make(acco::synchronous{.commit = sending(acco::error_feedback{})}, world, 0, 2);
    CHECK_THROWS_WITH_AS((void)scaled.restore(folder.run("with"), acco::changes::allowed),
                         doctest::Contains("the checkpoint's 'residual' is of gradients under another options::loss_scale"),
                         acco::checkpoint_error);
  });
}

namespace {
/// In gradients of 16 bits.
template <class Wire>
void digests_agree(Wire const& wire) {
  const scratch folder(in_memory());
  const auto made = [&](acco::threads_backend const& world) -> acco::any_optimizer<float, acco::half> {
    return acco::optimizer{acco::synchronous{.commit = wire},
                           acco::sgd{},
                           acco::host_storage<float, acco::half>{},
                           world,
                           elements,
                           acco::options{.check_habits = acco::habit_checks::off, .digest_every = 1, .bucket_elements = 300}};
  };
  std::uint64_t saved = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = made(world);
    t.initialize(std::vector<float>(elements, 0.0F));
    for (std::size_t m = 0; m < 3; ++m) {
      for (std::size_t i = 0; i < elements; ++i) t.gradients()[i] += gradient(world.rank(), m, i);
      auto const report = t.accumulated(1);
      REQUIRE(report);
      CHECK(report->digest == t.world_digest());
    }
    t.finish();
    t.save(folder.run());
    t.finish();
    const std::uint64_t digest = t.world_digest();
    if (world.rank() == 0) saved = digest;
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = made(world);
    CHECK(t.restore(folder.run()).digest == saved);
  });
}
}  // namespace

TEST_CASE("the digest that a round computes has what a wire keeps, in its own type, and is that of the state that comes back") {
  digests_agree(sending(acco::error_feedback{}));
  digests_agree(narrow());
  digests_agree(packed());
}

TEST_CASE("a training that goes back, or gets other parameters, has the directions of then, or none") {
  const scratch folder(in_memory());
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto three_steps = [&](auto& t, std::size_t from) {
      for (std::size_t m = from; m < from + 3; ++m) {
        for (std::size_t i = 0; i < elements; ++i) t.gradients()[i] += gradient(world.rank(), m, i);
        (void)t.accumulated(1);
      }
      t.finish();
      return std::vector<float>(t.parameters().begin(), t.parameters().end());
    };
    const std::vector<float> begin(elements, 0.0F);
    auto t = make(acco::synchronous{.commit = products}, world, 0);
    t.initialize(begin);
    auto const first = three_steps(t, 0);
    t.save(folder.run());
    t.finish();
    auto const then = three_steps(t, 3);
    (void)t.restore(folder.run());
    CHECK((three_steps(t, 3) == then));
    t.set_parameters(begin);
    CHECK((three_steps(t, 0) == first));
  });
}

TEST_CASE("what groups keep: a killed run goes on, and in other groups it is refused, or dropped by name") {
  const scratch folder(in_memory());
  const auto schedule =
      acco::delayed{.commit = acco::coded<acco::between_groups<acco::with_error_feedback<acco::block_int4<>>>, acco::full>{}};
  const auto each = [&](int ranks, int ranks_a_group, auto&& action) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto const grouped = acco::hierarchical_world(world, ranks_a_group, 60);
      auto t = make(schedule, grouped, 0.5);
      action(t, grouped.rank(), static_cast<std::size_t>(grouped.rank()));
    });
  };
  std::vector<history> whole(4), resumed(4);
  each(4, 2, [&](auto& t, int rank, std::size_t k) {
    t.initialize(std::vector<float>(elements, 0.0F));
    train(t, rank, 0, whole[k], folder.run(), 7);
  });
  each(4, 2, [&](auto& t, int rank, std::size_t k) {
    auto const found = t.restore(folder.run());
    CHECK(found.exact);
    const std::size_t from = found.template position<std::size_t>() + 1;
    train(t, rank, from, resumed[k]);
    for (std::size_t m = from; m < micro_batches; ++m) CHECK((resumed[k].parameters[m] == whole[k].parameters[m]));
    CHECK(resumed[k].end == whole[k].end);
    CHECK(whole[k].skipped >= 1);
  });
  for (auto const& [ranks, of] : {std::pair{4, 1}, std::pair{6, 3}}) {
    each(ranks, of, [&](auto& t, int, std::size_t) {
      CHECK_THROWS_WITH_AS((void)t.restore(folder.run()), doctest::Contains("the checkpoint has 'groups = 2 of 2 ranks"),
                           acco::checkpoint_error);
    });
    each(ranks, of, [&](auto& t, int, std::size_t) {
      auto const dropped = t.restore(folder.run(), acco::changes::allowed).dropped;
      REQUIRE(dropped.size() == 1);
      CHECK(dropped[0].starts_with("residual.2x2."));
    });
  }
}
