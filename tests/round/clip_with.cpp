// SPDX-License-Identifier: Apache-2.0
// Optimizers that are clipped by one norm (`options::clip_with`) train like one optimizer over all their parameters.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/patience.hpp"

namespace {

constexpr int ranks = 3;
constexpr std::size_t first_count = 700 + 33, steps = 12;

/// Where the rounds of this rank's two optimizers meet: each brings its squares, both get the sum.
class meeting {
 public:
  double sum(double mine) {
    std::unique_lock lock(mutex_);
    if (mine < 0) {  // its round has failed
      failed_ = true;
      changed_.notify_all();
      return mine;
    }
    sum_ += mine;
    const std::size_t round = rounds_;
    if (++came_ == 2) {
      came_ = 0;
      all_ = std::exchange(sum_, 0);
      ++rounds_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(60 * patience()),
                                  [&] { return rounds_ != round || failed_; })) {
      throw std::runtime_error("the other optimizer's round did not come");
    }
    if (failed_) throw std::runtime_error("the other optimizer's round has failed");
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  double sum_ = 0, all_ = 0;
  int came_ = 0;
  std::size_t rounds_ = 0;
  bool failed_ = false;
};

/// Of the joint layout's element i; large in its second part, so that either alone would be clipped otherwise. Some
/// steps are not clipped.
double gradient_of(int rank, std::size_t micro_batch, std::size_t i) {
  const double size = (i < first_count ? 1 : 3) * (micro_batch % 8 < 4 ? 1 : 0.01);
  return size * std::sin(static_cast<double>(1 + i % 61) * static_cast<double>(micro_batch + 1) + 0.7 * rank);
}
/// Two tensors and two; in `whole` one behind the other. The second tensor is clipped by itself, the last one is left
/// alone in steps without a gradient.
void add_first(acco::parameter_layout& layout) { layout.add("a", {700}).add("b", {33}, layout.add_group({.clip_norm = 0.02})); }
void add_second(acco::parameter_layout& layout) {
  layout.add("c", {90}).add("d", {5}, layout.add_group({.leave_without_gradient = true}));
}
bool has_gradient(std::size_t micro_batch, std::size_t i) { return i < first_count + 90 || micro_batch % 16 >= 8; }

constexpr acco::adamw rule{.learning_rate = 0.05, .epsilon = 0.1, .weight_decay = 0.1};  // epsilon: scales are seen
constexpr double limit = 0.4;

struct outcome {
  std::vector<double> parameters, norms, scales;
};
template <class Schedule>
outcome one_optimizer(Schedule schedule) {
  outcome found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    add_first(layout), add_second(layout);
    acco::optimizer all{schedule, rule, acco::host_storage<double>{}, world, layout, acco::options{.clip_norm = limit}};
    all.initialize(std::vector<double>(layout.size(), 1.0));
    for (std::size_t m = 0; all.steps() < steps; ++m) {
      for (std::size_t i = 0; i < layout.size(); ++i)
        all.gradients()[i] += has_gradient(m, i) ? gradient_of(world.rank(), m, i) : 0;
      auto const report = all.accumulated(2);
      if (report && world.rank() == 0) found.norms.push_back(report->gradient_norm), found.scales.push_back(report->clip_scale);
    }
    all.finish();
    if (world.rank() == 0) found.parameters.assign(all.parameters().begin(), all.parameters().end());
  });
  return found;
}
/// `weighs`: what the second one's samples weigh in units of the first one's, and its gradients are larger.
template <class Schedule>
outcome two_optimizers(Schedule schedule, double weighs) {
  outcome found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::parameter_layout one, other;
    add_first(one), add_second(other);
    meeting point;
    acco::options const chosen{.clip_norm = limit, .clip_with = [&](double mine) { return point.sum(mine); }};
    acco::optimizer first{schedule, rule, acco::host_storage<double>{}, world, one, chosen};
    acco::optimizer second{schedule, rule, acco::host_storage<double>{}, world, other, chosen};
    first.initialize(std::vector<double>(one.size(), 1.0));
    second.initialize(std::vector<double>(other.size(), 1.0));
    for (std::size_t m = 0; first.steps() < steps; ++m) {
      for (std::size_t i = 0; i < one.size(); ++i) first.gradients()[i] += gradient_of(world.rank(), m, i);
      for (std::size_t i = 0; i < other.size(); ++i)
        second.gradients()[i] += has_gradient(m, first_count + i) ? weighs * gradient_of(world.rank(), m, first_count + i) : 0;
      auto const report = first.accumulated(2), other_report = second.accumulated(2 * weighs);
      if (report) CHECK(other_report->gradient_norm == doctest::Approx(report->gradient_norm).epsilon(1e-12));
      if (report && world.rank() == 0) found.norms.push_back(report->gradient_norm), found.scales.push_back(report->clip_scale);
    }
    first.finish();
    second.finish();
    if (world.rank() != 0) return;
    found.parameters.assign(first.parameters().begin(), first.parameters().end());
    found.parameters.insert(found.parameters.end(), second.parameters().begin(), second.parameters().end());
  });
  return found;
}

}  // namespace

TEST_CASE("two optimizers that are clipped by one norm end where one over both does") {
  const auto compare = [](auto schedule) {
    const outcome one = one_optimizer(schedule);
    const auto below = std::count_if(one.scales.begin(), one.scales.end(), [](double scale) { return scale < 1; });
    CHECK(below > 2);
    CHECK(below < static_cast<std::ptrdiff_t>(one.scales.size()) - 2);
    for (const double weighs : {1.0, 3.0}) {
      const outcome two = two_optimizers(schedule, weighs);
      REQUIRE(two.scales.size() == one.scales.size());
      for (std::size_t k = 0; k < one.scales.size(); ++k) CHECK(two.scales[k] == doctest::Approx(one.scales[k]).epsilon(1e-12));
      REQUIRE(two.parameters.size() == one.parameters.size());
      double most = 0;
      for (std::size_t i = 0; i < one.parameters.size(); ++i)
        most = std::max(most, std::abs(two.parameters[i] - one.parameters[i]));
      CHECK(most < 1e-12);
    }
  };
  compare(acco::two_phase{});
  compare(acco::delayed{.pace = acco::fixed_pace{4}});
}

TEST_CASE(
    "gradients of the other optimizer that are not finite leave both updates out, those of a group with a norm of its own, too") {
  bool in_group = false;
  SUBCASE("") {}
  SUBCASE("of such a group") { in_group = true; }
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    meeting point;
    acco::options const chosen{
        .clip_norm = limit, .clip_with = [&](double mine) { return point.sum(mine); }, .on_non_finite = acco::non_finite::skip};
    const acco::delayed schedule{.pace = acco::fixed_pace{1}};
    acco::parameter_layout layout;
    layout.add("w", {5}).add("x", {15}, in_group ? layout.add_group({.clip_norm = 0.1}) : std::size_t{0});
    acco::optimizer first{schedule, rule, acco::host_storage<double>{}, world, 10, chosen};
    acco::optimizer second{schedule, rule, acco::host_storage<double>{}, world, layout, chosen};
    first.initialize(std::vector<double>(10, 1.0));
    second.initialize(std::vector<double>(20, 1.0));
    std::size_t skipped = 0;
    for (int m = 0; m < 6; ++m) {
      first.gradients()[3] += 1;
      second.gradients()[7] += m == 2 && world.rank() == 1 ? INFINITY : 1;
      auto const one = first.accumulated(1), other = second.accumulated(1);
      REQUIRE(one.has_value() == other.has_value());
      if (one) CHECK(one->skipped == other->skipped);
      skipped += one && one->skipped ? 1 : 0;
    }
    first.finish();
    second.finish();
    CHECK(skipped == 1);
    CHECK(first.steps() == second.steps());
  });
}

TEST_CASE("what the function throws ends the training of all ranks, and they are told") {
  std::array<std::string, ranks> told;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const auto fails = [&](double mine) { return world.rank() == 1 ? throw std::runtime_error("no norm today") : mine; };
    acco::optimizer training{acco::delayed{}, rule, acco::host_storage<double>{}, world, 10, acco::options{.clip_with = fails}};
    training.initialize(std::vector<double>(10, 1.0));
    try {
      for (int m = 0; m < 6; ++m) training.accumulated(1);
    } catch (std::exception const& e) {
      told[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  for (auto const& each : told) CHECK(each.find("no norm today") != std::string::npos);
}

TEST_CASE("a rank that dies between its optimizers: the others' rounds that wait for a norm are told that it will not come") {
  std::array<std::string, ranks> told;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    meeting point;
    acco::options const chosen{.clip_norm = limit, .clip_with = [&](double mine) { return point.sum(mine); }};
    const acco::delayed schedule{.pace = acco::fixed_pace{1}};
    try {
      acco::optimizer first{schedule, rule, acco::host_storage<double>{}, world, 10, chosen};
      acco::optimizer second{schedule, rule, acco::host_storage<double>{}, world, 20, chosen};
      first.initialize(std::vector<double>(10, 1.0));
      second.initialize(std::vector<double>(20, 1.0));
      for (int m = 0; m < 6; ++m) {
        first.accumulated(1);
        if (m == 3 && world.rank() == 1) {
          point.sum(-1);  // its own first round would wait
          throw std::runtime_error("no second one");
        }
        second.accumulated(1);
      }
    } catch (std::exception const& e) {
      told[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  for (auto const& each : told) {
    CAPTURE(each);
    CHECK_FALSE(each.empty());
    CHECK(each.find("did not come") == std::string::npos);  // which takes a minute and more
  }
}
