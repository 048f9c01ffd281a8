// SPDX-License-Identifier: Apache-2.0
// A stranger's program over NCCL.
#include <cstdio>

#include <acco/acco.hpp>
#include <acco/nccl.hpp>

int main() {
  const acco::nccl_options options{.deadline = 60};
  int version = 0;
  std::printf("NCCL %d, deadline %g\n", ncclGetVersion(&version) == ncclSuccess ? version : 0, options.deadline);
}
