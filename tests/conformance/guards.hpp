// SPDX-License-Identifier: Apache-2.0
// What watches over a training, over any backend: norms beyond the usual, parameters that differ between ranks,
// digests.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/problem.hpp"
#include "support/worlds.hpp"

namespace conformance {

inline acco::parameter_layout guarded_layout() {
  acco::parameter_layout layout;
  layout.add("a", {50, 7});
  layout.add("still", {70}, layout.add_group({.frozen = true}));
  layout.add("b", {130});
  return layout;
}
/// The micro-batch `m` of a rank, `scale` times its gradients.
template <class World, class Training>
auto guarded_micro_batch(Training& t, int rank, std::size_t m, double scale = 1) {
  worlds::settle<World>();
  std::vector<double> sum(t.gradients().size(), 0.0);
  const double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), std::span<double>(sum));
  for (std::size_t i = 0; i < sum.size(); ++i) t.gradients()[i] += static_cast<float>(scale * sum[i]);
  return t.accumulated(1, loss);
}
/// Whether all ranks have the same number.
template <class Training>
bool same_on_all(Training& t, int ranks, std::uint64_t number) {
  const auto low = static_cast<double>(number & 0xffffffffU), high = static_cast<double>(number >> 32U);
  std::vector<double> sums{low, high};
  t.sum_over_ranks(sums);
  return sums[0] == ranks * low && sums[1] == ranks * high;
}

/// A rank sums numbers outside of rounds while the others are in `finish`: as many as a round's counts.
template <class World>
void sums_and_counts() {
  using storage = typename worlds::storage_of<World>::template type<float>;
  World::run(3, [](auto world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, storage{}, world, 9};
    t.initialize(std::vector<float>(9, 0.5F));
    for (std::size_t m = 0; m < 4; ++m) {
      worlds::settle<World>();
      t.gradients()[m] = 1;
      t.accumulated(1);
    }
    std::vector<double> sums(acco::count_numbers, 1.0);
    std::string words = "no error";
    try {
      world.rank() == 1 ? t.sum_over_ranks(sums) : t.finish();
    } catch (acco::error const& e) {
      words = e.what();
    }
    CAPTURE(words);
    const bool told = world.rank() == 1 || !acco::traits_of<decltype(world)>.watched;  // NCCL carries no words
    CHECK((told ? words.find("sum_over_ranks") : words.find("acco: ")) != std::string::npos);
  });
}

/// A rank sums numbers while the others want a digest of the world, which are as many.
template <class World>
void sums_and_digests() {
  using storage = typename worlds::storage_of<World>::template type<float>;
  World::run(3, [](auto world) {
    acco::optimizer t{acco::delayed{}, acco::sgd{}, storage{}, world, 9};
    t.initialize(std::vector<float>(9, 0.5F));
    std::vector<double> sums(4, 1.0);
    const auto ask = [&] { world.rank() == 1 ? t.sum_over_ranks(sums) : static_cast<void>(t.world_digest()); };
    CHECK_THROWS_WITH_AS(ask(), doctest::Contains("some ranks call sum_over_ranks"), acco::error);  // or hears of it
  });
}

template <class World>
void guards_suite() {
  using storage = typename worlds::storage_of<World>::template type<float>;
  SUBCASE("as many numbers summed outside of rounds as another rank's round counts: neither is taken for the other") {
    sums_and_counts<World>();
    sums_and_digests<World>();
  }
  SUBCASE("a spike of one rank's gradients is left out by all ranks, also where they give as many micro-batches as they like") {
    const auto train = [](auto world, auto schedule) {
      const acco::parameter_layout layout = guarded_layout();
      acco::optimizer t{schedule,  acco::sgd{.learning_rate = 1e-2},
                        storage{}, world,
                        layout,    acco::options{.norm_limit = 8, .on_norm_spike = acco::norm_spike::skip, .compare_every = 5}};
      t.initialize(problem::converted<float>(problem::initial(layout.size())));
      std::size_t spikes = 0;
      bool spiked = false;
      for (std::size_t m = 0; t.steps() < 45 && m < 4000; ++m) {
        const bool spike = world.rank() == 1 && t.steps() == 30 && !spiked;
        spiked = spiked || spike;
        auto const r = guarded_micro_batch<World>(t, world.rank(), m, spike ? 1e5 : 1);
        if (!r || !r->spike) continue;
        ++spikes;
        CHECK(r->skipped);
      }
      t.finish();
      CHECK(spikes >= 1);  // a prediction from it gives gradients like it
      CHECK(same_on_all(t, world.size(), spikes));
      CHECK(same_on_all(t, world.size(), t.steps()));
      std::vector<float> all(layout.size());
      t.gather_committed(all);
      std::uint64_t bits = 0;
      for (const float each : all) bits = bits * 31 + std::bit_cast<std::uint32_t>(each);
      CHECK(same_on_all(t, world.size(), bits));
      CHECK(same_on_all(t, world.size(), t.world_digest()));
    };
    World::run(2, [&](auto world) { train(world, acco::two_phase{.pace = acco::fixed_pace{1}}); });
    World::run(2, [&](auto world) { train(world, acco::synchronous{}); });
    World::run(2, [&](auto world) { train(world, acco::two_phase{.pace = acco::elastic_pace{.at_least = 1, .at_most = 5}}); });
  }
  SUBCASE("one bit of one rank's parameters is found, and told with rank and tensor") {
    if constexpr (worlds::on_host<World>) {
      World::run(3, [](auto world) {
        const acco::parameter_layout layout = guarded_layout();
        acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                          acco::adamw{},
                          storage{},
                          world,
                          layout,
                          acco::options{.compare_every = 4, .compare_frozen = true}};
        t.initialize(problem::converted<float>(problem::initial(layout.size())));
        int peer = -1;
        std::string words;
        try {
          for (std::size_t m = 0; m < 20; ++m) {
            auto const r = guarded_micro_batch<World>(t, world.rank(), m);
            if (r && r->round == 5 && world.rank() == 2) {
              // of "still"
              auto* const byte = reinterpret_cast<unsigned char*>(const_cast<float*>(t.parameters().data() + 400));
              *byte ^= 1U;
            }
          }
        } catch (acco::corruption_error const& e) {
          peer = e.peer();
          words = e.what();
        }
        CHECK(peer == 2);
        CHECK_MESSAGE(words.find("in tensor 'still'") != std::string::npos, words);
      });
    }
  }
}

}  // namespace conformance
