// SPDX-License-Identifier: Apache-2.0
// Processes on hosts of their own, behind long links (network.hpp), for launchers that know of one host only:
//
//   wan_hosts 4 50 20 1 mpiexec -n 4 wan_hosts enter PROGRAM ...    50 to 70 ms, a hundredth of the packets lost
//
// `enter` takes the caller's rank from the launcher's variable, goes to that host and becomes PROGRAM.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wan/network.hpp"

namespace {

std::string variable(int rank) { return "ACCO_WAN_HOST_" + std::to_string(rank); }
void demand(bool good, char const* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

/// In a /sys of this network, where UCX looks for them.
void see_its_cards() {
  demand(unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0, "a mount namespace");
  (void)umount2("/sys", MNT_DETACH);
  demand(mount("wan", "/sys", "sysfs", 0, nullptr) == 0, "a mount of /sys");
}
/// What a child of this process does, which ends with its answer.
int answer_of(auto const& child_does) {
  const pid_t child = fork();
  demand(child >= 0, "fork");
  if (child == 0) {
    child_does();
    _exit(127);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
void try_to_see_cards() {
  try {
    if (unshare(CLONE_NEWNET) != 0) _exit(errno);
    see_its_cards();
    _exit(0);
  } catch (std::exception const&) {
    _exit(errno);
  }
}

int enter(char** program) {
  char const* rank = std::getenv("PMI_RANK");
  if (rank == nullptr) throw std::runtime_error("no rank in PMI_RANK: which host is not known");
  char const* const host = std::getenv(variable(std::atoi(rank)).c_str());
  if (host == nullptr) throw std::runtime_error(std::string("there is no host for rank ") + rank);
  const int space = open(host, O_RDONLY | O_CLOEXEC);
  demand(space >= 0 && setns(space, CLONE_NEWNET) == 0, host);
  see_its_cards();
  execvp(program[0], program);
  demand(false, program[0]);
  return 1;
}

int run(int ranks, wan::conditions const& conditions, char** command) {
  if (auto const why = wan::network::missing(); !why.empty()) return std::printf("skipped: %s\n", why.c_str()), 0;
  if (const int why = answer_of(try_to_see_cards); why != 0)
    return std::printf("skipped: a host needs a /sys of its own: %s\n", std::strerror(why)), 0;
  const wan::network link(ranks, conditions);
  for (int rank = 0; rank < ranks; ++rank) setenv(variable(rank).c_str(), link.path(rank).c_str(), 1);
  const int answer = answer_of([&] {
    execvp(command[0], command);
    std::perror(command[0]);
  });
  std::printf("%llu packets travelled\n", link.travelled());
  if (link.travelled() < 1000) return std::fputs("the ranks have hardly used the links\n", stderr), 1;
  return answer;
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count > 2 && std::strcmp(words[1], "enter") == 0) return enter(words + 2);
    if (count < 6) throw std::runtime_error("wan_hosts RANKS DELAY JITTER LOSS COMMAND ...: milliseconds, and percent");
    const double loss = std::atof(words[4]) / 100;
    return run(std::atoi(words[1]),
               {.delay = std::atof(words[2]) * 1e-3,
                .jitter = std::atof(words[3]) * 1e-3,
                .loss = loss,
                .twice = loss,
                .overtake = true},
               words + 5);
  } catch (std::exception const& e) {
    return std::fprintf(stderr, "wan_hosts: %s\n", e.what()), 1;
  }
}
