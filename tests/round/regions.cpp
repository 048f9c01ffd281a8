// SPDX-License-Identifier: Apache-2.0
// Groups that are clipped by a norm of their own, tensors that are left alone without a gradient, norms by group and by
// tensor.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/every_schedule.hpp"

namespace {

constexpr int ranks = 3;
constexpr std::size_t count = 4200 + 70 + 33 + 500 + 9, frozen = 3;

/// Tensors a, b, c, d (frozen), e; b and c in group 1.
acco::parameter_layout layout_with(acco::update_group const& of_b_and_c, acco::update_group const& of_e = {}) {
  acco::parameter_layout layout;
  const auto middle = layout.add_group(of_b_and_c), ice = layout.add_group({.frozen = true}), last = layout.add_group(of_e);
  layout.add("a", {70, 60}).add("b", {70}, middle).add("c", {33}, middle).add("d", {500}, ice).add("e", {9}, last);
  return layout;
}

/// What a rank's micro-batch adds to element i of tensor k; not a function of the parameters.
double gradient_of(int rank, std::size_t micro_batch, std::size_t i) {
  return std::sin(static_cast<double>(1 + i % 61) * static_cast<double>(micro_batch + 1) + 0.7 * rank);
}

/// Calls each(training, report) at each report; `gives(rank, micro_batch, tensor)` says whether there is a gradient.
using giver = std::function<bool(int, std::size_t, std::size_t)>;
template <class Schedule, class Each>
void train(Schedule schedule, acco::parameter_layout const& layout, acco::options const& chosen, giver const& gives, Each&& each,
           acco::adamw const& rule = {.learning_rate = 0.05, .weight_decay = 0.1}) {
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, rule, acco::host_storage<double>{}, world, layout, chosen};
    training.initialize(std::vector<double>(count, 1.0));
    for (std::size_t m = 0; m < 24; ++m) {
      auto const gradients = training.gradients();
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        if (!gives(world.rank(), m, k)) continue;
        for (std::size_t i = 0; i < layout[k].size; ++i)
          gradients[layout[k].offset + i] += gradient_of(world.rank(), m, layout[k].offset + i);
      }
      if (auto const report = training.accumulated(2)) each(world.rank(), training, *report);
    }
    training.finish();
  });
}
bool always(int, std::size_t, std::size_t) { return true; }

/// Squares of the sum over ranks of what the micro-batches from `from` to before `until` add to a tensor.
double squares(acco::parameter_layout const& layout, std::size_t tensor, std::size_t from, std::size_t until) {
  double sum = 0;
  for (std::size_t i = 0; i < layout[tensor].size; ++i) {
    double g = 0;
    for (int r = 0; r < ranks; ++r)
      for (std::size_t m = from; m < until; ++m) g += gradient_of(r, m, layout[tensor].offset + i);
    sum += g * g;
  }
  return sum;
}

}  // namespace

TEST_CASE("norms of groups and tensors are those of the mean gradient; all of them make up the report's") {
  auto const layout = layout_with({}, {});
  for (const auto detail : {acco::norm_detail::groups, acco::norm_detail::tensors}) {
    const bool of_tensors = detail == acco::norm_detail::tensors;
    every_schedule([&](auto schedule) {
      train(schedule, layout, {.norms = detail}, always, [&](int, auto& training, acco::round_report const& report) {
        auto const norms = training.norms();
        REQUIRE(norms.size() == (of_tensors ? 5 : 4));
        double all = 0;
        for (const double each : norms) all += each * each;
        CHECK(std::sqrt(all) == doctest::Approx(report.gradient_norm).epsilon(1e-12));
        CHECK(norms[of_tensors ? frozen : 2] == 0);
      });
    });
    std::size_t rounds = 0;
    train(acco::synchronous{.pace = acco::fixed_pace{2}}, layout, {.clip_norm = 0.1, .norms = detail}, always,
          [&](int rank, auto& training, acco::round_report const& report) {
            if (rank != 0) return;
            const auto norm = [&](std::initializer_list<std::size_t> tensors) {
              double sum = 0;
              for (const std::size_t k : tensors) sum += squares(layout, k, 2 * report.round, 2 * report.round + 2);
              return std::sqrt(sum) / (2 * 2 * ranks);  // weights of 2 in two micro-batches of three ranks
            };
            auto const norms = training.norms();
            const std::vector<double> expected = of_tensors ? std::vector{norm({0}), norm({1}), norm({2}), 0.0, norm({4})}
                                                            : std::vector{norm({0}), norm({1, 2}), 0.0, norm({4})};
            for (std::size_t k = 0; k < expected.size(); ++k) CHECK(norms[k] == doctest::Approx(expected[k]).epsilon(1e-12));
            ++rounds;
          });
    CHECK(rounds == 12);
  }
  train(acco::two_phase{.pace = acco::fixed_pace{1}}, layout, {}, always,
        [](int, auto& training, auto const&) { CHECK(training.norms().empty()); });
}

TEST_CASE("a wish for norms changes no parameter") {
  every_schedule([](auto schedule) {
    std::vector<double> found[3];
    for (const auto detail : {acco::norm_detail::total, acco::norm_detail::groups, acco::norm_detail::tensors})
      train(schedule, layout_with({.weight_decay = 0.3}), {.norms = detail}, always, [&](int rank, auto& training, auto const&) {
        if (rank == 0) found[static_cast<int>(detail)].assign(training.parameters().begin(), training.parameters().end());
      });
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
  });
}

TEST_CASE("a group is clipped by its own norm, the others together by theirs") {
  constexpr double own = 0.03, together = 0.2;
  struct plain_sgd {
    static acco::sgd rule() { return {.learning_rate = 1}; }
  };
  for (const bool own_is_off : {false, true}) {
    auto const layout = layout_with({.clip_norm = own_is_off ? 0 : own});
    std::vector<double> p(count, 1.0);
    std::size_t clipped_themselves = 0;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::synchronous{},
                               plain_sgd::rule(),
                               acco::host_storage<double>{},
                               world,
                               layout,
                               acco::options{.clip_norm = together}};
      training.initialize(std::vector<double>(count, 1.0));
      for (std::size_t m = 0; m < 6; ++m) {
        auto const g = training.gradients();
        for (std::size_t i = 0; i < count; ++i) g[i] += gradient_of(world.rank(), m, i);
        auto const report = training.accumulated(1);
        REQUIRE(report);
        if (world.rank() != 0) continue;
        const double norm_own = std::sqrt(squares(layout, 1, m, m + 1) + squares(layout, 2, m, m + 1)) / ranks;
        const double norm_others = std::sqrt(squares(layout, 0, m, m + 1) + squares(layout, 4, m, m + 1)) / ranks;
        CHECK(report->gradient_norm == doctest::Approx(std::hypot(norm_own, norm_others)).epsilon(1e-12));
        CHECK(report->clip_scale == doctest::Approx(together / norm_others).epsilon(1e-12));
        clipped_themselves += norm_own > own ? 1U : 0U;
        for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
          if (k == frozen) continue;
          const bool itself = k == 1 || k == 2;
          const double scale = itself ? (own_is_off ? 1 : std::min(1.0, own / norm_own)) : std::min(1.0, together / norm_others);
          for (std::size_t i = layout[k].offset; i < layout[k].offset + layout[k].size; ++i) {
            double g_sum = 0;
            for (int r = 0; r < ranks; ++r) g_sum += gradient_of(r, m, i);
            p[i] -= scale * g_sum / ranks;
          }
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += std::abs(training.parameters()[i] - p[i]) < 1e-12 ? 0U : 1U;
        CHECK(wrong == 0);
      }
      training.finish();
    });
    CHECK(clipped_themselves == 6);
  }
}

TEST_CASE("a tensor without a gradient on any rank is left alone, in every schedule; a gradient on one rank is one") {
  every_schedule([](auto schedule) {
    for (const bool one_rank_gives : {false, true}) {
      // b never gets a gradient (or one of rank 2 only); c gets one in micro-batches 0 to 3, and is left alone from
      // then on.
      const giver gives = [&](int rank, std::size_t m, std::size_t k) {
        return k == 1 ? one_rank_gives && rank == 2 : k == 2 ? m < 4 : true;
      };
      std::vector<double> c_then;
      train(schedule, layout_with({.leave_without_gradient = true}), {}, gives,
            [&](int rank, auto& training, acco::round_report const& report) {
              if (rank != 0) return;
              auto const b = training.tensor("b").parameters, c = training.tensor("c").parameters;
              auto const a = training.tensor("a").parameters, e = training.tensor("e").parameters;
              if (report.step >= 1) {  // all is decayed, but what is left alone
                CHECK(a[5] != 1.0);
                CHECK(e[5] != 1.0);
                CHECK((b[5] == 1.0) != one_rank_gives);
                CHECK(c[5] != 1.0);
              }
              // all that it was given has been used
              if (report.step == 8 && report.committed) c_then.assign(c.begin(), c.end());
              if (report.step > 8 && !c_then.empty()) CHECK(c_then == std::vector<double>(c.begin(), c.end()));
            });
    }
  });
}

TEST_CASE("a tensor that may be left alone counts its own updates: each moves it by the rate where its gradient is constant") {
  const auto moved = [](auto schedule, int parts, int from, int updates) {  // in rates, by AdamW without decay
    double result = 0;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::parameter_layout layout;
      layout.add("dense", {6}).add("late", {6}, layout.add_group({.leave_without_gradient = true}));
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 1e-3, .weight_decay = 0}, acco::host_storage<double>{},
                               world, layout};
      training.initialize(std::vector<double>(12, 1.0));
      for (int m = 0; m < parts * (from + updates); ++m) {
        for (double& g : training.tensor("dense").gradients) g += 0.5;
        for (double& g : training.tensor("late").gradients) g += m < parts * from ? 0 : 0.5;
        training.accumulated(1);
      }
      training.finish();
      if (world.rank() == 0) result = (1 - training.tensor("late").parameters[0]) / 1e-3;
    });
    return result;
  };
  const acco::fixed_pace one{1};
  for (const int from : {0, 5, 60}) {
    CAPTURE(from);
    CHECK(moved(acco::synchronous{}, 1, from, 7) == doctest::Approx(7).epsilon(1e-6));
    CHECK(moved(acco::two_phase{.pace = one}, 2, from, 7) == doctest::Approx(7).epsilon(1e-6));
    CHECK(moved(acco::delayed{.pace = one}, 1, from, 7) == doctest::Approx(7).epsilon(1e-6));
    CHECK(moved(acco::weight_prediction{.pace = one}, 1, from, 7) == doctest::Approx(7).epsilon(1e-6));
  }
}

TEST_CASE("a square overflows where its own region's clipping leaves it large, and only there") {
  const auto trained = [](double of_group, double of_all) {
    acco::parameter_layout layout;
    layout.add("a", {1}, layout.add_group({.clip_norm = of_group})).add("b", {1});
    acco::optimizer training{acco::synchronous{},
                             acco::adamw{.learning_rate = 0.1, .weight_decay = 0},
                             acco::host_storage<float>{},
                             acco::solo_backend{},
                             layout,
                             acco::options{.clip_norm = of_all}};
    training.initialize(std::vector<float>(2, 0.0F));
    for (int step = 0; step < 6; ++step) {
      training.gradients()[0] += step == 2 ? 1e20F : 1.0F;
      training.gradients()[1] += 1e4F;
      training.accumulated(1);
    }
    training.finish();
    return training.steps();
  };
  CHECK(trained(1, 0) == 6);
  CHECK_THROWS_AS(trained(0, 1), acco::non_finite_error);  // a group that is not clipped, beside others that are
}

TEST_CASE("a prediction behind a commit knows whether that has updated a tensor") {
  // Corrected by the right count, each update of a constant gradient moves by the rate, and so does the prediction
  // behind it.
  acco::parameter_layout layout;
  layout.add("dense", {6}).add("late", {6}, layout.add_group({.leave_without_gradient = true}));
  acco::optimizer training{acco::weight_prediction{.pace = acco::fixed_pace{1}},
                           acco::adamw{.learning_rate = 1e-3, .weight_decay = 0}, acco::host_storage<double>{},
                           acco::solo_backend{}, layout};
  training.initialize(std::vector<double>(12, 1.0));
  std::vector<double> shown;
  for (int m = 0; m < 40; ++m) {
    for (double& g : training.tensor("dense").gradients) g += 0.5;
    for (double& g : training.tensor("late").gradients) g += m < 30 ? 0 : 0.5;
    if (training.accumulated(1)) shown.push_back((1 - training.tensor("late").parameters[0]) / 1e-3);
  }
  for (const double rates : shown) CHECK(rates == doctest::Approx(std::round(rates)).epsilon(1e-6));
  CHECK(shown.back() > 8);
}

TEST_CASE("what was left alone goes on with the moments that it had") {
  // With beta2 = 0 and beta1 = 0.5 the first moment after gradients 1, (none), 1 tells whether the step between has
  // decayed it.
  constexpr double beta1 = 0.5;
  for (const bool leaves : {false, true}) {
    acco::parameter_layout layout;
    layout.add("x", {4}).add("y", {4}, layout.add_group({.leave_without_gradient = leaves}));
    acco::optimizer training{acco::synchronous{}, acco::lion{.learning_rate = 1, .beta1 = beta1, .beta2 = beta1},
                             acco::host_storage<double>{}, acco::solo_backend{}, layout};
    training.initialize(std::vector<double>(8, 0.0));
    // the direction of the last: 0.5 m - 0.2, with m = 0.5, or 0.25 where it was decayed
    double gradients[] = {1, 0, -0.4};
    for (const double each : gradients) {
      for (double& g : training.tensor("x").gradients) g = 1;
      for (double& g : training.tensor("y").gradients) g = each;
      training.accumulated(1);
    }
    // -1, then 0 or another -1 of the momentum alone, then -1: 0.25 - 0.2 > 0, or +1: 0.125 - 0.2 < 0
    CHECK(training.tensor("y").parameters[0] == (leaves ? -2 : -1));
    CHECK(training.tensor("x").parameters[0] == -3);
  }
}

TEST_CASE("without the wish a tensor without a gradient is decayed; zeros that travel in few bits stay zeros") {
  const giver never_b = [](int, std::size_t, std::size_t k) { return k != 1; };
  double b = 0;
  const auto keep_b = [&](int rank, auto& training, auto const&) {
    if (rank == 0) b = training.tensor("b").parameters[5];
  };
  train(acco::two_phase{.pace = acco::fixed_pace{1}}, layout_with({}), {.check_habits = acco::habit_checks::off}, never_b,
        keep_b);
  CHECK(b < 1);
  train(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded{acco::block_int8{}, acco::block_int4{}, 4}},
        layout_with({.leave_without_gradient = true}), {}, never_b, keep_b);
  CHECK(b == doctest::Approx(1).epsilon(0.02));  // as differences of parameters in four bits show it
}

TEST_CASE("a clip_norm that means nothing is refused") {
  acco::parameter_layout layout;
  CHECK_THROWS_WITH_AS(layout.add_group({.clip_norm = -1}), doctest::Contains("update_group::clip_norm is -1"),
                       acco::usage_error);
  CHECK_THROWS_AS(layout.add_group({.clip_norm = std::nan("")}), acco::usage_error);
}

TEST_CASE("a group that no_decay_for_vectors divides is clipped, and told, as the one that it is") {
  acco::parameter_layout layout;
  const auto own = layout.add_group({.clip_norm = 1.0});
  layout.add("matrix", {1, 1}, own).add("vector", {1}, own).no_decay_for_vectors();
  acco::optimizer training{acco::synchronous{},
                           acco::sgd{.learning_rate = 1},
                           acco::host_storage<double>{},
                           acco::solo_backend{},
                           layout,
                           acco::options{.norms = acco::norm_detail::groups}};
  training.initialize(std::vector<double>(2, 0.0));
  training.gradients()[0] = 3;
  training.gradients()[1] = 4;
  training.accumulated(1);
  CHECK(training.parameters()[0] == doctest::Approx(-0.6));
  CHECK(training.parameters()[1] == doctest::Approx(-0.8));
  CHECK(training.norms()[own] == doctest::Approx(5));
  for (std::size_t g = own; g < training.norms().size(); ++g) CHECK(training.norms()[g] == doctest::Approx(5));
}
