// SPDX-License-Identifier: Apache-2.0
// What a trainer sees of galore: arrays, memory, what is gathered, what is refused, 16-bit parameters and encoded rounds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/hierarchical.hpp>
#include <acco/galore.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"

namespace {

acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  const std::size_t frozen = layout.add_group({.frozen = true});
  layout.add("wide", {12, 30}).add("bias", {30}).add("frozen", {9, 9}, frozen).add("tall", {40, 10});
  return layout;
}
std::vector<float> start() {
  std::vector<float> values(layout_of().size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(problem::unit(i + 3) - 0.5);
  return values;
}
template <class World>
acco::any_optimizer<float> made(acco::galore<> const& level, World const& world, acco::options const& options = {},
                                acco::sgd const& rule = {.learning_rate = 0.1},
                                acco::parameter_layout const& layout = layout_of(),
                                acco::host_storage<float> const& storage = {}) {
  return acco::optimizer{level, rule, storage, world, layout, options};
}
/// The gradient of half the distance to a point of this rank's.
template <class Parameter>
void micro_batch(acco::any_optimizer<Parameter>& training, int rank) {
  for (std::size_t k = 0; k < training.layout().tensor_count(); ++k) {
    auto const each = training.layout()[k];
    auto const [at, to] = training.tensor(each.name);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const double target = problem::unit(each.offset + i + 77) + 0.5 * rank;
      to[i] = static_cast<Parameter>(static_cast<float>(to[i]) + static_cast<float>(at[i]) - static_cast<float>(target));
    }
  }
}
bool says(std::exception const& e, char const* what) { return std::string(e.what()).find(what) != std::string::npos; }

}  // namespace

TEST_CASE("bases that span less than the matrix move it within them only; in time others come, and the distance shrinks") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    auto training = made({.rank = 4, .every = 5, .scale = 1}, world);
    training.initialize(start());
    auto const distance = [&] {
      double squares = 0;
      auto const at = training.tensor("wide").parameters;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const double d = static_cast<double>(at[i]) - problem::unit(i + 77) - 0.25;
        squares += d * d;
      }
      return squares;
    };
    const double before = distance();
    std::vector<float> const first = start();
    for (int step = 0; step < 5; ++step) {
      micro_batch(training, world.rank());
      REQUIRE(training.accumulated(1));
    }
    // W - W(0) = P z: five vectors of it are linearly dependent
    std::vector<double> change(12 * 5);
    auto const at = training.tensor("wide").parameters;
    for (std::size_t v = 0; v < 5; ++v) {
      for (std::size_t i = 0; i < 12; ++i)
        change[v * 12 + i] = static_cast<double>(at[i * 30 + v]) - static_cast<double>(first[i * 30 + v]);
    }
    std::vector<double> squares(5);
    acco::matrices::singular_vectors(change.data(), 12, 5, squares.data());
    CHECK(squares[3] > 1e-8);
    CHECK(squares[4] < 1e-10);
    const double once = distance();
    CHECK(once < before);
    for (int step = 0; step < 60; ++step) {
      micro_batch(training, world.rank());
      REQUIRE(training.accumulated(1));
    }
    CHECK(distance() < 0.2 * once);
    training.finish();
  });
}

TEST_CASE("memory is known before initialize and equal to what is allocated, with own arrays and with the trainer's") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    auto const layout = layout_of();
    for (const bool adopts : {false, true}) {
      counting::resource resource;
      auto training = made({.rank = 4}, world, {}, {}, layout, {.memory = &resource});
      acco::memory_table const before = training.memory();
      CHECK(before.projected > (12 * 30 + 40 * 10) * sizeof(float));
      std::vector<float> parameters = start(), gradients(layout.size(), 3.0F);
      std::vector<acco::tensor_memory<float>> tensors;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k)
        tensors.push_back({parameters.data() + layout[k].offset, k == 2 ? nullptr : gradients.data() + layout[k].offset});
      if (world.rank() != 0) std::fill(parameters.begin(), parameters.end(), 0.0F);
      adopts ? training.adopt(tensors) : training.initialize(parameters);
      CHECK(resource.now == training.memory().total());
      if (!adopts) CHECK(resource.now == before.total());
      for (int step = 0; step < 3; ++step) {
        micro_batch(training, world.rank());
        REQUIRE(training.accumulated(1));
      }
      CHECK(resource.most == resource.now);
      training.finish();
      if (adopts) {
        CHECK(training.tensor("tall").parameters.data() == parameters.data() + layout[3].offset);
        CHECK(parameters[layout[2].offset + 5] == start()[layout[2].offset + 5]);  // frozen; rank 0's
        CHECK(parameters[0] != start()[0]);
        CHECK(gradients[0] == 0);
      }
      std::vector<float> gathered(layout.size()), masters(layout.size());
      training.gather_committed(gathered);
      training.gather_masters(masters);
      CHECK(gathered == masters);
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const at = training.tensor(layout[k].name).parameters;
        CHECK(std::equal(at.begin(), at.end(), gathered.begin() + static_cast<std::ptrdiff_t>(layout[k].offset)));
      }
    }
  });
}

TEST_CASE("a step without any gradient leaves the bases, and the next one renews them; parameters can be set; digests agree") {
  acco::threads_backend::run(3, [](acco::threads_backend const& world) {
    auto training = made({.rank = 4, .every = 2}, world, {.check_habits = acco::habit_checks::off});
    training.initialize(std::vector<float>(layout_of().size(), 1.0F));
    std::vector<bool> renewed;
    const auto step = [&](bool gradients) {
      if (gradients) micro_batch(training, world.rank());
      auto const report = training.accumulated(1);
      REQUIRE(report);
      renewed.push_back(report->bases.has_value());
      return report->bytes_sent;
    };
    step(true);
    const auto usual = step(true);
    std::vector<float> const before(training.parameters().begin(), training.parameters().end());
    const auto in_vain = step(false);  // bases are due
    CHECK(in_vain > usual);
    CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == before);
    step(true);
    step(true);
    step(true);
    CHECK(renewed == std::vector<bool>{true, false, false, true, false, true});

    const std::uint64_t all = training.world_digest();
    std::vector<double> half{static_cast<double>(all >> 32U), static_cast<double>(all & 0xffffffffU)}, sums = half;
    training.sum_over_ranks(sums);
    CHECK((sums[0] == 3 * half[0] && sums[1] == 3 * half[1]));  // every rank has the same matrices and bases

    training.finish();
    training.set_parameters(start());
    CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == start());
    CHECK(training.world_digest() != all);
    step(true);
    CHECK(std::abs(training.parameters()[0] - start()[0]) < 0.3F);
    std::vector<float> masters(layout_of().size());
    training.gather_masters(masters);
    CHECK(masters == std::vector<float>(training.parameters().begin(), training.parameters().end()));
    training.finish();
  });
}

TEST_CASE("masters in: rank 0's values, of more bits, become every rank's") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    auto const layout = layout_of();
    auto training = made({.rank = 4}, world);
    std::vector<double> values(layout.size(), 0.0);
    for (std::size_t i = 0; i < values.size() && world.rank() == 0; ++i) values[i] = static_cast<double>(start()[i]);
    training.initialize(std::span<double const>(values));
    CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == start());
    training.finish();
  });
}

TEST_CASE(
    "parameters of 16 bits, rounds in four and eight: what is shown is the image of what was decoded, finish shows what is "
    "gathered") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    using storage = acco::host_storage<acco::bfloat16>;
    const acco::galore level{.inner = acco::two_phase{.estimate = acco::block_int4<>{},
                                                      .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}},
                             .rank = 6,
                             .every = 7,  // not when the training ends, which would show masters anyway
                             .scale = 1};
    acco::any_optimizer<acco::bfloat16> training =
        acco::optimizer{level, acco::adamw{.learning_rate = 0.05, .weight_decay = 0.01}, storage{}, world, layout_of()};
    std::vector<acco::bfloat16> initial;
    for (const float value : start()) initial.emplace_back(value);
    training.initialize(initial);
    auto const distance = [&] {
      double squares = 0;
      auto const at = training.tensor("wide").parameters;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const double d = static_cast<double>(static_cast<float>(at[i])) - problem::unit(i + 77) - 0.25;
        squares += d * d;
      }
      return squares;
    };
    const double before = distance();
    for (int m = 0; m < 121; ++m) {
      micro_batch(training, world.rank());
      (void)training.accumulated(1);
      if (m % 20 == 7) {  // the same on every rank
        std::vector<double> sum(1, static_cast<double>(static_cast<float>(training.parameters()[17]))), mine = sum;
        training.sum_over_ranks(sum);
        CHECK(sum[0] == 2 * mine[0]);
      }
    }
    CHECK(distance() < 0.4 * before);
    training.finish();
    std::vector<acco::bfloat16> gathered(layout_of().size());
    std::vector<float> masters(layout_of().size());
    training.gather_masters(masters);
    training.gather_committed(gathered);
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      CHECK(static_cast<float>(gathered[i]) == static_cast<float>(acco::bfloat16(masters[i])));
      CHECK(static_cast<float>(training.parameters()[i]) == static_cast<float>(gathered[i]));
    }
  });
}

TEST_CASE("in many buckets and one galore trains to the same bits, waiting and a step late, over renewals and what codes lose") {
  const auto trained = [](auto const& inner, std::size_t bucket_elements) {
    std::vector<float> result;
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      using inner_type = std::remove_cvref_t<decltype(inner)>;
      const acco::galore<inner_type> level{.inner = inner, .rank = 4, .every = 3, .scale = 1};
      acco::any_optimizer<float> training = acco::optimizer{
          level,       acco::adamw{.learning_rate = 0.05, .weight_decay = 0.05}, acco::host_storage<float>{}, world,
          layout_of(), acco::options{.bucket_elements = bucket_elements}};
      training.initialize(start());
      for (int step = 0; step < 10; ++step) {
        micro_batch(training, world.rank());
        (void)training.accumulated(1);  // a step late, the first one has nothing to tell
        std::vector<double> one{static_cast<double>(training.parameters()[7])}, sum = one;
        training.sum_over_ranks(sum);
        REQUIRE(sum[0] == doctest::Approx(3 * one[0]).epsilon(1e-12));  // the ranks hold the same
      }
      training.finish();
      REQUIRE(training.steps() >= 9);
      std::vector<float> committed(layout_of().size());
      training.gather_committed(std::span(committed));
      REQUIRE(std::equal(committed.begin(), committed.end(), training.parameters().begin()));
      if (world.rank() == 0) result = committed;
    });
    return result;
  };
  const acco::synchronous<> waits;
  const acco::delayed<> late;
  CHECK(trained(waits, 192) == trained(waits, 0));
  CHECK(trained(late, 192) == trained(late, 0));
  CHECK(trained(late, 0) != trained(waits, 0));
  using lossy = acco::with_error_feedback<acco::block_gauss3>;
  const acco::delayed coded{.commit = acco::coded<lossy, acco::block_int8<>>{}};
  std::vector<float> const found = trained(coded, 192), exact = trained(late, 192);
  CHECK(found != exact);
  double apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) apart = std::max(apart, static_cast<double>(std::abs(found[i] - exact[i])));
  CHECK(apart < 0.5);
}

TEST_CASE("step() tells of new bases, also where an estimate's report is the one that knows") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::galore<acco::two_phase<>> level{.inner = {.pace = acco::fixed_pace{1, 1}}, .rank = 4, .every = 3};
    acco::any_optimizer<float> training =
        acco::optimizer{level, acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world, layout_of()};
    training.initialize(start());
    int renewed = 0;
    for (int step = 0; step < 9; ++step) {
      auto const report = training.step([&] {
        micro_batch(training, world.rank());
        return 1;
      });
      renewed += report.bases ? 1 : 0;
    }
    training.finish();
    CHECK(renewed == 3);
  });
}
TEST_CASE("what galore cannot be made of is refused in words") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    const auto refused = [&](char const* what, acco::galore<> const& level, acco::options const& options = {},
                             acco::sgd const& rule = {}, acco::parameter_layout const& layout = layout_of()) {
      CAPTURE(what);
      try {
        (void)made(level, world, options, rule, layout);
        FAIL("was not refused");
      } catch (acco::usage_error const& e) {
        CAPTURE(e.what());
        CHECK(says(e, what));
      }
    };
    refused("galore::rank is 0", {.rank = 0});
    refused("galore::every is 0", {.rank = 4, .every = 0});
    refused("galore::scale is nan", {.rank = 4, .scale = std::nan("")});
    refused("galore::scale is 0", {.rank = 4, .scale = 0});
    refused("galore::iterations is 0", {.rank = 4, .iterations = 0});
    refused("galore::projects is null", {.rank = 4, .projects = nullptr});
    refused("smaller side is longer than the rank, 12", {.rank = 12});
    refused("smaller side is longer than the rank, 4", {.rank = 4}, {}, {}, acco::parameter_layout(1000));
    refused("smaller side is longer than the rank, 4",
            {.rank = 4, .projects = [](acco::parameter_layout::tensor const&) { return false; }});
    refused("options::snapshots", {.rank = 4}, {.snapshots = 2});
    refused("options::average_decay", {.rank = 4}, {.average_decay = 0.9});
    refused("options::digest_every", {.rank = 4}, {.digest_every = 3});
    refused("otherwise than by decoupled weight decay", {.rank = 4}, {},
            {.weight_decay = 0.1, .weight_decay_kind = acco::decay::classic});
    acco::parameter_layout left_alone;
    left_alone.add("matrix", {9, 9}, left_alone.add_group({.leave_without_gradient = true}));
    refused("decays, and is left alone", {.rank = 4}, {}, {.weight_decay = 0.1}, left_alone);

    auto training = made({.rank = 4}, world);
    CHECK_THROWS_AS((void)training.join(), acco::usage_error);
    training.initialize(start());
    CHECK_THROWS_AS((void)training.rewind(1), acco::usage_error);  // no snapshot reaches
    training.finish();
  });
}

TEST_CASE("ranks of other settings are told") {
  std::string told[2];
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    try {
      made({.rank = 4, .scale = world.rank() == 0 ? 1.0 : 0.5}, world).initialize(start());
    } catch (acco::mismatch_error const& e) {
      told[world.rank()] = e.what();
    }
  });
  for (auto const& each : told)
    CHECK(each.find("rank 0 has 'galore.scale = 1', rank 1 has 'galore.scale = 0.5'") != std::string::npos);
}
TEST_CASE("a tensor that ranks have differently is told whole, under galore too") {
  std::string told[2];
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    layout.add("embedding", {16, 8}).add("up", {world.rank() == 0 ? 16U : 12U, 8});
    try {
      made({.rank = 4}, world, {}, {.learning_rate = 0.1}, layout).initialize(std::vector<float>(layout.size()));
    } catch (acco::mismatch_error const& e) {
      told[world.rank()] = e.what();
    }
  });
  for (auto const& each : told) {
    CAPTURE(each);
    CHECK(each.find("rank 0 has tensor 1, 'up' of 16 x 8 in group 0, rank 1 has tensor 1, 'up' of 12 x 8 in group 0") !=
          std::string::npos);
  }
}

TEST_CASE("over two levels, reports have what searches for bases send between groups: a third of it, in two groups of two") {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    auto training = made({.rank = 4, .every = 3}, acco::hierarchical_world(world, 2));
    training.initialize(start());
    std::uint64_t of_rounds = 0;
    std::size_t searches = 0;
    for (int m = 0; m < 8; ++m) {
      micro_batch(training, world.rank());
      auto const report = training.accumulated(1);
      REQUIRE(report);
      if (report->bases) {
        ++searches;
        CHECK(report->bases->bytes_sent > 0);
        if (of_rounds != 0) CHECK(3 * (report->bytes_between - of_rounds) == report->bases->bytes_sent);
      } else {
        of_rounds = report->bytes_between;
      }
    }
    CHECK(of_rounds > 0);
    CHECK(searches == 3);
    training.finish();
  });
}
