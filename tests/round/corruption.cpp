// SPDX-License-Identifier: Apache-2.0
// Ranks compute with the same parameters, in every bit; one bit that is not is found, and told with rank and tensor.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/round/digests.hpp>

#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("first", {40});
  layout.add("still", {33}, still);
  layout.add("last", {3, 9});
  return layout;
}
struct found {
  int ranks_that_threw = 0, peer = -2;
  std::uint64_t round = 0;
  std::string words;
};
/// Trains, and flips a bit of the parameters in use on a rank after the report of round `at`.
template <class Storage, class Schedule>
found flip(int ranks, int rank, std::size_t element, unsigned bit, std::uint64_t at, std::uint64_t every,
           Schedule const& schedule) {
  using P = typename Storage::parameter_type;
  found told;
  std::mutex mutex;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const acco::parameter_layout layout = layout_of();
    acco::optimizer t{
        schedule,  acco::sgd{},
        Storage{}, world,
        layout,    acco::options{.check_habits = acco::habit_checks::off, .compare_every = every, .compare_frozen = true}};
    t.initialize(problem::converted<P>(problem::initial(layout.size())));
    try {
      for (std::size_t m = 0; m < at + 2 * every + 4; ++m) {
        for (auto& each : t.gradients()) each = static_cast<std::remove_cvref_t<decltype(each)>>(1.0F);
        auto const r = t.accumulated(1);
        if (r && r->round == at && world.rank() == rank) {
          auto* const byte = reinterpret_cast<std::byte*>(const_cast<P*>(t.parameters().data() + element)) + bit / 8;
          *byte ^= static_cast<std::byte>(1U << (bit % 8));
        }
      }
      t.finish();
    } catch (acco::corruption_error const& e) {
      std::vector<P> committed(layout.size());
      t.gather_committed(committed);  // the ranks are still in step
      const std::lock_guard lock(mutex);
      ++told.ranks_that_threw;
      told.peer = e.peer();
      told.round = static_cast<std::uint64_t>(e.round());
      told.words = e.what();
    }
  });
  return told;
}
}  // namespace

TEST_CASE("a thousand single bits, the lowest too: all are found, with rank and tensor") {
  const acco::parameter_layout layout = layout_of();
  for (std::uint64_t k = 0; k < (thorough() ? 1000 : 60); ++k) {
    const auto below = [&](std::size_t limit, std::uint64_t what) {
      return static_cast<std::size_t>(problem::unit(k * 10 + what) * static_cast<double>(limit));
    };
    const int ranks = 3 + static_cast<int>(below(2, 1)), rank = static_cast<int>(below(static_cast<std::size_t>(ranks), 2));
    const std::size_t element = below(layout.size(), 3);
    const bool wide = k % 2 == 0;
    const auto bit = static_cast<unsigned>(below(wide ? 32 : 16, 5));
    const std::string tensor(layout.at_offset(element).name);
    // A tensor that is trained gets new values in every round: a round finds what it looks at.
    const std::uint64_t at = below(4, 4), every = tensor != "still" ? 1 : 1 + below(4, 6);
    const found told = wide ? flip<acco::host_storage<float>>(ranks, rank, element, bit, at, every, acco::synchronous{})
                            : flip<acco::host_storage<acco::bfloat16>>(ranks, rank, element, bit, at, every, acco::synchronous{});
    CAPTURE(k);
    CAPTURE(told.words);
    REQUIRE(told.ranks_that_threw == ranks);
    CHECK(told.peer == rank);
    CHECK(told.round <= at + every + 1);
    CHECK(told.words.find("the parameters in use of rank " + std::to_string(rank) +
                          " are not those of the other ranks, in tensor '" + tensor + "'") != std::string::npos);
  }
}

TEST_CASE("where rounds are hidden, too, for what stays: a frozen tensor") {
  for (const int rank : {0, 2}) {
    const found told = flip<acco::host_storage<float>>(3, rank, 45, 0, 3, 4, acco::two_phase{.pace = acco::fixed_pace{1}});
    CHECK(told.ranks_that_threw == 3);
    CHECK(told.peer == rank);
    CHECK(told.words.find("tensor 'still'") != std::string::npos);
    CHECK(told.round == 8);  // round 7 has looked, round 8 compares
  }
}

TEST_CASE("parameters that arrive as differences keep a flipped bit: it is found as one that stays") {
  const found told = flip<acco::host_storage<float>>(
      3, 1, 2, 22, 1, 3, acco::synchronous{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}}});
  CHECK(told.ranks_that_threw == 3);
  CHECK(told.peer == 1);
  CHECK(told.words.find("tensor 'first'") != std::string::npos);
}

TEST_CASE("of two ranks nobody can tell which is right; one rank has nobody to compare with; 0 compares never") {
  const found two = flip<acco::host_storage<float>>(2, 1, 45, 3, 2, 1, acco::synchronous{});
  CHECK(two.ranks_that_threw == 2);
  CHECK(two.peer == -1);
  CHECK(two.words.find("differ between ranks 0 and 1, in tensor 'still': which of them are right cannot be told") !=
        std::string::npos);
  CHECK(flip<acco::host_storage<float>>(1, 0, 45, 3, 2, 1, acco::two_phase{.pace = acco::fixed_pace{1}}).ranks_that_threw == 0);
  CHECK(flip<acco::host_storage<float>>(3, 0, 45, 3, 2, 0, acco::two_phase{.pace = acco::fixed_pace{1}}).ranks_that_threw == 0);
}

TEST_CASE("who is odd among digests") {
  const auto odd = [](std::vector<std::uint64_t> const& digests) { return acco::odd_among(digests); };
  CHECK(odd({7, 7, 7}).ranks.empty());
  CHECK(odd({7, 7, 8, 7}).ranks == std::vector<std::size_t>{2});
  CHECK(odd({7, 7, 8, 7}).majority);
  CHECK(odd({9, 7, 8, 7, 7}).ranks == std::vector<std::size_t>{0, 2});
  CHECK(odd({7, 7, 8, 8}).ranks.size() == 4);
  CHECK_FALSE(odd({7, 7, 8, 8}).majority);
}

TEST_CASE("the digest of a report is that of the state, whatever the number of ranks") {
  std::vector<std::vector<std::uint64_t>> all;
  for (const int ranks : {1, 2, 5}) {
    std::vector<std::uint64_t> digests;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::synchronous{},
                        acco::adamw{},
                        acco::host_storage<double>{},
                        world,
                        1000,
                        acco::options{.average_decay = 0.9, .digest_every = 2, .bucket_elements = 300}};
      t.initialize(problem::initial(1000));
      for (std::size_t m = 0; m < 12; ++m) {
        if (world.rank() == 0) {  // whole numbers: their sum over any ranks is the same
          for (std::size_t i = 0; i < 1000; ++i) t.gradients()[i] += static_cast<double>((i * m) % 13);
        }
        auto const r = t.accumulated(world.rank() == 0 ? 1 : 0);
        REQUIRE(r);
        REQUIRE(r->digest.has_value() == (r->step % 2 == 0));
        if (!r->digest) continue;
        CHECK(*r->digest == t.world_digest());
        if (world.rank() == 0) digests.push_back(*r->digest);
      }
      t.finish();
    });
    CHECK(digests.size() == 6);
    all.push_back(digests);
  }
  CHECK(all[0] == all[1]);
  CHECK(all[0] == all[2]);
}
