// SPDX-License-Identifier: Apache-2.0
// Runs the tests where a GPU is; says why not elsewhere.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

int main(int count, char** words) {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "cudaGetDeviceCount found none");
    return 0;
  }
  return doctest::Context(count, words).run();
}
