// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/encoding/one_of.hpp>

#include "conformance/encoding.hpp"

namespace {

using some = acco::one_of<acco::block_int8<>, acco::block_gauss4, acco::block_ternary>;

struct trained {
  std::vector<float> parameters;
  std::uint64_t bytes = 0, digest = 0;
};
template <class Commit>
trained train(Commit const& commit) {
  trained found;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::options chosen;
    chosen.bucket_elements = 700;  // several buckets, the last one shorter
    acco::optimizer training{acco::two_phase{.estimate = commit.gradients, .commit = commit, .pace = acco::fixed_pace{1, 1}},
                             acco::adamw{.learning_rate = 0.02},
                             acco::host_storage<float>{},
                             world,
                             std::size_t{3001},
                             chosen};
    training.initialize(std::vector<float>(3001, 1.0F));
    std::uint64_t sent = 0;
    for (int m = 0; m < 12; ++m) {
      for (std::size_t i = 0; i < 3001; ++i)
        training.gradients()[i] +=
            training.parameters()[i] - static_cast<float>((i + static_cast<std::size_t>(world.rank())) % 5);
      if (const auto report = training.accumulated(1)) sent += report->bytes_sent;
    }
    training.finish();
    const std::uint64_t digest = training.world_digest();
    if (world.rank() == 0) found = {{training.parameters().begin(), training.parameters().end()}, sent, digest};
  });
  return found;
}

}  // namespace

TEST_CASE("one of several conforms as the one that is chosen does") {
  conformance::encoding_suite(some{0}, 1.0 / 252, 5e-5);
  conformance::encoding_suite(some{1}, 1.0, 0.03);
  conformance::encoding_suite(some{2}, 1.0, 0.3);
  static_assert(some::find("block_gauss4") == 1);
  static_assert(some::find("block_gauss5") == some::count);
  static_assert(some::block_bytes == acco::block_int8<>::block_bytes);
  static_assert(some::biased);
  CHECK(std::string(some{2}.chosen_name()) == "block_ternary");
}

TEST_CASE("a training with one of several is the training with that one, in every bit and byte") {
  const auto same = [](trained const& a, trained const& b) {
    CHECK(a.parameters == b.parameters);
    CHECK(a.digest == b.digest);
    CHECK(a.bytes == b.bytes);
    CHECK(a.bytes > 0);
  };
  const acco::without_feedback<some> gauss{{1}}, ternary{{2}};
  same(train(acco::coded{.gradients = gauss, .parameters = some{2}}),
       train(acco::coded{.gradients = acco::block_gauss4{}, .parameters = acco::block_ternary{}}));
  same(train(acco::coded{.gradients = ternary, .parameters = some{0}}),
       train(acco::coded{.gradients = acco::without_feedback<acco::block_ternary>{}, .parameters = acco::block_int8<>{}}));
}

TEST_CASE("a choice that is none is refused; so are ranks that choose differently") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    const auto make = [&](std::size_t which) {
      const acco::coded<acco::full, some> wire{{}, {which}};
      return acco::optimizer{acco::delayed{.commit = wire}, acco::adamw{}, acco::host_storage<float>{}, world, std::size_t{10}};
    };
    CHECK_THROWS_WITH_AS(make(some::find("nothing")), doctest::Contains("one_of::which is 3, and there are 3 encodings"),
                         acco::usage_error);
    auto differs = make(world.rank() == 0 ? 1 : 2);
    try {
      differs.initialize(std::vector<float>(10, 1.0F));
      FAIL("ranks that choose differently trained");
    } catch (acco::mismatch_error const& e) {
      CHECK(std::string(e.what()).find("one_of: block_gauss4, number 1 of 3") != std::string::npos);
    }
  });
}
