// SPDX-License-Identifier: Apache-2.0
// The trainer's own arrays on the device. Over the stand-in only.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "cuda/cuda_world.hpp"

namespace {

/// Each rank's digest; begin(training, stream, initial, parameters, gradients) has two arrays for the taking.
template <class T, class Begin>
std::vector<std::uint64_t> trained(Begin begin) {
  std::vector<std::uint64_t> digests(3);
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::cuda_stream stream;
    acco::parameter_layout layout;
    layout.add("a", {700});
    layout.add("frozen", {33}, layout.add_group({.frozen = true}));
    layout.add("b", {501});
    const std::size_t count = layout.size();
    const acco::cuda_buffer own(acco::default_cuda_memory(), stream.get(), 2 * count * sizeof(T));
    T* const arrays = own.template as<T>();
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.01},
                             acco::cuda_storage<T>{.computation = stream.get()}, world, layout};
    begin(training, emulated::of(stream.get()), std::vector<T>(count, T(0.5F)), std::span(arrays, count),
          std::span(arrays + count, count));
    for (int m = 0; m < 9; ++m) {
      emulated::of(stream.get()).enqueue([p = training.parameters(), g = training.gradients(), m, r = world.rank()] {
        for (std::size_t i = 0; i < p.size(); ++i) {
          const auto target = static_cast<float>((i + static_cast<std::size_t>(m * r)) % 7);
          g[i] = T(static_cast<float>(g[i]) + static_cast<float>(p[i]) - target);
        }
      });
      training.accumulated(1);
    }
    training.finish();
    digests[static_cast<std::size_t>(world.rank())] = training.state_digest();
  });
  return digests;
}

}  // namespace

TEST_CASE_TEMPLATE("adopted arrays on the device train to the bits of acco's own, and stay where they are", T, float,
                   acco::bfloat16) {
  const auto usual = trained<T>([](auto& training, auto&, auto const& initial, auto, auto) { training.initialize(initial); });
  const auto adopted = trained<T>([](auto& training, auto& stream, auto const& initial, auto parameters, auto gradients) {
    stream.enqueue([&initial, parameters, gradients] {
      std::copy(initial.begin(), initial.end(), parameters.begin());
      std::fill(gradients.begin(), gradients.end(), T(0.0F));
    });
    stream.record()->wait();
    training.adopt(parameters, gradients);
    CHECK(training.parameters().data() == parameters.data());
    CHECK(training.gradients().data() == gradients.data());
  });
  CHECK(usual == adopted);
}

TEST_CASE("one norm over several optimizers is refused: the norms of a device never come to the host") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    acco::cuda_stream stream;
    const auto make = [&](acco::options const& chosen) {
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                               acco::adamw{.learning_rate = 0.01},
                               acco::cuda_storage<float>{.computation = stream.get()},
                               world,
                               acco::parameter_layout(10),
                               chosen};
    };
    make({.clip_norm = 1});
    CHECK_THROWS_WITH_AS(make({.clip_norm = 1, .clip_with = [](double mine) { return mine; }}),
                         doctest::Contains("options::clip_with: the norms of this storage's gradients never come to the host"),
                         acco::usage_error);
  });
}
