// SPDX-License-Identifier: Apache-2.0
// What a compressed extragradient refuses, what ends it, and what it allocates.
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/game.hpp>

#include "games.hpp"
#include "support/counting.hpp"

namespace {

namespace oracle = game_oracle;
using games::evaluate;
using games::game_of;

/// Calls f, which must throw; its words.
template <class Error, class F>
std::string words_of(F&& f) {
  try {
    f();
  } catch (Error const& e) {
    return e.what();
  } catch (std::exception const& e) {
    return std::string("another: ") + e.what();
  }
  return "nothing was thrown";
}
bool contains(std::string const& all, char const* part) {
  CAPTURE(all);
  const bool has = all.find(part) != std::string::npos;
  CHECK(has);
  return has;
}

}  // namespace

TEST_CASE("what means nothing is refused in words") {
  const acco::solo_backend alone;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto made = [&](double step, double tau) {
    return words_of<acco::usage_error>(
        [&] { acco::compressed_extragradient{acco::masha1{.step = step, .tau = tau}, alone, game_of(3)}; });
  };
  contains(made(0, 0.5), "masha1::step is 0");
  contains(made(-1, 0.5), "masha1::step is -1");
  contains(made(nan, 0.5), "masha1::step is nan");
  contains(made(1, 0), "masha1::tau is 0");
  contains(made(1, 1), "masha1::tau is 1");
  contains(made(1, nan), "masha1::tau is nan");
  contains(
      words_of<acco::usage_error>([&] { acco::compressed_extragradient{acco::masha2{.step = 1, .tau = 2}, alone, game_of(3)}; }),
      "masha2::tau is 2");
  contains(words_of<acco::usage_error>(
               [&] { acco::compressed_extragradient{acco::masha1{.step = 1, .deadline = 0}, alone, game_of(3)}; }),
           "masha1::deadline is 0");
  contains(words_of<acco::usage_error>(
               [&] { acco::compressed_extragradient{acco::masha2{.step = 1}, alone, game_of(3, {.bound = 0.5})}; }),
           "tensor 'y' has a bound, and masha2 knows none");
  using codes = acco::one_of<acco::block_int4<>, acco::block_gauss3>;
  const codes none{.which = codes::find("nonsense")};
  contains(words_of<acco::usage_error>(
               [&] { acco::compressed_extragradient{acco::masha1{.step = 1, .up = none}, alone, game_of(3)}; }),
           "one_of::which is 2, and there are 2 encodings");
  contains(words_of<acco::usage_error>(
               [&] { acco::compressed_extragradient{acco::masha2{.step = 1, .down = none}, alone, game_of(3)}; }),
           "one_of::which is 2, and there are 2 encodings");
  contains(
      words_of<acco::usage_error>([&] { acco::compressed_extragradient{acco::masha1{.step = 1}, alone, acco::game_layout{}}; }),
      "the game has no elements");
  contains(words_of<acco::usage_error>([&] { (void)game_of(3, {.step_scale = 0}); }), "tensor_moves::step_scale is 0");
  contains(words_of<acco::usage_error>([&] { (void)game_of(3, {.bound = -1}); }), "tensor_moves::bound is -1");
  contains(words_of<acco::usage_error>([&] { (void)game_of(3, {.bound = 1e-46}); }),
           "tensor_moves::bound is 1e-46, less than every normal number of fp32");

  acco::compressed_extragradient training{acco::masha1{.step = 0.1}, alone, game_of(3, {.bound = 0.5})};
  contains(words_of<acco::usage_error>([&] { (void)training.evaluated(); }), "evaluated() was called before initialize");
  contains(words_of<acco::usage_error>([&] { training.initialize(std::vector<float>(5)); }),
           "initialize got 5 parameters, the game has 6");
  training.initialize(std::vector<float>(6, 2.0F));
  CHECK(training.parameters()[0] == 2);
  CHECK(training.parameters("y")[0] == 0.5F);  // cut off at the bound
  contains(words_of<acco::usage_error>([&] { training.initialize(std::vector<float>(6)); }), "initialize was called twice");
  std::vector<float> few(5);
  contains(words_of<acco::usage_error>([&] { training.gather(few); }), "gather got room for 5 parameters, the game has 6");
  (void)training.evaluated();  // these have not ended it
  training.finish();
  contains(words_of<acco::usage_error>([&] { (void)training.evaluated(); }), "evaluated was called after finish");
}

TEST_CASE("an operator that is not finite ends the training on every rank, with the rank and the tensor") {
  for (const bool at_reference : {true, false}) {
    for (const bool coded : {true, false}) {
      int told = 0;
      acco::mock_world(3).run([&](acco::mock_backend const& world) {
        const auto run = [&](auto const& method) {
          acco::compressed_extragradient training{method, world, game_of(200)};
          training.initialize(std::vector<float>(400, 1.0F));
          if (!at_reference) (void)training.evaluated();
          if (world.rank() == 1) training.gradients("y")[7] = std::numeric_limits<float>::infinity();
          const std::vector<float> held(training.parameters().begin(), training.parameters().end());
          const std::string words = words_of<acco::non_finite_error>([&] { (void)training.evaluated(); });
          contains(words,
                   "rank 1 evaluated 1 numbers of the operator that are infinite or not a number, the first in tensor 'y' at "
                   "element 7");
          CHECK(words_of<acco::non_finite_error>([&] { (void)training.evaluated(); }) == words);
          CHECK(words_of<acco::non_finite_error>([&] { (void)training.parameters(); }) == words);
          ++told;
        };
        if (coded) {
          run(acco::masha2{.step = 0.1, .up = acco::block_int4{}, .down = acco::block_int4{}});
        } else {
          run(acco::masha1{.step = 0.1});
        }
      });
      CHECK(told == 3);
    }
  }
  const acco::solo_backend alone;
  acco::compressed_extragradient training{acco::masha1{.step = 3e38}, alone, game_of(3)};
  training.initialize(std::vector<float>(6, 1.0F));
  training.gradients()[0] = 1e5F;
  contains(words_of<acco::non_finite_error>([&] { (void)training.evaluated(); }),
           "the step, or the mean of finite operators, overflowed");
}

TEST_CASE("a rank that leaves, or was made differently, is named to the others") {
  int told = 0;
  const std::string cause = words_of<acco::error>([&] {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::compressed_extragradient training{acco::masha1{.step = 0.1, .deadline = 60}, world, game_of(10)};
      training.initialize(std::vector<float>(20, 1.0F));
      (void)training.evaluated();
      if (world.rank() == 2) throw std::runtime_error("its data have run out");
      const std::string words = words_of<acco::peer_error>([&] {
        for (;;) (void)training.evaluated();
      });
      contains(words, "rank 2");
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      ++told;
    });
  });
  contains(cause, "its data have run out");
  CHECK(told == 2);

  const std::string words = words_of<acco::mismatch_error>([&] {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::compressed_extragradient training{acco::masha1{.step = world.rank() == 0 ? 0.1 : 0.2}, world, game_of(10)};
      training.initialize(std::vector<float>(20, 1.0F));
    });
  });
  contains(words, "rank 0 has 'step = 0.1', rank 1 has 'step = 0.2'");
}

TEST_CASE("ranks that choose different codes, or choose from different lists, are told which") {
  const auto told = [](auto const& method, auto const& of_rank_1) {
    return words_of<acco::mismatch_error>([&] {
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        const auto train = [&](auto const& chosen) {
          acco::compressed_extragradient training{chosen, world, game_of(10)};
          training.initialize(std::vector<float>(20, 1.0F));
        };
        world.rank() == 0 ? train(method) : train(of_rank_1);
      });
    });
  };
  const auto up = [](auto code) { return acco::masha2{.step = 0.1, .up = code}; };
  const auto down = [](auto code) { return acco::masha2{.step = 0.1, .down = code}; };
  using codes = acco::one_of<acco::block_int4<>, acco::block_gauss3>;
  contains(told(up(codes{.which = 0}), up(codes{.which = 1})),
           "rank 0 has 'up = one_of: block_int4, number 0 of 2', rank 1 has 'up = one_of: block_gauss3, number 1 of 2'");
  contains(told(down(codes{.which = 1}), down(codes{.which = 0})),
           "rank 0 has 'down = one_of: block_gauss3, number 1 of 2', rank 1 has 'down = one_of: block_int4, number 0 of 2'");
  contains(told(up(acco::one_of<acco::block_int4<>, acco::block_top<16>>{}),
                up(acco::one_of<acco::block_int4<>, acco::block_top<32>>{})),
           "rank 0 has 'up 1 = block_top, blocks of 256 in 34 bytes', rank 1 has 'up 1 = block_top, blocks of 256 in 66 bytes'");
  contains(told(up(acco::block_int4<>{}), up(acco::block_int4<128>{})),
           "rank 0 has 'up = block_int4, blocks of 256 in 132 bytes', rank 1 has 'up = block_int4, blocks of 128 in 68 bytes'");
  contains(told(up(acco::block_random<15>{}), up(acco::block_random<16>{})),
           "rank 0 has 'up: kept = 15', rank 1 has 'up: kept = 16'");
}
TEST_CASE("memory() is what is allocated, and a steady step allocates nothing") {
  counting::resource counted;
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    const std::size_t n = 700;
    acco::compressed_extragradient training{acco::masha2{.step = 0.1, .up = acco::block_int4{}, .down = acco::block_int8{}},
                                            world, game_of(n), acco::host_storage<float>{&counted}};
    CHECK(counted.now == 0);
    training.initialize(std::vector<float>(2 * n, 1.0F));
    CHECK(counted.now == training.memory().total());
    const auto evaluate_all = [&](int times) {
      for (int k = 0; k < times; ++k) {
        for (std::size_t i = 0; i < n; ++i) {
          training.gradients()[i] += training.parameters()[n + i];
          training.gradients()[n + i] += training.parameters()[i];
        }
        (void)training.evaluated();
      }
    };
    evaluate_all(20);
    const std::size_t before = counting::news();
    evaluate_all(40);
    CHECK(counting::news() == before);
    training.finish();
  });
  CHECK(counted.now == 0);
}
