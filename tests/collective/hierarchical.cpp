// SPDX-License-Identifier: Apache-2.0
// Two levels over threads and over the mock: the conformance suite, the order of sums, bytes by level, who hears of a
// departure.
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <acco/hierarchical.hpp>

#include "conformance/backend.hpp"
#include "support/counting.hpp"

namespace {

/// Threads in groups of `m`, or all together where they do not fill groups.
template <int m, class World>
struct grouped {
  template <class Function>
  static void run(int ranks, Function&& function) {
    World::run(ranks, [&](auto world) { function(acco::hierarchical_world(world, m == 0 ? ranks : m, 20)); });
  }
};
using threads_of_threads = acco::hierarchical<acco::threads_backend, acco::threads_backend>;

float brought(int rank, std::size_t i) {
  return static_cast<float>(problem::unit(i * 11 + static_cast<std::uint64_t>(rank) * 977) * 1e3);
}

/// What every rank of a world of m x g was told by its error; `work(backend, queue)`.
template <class Work>
std::vector<std::string> told(int m, int g, Work&& work) {
  std::vector<std::string> heard(static_cast<std::size_t>(m * g));
  try {
    acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
      auto backend = acco::hierarchical_world(world, m, 20);
      try {
        work(backend);
      } catch (std::exception const& e) {
        heard[static_cast<std::size_t>(backend.rank())] = e.what();
        throw;
      }
    });
  } catch (std::exception const&) {  // told
  }
  return heard;
}
bool contains(std::string const& text, char const* part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("hierarchical conforms, over threads: 2 x 2, 3 x 2, 2 x 3, 1 x N, N x 1") {
  conformance::collectives<grouped<2, worlds::threads>, float, float>(4);
  conformance::collectives<grouped<2, worlds::threads>, acco::bfloat16, float>(6);
  conformance::collectives<grouped<3, worlds::threads>, float, double>(6);
  conformance::collectives<grouped<1, worlds::threads>, float, float>(3);
  conformance::collectives<grouped<0, worlds::threads>, float, float>(3);
  conformance::collectives<grouped<1, worlds::threads>, double, double>(1);
}
TEST_CASE("hierarchical conforms, over the mock, whose memory is poisoned while messages are under way") {
  conformance::collectives<grouped<2, worlds::mock_late>, float, float>(4);
  conformance::collectives<grouped<3, worlds::mock_random>, float, float>(6);
  conformance::collectives<grouped<2, worlds::mock_random>, float, double>(6);
}
TEST_CASE("hierarchical conforms, over decorated levels") {
  conformance::collectives<grouped<2, worlds::decorated>, float, float>(4);
}

TEST_CASE("ranks: groups are neighbours in the world, and slices those of one place") {
  for (const auto& shape : {std::array{2, 3}, std::array{3, 2}, std::array{1, 4}, std::array{4, 1}}) {
    const int m = shape[0], g = shape[1];
    CAPTURE(m);
    acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
      const threads_of_threads backend = acco::hierarchical_world(world, m, 20);
      CHECK(backend.ranks_a_group() == m);
      CHECK(backend.groups() == g);
      CHECK(backend.size() == m * g);
      CHECK(backend.group() == world.rank() / m);
      CHECK(backend.place() == world.rank() % m);
      CHECK(backend.rank() == backend.place() * g + backend.group());
    });
  }
}

TEST_CASE("sums are those of the groups, each in rank order, in the order of the groups, to the bit") {
  constexpr int m = 3, g = 2;
  constexpr std::size_t slice = 1500, whole = slice * m * g;
  acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
    threads_of_threads backend = acco::hierarchical_world(world, m, 20);
    acco::host_queue queue;
    std::vector<float> mine(whole), out(slice), added(slice, 3.0F), all(whole);
    for (std::size_t i = 0; i < whole; ++i) mine[i] = brought(backend.rank(), i);
    backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(out));
    backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(added), acco::accumulate);
    backend.all_reduce(queue, acco::partial<float const>(mine), acco::replicated<float>(all));
    queue.wait();
    const auto of_group = [](int group, std::size_t i) {
      return (brought(0 * g + group, i) + brought(1 * g + group, i)) + brought(2 * g + group, i);
    };
    std::size_t wrong = 0, flat = 0;
    for (std::size_t i = 0; i < whole; ++i) {
      const float right = of_group(0, i) + of_group(1, i);
      wrong += all[i] == right ? 0U : 1U;
      const std::size_t begin = slice * static_cast<std::size_t>(backend.rank());
      if (i < begin || i >= begin + slice) continue;
      wrong += out[i - begin] == right ? 0U : 1U;
      wrong += added[i - begin] == 3.0F + right ? 0U : 1U;
      float in_order = 0;
      for (int rank = 0; rank < m * g; ++rank) in_order += brought(rank, i);
      flat += in_order == right ? 1U : 0U;
      wrong += std::abs(in_order - right) <= 1e-6F * right ? 0U : 1U;
    }
    CHECK(wrong == 0);
    CHECK(flat < slice);  // the order is told apart by these numbers
  });
}

TEST_CASE("bytes by level: between groups a rank sends (g-1)/g of its m-th part, a group (g-1)/g of the whole") {
  for (const auto& shape : {std::array{2, 3}, std::array{4, 2}, std::array{1, 3}, std::array{3, 1}}) {
    const int m = shape[0], g = shape[1];
    acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
      threads_of_threads backend = acco::hierarchical_world(world, m, 20);
      acco::host_queue queue;
      constexpr std::size_t slice = 240;
      const auto places = static_cast<std::uint64_t>(m), groups = static_cast<std::uint64_t>(g), ranks = places * groups;
      const std::uint64_t whole = ranks * slice * sizeof(float);
      std::vector<float> mine(slice * ranks), out(slice), all(slice * ranks);
      std::vector<std::byte> to(whole), from(whole);
      std::uint64_t inside = backend.bytes_sent() - backend.bytes_sent_between(), between = backend.bytes_sent_between();
      const auto sent = [&](std::uint64_t within, std::uint64_t beyond) {
        queue.wait();
        const std::uint64_t b = backend.bytes_sent_between(), a = backend.bytes_sent() - b;
        CHECK(a - inside == within);
        CHECK(b - between == beyond);
        inside = a, between = b;
      };
      backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(out));
      sent(whole * (places - 1) / places, whole / places * (groups - 1) / groups);
      backend.all_gather(queue, acco::sharded<float const>(out), acco::replicated<float>(all));
      sent(whole * (places - 1) / places, whole / places * (groups - 1) / groups);
      backend.all_to_all(queue, std::span<std::byte const>(to), std::span<std::byte>(from));
      sent(whole * (places - 1) / places, whole * (groups - 1) / groups);
      const int root = m * g - 1;
      backend.broadcast(queue, acco::replicated<float>(all), root);
      sent(backend.place() == m - 1 ? whole * (places - 1) : 0, backend.rank() == root ? whole * (groups - 1) : 0);
    });
  }
}

TEST_CASE("memory between the levels: allocated when needed, counted, and nothing in a steady round") {
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    threads_of_threads backend = acco::hierarchical_world(world, 2, 20);
    acco::host_queue queue;
    std::vector<float> mine(4000), out(1000);
    CHECK(backend.buffer_bytes() == 0);
    const auto reduce = [&](std::size_t slice) {
      backend.reduce_scatter(queue, acco::partial<float const>(std::span<float const>(mine).first(4 * slice)),
                             acco::sharded<float>(std::span<float>(out).first(slice)));
    };
    reduce(100);
    CHECK(backend.buffer_bytes() == 2 * 100 * sizeof(float));
    reduce(1000);  // while the first may be under way
    queue.wait();
    CHECK(backend.buffer_bytes() == 2 * 1100 * sizeof(float));
    double one[1] = {1}, sum[1];
    backend.all_reduce(queue, acco::partial<double const>(one), acco::replicated<double>(sum));
    queue.wait();  // all ranks are here
    const std::size_t before = counting::news();
    for (int k = 0; k < 20; ++k) reduce(1000);
    queue.wait();
    const std::size_t after = counting::news();  // and they go on from here together
    backend.all_reduce(queue, acco::partial<double const>(one), acco::replicated<double>(sum));
    queue.wait();
    CHECK(after == before);
  });
}

TEST_CASE("a rank that leaves is heard of at both levels, and by those it does not meet") {
  for (const auto& shape : {std::array{2, 2}, std::array{3, 2}, std::array{2, 3}}) {
    const int m = shape[0], g = shape[1];
    const int gone = m * g - 1;
    const auto heard = told(m, g, [&](threads_of_threads backend) {
      acco::host_queue queue;
      queue.deadline = 300;  // nobody waits for it
      queue.place.phase = "commit";
      std::vector<float> mine(static_cast<std::size_t>(m * g) * 8), out(8);
      for (int k = 0; k < 5; ++k) {
        if (k == 3 && backend.rank() == gone) throw std::runtime_error((backend.abort("bad batch"), "bad batch"));
        backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(out));
        try {
          queue.wait();
        } catch (...) {
          CHECK(std::string(queue.place.phase) == "commit");
          throw;
        }
        CHECK(std::string(queue.place.phase) == "commit");
      }
    });
    for (int rank = 0; rank < m * g; ++rank) {
      CAPTURE(rank);
      std::string const& said = heard[static_cast<std::size_t>(rank)];
      if (rank == gone) continue;
      const bool of_its_group = rank % g == gone % g;
      CHECK(contains(said, of_its_group ? "inside its group" : "between groups"));
      CHECK(contains(said, ("(rank " + std::to_string(gone) + " of the whole) bad batch").c_str()));
    }
  }
}
TEST_CASE("who fails at one level tells the other one, though its trainer has not looked") {
  // rank 0 does not come inside its group: rank 2 fails there, and rank 3, which meets rank 2 between groups, hears of
  // it at once
  std::atomic<bool> heard_of_it = false;
  const auto heard = told(2, 2, [&](threads_of_threads backend) {
    acco::host_queue queue;
    queue.deadline = backend.rank() == 2 ? 0.05 : 300;
    std::vector<float> mine(32), out(8);
    if (backend.rank() != 0) {
      backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(out));
      if (backend.rank() == 2) heard_of_it.wait(false);
    }
    if (backend.rank() == 3) {
      try {
        queue.wait();
      } catch (...) {
        heard_of_it = true;
        heard_of_it.notify_all();
        throw;
      }
    }
    if (backend.rank() == 0) heard_of_it.wait(false);
    queue.wait();
  });
  CHECK(contains(heard[3], "between groups: reduce_scatter is impossible because rank 0 failed: (rank 2 of the whole)"));
  CHECK(contains(heard[3], "it cannot go on: acco: rank 1, inside its group: rank 0 did not come to reduce_scatter"));
  CHECK(contains(heard[2], "inside its group: rank 0 did not come"));
}

TEST_CASE("levels that do not fit are refused, on every rank alike") {
  acco::threads_backend::run(6, [](acco::threads_backend const& world) {
    CHECK_THROWS_WITH_AS((void)acco::hierarchical_world(world, 4, 20),
                         doctest::Contains("groups of 4 ranks were asked for in a world of 6"), acco::usage_error);
    CHECK_THROWS_AS((void)acco::hierarchical_world(world, 0, 20), acco::usage_error);
    CHECK_THROWS_WITH_AS((void)acco::hierarchical_world(world, world.rank() == 5 ? 1 : 2, 20),
                         doctest::Contains("rank 0 asked for groups of 2 ranks, rank 5 for groups of 1"), acco::usage_error);
    CHECK_THROWS_WITH_AS((void)acco::hierarchical_world(world, world.rank() < 2 ? 2 : 3, 20),
                         doctest::Contains("rank 0 asked for groups of 2 ranks, rank 2 for groups of 3"), acco::usage_error);
    CHECK_THROWS_WITH_AS((void)acco::hierarchical_world(world, world.rank() == 0 ? 4 : 2, 20),  // the others do not wait for it
                         doctest::Contains("rank 0 asked for groups of 4 ranks, rank 1 for groups of 2"), acco::usage_error);
    CHECK_THROWS_WITH_AS((void)acco::hierarchical_world(world, 2, 0.0), doctest::Contains("hierarchical_world's deadline is 0"),
                         acco::usage_error);
    {  // a group of 4 and one of 2
      const int group = world.rank() < 4 ? 0 : 1, place = group == 0 ? world.rank() : world.rank() - 4;
      auto inner = world.split(group, place, 20), outer = world.split(place, group, 20);
      CHECK_THROWS_WITH_AS((void)acco::make_hierarchical(inner, outer, 20),
                           doctest::Contains("the groups do not all have the same number of ranks"), acco::usage_error);
    }
    {  // the second group the other way round
      const int group = world.rank() / 3, place = world.rank() % 3;
      auto inner = world.split(group, group == 0 ? place : -place, 20), outer = world.split(place, group, 20);
      CHECK_THROWS_WITH_AS((void)acco::make_hierarchical(inner, outer, 20), doctest::Contains("the levels do not fit"),
                           acco::usage_error);
    }
    {  // the groups in another order at one place: found by the groups alone
      const int group = world.rank() / 3, place = world.rank() % 3;
      auto inner = world.split(group, place, 20), outer = world.split(place, place == 1 ? -group : group, 20);
      CHECK_THROWS_WITH_AS((void)acco::make_hierarchical(inner, outer, 20), doctest::Contains("the levels do not fit"),
                           acco::usage_error);
    }
    auto inner = world.split(world.rank() / 3, 0, 20), outer = world.split(world.rank() % 3, 0, 20);
    CHECK(acco::make_hierarchical(inner, outer, 20).size() == 6);
    CHECK_THROWS_AS((void)acco::make_hierarchical(inner, outer, 0.0), acco::usage_error);
  });
}
TEST_CASE("groups that are connected as a ring are refused, on every rank, though all numbers fit") {
  // at the last place, who is rank 1 between groups is with the next ones
  const auto wire = [](acco::threads_backend const& world, int m, int together, int groups) {
    const int group = world.rank() / m, place = world.rank() % m, of_outer = group % together;
    int set = group / together;
    if (place == m - 1 && of_outer == 1) set = (set + 1) % (groups / together);
    auto inner = world.split(group, place, 20), outer = world.split(place * groups + set, of_outer, 20);
    CHECK(inner.size() == m);
    CHECK(outer.size() == together);
    CHECK(inner.rank() == place);
    CHECK(outer.rank() == of_outer);
    return std::pair(inner, outer);
  };
  struct wiring {
    int m, together, groups;
    char const* told;
  };
  for (wiring const& w : {wiring{2, 2, 4, "ranks 0 and 1 of a group"},
                          {3, 2, 4, "ranks 0 and 2 of a group"},
                          {2, 3, 6, "ranks 0 and 1 of a group"}}) {
    CAPTURE(w.m);
    CAPTURE(w.groups);
    acco::threads_backend::run(w.m * w.groups, [&](acco::threads_backend const& world) {
      auto [inner, outer] = wire(world, w.m, w.together, w.groups);
      std::string said;
      try {
        (void)acco::make_hierarchical(inner, outer, 20);
      } catch (acco::usage_error const& e) {
        said = e.what();
      }
      CHECK(contains(said, w.told));
      const bool odd = outer.rank() == 1;  // in its place it has moved, elsewhere those that it meets have
      CHECK(contains(said, odd ? "different groups, at rank 0 of" : "different groups, at rank 1 of"));
      const std::string self = "this is rank " + std::to_string(inner.rank()) + " of that group, and rank " +
                               std::to_string(outer.rank()) + " between groups";
      CHECK(contains(said, self.c_str()));
      CHECK(contains(said, "Let the ranks of every group be connected with the same groups"));
      CHECK(acco::hierarchical_world(world, w.m, 20).size() == world.size());  // and the world goes on
    });
  }
}
TEST_CASE("two trainings of two levels each in one world: neither hears of the other") {
  acco::threads_backend::run(8, [](acco::threads_backend const& world) {
    const int training = world.rank() / 4, group = world.rank() % 4 / 2, place = world.rank() % 2;
    auto inner = world.split(training * 2 + group, place, 20), outer = world.split(training * 2 + place, group, 20);
    auto backend = acco::make_hierarchical(inner, outer, 20);
    CHECK(backend.size() == 4);
    acco::host_queue queue;
    float mine[1] = {static_cast<float>(1 << world.rank())}, sum[1];
    backend.all_reduce(queue, acco::partial<float const>(mine), acco::replicated<float>(sum));
    queue.wait();
    CHECK(sum[0] == (training == 0 ? 15.0F : 240.0F));
  });
}
TEST_CASE("levels that make progress in different ways are refused") {
  acco::mock_world(1).run([](acco::mock_backend const& world) {
    CHECK_THROWS_WITH_AS((acco::hierarchical<acco::mock_backend, acco::solo_backend>{world, acco::solo_backend()}),
                         doctest::Contains("make progress in another way"), acco::usage_error);
    auto fits = acco::hierarchical_world(world, 1, 20);
    CHECK(fits.driver().context == world.driver().context);
  });
  using mixed = acco::hierarchical<acco::threads_backend, acco::solo_backend>;
  static_assert(mixed::traits.accumulates && mixed::traits.passes && mixed::traits.tells_departures && mixed::traits.duplicates);
  static_assert(mixed::traits.has_levels && mixed::traits.counts_bytes && !mixed::traits.driven && mixed::traits.meets_on_host &&
                !mixed::traits.splits);
  static_assert(!acco::hierarchical<worlds::plain_backend, acco::solo_backend>::traits.duplicates);
  static_assert(acco::collective_backend<mixed, acco::host_queue>);
}
