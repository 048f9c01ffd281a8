// SPDX-License-Identifier: Apache-2.0
// How kernels pass memory: every value once, 16 bytes an access, the accesses of a warp side by side, wherever arrays
// begin and however few thread blocks there are. Over the stand-in, which writes down who touches what.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/cuda_world.hpp"
#include "support/thorough.hpp"

namespace {

void settle() { acco::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }

/// Device memory whose first element lies `shift` elements behind a multiple of 256 bytes.
template <class T>
struct placed {
  explicit placed(std::size_t count, std::size_t shift = 0) : size(count) {
    static acco::cuda_managed_memory resource;
    buffer = acco::cuda_buffer(&resource, nullptr, (count + shift) * sizeof(T));
    data = buffer.template as<T>() + shift;
    settle();
    for (std::size_t i = 0; i < count; ++i) data[i] = T(std::sin(static_cast<float>(i)) * 3e-3F);
  }
  acco::cuda_buffer buffer;
  std::size_t size;
  T* data;
};

/// An array, and how often each of its bytes is to be read and written.
struct traffic {
  template <class T>
  traffic(T const* array, std::size_t count, unsigned r, unsigned w, unsigned extra = 0)
      : begin(reinterpret_cast<std::uintptr_t>(array)), bytes(count * sizeof(T)), reads(r), writes(w), again(extra) {}
  std::uintptr_t begin;
  std::size_t bytes;
  unsigned reads, writes;
  unsigned again;  // how often more some bytes may be read: at the seams of what begins elsewhere
};

/// What `work(queue)` does to the arrays, with at most `narrow` bytes in accesses of fewer than 16 bytes, `extra` read
/// again.
void check(std::vector<traffic> const& arrays, std::size_t narrow, std::size_t extra, unsigned ctas,
           std::function<void(acco::cuda_queue&)> const& work) {
  acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::at_once, ctas);
  emulated::launches().clear();
  emulated::touches::all().listen();
  work(queue);
  queue.wait();
  settle();
  const std::vector<emulated::touch> heard = emulated::touches::all().heard();
  if (ctas != 0) CHECK(emulated::launches().widest <= ctas);
  std::size_t wrong = 0, foreign = 0, few = 0, again = 0, scattered = 0;
  for (traffic const& each : arrays) {
    std::vector<unsigned> reads(each.bytes), writes(each.bytes);
    for (emulated::touch const& t : heard) {
      if (t.address < each.begin || t.address >= each.begin + each.bytes) continue;
      for (std::size_t k = 0; k < t.bytes; ++k) ++(t.writes ? writes : reads)[t.address - each.begin + k];
      few += t.bytes < 16 ? t.bytes : 0;
    }
    for (std::size_t k = 0; k < each.bytes; ++k) {
      wrong += writes[k] != each.writes || reads[k] < each.reads || reads[k] > each.reads + each.again ? 1U : 0U;
      again += reads[k] - std::min(reads[k], each.reads);
    }
  }
  std::map<std::tuple<unsigned, unsigned, unsigned, unsigned, bool>, std::vector<std::uintptr_t>> together;
  for (emulated::touch const& t : heard) {
    const bool known = std::any_of(arrays.begin(), arrays.end(), [&](traffic const& each) {
      return t.address >= each.begin && t.address + t.bytes <= each.begin + each.bytes;
    });
    foreign += known ? 0U : 1U;
    if (t.bytes == 16) together[{t.block, t.thread / 32, t.site, t.turn, t.writes}].push_back(t.address);
  }
  for (auto& [who, all] : together) {  // one stretch of 512 bytes, or two of 256; the seams of the two
    std::sort(all.begin(), all.end());
    if (all.size() <= 2) continue;
    std::size_t gaps = 0;
    for (std::size_t k = 1; k < all.size(); ++k) gaps += all[k] == all[k - 1] + 16 || k == 16 ? 0U : 1U;
    scattered += gaps != 0 || all.size() != 32 ? 1U : 0U;
  }
  CHECK(!heard.empty());
  CHECK(wrong == 0);
  CHECK(foreign == 0);
  CHECK(again <= extra);
  CHECK(few <= narrow);
  CHECK(scattered == 0);
}

/// Elements that no tile covers, of a stretch: seven in front, 255 behind.
constexpr std::size_t ends = 7 + 255;

template <class Test>
void everywhere(Test&& test) {
  for (const std::size_t shift : {0U, 1U, 3U, 8U}) {
    for (const unsigned ctas : {0U, 1U, 3U}) {
      // each shift with one number of thread blocks, each of these once or twice
      if (!thorough() && ctas != shift % 8) continue;
      INFO("shifted by ", shift, ", at most ", ctas, " thread blocks");
      test(shift, ctas);
    }
  }
}

template <class F>
void for_types(F&& f) {
  f(float{});
  f(acco::bfloat16{});
  f(acco::half{});
}

acco::trainable_run const* one_run(placed<acco::trainable_run>& room, std::size_t offset, std::size_t count) {
  room.data[0] = {0, offset, count};
  return room.data;
}

}  // namespace

template <>
placed<acco::update_block>::placed(std::size_t count, std::size_t) : size(count) {
  static acco::cuda_managed_memory resource;
  buffer = acco::cuda_buffer(&resource, nullptr, count * sizeof(acco::update_block));
  data = buffer.as<acco::update_block>();
  settle();
}
template <>
placed<acco::trainable_run>::placed(std::size_t count, std::size_t) : size(count) {
  static acco::cuda_managed_memory resource;
  buffer = acco::cuda_buffer(&resource, nullptr, count * sizeof(acco::trainable_run));
  data = buffer.as<acco::trainable_run>();
  settle();
}

TEST_CASE("conversions and averages pass every value once") {
  constexpr std::size_t n = 5003;
  everywhere([&](std::size_t shift, unsigned ctas) {
    const auto between = [&]<class From, class To>(From, To) {
      if constexpr (!std::is_same_v<From, To>) {
        placed<From> from(n, shift);
        placed<To> to(n, shift);
        const std::size_t narrow = ends * (sizeof(From) + sizeof(To));
        check({{from.data, n, 1, 0}, {to.data, n, 0, 1}}, narrow, 0, ctas,
              [&](auto& q) { acco::cuda_storage<float>::convert(q, static_cast<From const*>(from.data), to.data, n); });
        check({{from.data, n, 1, 0}, {to.data, n, 1, 1}}, narrow + ends * sizeof(To), 0, ctas,
              [&](auto& q) { acco::cuda_storage<float>::add(q, static_cast<From const*>(from.data), to.data, n); });
      }
    };
    for_types([&](auto from) { for_types([&](auto to) { between(from, to); }); });
    placed<float> from(n, shift), to(n, shift);
    placed<bool> wanted(1);
    *wanted.data = true;
    check({{from.data, n, 1, 0}, {to.data, n, 1, 1}}, ends * 12, 0, ctas, [&](auto& q) {
      acco::cuda_storage<float>::average(q, wanted.data, static_cast<float const*>(from.data), to.data, n, 0.9);
    });
  });
}

TEST_CASE("sums over ranks that share a GPU read every rank's values once") {
  constexpr std::size_t n = 5003;
  everywhere([&](std::size_t shift, unsigned ctas) {
    for_types([&]<class T>(T) {
      placed<T> one(2 * n, shift), other(2 * n, shift);
      placed<float> to(n, shift);
      std::vector<float> expected(n);
      for (std::size_t i = 0; i < n; ++i)
        expected[i] = to.data[i] + (static_cast<float>(one.data[i]) + static_cast<float>(other.data[i]));
      acco::threads_cuda::sources all{};
      all[0] = one.data;
      all[1] = other.data;
      check({{one.data, n, 1, 0}, {other.data, n, 1, 0}, {to.data, n, 1, 1}}, ends * (2 * sizeof(T) + 8), 0, ctas, [&](auto& q) {
        q.issue([&](cudaStream_t stream) {
          acco::threads_cuda::sum<T, float, true>({stream, q.max_ctas}, 2, all, 0, std::span<float>(to.data, n));
        });
      });
      CHECK(std::equal(expected.begin(), expected.end(), to.data));
    });
  });
}

TEST_CASE("squares of regions, more than there are thread blocks: each is the sum of its blocks") {
  constexpr std::size_t blocks = 3000, regions = 7;
  placed<double> squares(blocks), sums(regions);
  placed<acco::update_block> table(blocks);
  for (const unsigned ctas : {0U, 1U, 2U, 3U}) {
    for (int run = 0; run < 5; ++run) {
      std::vector<double> expected(regions);
      for (std::size_t k = 0; k < blocks; ++k) {
        squares.data[k] = static_cast<double>((k * 7 + static_cast<std::size_t>(run)) % 11);  // sums are exact
        table.data[k] = {k, 1, static_cast<std::uint32_t>(k * k % regions)};
        expected[k * k % regions] += squares.data[k];
      }
      acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::at_once, ctas);
      acco::cuda_storage<float>::run(queue, acco::add_region_squares{sums.data, regions, squares.data, table.data, blocks});
      queue.wait();
      CHECK(std::equal(expected.begin(), expected.end(), sums.data));
    }
  }
}

TEST_CASE("squares, what is not finite, and what is cleared: every value once") {
  constexpr std::size_t n = 9001;
  everywhere([&](std::size_t shift, unsigned ctas) {
    for_types([&]<class T>(T) {
      placed<T> from(n, shift);
      placed<float> to(n, shift);
      placed<double> result(1);
      placed<bool> wanted(1);
      placed<unsigned long long> found(2);
      *wanted.data = true;
      found.data[0] = 0;
      found.data[1] = ~0ULL;
      const std::size_t cut = 3 * ends;  // of 4096 elements each
      using storage = acco::cuda_storage<T>;
      for (const bool adds : {false, true}) {
        std::vector<float> expected(n);
        double squares = 0;
        for (std::size_t i = 0; i < n; ++i) {
          expected[i] = static_cast<float>(from.data[i]) + (adds ? to.data[i] : 0);
          squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
        }
        check({{from.data, n, 1, 0}, {to.data, n, adds ? 1U : 0U, 1}}, cut * (sizeof(T) + 8), 0, ctas,
              [&](auto& q) { storage::take_sums(q, from.data, to.data, n, adds, result.data); });
        CHECK(*result.data == doctest::Approx(squares).epsilon(1e-12));
        CHECK(std::equal(expected.begin(), expected.end(), to.data));
      }
      check({{to.data, n, 1, 0}}, cut * 4, 0, ctas,
            [&](auto& q) { storage::sum_of_squares(q, acco::sharded<float const>({to.data, n}), result.data); });
      from.data[5000] = T(std::numeric_limits<float>::infinity());
      from.data[4999] = T(std::numeric_limits<float>::quiet_NaN());
      check({{from.data, n, 1, 0}}, ends * sizeof(T), 0, ctas, [&](auto& q) {
        storage::find_non_finite(q, wanted.data, static_cast<T const*>(from.data), n, found.data, found.data + 1);
      });
      CHECK(found.data[0] == 2);
      CHECK(found.data[1] == 4999);
      check({{from.data, n, 0, 1}}, ends * sizeof(T), 0, ctas, [&](auto& q) { storage::clear_if(q, wanted.data, from.data, n); });
      CHECK(std::all_of(from.data, from.data + n, [](T x) { return static_cast<float>(x) == 0; }));
    });
  });
}

TEST_CASE("the update passes masters, slots, gradients and results once, whatever the groups") {
  constexpr std::size_t n = 9001;
  everywhere([&](std::size_t shift, unsigned ctas) {
    for_types([&]<class P>(P) {
      placed<float> master(n, shift), first(n, shift), second(n, shift), gradient(n, shift);
      placed<P> out(n, shift);
      acco::cuda_numbers<acco::rule_constants<acco::adamw>> constants(acco::cuda_storage<float>{}, 2);
      acco::cuda_numbers<acco::region_update> decided(acco::cuda_storage<float>{}, 2);
      acco::cuda_numbers<acco::update_block> blocks(acco::cuda_storage<float>{}, 5);
      const std::size_t cuts[] = {0, 3000, 3001, 4096, 8192, n};
      for (std::uint32_t k = 0; k < 5; ++k) blocks[k] = {cuts[k], static_cast<std::uint32_t>(cuts[k + 1] - cuts[k]), k % 2};
      for (std::size_t r = 0; r < 2; ++r) {
        constants[r] = acco::adamw{}.prepare({.count = 10}, {});
        decided[r] = {1.0, true};
      }
      acco::cuda_queue queue(nullptr);
      constants.upload(queue);
      decided.upload(queue);
      blocks.upload(queue);
      queue.wait();
      const acco::update_table<acco::adamw, float, float> table{master.data,       {first.data, second.data}, gradient.data,
                                                                constants.there(), constants.there(),         decided.there(),
                                                                blocks.there()};
      const auto with = [&]<acco::update kind>(std::integral_constant<acco::update, kind>) {
        const unsigned writes = kind == acco::update::predict ? 0 : 1;
        const std::size_t narrow = 5 * ends * (28 + sizeof(P));
        check({{master.data, n, 1, writes},
               {first.data, n, 1, writes},
               {second.data, n, 1, writes},
               {gradient.data, n, 1, 0},
               {out.data, n, 0, 1}},
              narrow, 0, ctas,
              [&](auto& q) { acco::cuda_storage<P>::template apply<acco::adamw, kind>(q, &table, 0, 5, out.data); });
      };
      with(std::integral_constant<acco::update, acco::update::predict>());
      with(std::integral_constant<acco::update, acco::update::commit>());
      with(std::integral_constant<acco::update, acco::update::commit_and_predict>());
    });
  });
}

TEST_CASE_TEMPLATE("encoding and decoding pass every number and every code once", Encoding, acco::block_int4<>,
                   acco::block_int8<1024>, acco::bfloat16_wire) {
  const Encoding e;
  constexpr std::size_t block = Encoding::block_size, n = 9 * block + 19, slices = 2, bytes = acco::encoded_size<Encoding>(n);
  everywhere([&](std::size_t shift, unsigned ctas) {
    const auto with = [&]<class T>(T) {
      using storage = acco::cuda_storage<T>;
      using sum = typename storage::sum_type;
      placed<T> values(slices * n, shift), held(slices * n + 5, shift), out(slices * n);
      placed<sum> sums(n);
      placed<std::byte> encoded(slices * bytes + 16);
      placed<unsigned long long> found(2);
      placed<acco::trainable_run> runs(1);
      const acco::coding::refused bad{found.data, found.data + 1};
      found.data[0] = 0;
      const std::size_t codes = slices * bytes;
      const std::size_t seams = slices * (n / 128 + 1) * 2 * 16;  // an access more a stretch
      // what a stretch's edges and the last block of a slice need: one block in eleven here, and its neighbours where
      // arrays begin elsewhere
      const std::size_t odd = slices * 3 * block * sizeof(T);
      check({{values.data, slices * n, 1, 0, 1}, {encoded.data, codes, 0, 1}}, codes + odd, seams, ctas,
            [&](auto& q) { storage::encode_now(q, e, static_cast<T const*>(values.data), 0, slices, n, encoded.data, bad); });
      CHECK(found.data[0] == 0);
      const acco::trainable_view<T> view{held.data, one_run(runs, 5, slices * n), 1};  // begins at an odd element
      check(
          {{values.data, n, 1, 0, 1}, {held.data + 5, n, 1, 0, 1}, {encoded.data, bytes, 0, 1}}, bytes + 2 * odd, 2 * seams, ctas,
          [&](auto& q) { storage::encode_difference(q, e, static_cast<T const*>(values.data), view, 0, n, encoded.data, bad); });
      acco::cuda_queue queue(nullptr);
      storage::encode_now(queue, e, static_cast<T const*>(values.data), 0, slices, n, encoded.data, bad);
      settle();
      constexpr unsigned twice = 31;  // the scale is read by all lanes
      check({{encoded.data, codes, 1, 0, twice}, {sums.data, n, 0, 1}}, codes * 32 + 2 * block * sizeof(sum), codes * 32, ctas,
            [&](auto& q) { storage::decode_sum(q, e, encoded.data, slices, sums.data, n, false); });
      check({{encoded.data, codes, 1, 0, twice}, {held.data + 5, slices * n, 1, 0, 1}, {out.data, slices * n, 0, 1}},
            codes * 32 + 2 * slices * 3 * block * sizeof(T), codes * 32 + seams, ctas,
            [&](auto& q) { storage::decode_onto(q, e, encoded.data, view, 0, n, slices * n, out.data); });
    };
    with(float{});
    with(acco::bfloat16{});
  });
}

TEST_CASE_TEMPLATE("feedback sends and keeps what the host's does", Feedback, acco::error_feedback, acco::decoupled_momentum,
                   acco::ef21) {
  using code = acco::with_feedback<acco::block_int4<>, Feedback>;
  constexpr std::size_t n = 3 * code::block_size + 19, slices = 2, bytes = acco::encoded_size<code>(n);
  const code e;
  const auto with = [&]<class T, class State>(T, State) {
    placed<T> gradients(slices * n);
    placed<State> state(slices * n);
    placed<std::byte> codes(slices * bytes + 16);
    placed<unsigned long long> found(2);
    placed<bool> wanted(1);
    std::vector<State> expected(slices * n);
    std::vector<std::byte> sent(slices * bytes);
    for (std::size_t i = 0; i < slices * n; ++i) {
      gradients.data[i] = T(static_cast<float>(i * 37 % 101) - 50);
      state.data[i] = expected[i] = State(static_cast<float>(i * 13 % 29) / 16);
    }
    const acco::coding::refused bad{found.data, found.data + 1};
    acco::cuda_queue queue(nullptr);
    using storage = acco::cuda_storage<T>;
    for (const bool counts : {false, true, true}) {
      *wanted.data = counts;
      storage::encode_with_feedback(queue, e, static_cast<T const*>(gradients.data), static_cast<State const*>(state.data), 0,
                                    slices, n, codes.data, bad, 0.5);
      storage::keep_feedback(queue, wanted.data, e, static_cast<T const*>(gradients.data), state.data, slices, n,
                             static_cast<std::byte const*>(codes.data), 0.5);
      queue.wait();
      settle();
      for (std::size_t k = 0; k < slices; ++k) {
        acco::coding::encode_with_feedback(e, gradients.data + k * n, static_cast<State const*>(expected.data() + k * n), 0.5, 0,
                                           n, sent.data() + k * bytes, bad);
        if (counts)
          acco::coding::keep_feedback(e, gradients.data + k * n, expected.data() + k * n, 0.5, n, sent.data() + k * bytes);
      }
      CHECK(std::memcmp(codes.data, sent.data(), sent.size()) == 0);
      CHECK(std::memcmp(state.data, expected.data(), expected.size() * sizeof(State)) == 0);
    }
    CHECK(found.data[0] == 0);
  };
  with(float{}, float{});
  with(acco::bfloat16{}, acco::bfloat16{});
  if constexpr (std::is_same_v<Feedback, acco::error_feedback>) {  // another store is read and written alike for all
    with(float{}, acco::bfloat16{});
    with(acco::bfloat16{}, float{});
  }
}

TEST_CASE("a feedback that is kept in int8_blocks has the host's bytes, and they are digested and cleared") {
  using code = acco::with_error_feedback<acco::block_int4<>, acco::int8_blocks>;
  constexpr std::size_t n = 3 * code::block_size + 64, slices = 2, bytes = acco::encoded_size<code>(n), all = slices * n;
  const code e;
  placed<float> gradients(all);
  placed<std::int8_t> there(acco::int8_blocks::bytes_of(all)), here(there.size);
  placed<std::byte> codes(slices * bytes + 16);
  placed<unsigned long long> found(3);
  placed<bool> wanted(1);
  std::vector<std::byte> sent(slices * bytes);
  const auto place_in = [](placed<std::int8_t>& in) {
    std::fill_n(in.data, in.size, std::int8_t{});
    return acco::int8_place{in.data, reinterpret_cast<std::uint8_t*>(in.data + all), 0};
  };
  const acco::int8_place state = place_in(there), expected = place_in(here);
  const acco::coding::refused bad{found.data, found.data + 1};
  acco::cuda_queue queue(nullptr);
  using storage = acco::cuda_storage<float>;
  const acco::digest_key key{5, 2};
  const std::vector<acco::digest_range<acco::int8_blocks>> pieces{{state + 70, all - 99, key, 0}};
  const auto same = [&] {
    CHECK(std::memcmp(there.data, here.data, here.size) == 0);
    CHECK(found.data[2] == acco::digest_of(expected + 70, all - 99, key));
  };
  found.data[0] = 0;
  for (std::size_t round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < all; ++i)
      gradients.data[i] = i / 64 % 5 == 3 ? 0 : std::sin(static_cast<float>(i * 37 + round)) * (i % 64 == 9 ? 90.0F : 1.0F);
    *wanted.data = round != 1;
    storage::encode_with_feedback(queue, e, static_cast<float const*>(gradients.data), state, 0, slices, n, codes.data, bad, 1);
    storage::keep_feedback(queue, wanted.data, e, static_cast<float const*>(gradients.data), state, slices, n,
                           static_cast<std::byte const*>(codes.data), 1);
    storage::digest(queue, std::span(pieces), found.data + 2, 1);
    queue.wait();
    settle();
    for (std::size_t k = 0; k < slices; ++k) {
      acco::coding::encode_with_feedback(e, gradients.data + k * n, expected + k * n, 1, 0, n, sent.data() + k * bytes, bad);
      if (round != 1) acco::coding::keep_feedback(e, gradients.data + k * n, expected + k * n, 1, n, sent.data() + k * bytes);
    }
    CHECK(std::memcmp(codes.data, sent.data(), sent.size()) == 0);
    same();
  }
  CHECK(found.data[0] == 0);
  *wanted.data = true;
  storage::clear_if(queue, wanted.data, state + 3, 100);
  storage::digest(queue, std::span(pieces), found.data + 2, 1);
  queue.wait();
  settle();
  std::fill_n((expected + 3).codes, 100, std::int8_t{});
  same();
}

TEST_CASE("a training loads every kernel before its first round, and keeps to its thread blocks") {
  const auto train = [](int ctas) {
    std::vector<float> out(20'011);
    acco::threads_backend::run(2, [&](auto world) {
      acco::options chosen{.clip_norm = 1, .average_decay = 0.9};
      chosen.on_non_finite = acco::non_finite::skip;
      acco::cuda_storage<float> memory{.max_ctas = ctas, .warn = nullptr};
      const acco::two_phase schedule{.estimate = acco::block_int4{},
                                     .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}};
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, memory, world, out.size(), chosen};
      training.initialize(std::vector<float>(out.size(), 1.0F));
      for (int m = 0; m < 6; ++m) {
        emulated::of(nullptr).enqueue([p = training.parameters(), g = training.gradients()] {
          for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - static_cast<float>(i % 3);
        });
        training.accumulated(1);
      }
      training.finish();
      std::vector<float> mine(out.size());
      training.gather_committed(mine);
      if (world.rank() == 0) out = mine;
    });
    return out;
  };
  emulated::launches().clear();
  const std::vector<float> free = train(0);
  CHECK(emulated::launches().widest > 3);
  CHECK(emulated::launches().launches > 100);
  CHECK(emulated::launches().not_loaded == 0);
  emulated::launches().clear();
  CHECK(train(2) == free);
  CHECK(emulated::launches().widest == 2);
}

TEST_CASE("streams may run as late as events allow: nothing changes") {
  const auto train = [](auto schedule) {
    std::vector<std::uint64_t> digests(3);
    acco::threads_backend::run(3, [&](auto world) {
      acco::optimizer training{schedule,
                               acco::adamw{.learning_rate = 0.01},
                               acco::cuda_storage<float>{.warn = nullptr},
                               world,
                               4001,
                               acco::options{.clip_norm = 1, .bucket_elements = 1000}};
      training.initialize(std::vector<float>(4001, 1.0F));
      for (int m = 0; m < 7; ++m) {
        emulated::of(nullptr).enqueue([p = training.parameters(), g = training.gradients(), rank = world.rank()] {
          for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - static_cast<float>((i + static_cast<std::size_t>(rank)) % 3);
        });
        training.accumulated(1);
      }
      training.finish();
      digests[static_cast<std::size_t>(world.rank())] = training.state_digest();
    });
    return digests;
  };
  const auto over_seeds = [&](auto schedule) {
    const auto usual = train(schedule);
    const unsigned seeds = thorough() ? 12 : 2;
    for (unsigned seed = 1; seed <= seeds; ++seed) {
      emulated::weather() = seed;
      CHECK_MESSAGE(train(schedule) == usual, seed);
    }
    emulated::weather() = 0;
  };
  over_seeds(acco::two_phase{.pace = acco::fixed_pace{1}});
  over_seeds(acco::delayed{});
  over_seeds(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}});
}

namespace {

/// What the stand-in says when it ends a program that does this in a kernel of 32 threads.
std::string last_words(void (*kernel)()) {
  int ends_of_pipe[2];
  REQUIRE(pipe(ends_of_pipe) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends_of_pipe[1], 2);
    signal(SIGABRT, SIG_DFL);
    emulated::block_runner::mine().run(
        1, 32, [](void const* which) { reinterpret_cast<void (*)()>(const_cast<void*>(which))(); },
        reinterpret_cast<void const*>(kernel));
    _exit(0);
  }
  close(ends_of_pipe[1]);
  std::string words;
  char room[256];
  for (ssize_t n = 0; (n = read(ends_of_pipe[0], room, sizeof room)) > 0;) words.append(room, static_cast<std::size_t>(n));
  close(ends_of_pipe[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return words;
}
float memory_of_four[8];

}  // namespace

TEST_CASE("the stand-in ends what a GPU would hang at, or answer with garbage") {
  const auto says = [](void (*kernel)(), char const* words) {
    const std::string said = last_words(kernel);
    CHECK_MESSAGE(said.find(words) != std::string::npos, said);
  };
  CHECK(last_words([] { __shfl_sync(~0U, 1, 0); }).empty());
  says([] { threadIdx.x % 2 != 0 ? (void)__shfl_sync(~0U, 1, 0) : (void)__ballot_sync(~0U, 1); }, "different operations");
  says(
      [] {
        if (threadIdx.x != 3) __shfl_sync(~0U, 1, 0);
      },
      "stand-in: block 0");
  says(
      [] {
        if (threadIdx.x == 31) __shfl_sync(1U, 1, 0);
      },
      "a mask without the lane that calls");
  says(
      [] {
        if (threadIdx.x < 16) __shfl_sync(0xffffU, 1, 20);
      },
      "a shuffle from a lane that brings nothing");
  says(
      [] {
        if (threadIdx.x < 16) __syncthreads();
      },
      "stand-in: block 0");
  says([] { (void)acco::cuda_kernels::load<2>(memory_of_four + 1); }, "no multiple of its size");
}
