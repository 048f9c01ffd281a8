// SPDX-License-Identifier: Apache-2.0
// What nccl_backend says when something is wrong; needs no GPU.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/cuda/nccl.hpp>

TEST_CASE("a rank outside of the group, an identifier that did not come") {
  const auto nothing = [](std::string const&) { return std::vector<std::string>(2); };
  CHECK_THROWS_AS((void)acco::nccl_backend::from_exchange({2, 2}, nothing), acco::usage_error);
  CHECK_THROWS_AS((void)acco::nccl_backend::from_exchange({1, 2}, nothing), acco::mismatch_error);
}

TEST_CASE("where there is no GPU, the error names NCCL's call and what NCCL says") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    MESSAGE("skipped: there is a GPU here");
    return;
  }
  const auto echo = [](std::string const& mine) { return std::vector<std::string>(1, mine); };
  try {
    (void)acco::nccl_backend::from_exchange({0, 1}, echo, {.deadline = 10});
    FAIL("nothing was thrown");
  } catch (acco::device_error const& e) {
    const std::string words = e.what();
    CHECK(words.find("nccl") != std::string::npos);
    CHECK(words.find("failed") != std::string::npos);
    CHECK(words.find("NCCL_DEBUG") != std::string::npos);
  }
}

TEST_CASE("types travel as NCCL's own") {
  CHECK(acco::nccl_type<acco::bfloat16>() == ncclBfloat16);
  CHECK(acco::nccl_type<acco::half>() == ncclHalf);
  CHECK(acco::nccl_type<double>() == ncclDouble);
}
