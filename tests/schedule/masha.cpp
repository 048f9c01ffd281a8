// MASHA1 and MASHA2 against their equations in fp64, element by element, with a coin thrown and skips made here; and on
// games that turn gradient descent-ascent away.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

using storage = acco::host_storage<double>;
using vector = std::vector<double>;
using full = acco::full;
constexpr std::size_t pairs = 350, elements = 2 * pairs;
constexpr double rate = 0.3;

/// Rank i's f = sum over k of a x_k y_k + b x_k y_{k+1} + p x_k + q y_k, min over x, max over y: F_i at z = (x, y).
vector operator_of(int rank, vector const& z) {
  vector f(elements);
  const auto number = [rank](std::size_t k, int what) { return std::sin(static_cast<double>(17 * k) + 5.0 * what + 3.0 * rank); };
  for (std::size_t k = 0; k < pairs; ++k) {
    const std::size_t next = (k + 1) % pairs;
    const double a = 0.7 + 0.2 * number(k, 0), b = 0.1 * number(k, 1);
    f[k] += a * z[pairs + k] + b * z[pairs + next] + number(k, 2);
    f[pairs + k] -= a * z[k] - number(k, 3);
    f[pairs + next] -= b * z[k];
  }
  return f;
}
vector begins() {
  vector z(elements);
  for (std::size_t k = 0; k < elements; ++k) z[k] = std::cos(static_cast<double>(k));
  return z;
}

template <class Schedule>
class trainer : public acco::round_engine<storage> {
 public:
  using rule = acco::decorated_rule<Schedule, acco::sgd>;
  trainer(Schedule const& schedule, acco::threads_backend const& world, double learning_rate = rate)
      : round_engine(std::make_unique<acco::schedule_of<Schedule, storage>>(schedule),
                     std::make_unique<acco::rule_of<rule, storage>>(
                         acco::rule_under(schedule, acco::sgd{.learning_rate = learning_rate, .momentum = 0})),
                     storage{}, std::make_unique<acco::backend_of<acco::threads_backend, storage>>(world),
                     acco::parameter_layout(elements),
                     {.on_non_finite = acco::non_finite::skip, .check_habits = acco::habit_checks::off, .bucket_elements = 400}) {
    initialize(begins());
  }
  vector point() const { return {parameters().begin(), parameters().end()}; }
  acco::round_report evaluate(double weight = 1, double spoil = 0) {
    const vector f = operator_of(place().rank, point());
    for (std::size_t k = 0; k < elements; ++k) gradients()[k] += weight * f[k];
    gradients()[3] += spoil;
    return *accumulated(weight, 0);
  }
};

/// In its paper's words, all ranks at once. What a code does is the library's.
template <class Schedule>
class equations {
 public:
  equations(Schedule const& schedule, int ranks, std::vector<acco::bucket> buckets)
      : s_(schedule), buckets_(std::move(buckets)), own_(static_cast<std::size_t>(ranks), vector(elements)), lost_(own_) {}

  vector shown = begins();
  std::uint64_t round = 0, steps = 0;
  bool at_w = true;

  /// Weighs rank i's evaluation at `shown` as `weights[i]`; `skipped`: it comes to nothing.
  void evaluated(vector const& weights, bool skipped) {
    double all = 0;
    std::vector<vector> f;
    for (std::size_t i = 0; i < own_.size(); ++i) {
      all += weights[i];
      f.push_back(operator_of(static_cast<int>(i), shown));
      for (double& each : f[i]) each *= weights[i];
    }
    ++round;
    if (at_w) {
      at_w = false;
      if (!skipped) {
        w_ = z_;
        for (std::size_t i = 0; i < own_.size(); ++i)
          for (std::size_t k = 0; k < elements; ++k) own_[i][k] = f[i][k] / all;
        for (std::size_t k = 0; k < elements; ++k) {
          mean_[k] = 0;
          for (vector const& each : own_) mean_[k] += each[k];
        }
      }
    } else {
      at_w = s_.falls(round);
      vector g = mean_;
      for (std::size_t i = 0; i < own_.size(); ++i) {
        for (std::size_t k = 0; k < elements; ++k) f[i][k] += lost_[i][k] - all * own_[i][k];
        const vector arrives = coded<std::remove_cvref_t<decltype(s_.gradients)>>(f[i], static_cast<int>(i), true);
        for (std::size_t k = 0; k < elements; ++k) {
          g[k] += arrives[k] / all;
          if (acco::feeds_back<decltype(s_.gradients)> && !skipped) lost_[i][k] = f[i][k] - arrives[k];
        }
      }
      for (std::size_t k = 0; k < elements && !skipped; ++k) z_[k] = between(k) - rate * g[k];
      if (!skipped) ++steps;
    }
    vector to = z_;  // w, or where a skipped round leaves a training
    if (!at_w && !skipped)
      for (std::size_t k = 0; k < elements; ++k) to[k] = between(k) - rate * mean_[k];
    if (at_w) {
      shown = to;
    } else {
      for (std::size_t k = 0; k < elements; ++k) to[k] -= shown[k];
      const vector arrives = coded<std::remove_cvref_t<decltype(s_.parameters)>>(to, 0, false);
      for (std::size_t k = 0; k < elements; ++k) shown[k] += arrives[k];
    }
  }

 private:
  [[nodiscard]] double between(std::size_t k) const { return s_.tau * z_[k] + (1 - s_.tau) * w_[k]; }
  template <class Code>
  [[nodiscard]] vector coded(vector const& values, int rank, bool at_random) const {
    if constexpr (std::is_same_v<Code, full>) {
      return values;
    } else {
      vector decoded(elements);
      const auto ranks = static_cast<int>(own_.size());
      const std::uint64_t seed = acco::rounding_seed(steps + 1, rank, ranks);
      for (acco::bucket const& b : buckets_) {
        for (std::size_t slice = 0; slice < own_.size(); ++slice) {
          for (std::size_t i = 0; i < b.share; i += Code::block_size) {
            const std::size_t at = b.begin + slice * b.share + i;
            const std::size_t n = std::min({Code::block_size, b.share - i, elements - std::min(elements, at)});
            float x[Code::block_size] = {};
            for (std::size_t k = 0; k < n; ++k) x[k] = static_cast<float>(values[at + k]);
            std::byte bytes[Code::block_bytes];
            if constexpr (acco::rounds_at_random<Code> && !acco::feeds_back<Code>) {
              at_random ? Code{}.encode(x, bytes, acco::random_bits(seed, at)) : Code{}.encode(x, bytes);
            } else {
              Code{}.encode(x, bytes);
            }
            Code{}.decode(bytes, x);
            for (std::size_t k = 0; k < n; ++k) decoded[at + k] = static_cast<double>(x[k]);
          }
        }
      }
      return decoded;
    }
  }

  Schedule s_;
  std::vector<acco::bucket> buckets_;
  std::vector<vector> own_, lost_;
  vector z_ = begins(), w_ = begins(), mean_ = vector(elements);
};

double distance(vector const& a, vector const& b) {
  double most = 0;
  for (std::size_t k = 0; k < a.size(); ++k) most = std::max(most, std::abs(a[k] - b[k]));
  return most;
}

template <class Schedule>
void compare(Schedule const& schedule, int ranks, double within) {
  std::mutex one_at_a_time;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    trainer<Schedule> training(schedule, world);
    std::vector<acco::bucket> buckets;
    for (std::size_t k = 0; k < training.shares().buckets(); ++k) buckets.push_back(training.shares()[k]);
    equations<Schedule> expected(schedule, ranks, buckets);
    std::size_t references = 0;
    for (std::uint64_t round = 0; round < 60; ++round) {
      const bool skipped = round % 16 == 9 || round % 16 == 14;
      vector weights(static_cast<std::size_t>(ranks), 1);
      if (ranks > 1 && round % 7 == 4) weights[1] = 0;
      if (round % 7 == 5) weights[0] = 1.5;
      const std::lock_guard hold(one_at_a_time);
      CAPTURE(round);
      REQUIRE(distance(training.point(), expected.shown) < within);
      const bool was_at_w = expected.at_w;
      references += was_at_w ? 1 : 0;
      expected.evaluated(weights, skipped);
      one_at_a_time.unlock();
      const acco::round_report report =
          training.evaluate(weights[static_cast<std::size_t>(world.rank())],
                            skipped && world.rank() == ranks - 1 ? std::numeric_limits<double>::infinity() : 0);
      one_at_a_time.lock();
      CHECK(acco::commits(report.plan) == !was_at_w);
      CHECK(training.steps() == expected.steps);
    }
    CHECK(references > 5);
    training.finish(acco::unfinished::drop);
  });
}

TEST_CASE("masha is its equations") {
  for (int ranks = 1; ranks <= 3; ++ranks) compare(acco::masha{.tau = 0.6}, ranks, 1e-12);
  compare(acco::masha{acco::block_int4{}, acco::block_int8{}, 0.7, 2}, 2, 1e-10);
  compare(acco::masha{acco::scaled_random<64>{}, full{}, 0.7}, 3, 1e-10);
  const acco::masha2<acco::loosely<acco::block_top<32>>> second{.seed = 3};
  compare(second, 1, 1e-10);
  compare(second, 3, 1e-10);
}

/// Two evaluations a step, and no reference beside the parameters.
struct extragradient {
  acco::fixed_pace pace = {};
  static constexpr std::size_t period = 2;
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const {
    return {.parameters = round % 2 == 0 ? acco::update::predict : acco::update::commit, .meanwhile = acco::computation::waits};
  }
};

TEST_CASE("with a reference point that always follows, masha is extragradient") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    trainer<acco::masha<>> training(acco::masha{.tau = 0}, world);
    trainer<extragradient> plain(extragradient{}, world);
    for (int round = 0; round < 40; ++round) {
      (void)training.evaluate();
      (void)plain.evaluate();
      CHECK(distance(training.point(), plain.point()) < 1e-13);
    }
    CHECK(training.steps() == 20);
    training.finish(acco::unfinished::drop);
    plain.finish(acco::unfinished::drop);
  });
}

/// |F| at z after so many evaluations, of all ranks; and the bytes of each kind of round.
struct outcome {
  double norm = 0;
  std::uint64_t first = 0, step = 0, last = 0;
};
template <class Schedule>
outcome play(Schedule const& schedule, int rounds, double learning_rate = 0.4) {
  outcome found;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    trainer<Schedule> training(schedule, world, learning_rate);
    for (int round = 0; round < rounds; ++round) {
      const acco::round_report report = training.evaluate();
      if (world.rank() != 0) continue;
      std::uint64_t& bytes = !acco::commits(report.plan)                      ? found.first
                             : report.plan.parameters == acco::update::commit ? found.last
                                                                              : found.step;
      CHECK((bytes == 0 || bytes == report.bytes_sent));
      bytes = report.bytes_sent;
    }
    training.finish(acco::unfinished::drop);
    if (world.rank() != 0) return;
    vector sum(elements);
    for (int rank = 0; rank < 2; ++rank) {
      const vector f = operator_of(rank, training.point());
      for (std::size_t k = 0; k < elements; ++k) sum[k] += f[k] / 2;
    }
    for (const double each : sum) found.norm += each * each;
    found.norm = std::sqrt(found.norm);
  });
  return found;
}

TEST_CASE("descent-ascent diverges, masha finds the saddle point, and its other point costs no byte") {
  using coded = acco::coded<acco::block_int4<>, acco::block_int8<>>;
  const double at_first = play(acco::synchronous{}, 0).norm;
  const outcome in_full = play(acco::synchronous{}, 600), in_codes = play(acco::synchronous<coded>{}, 1);
  CHECK(in_full.norm > 100 * at_first);

  const outcome exact = play(acco::masha{}, 600);
  const outcome first = play(acco::masha{acco::block_int4{}, acco::block_int8{}}, 600);
  const outcome second = play(acco::masha2<acco::loosely<acco::block_top<32>>>{}, 600, 0.2);  // coarser
  CHECK(exact.norm < 1e-3 * at_first);
  CHECK(first.norm < 1e-3 * at_first);
  CHECK(second.norm < 0.05 * at_first);
  // with what a synchronous step sends all is said
  for (const std::uint64_t bytes : {exact.first, exact.step, exact.last}) CHECK(bytes == in_full.last);
  CHECK(first.step == in_codes.last);
  CHECK(first.first + first.last == in_full.last + in_codes.last);
  CHECK(first.step < in_full.last / 3);
}

TEST_CASE("a training that rested goes on at the reference point, at z") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    trainer<acco::masha<>> training(acco::masha{}, world);
    for (int rest = 0; rest < 6; ++rest) {
      for (int round = 0; round < 3 + rest; ++round) (void)training.evaluate();
      training.finish(acco::unfinished::drop);
      vector z(elements);
      training.gather(z, acco::weights::committed);
      CHECK(training.point() == z);
      CHECK(!acco::commits(training.evaluate().plan));
    }
    training.finish(acco::unfinished::drop);
  });
}

TEST_CASE("the coin falls for its share of all steps, however it fell before") {
  for (const double tau : {0.3, 0.75, 0.95}) {
    const acco::masha<> schedule{.tau = tau, .seed = 11};
    double steps = 0, moves = 0, before = 0, twice = 0;
    bool moved = false;
    for (std::size_t round = 1; round < 40000; ++round) {
      if (schedule.at_reference(round)) continue;
      const bool moves_now = schedule.at_reference(round + 1);
      CHECK(schedule.drawn(round) == (moves_now ? 2 : 1));
      steps += 1;
      moves += moves_now;
      before += moved;
      twice += moved && moves_now;
      moved = moves_now;
    }
    CHECK(moves / steps == doctest::Approx(1 - tau).epsilon(0.05));
    CHECK(twice / before == doctest::Approx(1 - tau).epsilon(0.15));
  }
}

TEST_CASE("ranks with another coin, or another tau, are found") {
  for (const acco::masha<> other : {acco::masha<>{.seed = 2}, acco::masha<>{.tau = 0.5}}) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      using training = trainer<acco::masha<>>;
      CHECK_THROWS_AS(training(world.rank() == 0 ? acco::masha<>{} : other, world), acco::mismatch_error);
    });
  }
  acco::solo_backend alone;
  CHECK_THROWS_AS(acco::optimizer(acco::masha<>{.tau = 1}, acco::sgd{}, storage{}, alone, elements), acco::usage_error);
}

}  // namespace
