// SPDX-License-Identifier: Apache-2.0
// The collectives over messages for many ranks: the same bits as threads_backend, how many messages, to how many ranks
// at a time, and who is named when somebody does not come.
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "network/letters.hpp"
#include "support/counting.hpp"
#include "support/patience.hpp"
#include "support/thorough.hpp"

namespace {

/// Numbers whose sum depends on the order in which they are added.
template <class T>
std::vector<T> brought(int rank, std::size_t count) {
  std::mt19937 bits(static_cast<unsigned>(rank) * 7919U + 1U);
  std::vector<T> result(count);
  for (T& each : result)
    each = T(std::ldexp(static_cast<float>(bits() & 0xffffffU) - 8388608.0F, static_cast<int>(bits() % 24U) - 12));
  return result;
}
template <class T>
std::string bits_of(std::vector<T> const& from) {
  return {reinterpret_cast<char const*>(from.data()), from.size() * sizeof(T)};
}

constexpr std::size_t lengths[] = {0, 1, 3, 64, 500, 3001};

/// All that a rank gets, as bytes. `beside`: whether each collective may begin while those before it are under way.
template <class T, class Sum, class Backend>
std::vector<std::string> results(Backend const& world, bool beside = false) {
  std::vector<std::string> all;
  acco::host_queue queue;
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  const auto next = [&]() -> Backend const& {
    if (beside) queue.beside();
    return world;
  };
  for (const std::size_t slice : lengths) {
    auto mine = brought<T>(world.rank(), slice * ranks);
    std::vector<T> few(slice), sums(slice), whole(slice * ranks), told = mine, gathered(slice * ranks);
    std::copy_n(mine.begin(), slice, few.begin());
    std::copy_n(mine.begin(), slice, gathered.begin() + static_cast<std::ptrdiff_t>(slice * rank));
    std::vector<Sum> reduced(slice), added(slice, Sum(0.1F));
    std::vector<std::byte> passed(slice * ranks), came(slice * ranks);
    for (std::size_t i = 0; i < passed.size(); ++i) passed[i] = static_cast<std::byte>((i * 7 + rank * 13) & 255U);
    next().all_reduce(queue, acco::partial<T const>(few), acco::replicated<T>(sums));
    // passed on or not
    if (slice <= 64) next().all_reduce(queue, acco::partial<T const>(mine), acco::replicated<T>(whole));
    next().reduce_scatter(queue, acco::partial<T const>(mine), acco::sharded<Sum>(reduced));
    next().reduce_scatter(queue, acco::partial<T const>(mine), acco::sharded<Sum>(added), acco::accumulate);
    next().all_gather(queue, acco::sharded<T const>(std::span<T const>(gathered).subspan(slice * rank, slice)),
                      acco::replicated<T>(gathered));
    next().all_to_all(queue, std::span<std::byte const>(passed), std::span<std::byte>(came));
    next().broadcast(queue, acco::replicated<T>(told), next().size() / 2);
    queue.wait();
    for (auto const& each : {bits_of(sums), bits_of(whole), bits_of(reduced), bits_of(added), bits_of(gathered), bits_of(came),
                             bits_of(told), bits_of(mine)})
      all.push_back(each);
  }
  return all;
}

template <class T, class Sum>
void same_bits(int ranks) {
  CAPTURE(ranks);
  std::vector<std::vector<std::string>> expected(static_cast<std::size_t>(ranks)), got = expected, beside = expected;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    expected[static_cast<std::size_t>(world.rank())] = results<T, Sum>(world);
  });
  letters::run(ranks, 8192, [&](letters::backend const& world, letters::office& mail) {
    got[static_cast<std::size_t>(world.rank())] = results<T, Sum>(world);
    (void)mail.take_counts(world.rank());
    beside[static_cast<std::size_t>(world.rank())] = results<T, Sum>(world, true);
    if (ranks > 1) CHECK(mail.take_counts(world.rank()).most_operations > 1);
    CHECK(mail.disagreements() == 0);
  });
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    for (std::size_t k = 0; k < expected[rank].size(); ++k) {
      CAPTURE(k);  // 8 results for every length
      CHECK(expected[rank][k] == got[rank][k]);
      CHECK(expected[rank][k] == beside[rank][k]);
    }
  }
}

/// "rank 3 did not come to", or "rank 3, 4 did not come to": on a busy machine others may be late too.
bool names(std::string const& what, int rank) {
  const std::size_t end = what.find(" did not come to"), begin = what.rfind("rank ", end);
  if (end == std::string::npos || begin == std::string::npos) return false;
  const std::string who = ' ' + what.substr(begin + 5, end - begin - 5) + ',';
  return who.find(' ' + std::to_string(rank) + ',') != std::string::npos;
}

/// A rank that did not come, when so many others have given it up.
void come_back(letters::backend const& world, std::atomic<int> const& ended, int others) {
  for (int k = 0; ended != others && k < 6000 * patience(); ++k) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  world.abort("it woke up");
}

constexpr int log2_above(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))); }

}  // namespace

TEST_CASE("the same bits as threads_backend, whatever the number of ranks") {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    if (!thorough() && ranks != 3 && ranks != 18) continue;
    same_bits<float, float>(ranks);
    if (ranks % 5 != 3) continue;  // 3, 8, 13, 18, 23, 28, 33
    same_bits<float, double>(ranks);
    same_bits<double, double>(ranks);
    same_bits<acco::bfloat16, float>(ranks);
  }
}

TEST_CASE("a small all-reduce: at most ceil(log2 N) + 1 messages; every other collective: to and from at most 16 at a time") {
  for (const int ranks : {2, 5, 6, 8, 16, 17, 18, 33, 64}) {
    if (!thorough() && ranks > 18) continue;
    CAPTURE(ranks);
    letters::run(ranks, 8192, [&](letters::backend const& world, letters::office& mail) {
      acco::host_queue queue;
      const int rank = world.rank();
      double mine[10] = {rank + 1.0}, sums[10] = {};
      (void)mail.take_counts(rank);
      for (int k = 0; k < 3; ++k) {
        world.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(sums));
        queue.wait();
        const letters::counts small = mail.take_counts(rank);
        CHECK(small.sent <= static_cast<std::uint64_t>(log2_above(ranks)) + 1);
        CHECK(small.received <= static_cast<std::uint64_t>(log2_above(ranks)) + 1);
      }
      CHECK(sums[0] == ranks * (ranks + 1) / 2);

      const std::size_t slice = 9000;
      std::vector<float> whole(slice * static_cast<std::size_t>(ranks)), own(slice);
      std::vector<std::byte> passed(whole.size()), came(whole.size());
      const auto talked_to_few = [&] {
        queue.wait();
        const letters::counts most = mail.take_counts(rank);
        CHECK(most.most_to <= acco::most_peers);
        CHECK(most.most_from <= acco::most_peers);
      };
      world.reduce_scatter(queue, acco::partial<float const>(whole), acco::sharded<float>(own));
      talked_to_few();
      world.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(whole));
      talked_to_few();
      world.all_to_all(queue, std::span<std::byte const>(passed), std::span<std::byte>(came));
      talked_to_few();
      world.broadcast(queue, acco::replicated<float>(whole), 1);
      talked_to_few();
      CHECK(world.buffer_bytes() <= 4 * 16 * 8192);
    });
  }
}

TEST_CASE("a rank that does not come is the one that is named, also by those who wait for somebody else") {
  using operation = void (*)(letters::backend const&, acco::host_queue&, std::vector<float>&, std::vector<float>&);
  const operation operations[] = {
      [](letters::backend const& world, acco::host_queue& queue, std::vector<float>& whole, std::vector<float>&) {
        const std::span<float> few(whole.data(), 10);
        world.all_reduce(queue, acco::partial<float const>(few), acco::replicated<float>(few));
      },
      [](letters::backend const& world, acco::host_queue& queue, std::vector<float>& whole, std::vector<float>& own) {
        world.reduce_scatter(queue, acco::partial<float const>(whole), acco::sharded<float>(own));
      },
      [](letters::backend const& world, acco::host_queue& queue, std::vector<float>& whole, std::vector<float>& own) {
        world.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(whole));
      },
      [](letters::backend const& world, acco::host_queue& queue, std::vector<float>& whole, std::vector<float>&) {
        world.broadcast(queue, acco::replicated<float>(whole), 0);
      }};
  for (const int ranks : {8, 33}) {
    for (std::size_t k = 0; k < (ranks == 8 ? 1 : std::size(operations)); ++k) {
      CAPTURE(ranks);
      CAPTURE(k);
      const int late = ranks - 3;
      std::atomic<int> named = 0, ended = 0;
      letters::run(ranks, 8192, [&](letters::backend const& world, letters::office&) {
        acco::host_queue queue;
        queue.deadline = 2;
        std::vector<float> whole(100 * static_cast<std::size_t>(ranks)), own(100);
        operations[0](world, queue, whole, own);  // all know each other
        queue.wait();
        // Those who wait for the missing rank itself come last: the others' deadlines pass first.
        const int after = (world.rank() - late + ranks) % ranks * 300 / ranks;
        std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == late ? 0 : after));
        if (world.rank() == late) return come_back(world, ended, ranks - 1);
        try {
          operations[k](world, queue, whole, own);
          queue.wait();
        } catch (acco::error const& e) {
          const std::string what(e.what());
          CAPTURE(what);
          CHECK(e.peer() == late);
          CHECK_MESSAGE(names(what, late), what);
          ++named;
        }
        ++ended;
        queue.stop();
      });
      CHECK(named >= ranks - (k == 3 ? 2 : 1));  // the root of a broadcast may be through
    }
  }
}

TEST_CASE("a rank that comes no more is named, also by who waits for somebody that still waits for it, an operation earlier") {
  for (const bool passed_on : {true, false}) {
    CAPTURE(passed_on);
    std::atomic<int> ended = 0;
    letters::run(3, 8192, [&](letters::backend const& world, letters::office& mail) {
      acco::host_queue queue;
      queue.deadline = 2;
      std::vector<double> own(3), all(9);
      const auto gather = [&] {
        world.all_gather(queue, acco::sharded<double const>(own), acco::replicated<double>(all));
        queue.wait();
      };
      gather();
      gather();
      if (world.rank() == 1) {  // rank 2 gets its share of the next one, rank 0 does not
        mail.lose(1, 0);
        gather();
        return come_back(world, ended, 2);
      }
      try {
        gather();
        CHECK(world.rank() == 2);
        if (passed_on) {
          world.all_reduce(queue, acco::partial<double const>(own), acco::replicated<double>(own));
          queue.wait();
        }
        gather();
        FAIL_CHECK("nobody was missing");
      } catch (acco::error const& e) {
        CAPTURE(std::string(e.what()));
        CHECK(e.peer() == 1);
      }
      ++ended;
      queue.stop();
    });
  }
}

TEST_CASE("a rank that waited for long and went on, and then comes no more: its word from before does not count") {
  const int ranks = 8, late = 3, missing = 5;
  std::atomic<int> ended = 0;
  letters::run(ranks, 8192, [&](letters::backend const& world, letters::office&) {
    acco::host_queue queue;
    queue.deadline = 2;
    std::vector<float> few(10, 1.0F);
    const auto sum = [&] {
      world.all_reduce(queue, acco::partial<float const>(few), acco::replicated<float>(few));
      queue.wait();
    };
    sum();
    std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == late ? 1300 : 0));  // the others tell that they wait
    sum();
    // Those who wait for the missing rank itself come last: the others' deadlines pass first.
    const int after = (world.rank() - missing + ranks) % ranks * 300 / ranks;
    std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == missing ? 0 : after));
    if (world.rank() == missing) return come_back(world, ended, ranks - 1);
    try {
      sum();
      FAIL_CHECK("nobody was missing");
    } catch (acco::error const& e) {
      CAPTURE(std::string(e.what()));
      CHECK(e.peer() == missing);
    }
    ++ended;
    queue.stop();
  });
}

TEST_CASE("thousands of channels one after another, closed in another order on every rank: they come back, and nothing grows") {
  letters::run(3, 8192, [&](letters::backend const& world, letters::office& mail) {
    acco::host_queue queue;
    const auto sum = [&queue](letters::backend const& over, double mine) {
      double total = 0;
      over.all_reduce(queue, acco::partial<double const>({&mine, 1}), acco::replicated<double>({&total, 1}));
      queue.wait();
      return total;
    };
    std::minstd_rand chance(static_cast<unsigned>(world.rank()) + 1);
    std::vector<letters::backend> kept;
    std::size_t living = 0;
    int right = 0;
    const int all = thorough() ? 10'000 : 2'000;
    for (int k = 1; k <= all; ++k) {
      kept.push_back(world.duplicate());
      right += sum(kept.back(), k + world.rank()) == 3 * k + 3 ? 1 : 0;
      for (const std::size_t most = chance() % 20; kept.size() > most;)  // on 3 ranks no more than 60 others
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(chance() % kept.size()));
      if (k % 500 != 0) continue;
      kept.clear();
      (void)sum(world, 0);
      if (k == 500) living = counting::living();
      CHECK(counting::living() < living + 300);  // some of them other ranks' messages under way
    }
    CHECK(right == all);
    CHECK(mail.disagreements() == 0);
  });
}
