// SPDX-License-Identifier: Apache-2.0
// A connection ends with its process, whatever its children hold; what is not one any more is none of this.
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acco/network/unshared_sockets.hpp>

namespace {

/// A child that writes a byte to `told` and waits until somebody closes the other end of `until`; `what` says whether
/// all is well.
template <class What>
pid_t child_that(int told, int until, What&& what) {
  const pid_t child = fork();
  if (child != 0) return child;
  const char well = what() ? 1 : 0;
  char nothing = 0;
  if (write(told, &well, 1) == 1) (void)!read(until, &nothing, 1);
  _exit(0);
}

}  // namespace

TEST_CASE("a forked child keeps no copy of a socket, a started program none, and numbers that are other files by then stay") {
  int ends[2], told[2], until[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  REQUIRE(pipe2(told, O_CLOEXEC) == 0);
  REQUIRE(pipe2(until, O_CLOEXEC) == 0);
  // the second is none
  auto unshared = std::make_unique<acco::net::unshared_sockets>(std::vector<int>{ends[0], told[0], -1});
  CHECK((fcntl(ends[0], F_GETFD) & FD_CLOEXEC) != 0);
  char byte = 0;
  const pid_t first = child_that(told[1], until[0], [&] {
    close(ends[1]);
    close(until[1]);
    return write(ends[0], "x", 1) < 0 && fcntl(told[0], F_GETFD) >= 0;
  });
  REQUIRE(read(told[0], &byte, 1) == 1);
  CHECK(byte == 1);
  CHECK(write(ends[0], "y", 1) == 1);  // here it is what it was
  CHECK(read(ends[1], &byte, 1) == 1);
  close(ends[0]);
  CHECK(read(ends[1], &byte, 1) == 0);  // the end, though the child lives

  const int other = dup2(told[1], ends[0]);  // its number is another file's now
  REQUIRE(other == ends[0]);
  const pid_t second = child_that(other, until[0], [&] { return close(until[1]) == 0; });
  REQUIRE(read(told[0], &byte, 1) == 1);
  CHECK(byte == 1);
  unshared.reset();
  for (const int each : {ends[1], other, told[0], told[1], until[0], until[1]}) close(each);
  CHECK(waitpid(first, nullptr, 0) == first);
  CHECK(waitpid(second, nullptr, 0) == second);
}
