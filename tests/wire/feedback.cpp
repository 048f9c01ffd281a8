// SPDX-License-Identifier: Apache-2.0
// What senders keep of coded gradients, against the policies' own functions, through rounds that count and rounds that
// do not.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

constexpr int ranks = 3;
constexpr std::size_t parameters = 700, rounds = 24;
using code = acco::block_int4<>;

float gradient(int rank, std::size_t round, std::size_t index) {
  return std::sin(static_cast<float>(7 * index + 131 * round + 17 * static_cast<std::size_t>(rank)));
}
/// One rank overflows; nobody brings anything; one rank brings nothing.
bool overflows(std::size_t round) { return round % 6 == 3; }
bool is_empty(std::size_t round) { return round % 8 == 5; }
double weight(int rank, std::size_t round) {
  if (is_empty(round) || (rank == 2 && round % 4 == 1)) return 0;
  return round % 4 == 1 ? 1.5 : 1;
}

template <class Policy>
constexpr bool always_sends = requires { requires Policy::sums_states; };

/// One rank's state as the policy's functions say, element by element; the codec is the library's.
template <class Policy, class Gradient = float, class State = Gradient>
struct reference {
  Policy policy = {};
  std::vector<float> state = std::vector<float>(parameters);
  std::vector<double> forgotten = std::vector<double>(parameters);  // by error feedback: faded, or rounded away

  /// What a store makes of 64 numbers with one scale (number/int8_place.hpp).
  static void round_block(float* numbers) {
    double most = 0, scale = 0x1p-90;
    for (std::size_t k = 0; k < 64; ++k) most = std::max(most, std::abs(static_cast<double>(numbers[k])));
    while (std::nearbyint(most / scale) > 127) scale *= 2;
    for (std::size_t k = 0; k < 64; ++k)
      numbers[k] = static_cast<float>(std::nearbyint(static_cast<double>(numbers[k]) / scale) * scale);
  }
  void round(int rank, std::size_t number, std::vector<acco::bucket> const& buckets, bool brings = true) {
    for (acco::bucket const& b : buckets) {
      for (std::size_t slice = 0; slice < ranks; ++slice) {
        for (std::size_t i = 0; i < b.share; i += code::block_size) {
          const std::size_t begin = b.begin + slice * b.share + i, n = std::min(code::block_size, b.share - i);
          float x[code::block_size] = {}, decoded[code::block_size];
          for (std::size_t k = 0; k < n && begin + k < parameters; ++k) {
            const float g = brings ? as<Gradient>(gradient(rank, number, begin + k)) : 0;
            x[k] = policy.sent(g, state[begin + k], 1.0F);
            forgotten[begin + k] += static_cast<double>(g) + static_cast<double>(state[begin + k]) - static_cast<double>(x[k]);
          }
          std::byte bytes[code::block_bytes];
          code{}.encode(x, bytes);
          code{}.decode(bytes, decoded);
          float kept[code::block_size] = {}, stored[code::block_size];
          for (std::size_t k = 0; k < n && begin + k < parameters; ++k) kept[k] = policy.kept(x[k], decoded[k], state[begin + k]);
          std::copy_n(kept, code::block_size, stored);
          if constexpr (std::is_same_v<State, acco::int8_blocks>) {
            for (std::size_t k = 0; k < n; k += 64) round_block(stored + k);
          } else {
            for (float& each : stored) each = as<State>(each);
          }
          for (std::size_t k = 0; k < n && begin + k < parameters; ++k) {
            state[begin + k] = stored[k];
            forgotten[begin + k] += static_cast<double>(kept[k]) - static_cast<double>(stored[k]);
          }
        }
      }
    }
  }
  template <class Number>
  static float as(float value) {
    return static_cast<float>(static_cast<Number>(value));
  }
};

struct outcome {
  std::vector<double> applied = std::vector<double>(parameters);  // all, of all ranks
  std::vector<std::vector<float>> states;                         // every rank's
  std::vector<double> forgotten = std::vector<double>(parameters);
  std::size_t encoded = 0;  // bytes, of the memory table
};

/// Trains, and checks every rank's state after each round.
template <class Gradient = float, class Wire>
outcome train(Wire const& wire) {
  using Policy = decltype(wire.policy);
  using State = acco::state_number<Wire, Gradient>;
  using Schedule = acco::synchronous<acco::coded<Wire>>;
  const Schedule schedule{{wire}};
  using storage = acco::host_storage<float, Gradient>;
  outcome found;
  std::mutex one_at_a_time;
  acco::threads_backend::run(ranks, [&](acco::threads_backend world) {
    acco::round_engine<storage> training(
        std::make_unique<acco::schedule_of<Schedule, storage>>(schedule),
        std::make_unique<acco::rule_of<acco::sgd, storage>>(acco::sgd{.learning_rate = 1, .momentum = 0}), storage{},
        std::make_unique<acco::backend_of<acco::threads_backend, storage>>(world), acco::parameter_layout(parameters),
        {.on_non_finite = acco::non_finite::skip, .check_habits = acco::habit_checks::off, .bucket_elements = 300});
    training.initialize(std::vector<float>(parameters, 0.0F));
    const int rank = world.rank();
    reference<std::remove_const_t<Policy>, Gradient, State> expected{wire.policy};
    std::vector<acco::bucket> buckets;
    for (std::size_t k = 0; k < training.shares().buckets(); ++k) buckets.push_back(training.shares()[k]);
    std::vector<float> before(parameters, 0.0F);
    for (std::size_t round = 0; round < rounds; ++round) {
      const bool brings = weight(rank, round) > 0;
      for (std::size_t i = 0; brings && i < parameters; ++i)
        training.gradients()[i] = static_cast<Gradient>(gradient(rank, round, i));
      if (overflows(round) && rank == 1) training.gradients()[5] = static_cast<Gradient>(std::numeric_limits<float>::infinity());
      auto const report = training.accumulated(weight(rank, round), 0);
      REQUIRE(report);
      CHECK(report->skipped == overflows(round));
      if ((brings || always_sends<Policy>) && !report->skipped && !is_empty(round)) expected.round(rank, round, buckets, brings);
      auto const state = training.template feedback<State>();
      if constexpr (!std::is_same_v<State, acco::int8_blocks>) REQUIRE(state.size() == parameters);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < parameters; ++i)
        wrong += std::abs(static_cast<float>(state[i]) - expected.state[i]) > 1e-5 ? 1 : 0;
      CHECK_MESSAGE(wrong == 0, "round ", round, ", rank ", rank);
      for (std::size_t i = 0; rank == 0 && i < parameters; ++i)
        found.applied[i] += (static_cast<double>(before[i]) - static_cast<double>(training.parameters()[i])) * report->weight;
      before.assign(training.parameters().begin(), training.parameters().end());
    }
    training.finish(acco::unfinished::commit);
    const std::scoped_lock lock(one_at_a_time);
    found.encoded = training.memory().encoded;
    auto const last = training.template feedback<State>();
    found.states.emplace_back(parameters);
    for (std::size_t i = 0; i < parameters; ++i) found.states.back()[i] = static_cast<float>(last[i]);
    for (std::size_t i = 0; i < parameters; ++i) found.forgotten[i] += expected.forgotten[i];
  });
  return found;
}

/// All that was computed was applied, or is kept, or was forgotten.
void telescopes(outcome const& found) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < parameters; ++i) {
    double computed = 0, kept = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      for (int rank = 0; rank < ranks; ++rank)
        computed += !overflows(round) && weight(rank, round) > 0 ? static_cast<double>(gradient(rank, round, i)) : 0;
    }
    for (auto const& each : found.states) kept += static_cast<double>(each[i]);
    wrong += std::abs(found.applied[i] + kept + found.forgotten[i] - computed) > 1e-4 ? 1 : 0;
  }
  CHECK(wrong == 0);
}
double largest(std::vector<double> const& numbers) {
  double most = 0;
  for (const double each : numbers) most = std::max(most, std::abs(each));
  return most;
}

}  // namespace

TEST_CASE("error feedback: what was applied and what the ranks keep is all that was computed, through rounds that do not count") {
  auto const whole = train(acco::with_error_feedback<code>{});
  telescopes(whole);
  CHECK(largest(whole.forgotten) < 1e-5);
  auto const fades = train(acco::with_error_feedback<code>{{}, {.decay = 0.75}});
  telescopes(fades);
  CHECK(largest(fades.forgotten) > 0.01);
}

TEST_CASE("what is kept in bfloat16 is rounded once a round, by at most 2^-8 of it") {
  auto const found = train(acco::with_error_feedback<code, acco::bfloat16>{});
  telescopes(found);
  CHECK(largest(found.forgotten) > 1e-5);
  CHECK(largest(found.forgotten) < 0x1p-8 * ranks * static_cast<double>(rounds) * 2 / 13.8);  // what is sent is below 2
}

TEST_CASE("what is kept in int8_blocks is rounded once a round, by at most 1/127 of the largest of 64") {
  auto const found = train(acco::with_error_feedback<code, acco::int8_blocks>{});
  telescopes(found);
  const std::size_t numbers = acco::partition(parameters, ranks, 300).padded_size();
  const auto allocated = [](std::size_t bytes) { return acco::host_storage<float>::allocation_size(bytes, 0); };
  CHECK(train(acco::with_error_feedback<code>{}).encoded - found.encoded ==
        allocated(4 * numbers) - allocated(numbers + numbers / 64));
  CHECK(largest(found.forgotten) > 1e-3);
  CHECK(largest(found.forgotten) < ranks * static_cast<double>(rounds) * 2 / 13.8 / 127);
}

TEST_CASE("parameters that arrive in the memory of smaller gradients arrive behind what is kept of those, in either type") {
  (void)train<acco::bfloat16>(acco::with_error_feedback<code>{});
  (void)train<acco::half>(acco::with_error_feedback<code>{});
}

TEST_CASE("gradients in half: what is kept of several is larger than any of them, and none of it is lost") {
  using wire = acco::with_error_feedback<acco::block_top<64, 4096, 2>>;
  using Schedule = acco::synchronous<acco::coded<wire>>;
  using storage = acco::host_storage<float, acco::half>;
  constexpr std::size_t count = 4096;
  acco::round_engine<storage> training(
      std::make_unique<acco::schedule_of<Schedule, storage>>(Schedule{}),
      std::make_unique<acco::rule_of<acco::sgd, storage>>(acco::sgd{.learning_rate = 1, .momentum = 0}), storage{},
      std::make_unique<acco::backend_of<acco::solo_backend, storage>>(acco::solo_backend{}), acco::parameter_layout(count), {});
  training.initialize(std::vector<float>(count, 0.0F));
  for (int round = 1; round <= 4; ++round) {
    std::fill(training.gradients().begin(), training.gradients().end(), static_cast<acco::half>(40000.0F));
    REQUIRE(training.accumulated(1, 0));
    double lost = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float kept = training.feedback<float>()[i], applied = -training.parameters()[i];
      lost = std::max(lost, std::abs(static_cast<double>(kept + applied) - 40000.0 * round));
    }
    CHECK(lost < 1);
  }
  training.finish(acco::unfinished::commit);
}

TEST_CASE("momentum that was sent leaves, or stays") {
  (void)train(acco::with_feedback<code, acco::decoupled_momentum>{});
  (void)train(acco::with_feedback<code, acco::local_momentum>{});
}

TEST_CASE("EF21: the owners use the sum of what they believe of all ranks") {
  auto const applied = train(acco::with_feedback<code, acco::ef21>{}).applied;
  // Over the rounds that counted, the updates are the sums of the believed gradients: those of the last round are in
  // the states.
  std::vector<reference<acco::ef21>> believed(ranks);
  std::vector<double> sum(parameters);
  const acco::partition shares(parameters, ranks, 300);
  std::vector<acco::bucket> buckets;
  for (std::size_t k = 0; k < shares.buckets(); ++k) buckets.push_back(shares[k]);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (overflows(round) || is_empty(round)) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& each = believed[static_cast<std::size_t>(rank)];
      each.round(rank, round, buckets, weight(rank, round) > 0);  // who brings nothing is believed to bring nothing
      for (std::size_t i = 0; i < parameters; ++i) sum[i] += static_cast<double>(each.state[i]);
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < parameters; ++i) wrong += std::abs(applied[i] - sum[i]) > 1e-3 ? 1 : 0;
  CHECK(wrong == 0);
}

namespace {
struct misnamed : acco::error_feedback {
  static constexpr char const* name = "../outside";
};
struct taken : acco::error_feedback {
  static constexpr char const* name = "average";
};
template <class Policy>
void make(Policy policy) {
  acco::optimizer training{acco::synchronous{.commit = acco::coded{acco::with_feedback{code{}, policy}, acco::full{}}},
                           acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 8};
}
}  // namespace

TEST_CASE("ranks that let losses fade otherwise are found") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    const acco::with_feedback mine{code{}, acco::error_feedback{.decay = world.rank() == 0 ? 1 : 0.95}};
    acco::optimizer training{acco::synchronous{.commit = acco::coded{mine, acco::full{}}}, acco::sgd{},
                             acco::host_storage<float>{}, world, 8};
    CHECK_THROWS_WITH_AS(training.initialize(std::vector<float>(8, 0.0F)), doctest::Contains("feedback.decay"),
                         acco::mismatch_error);
  });
}

TEST_CASE("a policy whose name is no file's, or whose decay is out of range, is refused") {
  CHECK_THROWS_WITH_AS(make(misnamed{}), doctest::Contains("no array of the state may be called '../outside'"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(make(taken{}), doctest::Contains("no array of the state may be called 'average'"), acco::usage_error);
  CHECK_THROWS_WITH_AS(make(acco::decoupled_momentum{.decay = 100}), doctest::Contains("decoupled_momentum::decay"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(make(acco::error_feedback{.decay = 1.5}), doctest::Contains("error_feedback::decay is 1.5"),
                       acco::usage_error);
}
