// SPDX-License-Identifier: Apache-2.0
// The codes that choose on a device.
#include <cmath>
#include <limits>

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

TEST_CASE("tiles of matrices, their edges, and what has none, are those of the host, bit by bit, and so is what is kept") {
  using code =
      acco::in_places<acco::with_feedback<acco::block_dct2_top<24, 8, acco::mean_over::senders>, acco::decoupled_momentum>>;
  using storage = acco::cuda_storage<float>;
  acco::parameter_layout layout;  // rows that begin anywhere, and rows that do not
  layout.add("matrix", {100, 130}).add("vector", {1000}).add("aligned", {70, 128});
  constexpr int ranks = 2;
  const acco::placement placed(layout, ranks, layout.size(), [](std::size_t) { return false; }, true);
  const acco::partition shares = placed.shares(ranks);
  const acco::tiling tiles(layout, shares);
  const std::size_t count = shares[0].share, bytes = ranks * tiles.each * code::block_bytes;
  managed<acco::block_place> table(tiles.blocks.size());
  std::copy(tiles.blocks.begin(), tiles.blocks.end(), table.data);
  code e{{}, {table.data, tiles.each}};
  managed<float> gradients(ranks * count), state(ranks * count), sums(count);
  managed<std::byte> codes(bytes);
  managed<unsigned long long> numbers(4);
  managed<bool> wanted(1);
  std::vector<float> expected(ranks * count), sum(count);
  std::vector<std::byte> sent(bytes);
  for (std::size_t i = 0; i < ranks * count; ++i) {
    gradients.data[i] = std::sin(static_cast<float>(i * i % 1009));
    state.data[i] = 0;
  }
  std::fill_n(sums.data, count, 0.0F);
  for (unsigned k = 0; k < 4; ++k) numbers.data[k] = k % 2 == 0 ? 0 : ~0ULL;
  wanted.data[0] = true;
  const acco::coding::refused bad{numbers.data, numbers.data + 1}, host_bad{numbers.data + 2, numbers.data + 3};
  acco::cuda_queue queue(nullptr, {}, acco::highest_priority, acco::cuda_issue::at_once, 1);
  acco::host_queue here;
  using host = acco::host_storage<float>;
  for (int step = 0; step < 3; ++step) {
    if (step == 2) gradients.data[130 * 64 + 77] = std::numeric_limits<float>::infinity();
    float const *const from = gradients.data, *const kept = state.data;
    storage::encode_with_feedback(queue, e, from, kept, 0, ranks, count, codes.data, bad, 1);
    storage::decode_sum(queue, of_slice(e, 1), static_cast<std::byte const*>(codes.data) + bytes / ranks, 1, sums.data, count,
                        false);
    storage::keep_feedback(queue, wanted.data, e, from, state.data, ranks, count, static_cast<std::byte const*>(codes.data), 1);
    queue.wait();
    settle();
    host::encode_with_feedback(here, e, from, static_cast<float const*>(expected.data()), 0, ranks, count, sent.data(), host_bad,
                               1);
    host::decode_sum(here, of_slice(e, 1), static_cast<std::byte const*>(sent.data()) + bytes / ranks, 1, sum.data(), count,
                     false);
    host::keep_feedback(here, wanted.data, e, from, expected.data(), ranks, count, static_cast<std::byte const*>(sent.data()), 1);
    here.wait();
    CHECK(std::equal(sent.begin(), sent.end(), codes.data));
    CHECK(numbers.data[0] == (step == 2 ? 1 : 0));
    CHECK(numbers.data[0] == numbers.data[2]);
    CHECK(numbers.data[1] == numbers.data[3]);
    if (step == 2) continue;  // not a number is not equal
    CHECK(std::equal(sum.begin(), sum.end(), sums.data));
    CHECK(std::equal(expected.begin(), expected.end(), state.data));
    CHECK(std::any_of(sum.begin(), sum.end(), [](float each) { return each != 0; }));
  }
}

TEST_CASE("of blocks in which nothing lies, between shares and behind the last one, nothing is read") {
  using code = acco::block_int4<>;
  using storage = acco::cuda_storage<float>;
  constexpr std::size_t share = 3 * code::block_size, each = 300, bytes = acco::encoded_size<code>(share);
  const code e;
  managed<acco::trainable_run> runs(3);  // the last of another table
  runs.data[0] = {0, 0, each};
  runs.data[1] = {share, each, each};
  runs.data[2] = {0, 0, 2 * share};
  managed<float> held(2 * share), values(2 * share), out(2 * share);
  managed<std::byte> codes(2 * bytes);
  managed<unsigned long long> numbers(2);
  for (std::size_t i = 0; i < 2 * share; ++i) {
    held.data[i] = std::sin(static_cast<float>(i * i % 1009));
    values.data[i] = i % share < each ? std::cos(static_cast<float>(i)) : 0;
  }
  const acco::trainable_view<float> view{held.data, runs.data, 2, nullptr, true};
  const acco::coding::refused bad{numbers.data, numbers.data + 1};
  acco::cuda_queue queue(nullptr);
  std::vector<std::byte> expected(2 * bytes);
  for (std::size_t k = 0; k < 2; ++k) {
    float const* const from = values.data + k * share;
    storage::encode_difference(queue, e, from, view, k * share, share, codes.data + k * bytes, bad);
    queue.wait();
    acco::coding::encode_difference(e, from, view, k * share, share, expected.data() + k * bytes, bad);
  }
  settle();
  CHECK(std::equal(expected.begin(), expected.end(), codes.data));
  storage::decode_onto(queue, e, static_cast<std::byte const*>(codes.data), view, 0, share, 2 * share, out.data);
  queue.wait();
  settle();
  for (std::size_t i = 0; i < 2 * share; ++i) {
    if (i % share >= each) CHECK(out.data[i] == 0);
  }
}
