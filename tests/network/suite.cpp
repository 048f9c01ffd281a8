// SPDX-License-Identifier: Apache-2.0
// The tests of the core that make sense over a network, the same list for every backend: ACCO_WORLD names its world.
#include ACCO_WORLD

#include <list>

#include "conformance/backend.hpp"
#include "conformance/split.hpp"

using this_world = worlds::under_test;
#include "conformance/cases.hpp"

TEST_CASE("collectives") { conformance::backend_suite<this_world>({1, 2, 3, 4}); }

TEST_CASE("split") { conformance::split_suite<this_world>(); }

TEST_CASE("results do not depend on the size of pieces, not by a bit, with and without clipping") {
  const std::size_t before = this_world::piece_bytes;
  for (const double clip : {0.0, 0.01}) {
    reference::setting s = conformance::setting(3, 7);
    s.clip_norm = clip;
    const acco::parameter_layout layout(20011);
    const auto run = [&](auto where) {
      return library::train<acco::host_storage<float>>(where, acco::two_phase{.pace = acco::fixed_pace{1}},
                                                       acco::adamw{.learning_rate = 0.01}, layout, s);
    };
    const auto expected = run(worlds::threads{});
    for (const std::size_t bytes : {8192U, 16384U, 1U << 20U}) {
      this_world::piece_bytes = bytes;
      const auto got = run(this_world{});
      CHECK(got.parameters == expected.parameters);
      CHECK(got.digests == expected.digests);
    }
  }
  this_world::piece_bytes = before;
}

TEST_CASE("memory() counts what the backend allocated for messages; the report says who moved them") {
  this_world::run(3, [](auto backend) {
    acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, backend, 10};
    CAPTURE(training.memory().messages);
    CHECK(this_world::messages_of_3(training.memory().messages));
    training.initialize(std::vector<float>(10, 1.0F));
    std::string who;
    for (int m = 0; m < 4; ++m) {
      if (auto const report = training.accumulated(1)) who = report->progress;
    }
    training.finish();
    CHECK(who == backend.progress_policy());
    CHECK(who.size() > 3);
  });
}

TEST_CASE("pieces longer than a message of the transport travel in parts, whole and in their order") {
  const std::size_t before = std::exchange(this_world::piece_bytes, std::size_t{1} << 20U);
  this_world::run(3, [](auto backend) {
    acco::host_queue queue;
    constexpr std::size_t slice = 70'003;  // 280 kB
    const auto rank = static_cast<std::size_t>(backend.rank());
    std::vector<float> mine(3 * slice), own(slice), all(3 * slice), root(3 * slice, -1.0F);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>((i % 4099) * (rank + 1));
    if (rank == 1) root = mine;
    backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(own));
    backend.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(all));
    backend.broadcast(queue, acco::replicated<float>(root), 1);
    queue.wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto x = static_cast<float>(i % 4099);
      wrong += all[i] != 6 * x || root[i] != 2 * x ? 1 : 0;
    }
    CHECK(wrong == 0);
  });
  this_world::piece_bytes = before;
}

TEST_CASE("more than 64 optimizers one after another: a channel comes back when it is gone on every rank") {
  this_world::run(3, [](auto backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    const auto made = [&] {
      acco::optimizer training{acco::synchronous{}, acco::sgd{.learning_rate = 0.25},
                               acco::host_storage<double, double, double>{}, backend, 5};
      training.initialize(std::vector<double>(5, 0.5));
      return training;
    };
    const auto step = [&](auto& training, double gradient) {
      for (double& each : training.gradients()) each += gradient + backend.rank();
      training.accumulated(1);
    };
    auto lasting = made();
    std::list<decltype(made())> ended;
    int right = 0;
    for (int k = 0; k < 150; ++k) {
      ended.push_back(made());
      step(ended.back(), k);
      step(lasting, k % 2 == 0 ? 1 : -3);  // 2 and -2 on average
      ended.back().finish();
      right += ended.back().parameters()[4] == 0.5 - 0.25 * (k + 1) ? 1 : 0;
      // at another time on every rank
      while (ended.size() > (static_cast<std::size_t>(k) + 5 * rank) % 11) ended.pop_front();
    }
    lasting.finish();
    CHECK(right == 150);
    CHECK(lasting.parameters()[4] == 0.5);
  });
}

TEST_CASE("a 65th channel at once is refused on every rank, and those that are there go on") {
  this_world::run(2, [](auto backend) {
    acco::host_queue queue;
    const auto sum = [&queue](auto const& over) {
      double mine = over.rank() + 1, total = 0;
      over.all_reduce(queue, acco::partial<double const>({&mine, 1}), acco::replicated<double>({&total, 1}));
      queue.wait();
      return total;
    };
    std::vector<decltype(backend)> others;
    while (others.size() < 63) others.push_back(backend.duplicate());
    acco::optimizer refused{acco::synchronous{}, acco::sgd{}, acco::host_storage<float>{}, backend, 5};
    CHECK_THROWS_WITH_AS(refused.initialize(std::vector<float>(5)),
                         doctest::Contains("all 64 channels over the same connections"), acco::usage_error);
    if (backend.rank() == 0) others.pop_back();
    CHECK_THROWS_AS((void)backend.duplicate(), acco::usage_error);  // rank 1 has not closed it
    if (backend.rank() == 1) others.pop_back();
    CHECK(sum(backend.duplicate()) == 3);
    for (auto const& each : others) CHECK(sum(each) == 3);
  });
}
