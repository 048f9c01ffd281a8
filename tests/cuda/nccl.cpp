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

TEST_CASE("where there is no GPU, that is what is said") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    MESSAGE("skipped: there is a GPU here");
    return;
  }
  const auto echo = [](std::string const& mine) { return std::vector<std::string>(1, mine); };
  CHECK_THROWS_WITH_AS((void)acco::nccl_backend::from_exchange({0, 1}, echo, {.deadline = 10}),
                       doctest::Contains("rank 0, start-up: cudaGetDeviceCount failed: "), acco::device_error);
}

TEST_CASE("a call of NCCL that fails is named, with what NCCL says of it") {
  const std::string words = acco::nccl_failed(ncclSystemError, "ncclCommSplit", {1, 2, "commit"}, "no file").what();
  CHECK_MESSAGE(words.find("rank 1, round 2, commit: ncclCommSplit failed: ") != std::string::npos, words);
  CHECK_MESSAGE(words.find(" (no file). NCCL_DEBUG=WARN tells more") != std::string::npos, words);
  CHECK(std::string(acco::nccl_failed(ncclSystemError, "ncclCommSplit", {}, "").what()).find("()") == std::string::npos);
}

TEST_CASE("types travel as NCCL's own") {
  CHECK(acco::nccl_type<acco::bfloat16>() == ncclBfloat16);
  CHECK(acco::nccl_type<acco::half>() == ncclHalf);
  CHECK(acco::nccl_type<double>() == ncclDouble);
}
