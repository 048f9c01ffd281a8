// SPDX-License-Identifier: Apache-2.0
// A stranger's program over Gloo: compiled and linked wherever the component is found.
#include <cstdio>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>

int main() {
  return acco::gloo_backend::run([](acco::gloo_backend const& world) { std::printf("rank %d\n", world.rank()); });
}
