// SPDX-License-Identifier: Apache-2.0
// A stranger's program with a shared secret: compiled and linked wherever the component is found.
#include <cstdio>

#include <acco/acco.hpp>
#include <acco/network/shared_secret.hpp>

int main() {
  const acco::shared_secret secret("0123456789abcdef");
  std::printf("%d bytes\n", static_cast<int>(secret("message").size()));
}
