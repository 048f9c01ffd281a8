// SPDX-License-Identifier: Apache-2.0
// with_port COMMAND...: the command, with a MASTER_PORT in its environment that is nobody else's until its processes
// have ended.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "network/free_port.hpp"

int main(int count, char** words) {
  if (count < 2) return 2;
  setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
  execvp(words[1], words + 1);
  std::perror(words[1]);
  return 127;
}
