// SPDX-License-Identifier: Apache-2.0
// Start-up of Gloo's ranks as processes: many of them, and on hosts that call themselves by a loopback address.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acco/clock.hpp>
#include <acco/network/gloo.hpp>
#include <acco/storage/host_queue.hpp>

#include "network/hosts.hpp"
#include "network/rendezvous_world.hpp"

using namespace start_up;

namespace {

void environment(rank_of me, std::string const& address, std::uint16_t port) {
  setenv("RANK", std::to_string(me.rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(me.size).c_str(), 1);
  setenv("MASTER_ADDR", address.c_str(), 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  unsetenv("GLOO_SOCKET_IFNAME");
}
/// Work in processes of their own, at the same time; what each said.
using work = std::function<std::string()>;
std::vector<std::string> together(std::vector<work> const& all) {
  std::vector<std::string> words(all.size());
  std::vector<int> from;
  std::vector<pid_t> processes;
  for (work const& each : all) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      for (int open : from) close(open);
      const std::string said = each();
      (void)!write(ends[1], said.data(), said.size());
      _exit(0);
    }
    close(ends[1]);
    from.push_back(ends[0]);
    processes.push_back(pid);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    char some[512];
    for (ssize_t n = 0; (n = read(from[i], some, sizeof some)) > 0;) words[i].append(some, static_cast<std::size_t>(n));
    close(from[i]);
    int status = 0;
    waitpid(processes[i], &status, 0);
  }
  return words;
}
/// The sum of all ranks' numbers from 1, by way of every connection; or the error.
std::string sum(std::function<acco::gloo_backend()> const& start) {
  const outcome result = told([&] {
    const acco::gloo_backend world = start();
    acco::host_queue queue;
    double mine[1] = {world.rank() + 1.0}, all[1] = {0};
    world.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(all));
    queue.wait();
    return contributions{std::to_string(static_cast<int>(all[0]))};
  });
  return result.got.empty() ? result.error : result.got[0];
}
work from_environment(rank_of me, std::string const& address, std::uint16_t port) {
  return [=] {
    environment(me, address, port);
    return sum([] { return acco::gloo_backend::from_environment({.deadline = 2 * enough()}); });
  };
}
std::string joined_words(std::vector<std::string> const& all) {
  std::string result;
  for (std::string const& each : all) result.append(result.empty() ? "" : " ").append(each);
  return result;
}

}  // namespace

TEST_CASE("92 ranks start over Gloo") {
#ifdef ACCO_SANITIZED
  const int ranks = 6;
#else
  const int ranks = 92;  // each brings 136 bytes for each other one: together more than a mebibyte
#endif
  const auto port = free_port();
  std::vector<work> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(from_environment({rank, ranks}, "127.0.0.1", port));
  const auto words = together(all);
  for (std::string const& each : words) CHECK(each == std::to_string(ranks * (ranks + 1) / 2));
}

TEST_CASE("a run's name that differs: rank 0 does not take the other for its own") {
  const auto port = free_port();
  const auto rank = [port](int number, char const* run) {
    return [=] {
      environment({number, 2}, "127.0.0.1", port);
      setenv("SLURM_JOB_ID", run, 1);
      return sum([] { return acco::gloo_backend::from_environment({.deadline = 2 * enough()}); });
    };
  };
  int refused[2];
  REQUIRE(pipe(refused) == 0);
  const auto words = together({rank(0, "8"),
                               [&] {
                                 std::string said = rank(1, "7")();
                                 (void)!write(refused[1], "x", 1);
                                 return said;
                               },
                               [&] {
                                 char word = 0;
                                 (void)!read(refused[0], &word, 1);
                                 return rank(1, "8")();
                               }});
  close(refused[0]);
  close(refused[1]);
  CHECK(words[0] == "3");
  CHECK(contains(words[1], "is of run '8', and this process is of run '7'"));
  CHECK(words[2] == "3");
}

TEST_CASE("a rank that brings too much or too little for an address is named, and nothing of it is used") {
  for (const std::size_t bytes : {std::size_t{3000}, std::size_t{3}, std::size_t{0}}) {
    CAPTURE(bytes);
    const auto port = free_port();
    const auto rank = [port](int number) {
      return [=] {
        environment({number, 3}, "127.0.0.1", port);
        return sum([] { return acco::gloo_backend::from_environment({.deadline = 2 * enough()}); });
      };
    };
    const auto words =
        together({rank(0), rank(1), [&] {
                    environment({2, 3}, "127.0.0.1", port);
                    acco::rendezvous::tcp_rendezvous meeting(acco::launch_environment::read(), {.deadline = 2 * enough()});
                    (void)meeting.bring(std::string(bytes, 'x'));
                    return std::string();
                  }});
    for (std::size_t other : {0U, 1U}) {
      CAPTURE(words[other]);
      CHECK(contains(words[other], "start-up: rank 2 brings " + std::to_string(bytes) + " bytes, which are no address"));
    }
  }
}

TEST_CASE("a rank that ends while the others connect with it: they are told within the deadline, with its number") {
  const auto port = free_port();
  struct quits {
    acco::rendezvous::tcp_rendezvous& meeting;
    bool quit;
    contributions deliver(contributions const& mine) const {
      auto result = meeting.deliver(mine);
      if (quit) _exit(0);
      usleep(1000000);  // it has ended: the system would take connections for it
      return result;
    }
  };
  const auto rank = [port](int number) {
    return [=]() -> std::string {
      const rank_of me{number, 5};
      const double from = acco::steady_seconds();
      const outcome result = told([&] {
        acco::rendezvous::tcp_rendezvous meeting(me, "127.0.0.1", port, {.deadline = enough()});
        quits then{meeting, number == 2};
        (void)acco::gloo_start::connected(me, "127.0.0.1", {.deadline = 3}, then);
        return contributions{"connected"};
      });
      return (acco::steady_seconds() - from < 2 * enough() ? "in time: " : "late: ") + result.error;
    };
  };
  const auto words = together({rank(0), rank(1), rank(2), rank(3), rank(4)});
  CHECK(words[2].empty());
  std::string all;
  for (std::size_t other : {0U, 1U, 3U, 4U}) {
    CAPTURE(words[other]);
    CHECK(contains(words[other],
                   "in time: acco: rank " + std::to_string(other) + ", start-up: the ranks cannot be connected: with rank "));
    all += words[other];
  }
  CHECK(contains(all, "with rank 2"));  // whoever waits for another one is told so
}

TEST_CASE(
    "hosts that call themselves by a loopback address: their ranks take another one, from the environment and through files") {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::string me(name), debian = "127.0.0.1 localhost\n127.0.1.1 zero " + me + "\n";
  const std::string directory =
      (std::filesystem::temp_directory_path() / ("acco_gloo_start_" + std::to_string(getpid()))).string();
  const auto from_files = [directory](rank_of rank) {
    unsetenv("GLOO_SOCKET_IFNAME");
    return sum([&] { return acco::gloo_backend::from_files(rank, directory, "r", {.deadline = 2 * enough()}); });
  };
  const auto on_each = [from_files](int first) {
    return [=] {
      return joined_words(
                 together({from_environment({first, 4}, "zero", 29500), from_environment({first + 1, 4}, "zero", 29500)})) +
             " / " + from_files({first / 2, 2});
    };
  };
  hosts::host a(debian, on_each(0));
  hosts::host b("127.0.0.1 localhost\n10.77.0.1 zero\n10.77.0.2 " + me + "\n", on_each(2));
  if (!hosts::made({&a, &b})) return;
  hosts::connect(a, b);
  a.start();
  b.start();
  for (std::string const& words : {a.words(), b.words()}) {
    CAPTURE(words);
    CHECK(words == "10 10 / 3");
  }
  std::filesystem::remove_all(directory);
}
