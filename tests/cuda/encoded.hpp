// SPDX-License-Identifier: Apache-2.0
// What every encoding on a device must do: the same as on the host, bit by bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include "cuda/cuda_world.hpp"
#include "support/thorough.hpp"

inline void settle() { acco::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }

template <class T>
struct managed {
  explicit managed(std::size_t count, std::size_t shift = 0) : size(count) {
    static acco::cuda_managed_memory resource;
    buffer = acco::cuda_buffer(&resource, nullptr, (count + shift) * sizeof(T));
    data = buffer.as<T>() + shift;
    settle();
  }
  acco::cuda_buffer buffer;
  std::size_t size;
  T* data;
};

/// Of all lengths, with zeros of both signs, equal numbers, one far out, and one that is not finite.
template <class Encoding>
void encoded_as_on_the_host() {
  const auto with = [](auto type) {
    using T = decltype(type);
    using storage = acco::cuda_storage<T, T, std::conditional_t<sizeof(T) == 8, double, float>>;
    using sum = typename storage::sum_type;
    acco::cuda_queue queue(nullptr);
    const Encoding e;
    for (const std::size_t count : {1U, 255U, 256U, 1024U, 5003U}) {
      constexpr std::size_t slices = 3;
      const std::size_t bytes = acco::encoded_size<Encoding>(count);
      managed<T> from(slices * count, 1), out(slices * count), host_out(slices * count);
      managed<std::byte> there(slices * bytes), here(slices * bytes);
      managed<sum> added(count), host_added(count);
      managed<unsigned long long> numbers(6);
      for (std::size_t i = 0; i < slices * count; ++i) from.data[i] = T(std::sin(static_cast<float>(i)) * 3e-3F);
      for (std::size_t i = 0; i < slices * count && count == 255; ++i) {  // nearly all of a block is 0
        if (i % 100 != 7) from.data[i] = T(i % 2 == 0 ? 0.0F : -0.0F);
      }
      if (count > 1000) {
        for (std::size_t i = 0; i < 256; ++i) from.data[2 * count + 512 + i] = T(i % 3 == 0 ? 0.25F : -0.25F);  // equal ones
        from.data[700] = T(-0.0F);
        from.data[count + 600] = T(2.0F);  // far out
      }
      if (count > 300) from.data[count + 290] = T(std::numeric_limits<float>::infinity());
      for (unsigned k = 0; k < 4; ++k) numbers.data[k] = k % 2 == 0 ? 0 : ~0ULL;
      std::fill_n(here.data, slices * bytes, std::byte{});
      const acco::coding::refused bad{numbers.data, numbers.data + 1}, host_bad{numbers.data + 2, numbers.data + 3};
      storage::encode_now(queue, e, static_cast<T const*>(from.data), 0, slices, count, there.data, bad);
      settle();
      for (std::size_t k = 0; k < slices; ++k)
        acco::coding::encode_values(e, static_cast<T const*>(from.data) + k * count, k * count, count, here.data + k * bytes,
                                    host_bad);
      CHECK(std::equal(there.data, there.data + slices * bytes, here.data));
      const std::uint64_t seed = acco::rounding_seed(3, 1, 4);  // at random
      storage::encode(queue, e, static_cast<T const*>(from.data), 0, slices, count, there.data,
                      {numbers.data + 4, numbers.data + 5}, seed);
      queue.wait();
      for (std::size_t k = 0; k < slices; ++k)
        acco::coding::encode_values(e, static_cast<T const*>(from.data) + k * count, k * count, count, here.data + k * bytes,
                                    {numbers.data + 4, numbers.data + 5}, seed);
      CHECK(std::equal(there.data, there.data + slices * bytes, here.data));
      CHECK(numbers.data[0] == (count > 300 ? 1 : 0));
      CHECK(numbers.data[0] == numbers.data[2]);
      CHECK(numbers.data[1] == numbers.data[3]);
      if (count > 300) continue;  // not a number is not equal

      std::fill_n(added.data, count, sum(1));
      std::fill_n(host_added.data, count, sum(1));
      for (const bool add : {true, false}) {
        storage::decode_sum(queue, e, there.data, slices, added.data, count, add);
        queue.wait();
        acco::coding::decode_sum(
            e, slices, [&](int k) { return static_cast<std::byte const*>(here.data) + static_cast<std::size_t>(k) * bytes; },
            host_added.data, count, add);
        CHECK(std::equal(added.data, added.data + count, host_added.data));
      }
      if constexpr (acco::means_senders<Encoding>) {
        managed<int> bringing(1);
        bringing.data[0] = static_cast<int>(slices) - 1;
        storage::decode_sum(queue, e, there.data, slices, added.data, count, false, bringing.data);
        queue.wait();
        acco::coding::decode_sum(
            e, slices, [&](int k) { return static_cast<std::byte const*>(here.data) + static_cast<std::size_t>(k) * bytes; },
            host_added.data, count, false, bringing.data[0]);
        CHECK(std::equal(added.data, added.data + count, host_added.data));
      }
      managed<acco::trainable_run> runs(2);
      runs.data[0] = {0, 1, count / 2};
      runs.data[1] = {count / 2, count / 2 + 1, slices * count - count / 2};
      managed<T> held(slices * count + 1);
      for (std::size_t i = 0; i <= slices * count; ++i) held.data[i] = T(static_cast<float>(i % 97) * 0.01F);
      const acco::trainable_view<T> view{held.data, runs.data, 2};
      storage::encode_difference(queue, e, static_cast<T const*>(from.data), view, 1, count, there.data, bad);
      queue.wait();
      acco::coding::encode_difference(e, static_cast<T const*>(from.data), view, 1, count, here.data, host_bad);
      CHECK(std::equal(there.data, there.data + bytes, here.data));
      storage::decode_onto(queue, e, there.data, view, 0, count, 2 * count - 1, out.data);
      queue.wait();
      for (std::size_t i = 0; i < 2 * count - 1; i += count)
        acco::coding::decode_onto(e, static_cast<std::byte const*>(here.data) + i / count * bytes, view, i,
                                  std::min(count, 2 * count - 1 - i), host_out.data + i);
      bool same = true;
      for (std::size_t i = 0; i < 2 * count - 1; ++i)
        same = same && static_cast<double>(out.data[i]) == static_cast<double>(host_out.data[i]);
      CHECK(same);
    }
  };
  with(float{});
  // another type is read in the same way for all
  if constexpr (std::is_same_v<Encoding, acco::block_int4<>> || everything) {
    with(acco::bfloat16{});
    with(double{});
  }
}
