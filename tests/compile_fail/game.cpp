// SPDX-License-Identifier: Apache-2.0
// Games whose messages travel by codes that do not fit; CMakeLists.txt says how the sections are read.
#include <acco/collective/threads.hpp>
#include <acco/encoding/auto_encoding.hpp>
#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_sign.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/game.hpp>

void train(acco::threads_backend world, acco::game_layout game) {
  acco::compressed_extragradient fine{acco::masha1{.step = 0.1, .up = acco::stochastic_int4{}, .down = acco::block_gauss2{}},
                                      world, game};
  acco::compressed_extragradient signs{acco::masha2{.step = 0.1, .up = acco::block_sign{}}, world, game};
  acco::compressed_extragradient fine_too{
      acco::masha2{.step = 0.1, .up = acco::block_top<8>{}, .down = acco::loosely<acco::block_ternary>{}}, world, game};
#if defined(BIASED)  // expect: acco: masha1 is for codes without bias
  acco::compressed_extragradient training{acco::masha1{.step = 0.1, .up = acco::block_ternary{}}, world, game};
#endif
#if defined(FED_BACK)  // expect: acco: masha2 has error feedback, and masha1 has none: give `up` the encoding alone
  using code = acco::with_error_feedback<acco::block_gauss2>;
  acco::compressed_extragradient training{acco::masha2{.step = 0.1, .up = code{}}, world, game};
#endif
#if defined(LOOSE_POINTS)  // expect: acco: points in this encoding fall behind
  acco::compressed_extragradient training{acco::masha2{.step = 0.1, .down = acco::block_ternary{}}, world, game};
#endif
#if defined(PLANNED)  // expect: acco: planned_encoding is for the commits of a schedule
  acco::compressed_extragradient training{acco::masha1{.step = 0.1, .up = acco::auto_encoding{}}, world, game};
#endif
#if defined(UNSCALED)  // expect: acco: this encoding tells nothing of sizes
  acco::compressed_extragradient training{acco::masha2{.step = 0.1, .up = acco::sign_vote{}}, world, game};
#endif
#if defined(UNSCALED_POINTS)  // expect: acco: this encoding tells nothing of sizes
  acco::compressed_extragradient training{acco::masha2{.step = 0.1, .down = acco::loosely<acco::sign_vote>{}}, world, game};
#endif
}
