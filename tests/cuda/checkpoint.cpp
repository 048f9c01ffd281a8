// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a state on the device: copied to pinned memory by the round, the same files as a host's, and back.
// Over the stand-in only.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "cuda/cuda_world.hpp"
#include "cuda/stream_trainer.hpp"

namespace {
using stream_trainer::micro_batch;
acco::parameter_layout layout_of() { return stream_trainer::layout_of(901); }
}  // namespace

TEST_CASE_TEMPLATE("a training on the device that was stopped goes on in every bit", T, float, acco::bfloat16) {
  const auto compare = [](auto schedule, int then) {
    const scratch folder;
    const auto make = [&](acco::threads_backend const& world, acco::cuda_stream const& stream) {
      return acco::optimizer{
          schedule,    acco::adamw{.learning_rate = 0.01}, acco::cuda_storage<T>{.computation = stream.get()}, world,
          layout_of(), acco::options{.digest_every = 1}};
    };
    std::map<std::uint64_t, std::uint64_t> digests;
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::cuda_stream stream;
      auto training = make(world, stream);
      training.initialize(std::vector<T>(layout_of().size(), T(0.5F)));
      std::size_t m = 0;
      for (; m < 20; ++m) {
        if (m == 6) training.save(folder.run(), [&] { return m; });
        auto const r = micro_batch(training, stream, world.rank(), m);
        if (r && r->digest && world.rank() == 0) digests[r->step] = *r->digest;
      }
      training.finish();
      REQUIRE(training.saved() != nullptr);
      CHECK_MESSAGE(training.saved()->complete(), training.saved()->problem);
    });
    std::size_t compared = 0;
    acco::threads_backend::run(then, [&](acco::threads_backend const& world) {
      acco::cuda_stream stream;
      auto training = make(world, stream);
      auto const found = training.restore(folder.run());
      CHECK(found.digest == digests[found.step]);
      if (then != 3) return training.finish();
      for (auto m = found.template position<std::size_t>() + 1; m < 20; ++m) {
        auto const r = micro_batch(training, stream, world.rank(), m);
        if (!r || !r->digest || world.rank() != 0) continue;
        CHECK(*r->digest == digests[r->step]);
        ++compared;
      }
      training.finish();
    });
    CHECK(compared >= (then == 3 ? 3U : 0U));
    CHECK(acco::verify_checkpoint(*acco::latest_checkpoint(folder.run())));
  };
  compare(acco::two_phase{.pace = acco::fixed_pace{1}}, 3);
  compare(acco::two_phase{.pace = acco::fixed_pace{1}}, 2);
  compare(acco::synchronous{}, 3);
  compare(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded{acco::block_int8{}, acco::block_int8{}, 3}}, 3);
  if constexpr (std::is_same_v<T, float>) {  // what is kept is packed when it comes back
    const acco::with_error_feedback<acco::block_int4<>, acco::int8_blocks> packed;
    compare(acco::synchronous{.commit = acco::coded{packed, acco::full{}}}, 3);
  }
}
