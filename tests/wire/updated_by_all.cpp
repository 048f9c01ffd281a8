// SPDX-License-Identifier: Apache-2.0
// Where every rank has all of the state, training is the same as where it is cut, bit by bit, and other bytes travel.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace {

constexpr std::size_t count = 12 * 256, bucket = 6 * 256;  // shares of one, two, three ranks are whole blocks
using code = acco::with_error_feedback<acco::block_int4<>>;

float gradient(int rank, std::size_t step, std::size_t i, float at) {
  return static_cast<float>(problem::unit(i * 31 + step * 7 + static_cast<std::size_t>(rank)) - 0.4) + 0.2F * at;
}

struct outcome {
  std::vector<float> parameters;
  std::uint64_t digest = 0, bytes = 0;
  std::vector<double> norms = {};
  std::size_t masters = 0;
};

/// Rank r brings r + 1 samples; a step is skipped.
template <class Schedule>
outcome trained(int ranks, Schedule const& schedule) {
  outcome found;
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks));
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{
        schedule,
        acco::adamw{.learning_rate = 0.01},
        acco::host_storage<float>{},
        world,
        count,
        acco::options{.clip_norm = 3, .on_non_finite = acco::non_finite::skip, .compare_every = 1, .bucket_elements = bucket}};
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t call = 0; call < 7; ++call) {
      for (std::size_t i = 0; i < count; ++i)
        training.gradients()[i] += gradient(world.rank(), call, i, training.parameters()[i]);
      if (call == 4 && world.rank() == ranks - 1) training.gradients()[9] = std::nanf("");
      if (auto report = training.accumulated(world.rank() + 1); report && world.rank() == 0) {
        found.bytes = report->bytes_sent;
        found.norms.push_back(report->gradient_norm);
      }
    }
    training.finish();
    digests[static_cast<std::size_t>(world.rank())] = training.world_digest();
    std::vector<float> committed(count);
    training.gather_committed(committed);
    CHECK(std::equal(committed.begin(), committed.end(), training.parameters().begin()));
    if (world.rank() != 0) return;
    found.parameters.assign(training.parameters().begin(), training.parameters().end());
    found.masters = training.memory().masters;
  });
  found.digest = digests[0];
  CHECK(std::count(digests.begin(), digests.end(), digests[0]) == ranks);
  return found;
}

template <class Cut, class Whole>
void compare(Cut const& cut, Whole const& whole) {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const outcome one = trained(ranks, cut), other = trained(ranks, whole);
    CHECK(one.parameters == other.parameters);
    CHECK(one.digest == other.digest);  // masters, slots, and what each rank keeps
    REQUIRE(one.norms.size() == other.norms.size());
    for (std::size_t k = 0; k < one.norms.size(); ++k)
      CHECK((std::isnan(one.norms[k]) || other.norms[k] == doctest::Approx(one.norms[k]).epsilon(1e-12)));
    CHECK(one.parameters != std::vector<float>(count, 1.0F));
    CHECK(other.masters >= count * sizeof(float));
    CHECK(one.masters <= count * sizeof(float) / static_cast<std::size_t>(ranks) + 1024);
  }
}

template <class Gradients, class Parameters>
using wire = acco::coded<Gradients, Parameters>;

}  // namespace

TEST_CASE("where all ranks update, training is that of owners, bit by bit") {
  compare(acco::synchronous{.commit = wire<code, acco::full>{}}, acco::synchronous{.commit = wire<code, acco::updated_by_all>{}});
  constexpr acco::fixed_pace halves{.first = 1, .second = 1};
  compare(acco::two_phase{.estimate = wire<acco::block_int4<>, acco::full>{}, .commit = wire<code, acco::full>{}, .pace = halves},
          acco::two_phase{.estimate = wire<acco::block_int4<>, acco::updated_by_all>{},
                          .commit = wire<code, acco::updated_by_all>{},
                          .pace = halves});
}

TEST_CASE("a rank sends its codes to all others, and nothing else that grows with the parameters") {
  constexpr std::uint64_t codes = acco::encoded_size<acco::block_int4<>>(count);
  for (const int ranks : {1, 2, 3}) {
    const auto others = static_cast<std::uint64_t>(ranks - 1);
    const std::uint64_t sent = trained(ranks, acco::synchronous{.commit = wire<code, acco::updated_by_all>{}}).bytes;
    CHECK(sent >= others * codes);
    CHECK(sent <= others * (codes + 50 * sizeof(double)));  // sums of a few numbers
  }
}

TEST_CASE("a rank that has other parameters is found") {
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(
                           3,
                           [](acco::threads_backend const& world) {
                             acco::optimizer training{acco::synchronous{.commit = wire<code, acco::updated_by_all>{}},
                                                      acco::sgd{},
                                                      acco::host_storage<float>{},
                                                      world,
                                                      count,
                                                      acco::options{.check_habits = acco::habit_checks::off, .compare_every = 1}};
                             training.initialize(std::vector<float>(count, 1.0F));
                             for (std::size_t step = 0; step < 4; ++step) {
                               if (step == 1 && world.rank() == 1) const_cast<float&>(training.parameters()[5]) += 1;
                               training.gradients()[3] = 1;
                               training.accumulated(1);
                             }
                           }),
                       doctest::Contains("rank 1"), acco::corruption_error);
}

TEST_CASE("what all ranks have is neither saved nor restored") {
  using schedule = acco::synchronous<wire<code, acco::updated_by_all>>;
  using storage = acco::host_storage<float>;
  acco::round_engine<storage> training(std::make_unique<acco::schedule_of<schedule, storage>>(schedule{}),
                                       std::make_unique<acco::rule_of<acco::sgd, storage>>(acco::sgd{}), storage{},
                                       std::make_unique<acco::backend_of<acco::solo_backend, storage>>(acco::solo_backend{}),
                                       acco::parameter_layout(count), {});
  CHECK_THROWS_WITH_AS(training.attach(nullptr), doctest::Contains("neither saved nor restored"), acco::usage_error);
}
