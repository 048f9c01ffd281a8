// SPDX-License-Identifier: Apache-2.0
// What only MPI has: thread levels, policies of progress, warnings, counts that are ints.
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "network/mpi_world.hpp"
#include "support/train.hpp"

TEST_CASE("every policy of progress trains to the same bits, and says its name; messages with checksums, too") {
  const auto before = worlds::mpi::progress;
  const reference::setting s{.ranks = 3, .micro_batches = {9, 7, 9}, .clip_norm = 0, .learning_rate = acco::constant{}};
  const auto run = [&] {
    return library::train<acco::host_storage<float>>(worlds::mpi{}, acco::two_phase{.pace = acco::fixed_pace{1}},
                                                     acco::adamw{.learning_rate = 0.01}, acco::parameter_layout(9001), s);
  };
  const auto expected = run();
  for (auto const& [policy, name] : {std::pair{acco::mpi_progress::poll, "MPI: polled by the trainer"},
                                     std::pair{acco::mpi_progress::none, "MPI: none, the trainer waits"}}) {
    worlds::mpi::progress = policy;
    const auto got = run();
    CHECK(got.parameters == expected.parameters);
    CHECK(got.digests == expected.digests);
    worlds::mpi::run(
        2, [&, expected_name = name](auto const& backend) { CHECK(std::string(backend.progress_policy()) == expected_name); });
  }
  worlds::mpi::progress = before;
  if (!acco::has_xxhash) return;
  worlds::mpi::checksums = acco::checksums::always;
  CHECK(run().parameters == expected.parameters);
  worlds::mpi::checksums = acco::checksums::none;
}

TEST_CASE("polling hides communication, no progress hides none") {
  for (auto const policy : {acco::mpi_progress::poll, acco::mpi_progress::none}) {
    worlds::mpi::run(2, [&](acco::mpi_backend const&) {
      const acco::mpi_backend backend(MPI_COMM_SELF,
                                      {.progress = policy});  // alone: whether anything ran is not a matter of luck
      acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, backend, 100};
      training.initialize(std::vector<float>(100, 1.0F));
      training.accumulated(1);
      for (int k = 0; k < 10; ++k) training.poll();
      const auto report = training.accumulated(1);
      REQUIRE(report.has_value());
      const bool over_before_the_boundary = report->communicating.end <= report->computing.end;
      CHECK(over_before_the_boundary == (policy == acco::mpi_progress::poll));
      training.finish();
    });
  }
}

TEST_CASE("a deadline that is none is refused by every rank before MPI is asked") {
  worlds::mpi::run(2, [&](acco::mpi_backend const&) {
    for (const double none : {std::numeric_limits<double>::quiet_NaN(), 0.0, -1e300})
      CHECK_THROWS_WITH_AS((void)acco::mpi_backend(MPI_COMM_SELF, {.deadline = none}),
                           doctest::Contains("start-up: mpi_options::deadline is "), acco::usage_error);
  });
}

TEST_CASE("settings that defeat overlap are warned of, once") {
  static std::vector<std::string> said;
  said.clear();
  const acco::mpi_options options{.warn = [](char const* sentence) { said.emplace_back(sentence); }};
  worlds::mpi::run(4, [&](auto const&) {
    setenv("MPICH_ASYNC_PROGRESS", "1", 1);
    const acco::mpi_backend first(MPI_COMM_SELF, options);
    const acco::mpi_backend second(MPI_COMM_SELF, options);
  });
  unsetenv("MPICH_ASYNC_PROGRESS");
  const auto about = [&](char const* part) {
    int n = 0;
    for (auto const& each : said) n += each.find(part) != std::string::npos ? 1 : 0;
    return n;
  };
  CHECK(about("MPICH_ASYNC_PROGRESS=1 starts a thread that spins") == 1);
  CHECK(about("Set MPICH_ASYNC_PROGRESS=0") == 1);
}

TEST_CASE("more than INT_MAX bytes and elements in one collective") {
#ifdef ACCO_SANITIZED
  MESSAGE("skipped under a sanitizer");
#else
  std::ifstream info("/proc/meminfo");
  std::string word;
  double available = 0;
  while (info >> word) {
    if (word == "MemAvailable:") info >> available;
  }
  std::vector<double> enough{available >= 14e6 ? 1.0 : 0.0};
  worlds::mpi::share(enough);
  if (enough[0] == 0) {
    MESSAGE("skipped: needs 14 GB of free memory");
    return;
  }
  worlds::mpi::run(2, [&](acco::mpi_backend const& backend) {
    acco::host_queue queue(backend.driver());
    constexpr std::size_t slice = (std::size_t{1} << 30U) + (std::size_t{1} << 20U) + 3;  // two of them: more than 2^31
    std::vector<char> whole(2 * slice);
    const std::size_t mine = static_cast<std::size_t>(backend.rank()) * slice;
    whole[mine] = static_cast<char>(1 + backend.rank());
    whole[mine + slice - 1] = static_cast<char>(11 + backend.rank());
    backend.all_gather(queue, acco::sharded<char const>(std::span<char const>(whole).subspan(mine, slice)),
                       acco::replicated<char>(whole));
    queue.wait();
    CHECK(whole[0] == 1);
    CHECK(whole[slice - 1] == 11);
    CHECK(whole[slice] == 2);
    CHECK(whole[2 * slice - 1] == 12);
    if (backend.rank() == 0) whole[2 * slice - 2] = 42;
    backend.broadcast(queue, acco::replicated<char>(whole), 0);
    queue.wait();
    CHECK(whole[2 * slice - 2] == 42);
  });
#endif
}
