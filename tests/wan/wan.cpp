// SPDX-License-Identifier: Apache-2.0
// Ranks over a long link: the last words of one that ends in peace, links that swallow what they should carry.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>

#include "network/own_sockets.hpp"
#include "support/patience.hpp"
#include "wan/network.hpp"

namespace {

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Whether links can be made here; says why not, once.
bool skips() {
  static const std::string why = wan::network::missing();
  if (!why.empty()) std::printf("skipped: %s\n", why.c_str());
  return !why.empty();
}

/// The ranks' world over the link; function(backend).
template <class Function>
void over(wan::network const& link, int ranks, acco::gloo_options chosen, Function&& function) {
  static std::atomic<int> count = 0;
  const std::string run = "run " + std::to_string(++count);
  auto const directory = std::filesystem::temp_directory_path() / ("acco_wan_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", wan::network::card, 1);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
    link.enter(thread.rank());
    function(acco::gloo_backend::from_files({thread.rank(), ranks}, directory, run, chosen));
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

constexpr double way = 0.05;  // seconds

/// What a rank's `rounds` end with: the rank that is named, or -1 without an error.
struct ending {
  int named = -1;
  std::string what{};
};
ending rounds(acco::gloo_backend const& world, double deadline, int count, std::atomic<int>& done) {
  try {
    acco::optimizer training{acco::two_phase{},
                             acco::sgd{.learning_rate = 0.1},
                             acco::host_storage<float>{},
                             world,
                             1000,
                             acco::options{.deadline = deadline}};
    training.initialize(std::vector<float>(1000, 0.0F));
    for (int k = 0; k < count; ++k) {
      training.step([](auto, auto gradients) {
        gradients[0] += 1;
        return 1;
      });
      if (world.rank() == 0) ++done;
    }
    training.finish();
    return {};
  } catch (acco::error const& e) {
    return {e.peer(), e.what()};
  }
}

}  // namespace

TEST_CASE("a long link gets its connections without an option, and what leaves over them is paced") {
  if (skips()) return;
  wan::network link(2, {.delay = way});
  std::barrier both(2);
  over(link, 2, {.deadline = 60 * patience()}, [&](acco::gloo_backend const& world) {
    const std::size_t connections = world.connections_a_rank();
    CHECK(connections >= 22);  // a round trip of 0.1 s
    const double each_way = static_cast<double>(connections / 2), most = acco::message_window::pace(2 * way) / each_way;
    both.arrive_and_wait();
    std::vector<int> const all = own::sockets();
    const auto is_paced = [&](int each) { return own::pace_of(each) > most / 2 && own::pace_of(each) <= most; };
    CHECK(std::count_if(all.begin(), all.end(), is_paced) == static_cast<std::ptrdiff_t>(2 * connections));
    both.arrive_and_wait();
  });
}

TEST_CASE("what a rank sent before it ended in peace arrives, though the link lost it at first and others have spoken since") {
  if (skips()) return;
  wan::network link(2, {.delay = way});
  std::jthread opens;
  over(link, 2, {.deadline = 60 * patience(), .connections = 2}, [&](acco::gloo_backend const& world) {
    acco::host_queue queue;
    queue.deadline = 60 * patience();
    const auto tell = [&](int k) {
      double number[2] = {world.rank() == 1 ? k : -1.0, 7};
      world.broadcast(queue, acco::replicated<double>(number), 1);
      queue.wait();
      return number[0];
    };
    (void)tell(0);
    if (world.rank() == 1) {
      (void)tell(1);
      link.set(1, 0, {.delay = way, .swallowed = true});
      (void)tell(2);
      (void)tell(3);
      opens = std::jthread([&] {
        pause(0.3);
        link.set(1, 0, {.delay = way});
      });
      return;  // and ends
    }
    pause(0.05);
    CHECK(tell(1) == 1);  // and so speaks to who has ended
    CHECK(tell(2) == 2);
    CHECK(tell(3) == 3);
    CHECK_THROWS_AS((void)tell(4), acco::peer_error);
  });
}

TEST_CASE("megabytes that a rank sent before it ended in peace arrive over all connections, however many packets are lost") {
  if (skips()) return;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    wan::network link(2, {.delay = way}, seed);
    link.set(1, 0, {.delay = way, .loss = 0.1});
    over(link, 2, {.piece_bytes = 65536, .deadline = 60 * patience(), .connections = 4}, [&](acco::gloo_backend const& world) {
      acco::host_queue queue;
      queue.deadline = 60 * patience();
      std::vector<float> all(1U << 18U, static_cast<float>(world.rank()));
      world.broadcast(queue, acco::replicated<float>(all), 1);
      queue.wait();
      CHECK(std::count(all.begin(), all.end(), 1.0F) == static_cast<std::ptrdiff_t>(all.size()));
    });
  }
}

TEST_CASE("why a rank goes is heard, though the link loses it at first") {
  if (skips()) return;
  wan::network link(2, {.delay = way});
  std::jthread opens;
  over(link, 2, {.deadline = 60 * patience(), .connections = 2}, [&](acco::gloo_backend const& world) {
    acco::host_queue queue;
    queue.deadline = 60 * patience();
    double number[2] = {};
    const auto take_part = [&] {
      world.broadcast(queue, acco::replicated<double>(number), 1);
      queue.wait();
    };
    take_part();
    if (world.rank() == 1) {
      pause(3 * way);
      link.set(1, 0, {.delay = way, .swallowed = true});
      opens = std::jthread([&] {
        pause(0.3);
        link.set(1, 0, {.delay = way});
      });
      return world.abort("its disk is full");
    }
    CHECK_THROWS_WITH_AS(take_part(), doctest::Contains("rank 1 failed: its disk is full"), acco::peer_error);
  });
}

TEST_CASE("a link that swallows everything, or one way's: no rank hangs, and each names a rank at its end") {
  if (skips()) return;
  for (const bool both : {true, false}) {
    CAPTURE(both);
    wan::network link(3, {.delay = way});
    const double deadline = 4 * patience();
    std::atomic<int> done = 0;
    std::vector<ending> ends(3);
    std::jthread breaks([&] {
      while (done < 3) pause(0.01);
      link.set(0, 1, {.swallowed = true});
      if (both) link.set(1, 0, {.swallowed = true});
    });
    over(link, 3, {.deadline = 60 * patience()}, [&](acco::gloo_backend const& world) {
      ends[static_cast<std::size_t>(world.rank())] = rounds(world, deadline, 1000, done);
    });
    done = 3;  // whatever came
    breaks.join();
    for (int rank = 0; rank < 3; ++rank) {
      ending const& mine = ends[static_cast<std::size_t>(rank)];
      CAPTURE(rank);
      CAPTURE(mine.what);
      CHECK((mine.named == 0 || mine.named == 1));
    }
    CHECK(ends[1].named == 0);  // it hears nothing of rank 0
  }
}

TEST_CASE("a link that swallows everything for less than the deadline: training goes on, and ends as on any other") {
  if (skips()) return;
  wan::network link(2, {.delay = way});
  std::atomic<int> done = 0;
  std::vector<ending> ends(2);
  std::jthread breaks([&] {
    for (int k = 0; k < 3; ++k) {
      while (done < 2 * k + 2) pause(0.01);
      link.set(0, 1, {.swallowed = true});
      if (k != 1) link.set(1, 0, {.swallowed = true});
      pause(0.5);
      link.set(0, 1, {.delay = way});
      link.set(1, 0, {.delay = way});
    }
  });
  over(link, 2, {.deadline = 60 * patience()}, [&](acco::gloo_backend const& world) {
    ends[static_cast<std::size_t>(world.rank())] = rounds(world, 60 * patience(), 8, done);
  });
  done = 1000;
  breaks.join();
  for (ending const& each : ends) {
    CAPTURE(each.what);
    CHECK(each.named == -1);
    CHECK(each.what.empty());
  }
}

TEST_CASE("rank 0's host is gone at any moment of the start-up: no rank hangs, and the others name it") {
  if (skips()) return;
  const double deadline = 8 * patience();  // behind it, telling the others takes seconds: their connections do not end
  for (int k = 0; k < 8; ++k) {
    const double moment = 0.15 * k;
    CAPTURE(moment);
    wan::network link(3, {.delay = way});
    std::vector<ending> ends(3);
    std::atomic<int> done = 0;
    std::jthread breaks([&] {
      pause(moment);
      for (const int other : {1, 2}) {
        link.set(0, other, {.swallowed = true});
        link.set(other, 0, {.swallowed = true});
      }
    });
    auto const directory = std::filesystem::temp_directory_path() / ("acco_wan_" + std::to_string(getpid()));
    setenv("GLOO_SOCKET_IFNAME", wan::network::card, 1);
    acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
      ending& mine = ends[static_cast<std::size_t>(thread.rank())];
      link.enter(thread.rank());
      try {
        const auto world = acco::gloo_backend::from_files({thread.rank(), 3}, directory, "start " + std::to_string(k),
                                                          {.deadline = deadline, .connections = 2});
        mine = rounds(world, deadline, 1000, done);
      } catch (acco::error const& e) {
        mine = {e.peer(), e.what()};
      }
    });
    unsetenv("GLOO_SOCKET_IFNAME");
    std::filesystem::remove_all(directory);
    for (int rank = 1; rank < 3; ++rank) {
      ending const& mine = ends[static_cast<std::size_t>(rank)];
      CAPTURE(rank);
      CAPTURE(mine.what);
      CHECK(mine.what.find("acco: rank") == 0);
      // who has connected with rank 0 in time waits for one that has not, and says so
      CHECK((mine.named == 0 || mine.what.find("which may wait for another one") != std::string::npos));
    }
    CHECK(ends[0].what.find("acco: rank 0") == 0);
  }
}

TEST_CASE("two runs on one port of one host: each rank ends in its own run, or is told whose the port is") {
  if (skips()) return;
  const wan::network link(4, {.delay = way, .jitter = way / 2, .loss = 0.02, .overtake = true});
  const double deadline = 20 * patience();
  std::vector<std::string> got(4);
  acco::threads_backend::run(4, [&](acco::threads_backend const& thread) {  // hosts 0 and 1 are of run A, 2 and 3 of run B
    const int host = thread.rank();
    link.enter(host < 2 ? host : host == 2 ? 0 : 3);  // both ranks 0 on host 0
    if (host == 2) pause(1);
    const std::string run = host < 2 ? "A" : "B";
    try {
      acco::rendezvous::tcp_rendezvous meeting({host % 2, 2}, "10.79.0.1", 29500,
                                               {.deadline = host < 2 ? deadline : 4 * patience(), .run = run});
      for (std::string const& each : meeting.bring(run + std::to_string(host))) got[static_cast<std::size_t>(host)] += each;
    } catch (acco::error const& e) {
      got[static_cast<std::size_t>(host)] = e.what();
    }
  });
  CHECK(got[0] == "A0A1");
  CHECK(got[1] == "A0A1");
  CAPTURE(got[2]);
  CAPTURE(got[3]);
  CHECK((got[2].find("address") != std::string::npos || got[2].find("rank 1") != std::string::npos));
  CHECK((got[3].find("run 'A'") != std::string::npos || got[3].find("rank 0") != std::string::npos));
}
