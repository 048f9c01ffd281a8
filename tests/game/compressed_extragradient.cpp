// SPDX-License-Identifier: Apache-2.0
// Compressed extragradient against its recurrence; bytes, and the same bits on every rank.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/game.hpp>

#include "games.hpp"
#include "recurrence.hpp"

namespace {

namespace oracle = game_oracle;
using games::evaluate;
using games::game_of;

/// What arrives of numbers that travel by this code.
template <class Code, class Real>
typename oracle::training<Real>::code arrives(Code code, std::size_t size, int ranks, std::uint64_t seed, bool down) {
  if constexpr (std::is_same_v<Code, acco::full>) {
    return {};
  } else {
    return [=](std::vector<Real>& values, int rank, std::uint64_t evaluation) {
      const std::size_t share = acco::partition(size, ranks).slice_size();
      for (int owner = 0; owner < ranks; ++owner) {
        const std::size_t begin = static_cast<std::size_t>(owner) * share;
        for (std::size_t i = begin; i < std::min(begin + share, size); i += Code::block_size) {
          float block[Code::block_size] = {};
          std::byte bytes[Code::block_bytes];
          const std::size_t count = std::min({Code::block_size, begin + share - i, size - i});
          for (std::size_t k = 0; k < count; ++k) block[k] = static_cast<float>(values[i + k]);
          const acco::message_key key{seed, evaluation, down ? owner : rank, down};
          const auto encoding = acco::with_key(code, key.of_block(i));
          encoding.encode(block, bytes);
          encoding.decode(bytes, block);
          for (std::size_t k = 0; k < count; ++k) values[i + k] = static_cast<Real>(block[k]);
        }
      }
    };
  }
}

/// The training and its recurrence, computed in Real, at every evaluation of every rank; bits are compared between ranks, too.
template <class Real, class Method>
void check_same(Method const& method, int ranks, std::size_t n, int evaluations, double tolerance, acco::tensor_moves of_y = {}) {
  CAPTURE(Method::name);
  CAPTURE(ranks);
  CAPTURE(n);
  const oracle::bilinear problem{n, 5};
  oracle::training<Real> wanted{.ranks = ranks,
                                .step = static_cast<Real>(static_cast<float>(method.step)),
                                .tau = static_cast<Real>(static_cast<float>(method.tau)),
                                .step_y = static_cast<Real>(of_y.step_scale),
                                .bound_y = static_cast<Real>(static_cast<float>(of_y.bound)),
                                .moves = [&](std::uint64_t step) { return acco::reference_moves(method.seed, step, method.tau); },
                                .up = arrives<decltype(method.up), Real>(method.up, 2 * n, ranks, method.seed, false),
                                .down = arrives<decltype(method.down), Real>(method.down, 2 * n, ranks, method.seed, true),
                                .feeds_back = Method::feeds_back};
  const auto initial = problem.initial();
  wanted.begin({initial.begin(), initial.end()});
  std::vector<oracle::bilinear::part<Real>> parts;
  for (int m = 0; m < ranks; ++m) parts.push_back(problem.of<Real>(m));
  std::vector<std::vector<Real>> path;
  std::vector<bool> at_reference;
  std::vector<double> norms;
  for (int k = 0; k < evaluations; ++k) {
    at_reference.push_back(wanted.at_reference);
    wanted.evaluated([&](int m, std::vector<Real> const& at) {
      std::vector<Real> g(2 * n, 0);
      parts[static_cast<std::size_t>(m)].add_gradients(at.data(), g.data());
      for (std::size_t i = n; i < 2 * n; ++i) g[i] = -g[i];
      return g;
    });
    path.push_back(wanted.shown);
    norms.push_back(wanted.norm);
  }
  CHECK(std::count(at_reference.begin(), at_reference.end(), true) > 1);

  acco::mock_world(ranks, {.delay = acco::complete_at_random{}}).run([&](acco::mock_backend const& world) {
    const auto mine = problem.of<float>(world.rank());
    acco::compressed_extragradient training{method, world, game_of(n, of_y)};
    training.initialize(world.rank() == 0 ? initial : std::vector<float>(2 * n, 9.0F));
    double furthest = 0;
    for (int k = 0; k < evaluations; ++k) {
      for (const float each : training.parameters("y"))
        REQUIRE((of_y.bound == 0 || std::abs(each) <= static_cast<float>(of_y.bound)));
      const auto at = static_cast<std::size_t>(k);
      REQUIRE((training.point() == acco::evaluation_point::reference) == at_reference[at]);
      const auto report = evaluate(training, mine);
      CHECK((report.evaluated == acco::evaluation_point::reference) == at_reference[at]);
      REQUIRE(std::abs(report.operator_norm - norms[at]) <= 1e-4 * norms[at] + 10 * tolerance);
      for (std::size_t i = 0; i < 2 * n; ++i) {
        const double far = std::abs(static_cast<double>(training.parameters()[i]) - static_cast<double>(path[at][i]));
        furthest = far <= furthest ? furthest : far;
        if (training.gradients()[i] != 0) furthest = 1e9;
      }
    }
    CHECK(furthest <= tolerance);
    CHECK(training.steps() == wanted.steps);
    std::vector<float> masters(2 * n);
    training.gather(masters);
    training.finish();
    if (world.rank() == 0) {  // alone: the others may have gone
      std::vector<float> once_more(2 * n);
      training.gather(once_more);
      CHECK(once_more == masters);
    }
    for (std::size_t i = 0; i < 2 * n; ++i) {
      REQUIRE(std::abs(static_cast<double>(masters[i]) - static_cast<double>(wanted.z[i])) <= tolerance);
      REQUIRE(training.parameters()[i] == masters[i]);
    }
  });
}

}  // namespace

TEST_CASE("without codes a training is the recurrence of MASHA in fp64") {
  for (const int ranks : {1, 2, 3, 5}) {
    check_same<double>(acco::masha1{.step = 0.25, .tau = 0.5}, ranks, 35, 60, 2e-6);
    check_same<double>(acco::masha2{.step = 0.25, .tau = 0.5, .seed = 4}, ranks, 66, 40, 2e-6);
  }
  check_same<double>(acco::masha1{.step = 0.25, .tau = 0.75}, 3, 35, 60, 2e-6, {.step_scale = 0.5, .bound = 0.25});
  check_same<double>(acco::masha1{.step = 0.25, .tau = 0.75}, 2, 1, 30, 2e-6);
}

TEST_CASE("with codes it is the recurrence with the encoder in its loop, in the same arithmetic") {
  for (const int ranks : {1, 2, 3, 5}) {
    check_same<float>(acco::masha1{.step = 0.2, .up = acco::stochastic_int4<128>{}, .down = acco::block_int8<128>{}, .seed = 8},
                      ranks, 150, 40, 1e-6);
    check_same<float>(
        acco::masha2{.step = 0.2, .tau = 0.9, .up = acco::block_ternary{}, .down = acco::stochastic_int8{}, .seed = 9}, ranks, 40,
        40, 1e-6);
  }
  check_same<float>(acco::masha1{.step = 0.1, .up = acco::stochastic_ternary{}}, 3, 300, 20, 1e-6, {.bound = 0.25});
  check_same<float>(acco::masha1{.step = 0.2, .up = acco::block_int8{}, .down = acco::block_int4{}}, 2, 40, 40, 1e-6);
  check_same<float>(acco::masha1{.step = 0.2, .down = acco::block_gauss2{}}, 2, 40, 40, 1e-6, {.bound = 0.25});
  check_same<float>(acco::masha2{.step = 0.1, .up = acco::block_top<16>{}, .down = acco::block_gauss4{}}, 3, 40, 40, 1e-6);
}

TEST_CASE("what fills up the last slice is no part of the game, though a code says no 0") {
  const acco::loosely<acco::block_dct_top<16>> points;
  for (const std::size_t n : {std::size_t{2}, std::size_t{40}}) {
    check_same<float>(acco::masha2{.step = 0.02, .tau = 0.9, .up = acco::block_sign{}, .down = points}, 3, n, 30, 1e-6);
    check_same<float>(acco::masha2{.step = 0.02, .tau = 0.9, .up = acco::block_dct_top<16>{}}, 2, n, 30, 1e-6);
  }
}

TEST_CASE("a reference that always moves makes it Korpelevich's extragradient") {
  const std::size_t n = 20;
  const oracle::bilinear problem{n, 2};
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto mine = problem.of<float>(world.rank());
    const auto a = problem.of<double>(0), b = problem.of<double>(1);
    const auto f = [&](std::vector<double> const& at) {
      std::vector<double> g(2 * n, 0.0);
      a.add_gradients(at.data(), g.data());
      b.add_gradients(at.data(), g.data());
      for (std::size_t i = 0; i < 2 * n; ++i) g[i] *= i < n ? 0.5 : -0.5;
      return g;
    };
    acco::compressed_extragradient training{acco::masha1{.step = 0.3, .tau = 1e-12}, world, game_of(n)};
    const auto initial = problem.initial();
    training.initialize(initial);
    std::vector<double> z(initial.begin(), initial.end()), half = z;
    for (int k = 0; k < 50; ++k) {
      (void)evaluate(training, mine);  // at z
      auto g = f(z);
      for (std::size_t i = 0; i < 2 * n; ++i) half[i] = z[i] - 0.3 * g[i];
      (void)evaluate(training, mine);  // at z_half
      g = f(half);
      for (std::size_t i = 0; i < 2 * n; ++i) z[i] -= 0.3 * g[i];
      for (std::size_t i = 0; i < 2 * n; ++i) REQUIRE(std::abs(static_cast<double>(training.parameters()[i]) - z[i]) < 2e-6);
    }
    training.finish();
  });
}

TEST_CASE("bytes are those of the formula, and ranks hold the same bits after every evaluation") {
  const std::size_t n = 300;
  const oracle::bilinear problem{n, 6};
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    std::vector<std::vector<float>> shown(static_cast<std::size_t>(ranks));
    acco::mock_world(ranks).run([&](acco::mock_backend const& world) {
      const auto mine = problem.of<float>(world.rank());
      const auto all = static_cast<std::uint64_t>(ranks), others = all - 1;
      const std::size_t share = acco::partition(2 * n, ranks).slice_size();
      const auto run = [&](auto const& method, std::uint64_t up, std::uint64_t down) {
        acco::compressed_extragradient training{method, world, game_of(n)};
        training.initialize(problem.initial());
        for (int k = 0; k < 30; ++k) {
          const auto report = evaluate(training, mine);
          const bool at_w = report.evaluated == acco::evaluation_point::reference;
          const bool moved = report.evaluates_next == acco::evaluation_point::reference;
          const std::uint64_t numbers = 3 * sizeof(double) * others;
          REQUIRE(report.bytes_sent == others * ((at_w ? 4 * share : up) + (moved ? 4 * share : down)) + numbers);
          auto& mine_shown = shown[static_cast<std::size_t>(world.rank())];
          mine_shown.assign(training.parameters().begin(), training.parameters().end());
          std::vector<double> nothing(1, 0.0), sum(1);
          auto queue = acco::make_queue<acco::host_queue>(world);  // until all have come here
          acco::all_reduce_and_wait(queue, world, std::span<double const>(nothing), std::span<double>(sum));
          for (auto const& each : shown) REQUIRE(each == mine_shown);
          acco::all_reduce_and_wait(queue, world, std::span<double const>(nothing), std::span<double>(sum));
        }
        training.finish();
      };
      run(acco::masha1{.step = 0.2}, 4 * share, 4 * share);
      run(acco::masha1{.step = 0.2, .up = acco::stochastic_int4{}, .down = acco::stochastic_int8{}}, (share + 255) / 256 * 132,
          (share + 255) / 256 * 260);
      run(acco::masha2{.step = 0.2, .up = acco::block_ternary{}, .down = acco::block_int4<128>{}}, (share + 255) / 256 * 54,
          (share + 127) / 128 * 68);
    });
  }
}
