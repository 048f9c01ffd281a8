// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/collective/launch_environment.hpp>
#include <acco/collective/rendezvous_files.hpp>
#include <acco/collective/rendezvous_tcp.hpp>

namespace {

namespace fs = std::filesystem;
using acco::rank_of;
using acco::rendezvous::contributions;

/// What each rank got, or was told.
struct outcome {
  contributions got;
  std::string error;
};
std::vector<outcome> all_ranks(std::vector<rank_of> const& ranks, std::function<contributions(rank_of)> const& meet) {
  std::vector<outcome> results(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          results[i].got = meet(ranks[i]);
        } catch (std::exception const& e) {
          results[i].error = e.what();
        }
      });
    }
  }
  return results;
}
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// A port that nobody uses now.
struct listener {
  listener() {
    socket_ = acco::rendezvous::detail::socket_handle(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(socket_.get(), 8) == 0);
    socklen_t length = sizeof address;
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  acco::rendezvous::detail::socket_handle socket_;
  std::uint16_t port = 0;
};
std::uint16_t free_port() { return listener().port; }

auto tcp(std::uint16_t port, double deadline, std::string const& host = "127.0.0.1") {
  return [=](rank_of me) { return acco::rendezvous::over_tcp(me, host, port, "I am " + std::to_string(me.rank), deadline); };
}

struct scratch {
  fs::path path = fs::temp_directory_path() / ("acco_rendezvous_" + std::to_string(getpid()));
  scratch() { fs::remove_all(path); }
  ~scratch() { fs::remove_all(path); }
  scratch(scratch const&) = delete;
  scratch& operator=(scratch const&) = delete;
};

}  // namespace

TEST_CASE("over TCP everybody gets what everybody brought, in whatever order they come") {
  const auto port = free_port();
  const auto meet = tcp(port, 20);
  const auto results = all_ranks({{3, 4}, {0, 4}, {2, 4}, {1, 4}}, [&](rank_of me) {
    std::this_thread::sleep_for(std::chrono::milliseconds(me.rank == 0 ? 200 : 30 * me.rank));
    return meet(me);
  });
  for (auto const& each : results) {
    CHECK(each.error == "");
    CHECK(each.got == contributions{"I am 0", "I am 1", "I am 2", "I am 3"});
  }
}

TEST_CASE("ranks that do not come are named") {
  const auto results = all_ranks({{0, 4}, {2, 4}}, tcp(free_port(), 0.6));
  CHECK(contains(results[0].error, "acco: rank 0, start-up: rank 1, 3 did not come to 127.0.0.1:"));
  CHECK(contains(results[0].error, "within 0.6 s"));
  CHECK(contains(results[1].error, "acco: rank 2, start-up: what listens at 127.0.0.1:"));
}

TEST_CASE("rank 0 that is not there, a host that is unknown, an address without a path") {
  const auto nobody = all_ranks({{1, 2}}, tcp(free_port(), 0.3));
  CHECK(contains(nobody[0].error, "rank 0 could not be reached at 127.0.0.1:"));
  CHECK(contains(nobody[0].error, "Connection refused"));
  CHECK(contains(nobody[0].error, "MASTER_ADDR"));
  const auto unknown = all_ranks({{1, 2}}, tcp(free_port(), 0.3, "no.such.host.invalid"));
  CHECK(contains(unknown[0].error, "the host 'no.such.host.invalid' of MASTER_ADDR is unknown"));
}

TEST_CASE("a port in use: rank 0 says so, and a stranger who listens there is no rank 0") {
  const listener other;
  const auto results = all_ranks({{0, 2}, {1, 2}}, tcp(other.port, 0.4));
  CHECK(contains(results[0].error, "rank 0 cannot listen at port " + std::to_string(other.port) + ": Address already in use"));
  CHECK(contains(results[0].error, "choose another MASTER_PORT"));
  CHECK(contains(results[1].error, "did not answer as rank 0"));
}

TEST_CASE("two processes of one rank, different numbers of ranks: both sides are told") {
  const auto twice = all_ranks({{0, 3}, {1, 3}, {1, 3}}, tcp(free_port(), 3));
  CHECK(contains(twice[0].error, "rank 1 cannot join: a process of rank 1 has come already"));
  CHECK((contains(twice[1].error, "rank 0 refused this rank: a process of rank 1 has come already") ||
         contains(twice[2].error, "rank 0 refused this rank: a process of rank 1 has come already")));
  const auto sizes = all_ranks({{0, 2}, {1, 3}}, tcp(free_port(), 3));
  CHECK(contains(sizes[0].error, "it was started with WORLD_SIZE 3, rank 0 with 2"));
  CHECK(contains(sizes[1].error, "it was started with WORLD_SIZE 3, rank 0 with 2"));
}

TEST_CASE("bytes of strangers at rank 0's port do no harm") {
  const auto port = free_port();
  std::jthread stranger([&] {
    for (int i = 0; i < 20; ++i) {
      const acco::rendezvous::detail::socket_handle to(socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(to.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        const std::string junk = "GET / HTTP/1.1\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff";
        (void)to.write(junk, acco::rendezvous::detail::after(1));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const auto meet = tcp(port, 20);
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return meet(me);
  });
  CHECK(results[0].got == contributions{"I am 0", "I am 1"});
  CHECK(results[1].got == results[0].got);
}

TEST_CASE("through files: everybody meets; files of an earlier run of the same name are recognised") {
  const scratch directory;
  for (int run = 0; run < 3; ++run) {
    const auto meet = [&](rank_of me) {
      // The others come much later than one of them: it sees only what the run before left behind, and must not believe it.
      std::this_thread::sleep_for(std::chrono::milliseconds(me.rank == run ? 0 : 150));
      return acco::rendezvous::through_files(me, directory.path, "job", std::to_string(10 * run + me.rank), 20);
    };
    const auto results = all_ranks({{0, 3}, {1, 3}, {2, 3}}, meet);
    for (auto const& each : results) {
      CHECK(each.error == "");
      CHECK(each.got == contributions{std::to_string(10 * run), std::to_string(10 * run + 1), std::to_string(10 * run + 2)});
    }
    if (run == 0) {  // an earlier run that was killed leaves everything
      for (char const* name : {"member.1", "member.2", "seen.1", "seen.2", "member.0"}) {
        fs::copy_file(directory.path / "job.roster.0", directory.path / ("job." + std::string(name)));
      }
    }
  }
}

TEST_CASE("through files: a killed run's complete set of files leads nobody astray") {
  const scratch directory;
  const scratch* const at = &directory;
  // Rank 2 of an earlier run left its file; in this run it never comes.
  std::jthread([&] {
    try {
      (void)acco::rendezvous::through_files({2, 3}, at->path, "job", "stale", 0.2);
    } catch (acco::deadline_error const&) {  // alone
    }
  }).join();
  REQUIRE(fs::exists(directory.path / "job.member.2"));
  const auto results = all_ranks(
      {{0, 3}, {1, 3}}, [&](rank_of me) { return acco::rendezvous::through_files(me, directory.path, "job", "fresh", 0.8); });
  CHECK(contains(results[0].error, "rank 2 did not join in"));
  CHECK(results[1].got.empty());
  CHECK(contains(results[1].error, "rank 0 did not gather all ranks"));
}

TEST_CASE("through files: who does not come is named, with the directory and the run; runs of other names do not disturb") {
  const scratch directory;
  const auto results = all_ranks({{0, 3}, {1, 3}}, [&](rank_of me) {
    return acco::rendezvous::through_files(me, directory.path, me.rank == 0 ? "one" : "two", "x", 0.3);
  });
  CHECK(
      contains(results[0].error, "rank 1, 2 did not join in " + directory.path.string() + " under the name 'one' within 0.3 s"));
  CHECK(contains(results[1].error, "under the name 'two'"));
}

TEST_CASE("the launcher's environment: what is missing or no number is named") {
  const auto message = [] {
    try {
      (void)acco::launch_environment::read();
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (char const* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  CHECK(contains(message(), "WORLD_SIZE is not set"));
  setenv("WORLD_SIZE", "4", 1);
  CHECK(contains(message(), "RANK is not set"));
  setenv("RANK", "4", 1);
  CHECK(contains(message(), "RANK is '4'. It must be a number from 0 to 3"));
  setenv("RANK", "two", 1);
  CHECK(contains(message(), "RANK is 'two'"));
  setenv("RANK", "2", 1);
  CHECK(contains(message(), "MASTER_ADDR is not set"));
  setenv("MASTER_ADDR", "somewhere", 1);
  setenv("MASTER_PORT", "70000", 1);
  CHECK(contains(message(), "MASTER_PORT is '70000'"));
  setenv("MASTER_PORT", "29500", 1);
  CHECK(message() == "");
  const auto read = acco::launch_environment::read();
  CHECK(read.rank == 2);
  CHECK(read.size == 4);
  CHECK(read.address == "somewhere");
  CHECK(read.port == 29500);
}

TEST_CASE("the address towards a host is one of this host's own") {
  CHECK(acco::rendezvous::address_towards("127.0.0.1", 1, {}) == "127.0.0.1");
}
