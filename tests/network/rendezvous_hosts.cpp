// SPDX-License-Identifier: Apache-2.0
// The start-up between hosts: network namespaces of this machine, which need root. Each host is a process with a
// network, names (/etc/hosts) and settings of its own.
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "network/hosts.hpp"
#include "network/rendezvous_world.hpp"

using namespace start_up;
using namespace hosts;

namespace {

/// What a rank knows and gets: "its own address | everybody's addresses", or its error.
std::string addresses(rank_of me, std::string const& address, tcp_options const& chosen = {.deadline = enough()}) {
  std::string result;
  const outcome got = told([&] {
    acco::rendezvous::tcp_rendezvous meeting(me, address, 29500, chosen);
    return meeting.bring(meeting.own_address());
  });
  for (std::string const& each : got.got) result.append(result.empty() ? "" : " ").append(each);
  return result + got.error;
}

}  // namespace

TEST_CASE("rank 0's host calls itself by a loopback address: its ranks take one that leads there from other hosts") {
  // As Debian does it. Rank 1 is on rank 0's host, ranks 2 and 3 are elsewhere.
  host a("127.0.0.1 localhost\n127.0.1.1 zero\n", [] {
    std::string zero;
    std::string one;
    {
      const std::jthread first([&] { zero = addresses({0, 4}, "zero"); });
      const std::jthread second([&] { one = addresses({1, 4}, "zero"); });
    }
    return zero + " / " + one;
  });
  host b("127.0.0.1 localhost\n10.77.0.1 zero\n", [] {
    std::string two;
    std::string three;
    {
      const std::jthread first([&] { two = addresses({2, 4}, "zero"); });
      const std::jthread second([&] { three = addresses({3, 4}, "zero"); });
    }
    return two + " / " + three;
  });
  if (!made({&a, &b})) return;
  connect(a, b);
  a.start();
  b.start();
  const std::string everybody = "10.77.0.1 10.77.0.1 10.77.0.2 10.77.0.2";
  CHECK(a.words() == everybody + " / " + everybody);
  CHECK(b.words() == everybody + " / " + everybody);
}

TEST_CASE("all ranks on a host that calls itself by a loopback address: that one does") {
  host a("127.0.0.1 localhost\n127.0.1.1 zero\n", [] {
    std::string zero;
    std::string one;
    {
      const std::jthread first([&] { zero = addresses({0, 2}, "zero"); });
      const std::jthread second([&] { one = addresses({1, 2}, "zero"); });
    }
    return zero + " / " + one;
  });
  if (!made({&a})) return;
  a.start();
  const std::string said = a.words();
  CAPTURE(said);
  CHECK(said.substr(0, 4) == "127.");
  CHECK(said.substr(0, said.find(" / ")) == said.substr(said.find(" / ") + 3));
}

TEST_CASE("a name with two addresses: rank 0 is found at the second one") {
  host a("::1 zero\n127.0.0.1 zero localhost\n", [] {
    std::string zero;
    std::string one;
    {
      const std::jthread first([&] { zero = addresses({0, 2}, "127.0.0.1", {.deadline = enough()}); });
      const std::jthread second([&] { one = addresses({1, 2}, "zero", {.deadline = enough()}); });
    }
    return zero + " / " + one;
  });
  if (!made({&a})) return;
  a.start();
  CHECK(a.words() == "127.0.0.1 127.0.0.1 / 127.0.0.1 127.0.0.1");
}

TEST_CASE("ranks that dial a port of the ephemeral range before rank 0 listens do not take it") {
  host a("127.0.0.1 localhost\n", [] {
    if (!write_file("/proc/sys/net/ipv4/ip_local_port_range", "40000 40007")) return std::string("the range cannot be chosen");
    std::string results[4];
    {
      std::vector<std::jthread> ranks;
      for (int rank = 0; rank < 4; ++rank) {
        ranks.emplace_back([&results, rank] {
          if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
          results[rank] = told([&] { return tcp(40006, {.deadline = enough()})({rank, 4}); }).error;
        });
      }
    }
    return "errors:" + results[0] + results[1] + results[2] + results[3];
  });
  if (!made({&a})) return;
  a.start();
  CHECK(a.words() == "errors:");
}
