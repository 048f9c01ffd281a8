// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <utility>

#include <doctest/doctest.h>

#include <acco/storage/host.hpp>

#include "support/counting.hpp"

static_assert(acco::storage<acco::host_storage<float>> && acco::storage<acco::host_storage<acco::bfloat16, double, double>>);
static_assert(std::is_same_v<acco::host_storage<double>::master_type, double>);
static_assert(std::is_same_v<acco::host_storage<acco::bfloat16>::gradient_type, acco::bfloat16>);
static_assert(std::is_same_v<acco::host_storage<acco::bfloat16>::sum_type, float>);
static_assert(std::is_same_v<acco::host_storage<float, double>::sum_type, double>);

TEST_CASE("buffers are aligned, staggered, counted as promised, and given back") {
  counting::resource resource;
  const acco::host_storage<float> storage{.memory = &resource};
  {
    std::size_t expected = 0;
    std::vector<acco::host_buffer> buffers;
    for (std::size_t k = 0; k < 5; ++k) {
      buffers.push_back(storage.allocate(4096, k));
      expected += acco::host_storage<float>::allocation_size(4096, k);
      const auto address = reinterpret_cast<std::uintptr_t>(buffers.back().as<float>());
      CHECK(address % 64 == 0);
      buffers.back().as<float>()[1023] = 1;  // the last one is inside, says the address sanitizer
    }
    CHECK(resource.now == expected);
    auto moved = std::move(buffers[2]);
    CHECK(buffers[2].as<float>() == nullptr);
    CHECK(moved.as<float>() != nullptr);
    CHECK(storage.allocate(0, 3).as<float>() == nullptr);
  }
  CHECK(resource.now == 0);
}
