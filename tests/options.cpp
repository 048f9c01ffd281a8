// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

template <class Rule = acco::adamw>
auto training_of(Rule rule, acco::options chosen = {}, std::size_t count = 8) {
  return acco::optimizer{acco::synchronous{}, rule, acco::host_storage<float>{}, acco::solo_backend{}, count, std::move(chosen)};
}
}  // namespace

TEST_CASE("options that mean nothing are refused by name, value and rank") {
  const auto refused = [](acco::options const& chosen, char const* what) {
    CAPTURE(std::string(what));
    CHECK_THROWS_WITH_AS(training_of(acco::adamw{}, chosen), doctest::Contains(what), acco::usage_error);
  };
  refused({.clip_norm = -1}, "rank 0: options::clip_norm is -1. Give a finite number, 0 or more");
  refused({.clip_norm = not_a_number}, "options::clip_norm is nan");
  refused({.clip_norm = infinity}, "options::clip_norm is inf");
  refused({.deadline = 0}, "rank 0: options::deadline is 0. Give a finite number above 0");
  refused({.deadline = not_a_number}, "options::deadline is nan");
  refused({.deadline = infinity}, "options::deadline is inf");
  refused({.learning_rate = {}}, "options::learning_rate is empty");
  refused({.learning_rate = acco::constant{not_a_number}}, "rank 0: constant::factor is nan");
  refused({.learning_rate = acco::warmup_cosine{.warmup = 1000}}, "rank 0: warmup_cosine::total is 0, with a warmup of 1000");
  refused({.learning_rate = acco::warmup_linear{.warmup = 1000}}, "rank 0: warmup_linear::total is 0, with a warmup of 1000");
}

TEST_CASE("a learning rate in a lambda is checked when it is first called: at initialize") {
  auto training = training_of(
      acco::sgd{}, {.learning_rate = [](double samples) { return 0.5 * acco::warmup_cosine{.warmup = 1000}(samples); }});
  CHECK_THROWS_WITH_AS(training.initialize(std::vector<float>(8)), doctest::Contains("warmup_cosine::total is 0"),
                       acco::usage_error);
}

TEST_CASE_TEMPLATE("what learning_rate returns is checked at each call; the error says when", Schedule, acco::synchronous<>,
                   acco::two_phase<>, acco::weight_prediction<>) {
  for (const double bad : {not_a_number, infinity, -1e-3}) {
    std::string what;
    try {
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        acco::optimizer training{
            Schedule{}, acco::sgd{}, acco::host_storage<float>{},
            world,      8,           acco::options{.learning_rate = [bad](double samples) { return samples < 12 ? 1 : bad; }}};
        training.initialize(std::vector<float>(8, 1.0F));
        for (int m = 0; m < 20; ++m) training.accumulated(2);
        training.finish();
      });
    } catch (acco::usage_error const& e) {
      what = e.what();
    }
    CAPTURE(what);
    CHECK(what.find(acco::text("options::learning_rate returned ", bad, " at 1").view()) != std::string::npos);
    CHECK(what.find(" samples. It must return a finite factor, 0 or more") != std::string::npos);  // 12, or 16
    CHECK(what.find("acco: rank ") == 0);
    CHECK(what.find(", round ") != std::string::npos);
  }
}

TEST_CASE_TEMPLATE("learning_rate is never called with samples that the training has not reached", Schedule, acco::synchronous<>,
                   acco::delayed<>, acco::two_phase<>, acco::weight_prediction<>) {
  std::mutex mutex;  // weight_prediction calls on the communication thread
  std::vector<double> asked;
  auto training = acco::optimizer{Schedule{},
                                  acco::sgd{},
                                  acco::host_storage<float>{},
                                  acco::solo_backend{},
                                  8,
                                  acco::options{.learning_rate = [&](double samples) {
                                    const std::scoped_lock lock(mutex);
                                    asked.push_back(samples);
                                    return 1.0;
                                  }}};
  training.initialize(std::vector<float>(8));
  double given = 0;
  while (given < 100) {
    given += 5;
    training.gradients()[0] += 1.0F;
    training.accumulated(5);
    const std::scoped_lock lock(mutex);
    for (const double samples : asked) CHECK(samples <= given);
  }
  training.finish();
  CHECK(asked.size() > 10);
  CHECK(asked[0] == 0);
  CHECK(asked.back() <= 100);
}

TEST_CASE("the constructor checks the rule's hyperparameters") {
  const auto refused = [](auto rule, char const* what) {
    CAPTURE(std::string(what));
    CHECK_THROWS_WITH_AS(training_of(rule), doctest::Contains(what), acco::usage_error);
  };
  for (const double bad : {not_a_number, infinity, -1.0}) {
    const auto says = [bad](char const* name) { return std::string(acco::text("rank 0: ", name, " is ", bad).view()); };
    refused(acco::adamw{.learning_rate = bad}, says("adamw::learning_rate").c_str());
    refused(acco::adamw{.epsilon = bad}, says("adamw::epsilon").c_str());
    refused(acco::adamw{.weight_decay = bad}, says("adamw::weight_decay").c_str());
    refused(acco::lion{.learning_rate = bad}, says("lion::learning_rate").c_str());
    refused(acco::lion{.weight_decay = bad}, says("lion::weight_decay").c_str());
    refused(acco::signum{.learning_rate = bad}, says("signum::learning_rate").c_str());
    refused(acco::signum{.weight_decay = bad}, says("signum::weight_decay").c_str());
    refused(acco::sgd{.learning_rate = bad}, says("sgd::learning_rate").c_str());
    refused(acco::sgd{.weight_decay = bad}, says("sgd::weight_decay").c_str());
  }
  for (const double bad : {not_a_number, infinity, -0.1, 1.0, 1.5}) {
    const auto says = [bad](char const* name) {
      return std::string(acco::text("rank 0: ", name, " is ", bad, ". Give a number from 0 to below 1").view());
    };
    refused(acco::adamw{.beta1 = bad}, says("adamw::beta1").c_str());
    refused(acco::adamw{.beta2 = bad}, says("adamw::beta2").c_str());
    refused(acco::lion{.beta1 = bad}, says("lion::beta1").c_str());
    refused(acco::lion{.beta2 = bad}, says("lion::beta2").c_str());
    refused(acco::signum{.momentum = bad}, says("signum::momentum").c_str());
    refused(acco::sgd{.momentum = bad}, says("sgd::momentum").c_str());
  }
  refused(acco::adamw{.epsilon = 0}, "adamw::epsilon is 0. Give a finite number above 0");
  CHECK_NOTHROW(training_of(acco::adamw{.learning_rate = 0, .beta1 = 0, .beta2 = 0, .weight_decay = 0}));
}

namespace {
struct plain_rule {  // with a check of its own, which needs no place
  double rate = 1;
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double rate;
  };
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const { return {rate}; }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 0>&, constants const& c) {
    p = p - Real(c.rate) * g;
  }
  void check() const {
    if (rate > 2) throw std::domain_error("rate");
  }
};
}  // namespace

TEST_CASE("a user's rule may bring a check of its own") {
  CHECK_NOTHROW(training_of(plain_rule{1}));
  CHECK_THROWS_AS(training_of(plain_rule{3}), std::domain_error);
}

TEST_CASE_TEMPLATE("a training that is never told a weight ends with an error on all ranks", Schedule, acco::synchronous<>,
                   acco::delayed<>, acco::two_phase<>) {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{Schedule{}, acco::sgd{}, acco::host_storage<float>{}, world, 8, acco::options{.empty_limit = 5}};
    training.initialize(std::vector<float>(8));
    for (int m = 0; m < 4; ++m) training.accumulated(world.rank() == 0 && m == 3 ? 1 : 0);  // the count begins anew
    std::string what;
    int calls = 0;
    try {
      while (training.samples() < 100 && calls < 1000) {
        training.accumulated(0);
        ++calls;
      }
    } catch (acco::usage_error const& e) {
      what = e.what();
    }
    CAPTURE(what);
    CHECK(what.find("6 steps in a row weighed nothing on any rank. Tell accumulated the samples") != std::string::npos);
    CHECK(calls < 40);  // of four micro-batches a step at most
    std::vector<float> committed(8);
    training.gather_committed(committed);  // all ranks are in step
  });
}
