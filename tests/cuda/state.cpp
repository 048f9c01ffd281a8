// SPDX-License-Identifier: Apache-2.0
// The state on the device: digests by kernels, masters in and out, parameters compared. Over
// the stand-in only.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "cuda/cuda_world.hpp"
#include "cuda/stream_trainer.hpp"

namespace {
using stream_trainer::micro_batch;
acco::parameter_layout layout_of() { return stream_trainer::layout_of(9000); }
template <class T, class Schedule>
auto make(acco::threads_backend const& world, acco::cuda_stream const& stream, Schedule const& schedule,
          acco::options const& chosen) {
  return acco::optimizer{
      schedule, acco::adamw{.learning_rate = 0.01}, acco::cuda_storage<T>{.computation = stream.get()}, world, layout_of(),
      chosen};
}
}  // namespace

TEST_CASE_TEMPLATE("kernels digest in a round what they digest between rounds", T, float, acco::bfloat16, double) {
  const auto train = [](auto schedule) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::cuda_stream stream;
      auto training = make<T>(world, stream, schedule,
                              {.average_decay = 0.9,
                               .check_habits = acco::habit_checks::off,
                               .compare_every = 1,
                               .digest_every = 1,
                               .bucket_elements = 4096});
      training.initialize(std::vector<T>(layout_of().size(), T(0.5F)));
      const bool waits = schedule.plan(0).meanwhile == acco::computation::waits;
      std::size_t compared = 0;
      std::uint64_t in_flight = 0;  // the state that the round in flight leaves
      for (std::size_t m = 0; m < 24; ++m) {
        auto const r = micro_batch(training, stream, world.rank(), m);
        if (!r) continue;
        const std::uint64_t now = training.world_digest();
        if (r->digest) {
          CHECK(*r->digest == (waits ? now : in_flight));
          ++compared;
        }
        in_flight = now;
      }
      CHECK(compared >= 5);
      training.finish();
    });
  };
  train(acco::two_phase{.pace = acco::fixed_pace{1}});
  train(acco::synchronous{});
  train(acco::two_phase{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}, 3}});
}

TEST_CASE("gpa's average is gathered from devices: the host's, between parameters and what the rule has come to") {
  std::vector<float> seen[2], between[2];
  const auto train = [&](auto const& storage, int k) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::gpa{acco::sgd{.learning_rate = 0.25}}, storage,
                             acco::solo_backend{}, 700};
    CHECK(training.memory().gathering >= 2 * 700 * sizeof(float));
    training.initialize(std::vector<float>(700, 1.0F));
    for (std::size_t m = 0; m < 8; ++m) {
      auto const gradients = training.gradients();
      if (k == 1) REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);  // they are cleared in its order
      for (std::size_t i = 0; i < 700; ++i) gradients[i] += static_cast<float>(i % 5);
      training.accumulated(1);
    }
    training.finish();
    seen[k].resize(700), between[k].resize(700);
    training.gather_average(seen[k]);
    training.gather_masters(between[k], acco::weights::average);
  };
  train(acco::host_storage<float>{}, 0);
  train(acco::cuda_storage<float>{}, 1);
  CHECK(seen[0] == seen[1]);
  CHECK(between[0] == between[1]);
  CHECK(seen[0] == between[0]);
  CHECK(seen[0][4] < 1);
}

TEST_CASE("a flipped bit on one device is found, by rank and tensor") {
  for (const std::size_t element : {std::size_t{702}, std::size_t{733}}) {
    std::string said;
    std::mutex mutex;
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::cuda_stream stream;
      auto training = make<acco::half>(world, stream, acco::two_phase{.pace = acco::fixed_pace{1}},
                                       {.check_habits = acco::habit_checks::off, .compare_every = 3, .compare_frozen = true});
      training.initialize(std::vector<acco::half>(layout_of().size(), acco::half(0.5F)));
      try {
        for (std::size_t m = 0; m < 20; ++m) {
          auto const r = micro_batch(training, stream, world.rank(), m);
          if (!r || r->round != 3 || world.rank() != 1) continue;
          emulated::of(stream.get()).enqueue([p = training.parameters(), element] {
            auto* const byte = reinterpret_cast<std::byte*>(const_cast<acco::half*>(&p[element]));
            *byte ^= std::byte{1};
          });
        }
        training.finish();
      } catch (acco::corruption_error const& e) {
        const std::lock_guard lock(mutex);
        said = e.what();
        CHECK(e.peer() == 1);
      }
    });
    CHECK(said.find("rank 1 are not those of the other ranks, in tensor 'frozen'") != std::string::npos);
  }
}

TEST_CASE("masters go to the device and come back without losing a bit") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::cuda_stream stream;
    auto training = make<acco::bfloat16>(world, stream, acco::two_phase{.pace = acco::fixed_pace{1}},
                                         {.average_decay = 0.9, .bucket_elements = 2048});
    std::vector<float> masters(layout_of().size()), out(masters.size());
    for (std::size_t i = 0; i < masters.size(); ++i) masters[i] = 0.1F + 1e-5F * static_cast<float>(i);
    training.initialize(masters);
    for (const auto which : {acco::weights::committed, acco::weights::average}) {
      training.gather_masters(out, which);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const bool frozen = i >= 701 && i < 734;
        REQUIRE(out[i] == (frozen ? static_cast<float>(acco::bfloat16(masters[i])) : masters[i]));
      }
    }
    for (std::size_t m = 0; m < 5; ++m) (void)micro_batch(training, stream, world.rank(), m);
    training.gather_masters(out);
    CHECK(out != masters);
    training.finish();
  });
}
