// SPDX-License-Identifier: Apache-2.0
// What a process prints when an exception has ended its training.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/network/print_end.hpp>

namespace {

/// What print_end writes about an exception.
template <class Exception>
std::string printed(int rank, Exception const& thrown) {
  char name[] = "/tmp/acco_print_end_XXXXXX";
  const int file = mkstemp(name), kept = dup(STDERR_FILENO);
  std::fflush(stderr);
  dup2(file, STDERR_FILENO);
  try {
    throw thrown;
  } catch (...) {
    acco::print_end(rank);
  }
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(file);
  std::ostringstream text;
  text << std::ifstream(name).rdbuf();
  unlink(name);
  return text.str();
}

}  // namespace

TEST_CASE("an exception of the trainer's own is printed with its rank; those of acco name theirs; anything can be thrown") {
  CHECK(printed(3, std::runtime_error("no more data on disk")) == "acco: rank 3: the trainer threw: no more data on disk\n");
  CHECK(printed(-1, std::runtime_error("no more data")) == "acco: the trainer threw: no more data\n");
  CHECK(printed(0, 7) == "acco: rank 0: the trainer threw an exception that is no std::exception\n");
  CHECK(printed(5, acco::usage_error({.rank = 1, .round = 2, .phase = "finish"}, acco::text("it is wrong"),
                                     acco::text("Mend it"))) == "acco: rank 1, round 2, finish: it is wrong. Mend it.\n");
  CHECK(printed(5, acco::usage_error({}, acco::text("it is wrong"), acco::text("Mend it"))) ==
        "acco: rank 5: it is wrong. Mend it.\n");
}
