// SPDX-License-Identifier: Apache-2.0
// An optimizer as a plain type: chosen while the program runs, held as a member, moved at any moment; it trains to the
// same bits.
#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acco/acco.hpp>

#include "any_optimizer_user.hpp"

namespace {

constexpr std::size_t count = 700;

/// Calls make(schedule) for the schedule of that name: what a trainer does with a flag.
template <class Make>
acco::any_optimizer<float> choose(std::string_view name, Make&& make) {
  const acco::fixed_pace pace{.first = 3, .second = 1};
  const acco::coded<acco::block_int8<>, acco::block_int4<>> few_bits;
  if (name == "synchronous") return make(acco::synchronous{.pace = pace});
  if (name == "delayed") return make(acco::delayed{.pace = pace});
  if (name == "two_phase") return make(acco::two_phase{.pace = pace});
  if (name == "weight_prediction") return make(acco::weight_prediction{.pace = pace});
  if (name == "int4") return make(acco::two_phase{.estimate = acco::block_int4{}, .pace = pace});
  if (name == "coded") return make(acco::two_phase{.estimate = acco::block_int4{}, .commit = few_bits, .pace = pace});
  if (name == "delayed+coded") return make(acco::delayed{.commit = few_bits, .pace = pace});
  if (name == "elastic") return make(acco::two_phase{.pace = acco::elastic_pace{.at_least = 1, .at_most = 1}});
  FAIL("no schedule has this name");
  return {};
}
constexpr char const* names[] = {"synchronous", "delayed", "two_phase",     "weight_prediction",
                                 "int4",        "coded",   "delayed+coded", "elastic"};

struct result {
  std::vector<float> parameters;
  std::vector<double> numbers;  // of every report, and at the end
  bool operator==(result const&) const = default;
};
void note(result& r, acco::round_report const& report) {
  for (const double number :
       {static_cast<double>(report.round), report.committed ? 1.0 : 0.0, static_cast<double>(report.step), report.samples,
        report.weight, report.mean_loss, report.gradient_norm, static_cast<double>(report.bytes_sent)})
    r.numbers.push_back(number);
}

/// Any type with an optimizer's members; `between` gets it after every micro-batch.
template <class Training, class Between>
result train(Training training, int rank, Between&& between) {
  result r;
  CHECK(training.steps() == 0);
  CHECK(training.layout().size() == count);
  r.numbers.push_back(static_cast<double>(training.memory().total()));
  training.initialize(std::vector<float>(count, 1.0F));
  for (int m = 0; m < 18; ++m) {
    const double loss = add_quadratic(training.parameters(), training.gradients(), rank);
    training.poll();
    if (const auto report = training.accumulated(1 + rank, loss)) note(r, *report);
    between(training);
  }
  std::vector<float> committed(count);
  training.gather_committed(committed);
  training.finish();
  double sum[] = {1.0 + rank};
  training.sum_over_ranks(sum);
  r.parameters.assign(training.parameters().begin(), training.parameters().end());
  r.parameters.insert(r.parameters.end(), committed.begin(), committed.end());
  for (const double number : {sum[0], training.samples(), static_cast<double>(training.steps()),
                              static_cast<double>(training.totals().rounds), static_cast<double>(training.state_digest() >> 12U)})
    r.numbers.push_back(number);
  return r;
}
constexpr auto nothing = [](auto&) {};

}  // namespace

TEST_CASE(
    "every schedule, chosen by name and held as a plain type, trains to the bits of the optimizer itself, moved after each "
    "micro-batch") {
  for (char const* const name : names) {
    CAPTURE(name);
    std::vector<result> here(2), held(2), moved(2), elsewhere(2);
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto me = static_cast<std::size_t>(world.rank());
      const auto make = [&](auto schedule) {
        return acco::optimizer{schedule, acco::adamw{.learning_rate = 0.02}, acco::host_storage<float>{}, world,
                               count,    acco::options{.clip_norm = 5}};
      };
      choose(name, [&](auto schedule) {
        here[me] = train(make(schedule), world.rank(), nothing);
        return acco::any_optimizer<float>();
      });
      held[me] = train(choose(name, make), world.rank(), nothing);
      moved[me] = train(choose(name, make), world.rank(), [](acco::any_optimizer<float>& training) {
        acco::any_optimizer<float> taken = std::move(training);
        CHECK(!training);
        CHECK(taken);
        std::vector<acco::any_optimizer<float>> shelf;
        shelf.push_back(std::move(taken));
        training = std::move(shelf.front());
      });
      acco::any_optimizer<float> training = choose(name, make);
      train_elsewhere(training, world.rank(), 18);  // a file that knows nothing but any_optimizer.hpp
      elsewhere[me].parameters.assign(training.parameters().begin(), training.parameters().end());
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      CHECK(here[rank].numbers.size() > 30);
      CHECK(held[rank] == here[rank]);
      CHECK(moved[rank] == here[rank]);
      const std::vector<float> final_parameters(here[rank].parameters.begin(), here[rank].parameters.begin() + count);
      CHECK(elsewhere[rank].parameters == final_parameters);
    }
    CHECK(here[0].parameters == here[1].parameters);
    CHECK(here[0].parameters[0] != 1.0F);
  }
}

namespace {
/// Ends parts as fixed_pace{2, 1} does until it was told the seconds of three steps, then as {1, 2}.
struct changing_pace {
  unsigned told = 0;
  static constexpr char const* name = "changing_pace";
  [[nodiscard]] constexpr unsigned minimum(acco::step_part part) const noexcept {
    return (part == acco::step_part::first) == (told < 3) ? 2 : 1;
  }
  [[nodiscard]] constexpr unsigned maximum(acco::step_part part) const noexcept { return minimum(part); }
  constexpr void measured(acco::pace_seconds const& seconds) noexcept { told += seconds.commit >= 0 ? 1 : 0; }
};
}  // namespace

TEST_CASE("a pace that measures is told, and heard, behind the plain type") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> training =
        acco::optimizer{acco::two_phase{.pace = changing_pace{}}, acco::adamw{}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<unsigned> firsts;
    for (int m = 0; m < 30; ++m) {
      add_quadratic(training.parameters(), training.gradients(), world.rank());
      if (const auto report = training.accumulated(1)) firsts.push_back(10 * report->first + report->second);
    }
    training.finish();
    REQUIRE(firsts.size() > 10);
    CHECK(firsts.front() == 21);
    CHECK(firsts.back() == 12);
    CHECK(training.samples() == 60);
  });
}

TEST_CASE("an optimizer is one: a function takes both by the same reference, and nothing is allocated for it") {
  acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, count};
  static_assert(std::is_base_of_v<acco::any_optimizer<float>, decltype(training)>);
  static_assert(sizeof(training) == sizeof(acco::any_optimizer<float>));
  static_assert(!std::is_copy_constructible_v<acco::any_optimizer<float>> &&
                std::is_nothrow_move_constructible_v<acco::any_optimizer<float>>);
  static_assert(!std::is_constructible_v<acco::any_optimizer<double>, decltype(training)>);
  static_assert(!std::is_constructible_v<acco::any_optimizer<float, acco::bfloat16>, decltype(training)>);
  train_elsewhere(training, 0, 5);
  CHECK(training.steps() == 5);
  acco::any_optimizer deduced = std::move(training);
  static_assert(std::is_same_v<decltype(deduced), acco::any_optimizer<float>>);
  CHECK(deduced.steps() == 5);
  CHECK(!training);  // NOLINT(bugprone-use-after-move): that is what is looked at
}

TEST_CASE("of all element types") {
  const auto train_one = [](auto storage) {
    using storage_type = decltype(storage);
    acco::any_optimizer<typename storage_type::parameter_type, typename storage_type::gradient_type> training = acco::optimizer{
        acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.1}, storage, acco::solo_backend{}, 5};
    training.initialize(std::vector<typename storage_type::parameter_type>(5, typename storage_type::parameter_type(1.0F)));
    for (int m = 0; m < 8; ++m) {
      for (auto& g : training.gradients()) g = typename storage_type::gradient_type(1.0F);
      training.accumulated(1);
    }
    training.finish();
    CHECK(static_cast<float>(training.parameters()[4]) < 0.8F);
  };
  train_one(acco::host_storage<double>{});
  train_one(acco::host_storage<acco::bfloat16>{});
  train_one(acco::host_storage<acco::bfloat16, float>{});
  train_one(acco::host_storage<float, double>{});
}

TEST_CASE("an empty one says so from every member") {
  acco::any_optimizer<float> empty;
  CHECK(!empty);
  std::vector<float> room(3);
  std::vector<double> numbers(1);
  const auto refuses = [&](auto member) {
    CHECK_THROWS_WITH_AS(member(), doctest::Contains("is empty: default constructed, or moved from"), acco::usage_error);
  };
  const auto every_member = [&] {
    refuses([&] { empty.initialize(room); });
    refuses([&] { (void)empty.parameters(); });
    refuses([&] { (void)empty.gradients(); });
    refuses([&] { empty.accumulated(1); });
    refuses([&] { empty.finish(); });
    refuses([&] { empty.gather_committed(room); });
    refuses([&] { empty.sum_over_ranks(numbers); });
    refuses([&] { empty.poll(); });
    refuses([&] { (void)empty.samples(); });
    refuses([&] { (void)empty.steps(); });
    refuses([&] { (void)empty.totals(); });
    refuses([&] { (void)empty.memory(); });
    refuses([&] { (void)empty.layout(); });
    refuses([&] { (void)empty.state_digest(); });
  };
  every_member();
  // The same after something that ran, or failed, was moved out of it.
  empty = acco::optimizer{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 3};
  empty.initialize(room);
  empty.gradients()[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(
      [&] {
        empty.accumulated(1);
        empty.finish();
      }(),
      acco::non_finite_error);
  acco::any_optimizer<float> failed = std::move(empty);
  every_member();
  CHECK_THROWS_AS(failed.accumulated(1), acco::non_finite_error);    // again
  CHECK_THROWS_AS(failed.initialize(room), acco::non_finite_error);  // what has failed does not begin anew
  CHECK(failed.parameters()[1] == 0.0F);
}

TEST_CASE("what is asked while a round with a NaN is in flight gets the error that names it, on all ranks") {
  for (const int asked : {0, 1, 2}) {
    for (const double clip : {0.0, 1.0}) {
      CAPTURE(asked);
      CAPTURE(clip);
      std::atomic<int> named = 0;
      acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
        acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                                 acco::adamw{},
                                 acco::host_storage<float>{},
                                 world,
                                 count,
                                 acco::options{.clip_norm = clip}};
        training.initialize(std::vector<float>(count, 1.0F));
        if (world.rank() == 2) training.gradients()[9] = std::numeric_limits<float>::quiet_NaN();
        training.accumulated(1);
        std::vector<float> room(count);
        double numbers[] = {1.0};
        for (int again = 0; again < 2; ++again) {
          try {
            if (asked == 0) training.sum_over_ranks(numbers);
            if (asked == 1) training.gather_committed(room);
            if (asked == 2) (void)training.state_digest();
            if (asked == 1 && again == 1) {  // every rank has thrown alike: what is committed can still be had
              CHECK(room == std::vector<float>(count, 1.0F));
              ++named;
              continue;
            }
            FAIL_CHECK("nothing was thrown");
          } catch (acco::non_finite_error const& e) {
            CHECK(e.peer() == 2);
            CHECK(std::string_view(e.what()).find("element 9") != std::string_view::npos);
            ++named;
          }
        }
        CHECK(training.parameters()[9] == 1.0F);
      });
      CHECK(named == 6);
    }
  }
}

TEST_CASE("one that is replaced leaves the world, and the others hear of it") {
  std::atomic<int> told = 0;
  CHECK_THROWS_AS(acco::threads_backend::run(2,
                                             [&](acco::threads_backend const& world) {
                                               acco::any_optimizer<float> training =
                                                   acco::optimizer{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{},
                                                                   world,           count,         acco::options{.deadline = 20}};
                                               training.initialize(std::vector<float>(count, 1.0F));
                                               training.accumulated(1);
                                               if (world.rank() == 1) {
                                                 training.accumulated(1);  // its second round waits for rank 0
                                                 training = acco::any_optimizer<float>();
                                                 return;
                                               }
                                               try {
                                                 for (int m = 0; m < 5; ++m) training.accumulated(1);
                                               } catch (acco::peer_error const& e) {
                                                 CHECK(e.peer() == 1);
                                                 ++told;
                                                 throw;
                                               }
                                             }),
                  acco::peer_error);
  CHECK(told == 1);
}

TEST_CASE("two calls at once are refused: from a second thread, and from inside the learning rate; the training goes on") {
  SUBCASE("a second thread") {
    std::promise<void> inside, go_on;
    std::atomic<bool> first{true};
    acco::any_optimizer<float> training = acco::optimizer{acco::synchronous{},
                                                          acco::sgd{},
                                                          acco::host_storage<float>{},
                                                          acco::solo_backend{},
                                                          4,
                                                          acco::options{.learning_rate = [&](double samples) {
                                                            if (samples > 0 && first.exchange(false)) {
                                                              inside.set_value();
                                                              go_on.get_future().wait();
                                                            }
                                                            return 1.0;
                                                          }}};
    training.initialize(std::vector<float>(4));
    training.accumulated(1);
    std::thread other([&] { training.accumulated(1); });
    inside.get_future().wait();
    CHECK_THROWS_WITH_AS(training.accumulated(1), doctest::Contains("two calls at once"), acco::usage_error);
    CHECK_THROWS_WITH_AS(training.finish(), doctest::Contains("rank 0"), acco::usage_error);
    go_on.set_value();
    other.join();
    CHECK(training.accumulated(1).has_value());
    CHECK(training.samples() == 3);
    training.finish();
  }
  SUBCASE("a learning rate that asks the training") {
    acco::any_optimizer<float> training;
    std::string what;
    training = acco::optimizer{acco::synchronous{},
                               acco::sgd{},
                               acco::host_storage<float>{},
                               acco::solo_backend{},
                               4,
                               acco::options{.learning_rate = [&](double samples) {
                                 double loss[] = {1};
                                 try {
                                   if (samples > 0) training.sum_over_ranks(loss);
                                 } catch (acco::usage_error const& e) {
                                   what = e.what();
                                 }
                                 return 1.0;
                               }}};
    training.initialize(std::vector<float>(4));
    for (int m = 0; m < 3; ++m) training.accumulated(1);
    CHECK(what.find("or its learning rate calls it") != std::string::npos);
    training.finish();
    CHECK(training.samples() == 3);
  }
}

TEST_CASE("in a forked process every call is refused, and the copy's end waits for nobody") {
  auto training = std::make_unique<acco::any_optimizer<float>>(acco::optimizer{
      acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 4});
  training->initialize(std::vector<float>(4));
  for (int m = 0; m < 3; ++m) training->accumulated(1);
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      training->accumulated(1);
    } catch (acco::usage_error const& e) {
      code = std::string(e.what()).find("was forked from the one that trains") != std::string::npos ? 0 : 2;
    }
    alarm(20);
    training.reset();
#if defined(__SANITIZE_THREAD__)
    _exit(code);  // it allows no threads in a child
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    _exit(code);
#endif
#endif
    // A training of the child's own is welcome.
    acco::optimizer own{acco::synchronous{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 4};
    own.initialize(std::vector<float>(4));
    own.accumulated(1);
    own.finish();
    _exit(own.samples() == 1 ? code : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  training->accumulated(1);
  training->finish();
  CHECK(training->samples() == 4);
}
