// SPDX-License-Identifier: Apache-2.0
// Gradients that travel as signs: a parameter goes where most ranks want it, by whatever number a rank is called.
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "conformance/encoding.hpp"
#include "support/problem.hpp"

namespace {

constexpr int ranks = 4;
constexpr std::size_t parameters = 700, rounds = 4;  // no multiple of a block
constexpr double rate = 0.5;
using order = std::array<int, ranks>;

/// Large where one rank alone has an opinion: a mean would follow it.
float gradient(int who, std::size_t round, std::size_t index) {
  const double x = 2 * problem::unit(31 * index + 7919 * round + 104729 * static_cast<std::size_t>(who)) - 1;
  return static_cast<float>(who == 0 ? 1000 * x : x);
}

/// Where rank k is who[k]; `absent` brings nothing.
std::vector<float> train(double decay, order const& who, int absent = -1) {
  std::vector<float> result(parameters);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const acco::with_feedback signum{acco::majority_vote{}, acco::local_momentum{.decay = decay}};
    acco::optimizer training{acco::synchronous{.commit = acco::coded{signum, acco::full{}}},
                             acco::lion{.learning_rate = rate, .beta1 = 0},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.bucket_elements = 300}};
    training.initialize(std::vector<float>(parameters, 0.0F));
    const int me = who[static_cast<std::size_t>(world.rank())];
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; me != absent && i < parameters; ++i) training.gradients()[i] += gradient(me, round, i);
      training.accumulated(me == absent ? 0 : 1 + me);  // a vote is a vote, of however many samples
    }
    training.finish();
    if (world.rank() == 0) std::copy_n(training.parameters().data(), parameters, result.data());
  });
  return result;
}

/// In double precision; `even` counts splits.
std::vector<double> oracle(double decay, int absent, std::size_t& even) {
  std::vector<double> result(parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    std::array<double, ranks> momentum{};
    for (std::size_t round = 0; round < rounds; ++round) {
      int votes = 0;
      for (int who = 0; who < ranks; ++who) {
        if (who == absent) continue;
        double& m = momentum[static_cast<std::size_t>(who)];
        m = decay * m + (1 - decay) * static_cast<double>(gradient(who, round, i));
        votes += m < 0 ? -1 : 1;
      }
      even += votes == 0 ? 1 : 0;
      result[i] -= rate * (votes > 0 ? 1 : votes < 0 ? -1 : 0);
    }
  }
  return result;
}

std::size_t differing(std::vector<float> const& a, std::vector<double> const& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < parameters; ++i) count += static_cast<double>(a[i]) == b[i] ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("a parameter goes where most signs point, and stays under an even split, in every order of the ranks") {
  for (const double decay : {0.0, 0.75}) {
    std::size_t even = 0;
    auto const expected = oracle(decay, -1, even);
    CHECK(even > parameters / 2);
    for (order const& who : {order{0, 1, 2, 3}, order{3, 1, 0, 2}, order{1, 0, 3, 2}}) {
      CAPTURE(decay);
      CAPTURE(who[0]);
      CHECK(differing(train(decay, who), expected) == 0);
    }
  }
}

TEST_CASE("who has no samples abstains") {
  std::size_t even = 0;
  auto const expected = oracle(0.75, 2, even);
  CHECK(differing(train(0.75, {0, 1, 2, 3}, 2), expected) == 0);
  CHECK(even == 0);
}

TEST_CASE("a block of signs decodes to them, of zeros to zeros, and to nothing finite where something is not") {
  using code = acco::majority_vote;
  conformance::refusal(code{});
  float values[code::block_size], decoded[code::block_size];
  std::byte bytes[code::block_bytes];
  const auto travel = [&] {
    code::encode(values, bytes);
    code::decode(bytes, decoded);
  };
  for (std::size_t i = 0; i < code::block_size; ++i)
    values[i] = i % 7 == 0 ? -0.0F : (i * i % 11 < 5 ? -1 : 1) * (i % 3 == 0 ? 1e-45F : static_cast<float>(i));
  travel();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < code::block_size; ++i) wrong += decoded[i] == (i % 7 != 0 && i * i % 11 < 5 ? -1.0F : 1.0F) ? 0 : 1;
  CHECK(wrong == 0);
  std::fill_n(values, code::block_size, -0.0F);
  travel();
  CHECK(std::ranges::all_of(decoded, [](float x) { return x == 0; }));
}
