// SPDX-License-Identifier: Apache-2.0
// An encoding of your own: only the largest numbers of each block travel, in 25 lines. Sums over ranks, differences,
// messages of every backend and all schedules come with it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>

// [encoding]
/// Of 256 numbers the 32 largest travel, as bfloat16 with their places: 96 bytes, 3 bits a number. The others decode to
/// zero.
struct largest_of_block {
  static constexpr char const* name = "largest_of_block";
  static constexpr std::size_t block_size = 256, kept = 32, block_bytes = kept * (1 + sizeof(acco::bfloat16));

  static void encode(float const* values, std::byte* bytes) {
    // as bits: infinite and NaN are the largest, so they are not lost
    const auto magnitude = [values](unsigned char i) { return std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU; };
    unsigned char places[block_size];
    std::iota(places, places + block_size, static_cast<unsigned char>(0));
    std::nth_element(places, places + kept, places + block_size, [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
    std::memcpy(bytes, places, kept);
    for (std::size_t k = 0; k < kept; ++k) {
      const acco::bfloat16 value(values[places[k]]);
      std::memcpy(bytes + kept + k * sizeof value, &value, sizeof value);
    }
  }
  static void decode(std::byte const* bytes, float* values) {
    std::fill_n(values, block_size, 0.0F);
    for (std::size_t k = 0; k < kept; ++k) {
      acco::bfloat16 value;
      std::memcpy(static_cast<void*>(&value), bytes + kept + k * sizeof value, sizeof value);
      values[static_cast<unsigned char>(bytes[k])] = static_cast<float>(value);
    }
  }
};
static_assert(acco::encoding<largest_of_block>);
// [encoding]

int main() {
  acco::threads_backend::run(3, [](acco::threads_backend const& world) {
    constexpr std::size_t count = 2000;
    // Parameters travel as differences to what every rank holds, so what was left out of one travels with the next.
    acco::optimizer training{acco::two_phase{.estimate = largest_of_block{},
                                             .commit = acco::coded{.parameters = largest_of_block{}},
                                             .pace = acco::fixed_pace{.first = 3, .second = 1}},
                             acco::sgd{.learning_rate = 0.3}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::uint64_t sent = 0;
    while (training.samples() < 2400) {
      for (std::size_t i = 0; i < count; ++i)
        training.gradients()[i] += training.parameters()[i] - std::sin(static_cast<float>(i));
      if (const auto report = training.accumulated(1)) sent += report->bytes_sent;
    }
    const float coarse = training.parameters()[7];
    training.finish();  // exact again, on every rank
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i)
      worst = std::max(worst, static_cast<double>(std::abs(training.parameters()[i] - std::sin(static_cast<float>(i)))));
    if (world.rank() == 0)
      std::printf(
          "3 bits a number on 3 ranks: largest error %.1e, parameters[7] %.4f (%.4f before finish), %.1f bytes a parameter and "
          "step\n",
          worst, static_cast<double>(training.parameters()[7]), static_cast<double>(coarse),
          static_cast<double>(sent) / static_cast<double>(training.steps() * count));
    if (worst > 1e-2) throw std::runtime_error("the encoding lost what it had to carry");
  });
}
