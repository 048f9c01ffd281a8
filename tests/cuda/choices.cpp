// SPDX-License-Identifier: Apache-2.0
// The codes that choose on a device.
#include <cmath>

#include <doctest/doctest.h>

#include "cuda/encoded.hpp"

TEST_CASE_TEMPLATE("choices among a block's numbers are those of the host, bit by bit", Encoding, acco::block_top<16>,
                   acco::block_top<13, 256, 2>, acco::block_top<64, 4096, 2>, acco::block_random<32>,
                   acco::scaled_random<65, 4096>, acco::block_dct_top<16, 256, 4, acco::mean_over::senders>,
                   acco::block_dct2_top<64, 2>) {
  encoded_as_on_the_host<Encoding>();
}

TEST_CASE("choices of a thread block leave what the host's leave to a feedback, in as many thread blocks as are allowed") {
  using code = acco::with_error_feedback<acco::block_top<64, 4096, 2>>;
  using storage = acco::cuda_storage<float>;
  constexpr std::size_t count = 3 * 4096 + 77, bytes = acco::encoded_size<code>(count);
  const code e;
  managed<float> gradients(count), state(count);
  managed<std::byte> codes(bytes);
  managed<unsigned long long> numbers(2);
  managed<bool> wanted(1);
  std::vector<float> expected(count);
  std::vector<std::byte> sent(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    gradients.data[i] = std::sin(static_cast<float>(i * i % 1009));
    state.data[i] = 0;
  }
  numbers.data[0] = numbers.data[1] = 0;
  wanted.data[0] = true;
  const acco::coding::refused bad{numbers.data, numbers.data + 1};
  acco::cuda_queue queue(nullptr, {}, acco::highest_priority, acco::cuda_issue::at_once, 1);
  for (int step = 0; step < 3; ++step) {
    storage::encode_with_feedback(queue, e, static_cast<float const*>(gradients.data), static_cast<float const*>(state.data), 0,
                                  1, count, codes.data, bad, 1);
    storage::keep_feedback(queue, wanted.data, e, static_cast<float const*>(gradients.data), state.data, 1, count,
                           static_cast<std::byte const*>(codes.data), 1);
    queue.wait();
    settle();
    acco::coding::encode_with_feedback(e, static_cast<float const*>(gradients.data), static_cast<float const*>(expected.data()),
                                       1, 0, count, sent.data(), bad);
    acco::coding::keep_feedback(e, static_cast<float const*>(gradients.data), expected.data(), 1, count, sent.data());
    CHECK(std::equal(sent.begin(), sent.end(), codes.data));
    CHECK(std::equal(expected.begin(), expected.end(), state.data));
  }
}
