// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include <acco/code/block_dct_top.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

namespace {

using numbers = std::vector<float>;

/// As it is defined, in n^2 operations: of 64 numbers, `apart` from each other.
void define(double* x, std::size_t apart) {
  static const std::vector<double> cosines = [] {
    std::vector<double> made(256);
    for (std::size_t j = 0; j < 256; ++j)
      made[j] = static_cast<double>(std::cos(static_cast<long double>(j) * std::numbers::pi_v<long double> / 128));
    return made;
  }();
  double result[64] = {};
  for (std::size_t k = 0; k < 64; ++k) {
    for (std::size_t i = 0; i < 64; ++i) result[k] += x[i * apart] * cosines[(2 * i + 1) * k % 256];
  }
  for (std::size_t k = 0; k < 64; ++k) x[k * apart] = result[k] * std::sqrt((k == 0 ? 1.0 : 2.0) / 64);
}
/// The coefficients of a block in the order of its code.
template <class Encoding>
std::vector<double> defined(numbers const& values) {
  constexpr std::size_t n = Encoding::block_size, chunks = n / 64;
  constexpr bool tile = Encoding::transform::share < 0.01F;
  std::vector<double> x(values.begin(), values.end()), ordered(n);
  for (std::size_t c = 0; c < chunks; ++c) define(x.data() + 64 * c, 1);
  if constexpr (tile) {
    for (std::size_t c = 0; c < 64; ++c) define(x.data() + c, 64);
  }
  for (std::size_t c = 0; c < chunks; ++c) {
    for (std::size_t k = 0; k < 64; ++k) ordered[k * chunks + c] = x[64 * c + k];
  }
  return ordered;
}
template <class X>
double norm(X const& x) {
  double sum = 0;
  for (auto const each : x) sum += static_cast<double>(each) * static_cast<double>(each);
  return std::sqrt(sum);
}
template <class X, class Y>
double distance(X const& x, Y const& y) {
  std::vector<double> off(x.begin(), x.end());
  for (std::size_t i = 0; i < off.size(); ++i) off[i] -= static_cast<double>(y[i]);
  return norm(off);
}
numbers drawn(std::size_t count, std::size_t block) {
  static const numbers all = gaussian_numbers(4096 * 8);
  return {all.begin() + static_cast<std::ptrdiff_t>(count * block),
          all.begin() + static_cast<std::ptrdiff_t>(count * (block + 1))};
}
/// A walk: neighbours are alike.
numbers smooth(std::size_t count) {
  numbers values = drawn(count, 0);
  std::partial_sum(values.begin(), values.end(), values.begin());
  return values;
}
template <class Encoding>
numbers there_and_back(numbers const& values) {
  numbers decoded(values.size());
  std::byte bytes[Encoding::block_bytes];
  Encoding::encode(values.data(), bytes);
  Encoding::decode(bytes, decoded.data());
  return decoded;
}
std::uint64_t digest(numbers const& all, std::uint64_t from) {
  for (float const each : all) from = from * 6364136223846793005ULL + std::bit_cast<std::uint32_t>(each);
  return from;
}

}  // namespace

TEST_CASE_TEMPLATE("the largest coefficients conform", Encoding, acco::block_dct_top<16>, acco::block_dct_top<256>,
                   acco::block_dct2_top<64, 2>, acco::block_dct_top<16, 256, 8, acco::mean_over::senders>) {
  constexpr double share = static_cast<double>(Encoding::kept) / static_cast<double>(Encoding::block_size);
  conformance::encoding_suite(Encoding{}, 2.0, share == 1 ? 0.02 : 1 - share);
}

TEST_CASE("the transform of the identity of order 4 has the rows that are known") {
  alignas(64) float x[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, room[16];
  acco::dct<acco::dct_on_host<4>, 4>().turn<4>(x, room);
  const double a = 0.6532814824381883, b = 0.27059805007309850;
  const double known[4][4] = {{0.5, a, 0.5, b}, {0.5, b, -0.5, -a}, {0.5, -b, -0.5, a}, {0.5, -a, 0.5, -b}};
  for (std::size_t row = 0; row < 4; ++row) {  // a column here is a row of the identity
    for (std::size_t k = 0; k < 4; ++k) CHECK(std::abs(static_cast<double>(x[4 * k + row]) - known[row][k]) < 1e-7);
  }
}

TEST_CASE_TEMPLATE("the transform is the DCT-II to 1e-6, keeps the energy, and comes back", Encoding, acco::block_dct_top<16>,
                   acco::block_dct_top<64, 4096>, acco::block_dct2_top<64>) {
  using transform = typename Encoding::transform;
  constexpr std::size_t n = Encoding::block_size;
  std::vector<numbers> some{numbers(n, 1.0F), smooth(n), drawn(n, 1), drawn(n, 2)};
  for (std::size_t i : {std::size_t{0}, std::size_t{31}, n / 2, n - 1}) {
    some.emplace_back(n, 0.0F);
    some.back()[i] = 1;
  }
  for (auto const& values : some) {
    alignas(64) float x[n], room[n];
    std::copy_n(values.data(), n, x);
    float* const turned = transform::turn(x, room);
    const numbers coefficients(turned, turned + n);
    CHECK(distance(coefficients, defined<Encoding>(values)) < 1e-6 * norm(values));
    CHECK(std::abs(norm(coefficients) / norm(values) - 1) < 1e-6);
    std::copy_n(coefficients.data(), n, x);
    float const* const back = transform::turn_back(x, room);
    CHECK(distance(values, numbers(back, back + n)) < 1e-6 * norm(values));
  }
}

TEST_CASE_TEMPLATE("the largest coefficients arrive; of smooth numbers they are more than the largest numbers", Encoding,
                   acco::block_dct_top<8>, acco::block_dct_top<32>, acco::block_dct_top<64, 4096>, acco::block_dct2_top<64>) {
  constexpr std::size_t n = Encoding::block_size;
  using chosen = typename Encoding::chosen;
  for (const std::size_t block : {0U, 1U, 2U}) {
    const numbers values = drawn(n, block);
    const std::vector<double> exact = defined<Encoding>(values);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return std::abs(exact[a]) > std::abs(exact[b]); });
    double rest = 0;
    for (std::size_t k = Encoding::kept; k < n; ++k) rest += exact[order[k]] * exact[order[k]];
    std::byte bytes[Encoding::block_bytes];
    Encoding::encode(values.data(), bytes);
    std::vector<std::size_t> where(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(Encoding::kept)), arrived;
    std::sort(where.begin(), where.end());
    chosen::each_kept(bytes, [&](std::size_t place, float) { arrived.push_back(place); });
    CHECK(arrived == where);
    const double lost = std::pow(distance(there_and_back<Encoding>(values), values), 2);
    CHECK(std::abs(lost - rest) <= std::pow(exact[order[0]] / 252, 2) * static_cast<double>(Encoding::kept) + 1e-6 * rest);
  }
  const numbers walk = smooth(n);
  CHECK(distance(there_and_back<Encoding>(walk), walk) < 0.5 * distance(there_and_back<chosen>(walk), walk));
}

TEST_CASE("a tile that changes slowly in both directions arrives by fewer coefficients of both than of one") {
  numbers values(4096);
  for (std::size_t i = 0; i < 4096; ++i) {
    const double x = static_cast<double>(i % 64) / 64, y = static_cast<double>(i / 64) / 64;
    values[i] = static_cast<float>(std::sin(3 * x + y) * std::cos(2 * y) + x * y);
  }
  const auto lost = [&]<class E>(E) { return distance(there_and_back<E>(values), values) / norm(values); };
  CHECK(lost(acco::block_dct2_top<64>{}) < 0.02);
  CHECK(lost(acco::block_dct_top<64, 4096>{}) > 0.1);
}

TEST_CASE_TEMPLATE("very small and very large numbers: never what is not finite", Encoding, acco::block_dct_top<16>,
                   acco::block_dct2_top<16, 2>) {
  constexpr std::size_t n = Encoding::block_size;
  constexpr float largest = std::numeric_limits<float>::max();
  const numbers random = drawn(n, 0);
  for (const int pattern : {0, 1, 2, 3}) {
    numbers values(n);
    for (std::size_t i = 0; i < n; ++i) {
      const bool minus = pattern == 1 ? i >= n / 2 : pattern == 2 ? i % 2 == 1 : pattern == 3 && random[i] < 0;
      values[i] = minus ? -largest : largest;
    }
    const numbers decoded = there_and_back<Encoding>(values);
    CHECK(std::all_of(decoded.begin(), decoded.end(), [](float each) { return std::abs(each) <= largest; }));
    if (pattern == 0) CHECK(static_cast<double>(decoded[100]) > 0.96 * static_cast<double>(largest));
    if (pattern == 1) CHECK(decoded[20] > 0);
  }
  for (const float magnitude : {1e-33F, 4e-29F, 1e-20F}) {
    const numbers decoded = there_and_back<Encoding>(numbers(n, magnitude));
    const double arrived = static_cast<double>(decoded[7]) / static_cast<double>(magnitude);
    CHECK(std::abs(arrived - (magnitude < 1e-30F ? 0 : 1)) <= 0.04);
  }
}

TEST_CASE("the same bits of every compiler and processor, whether it fuses products with sums or not") {
  const auto of = []<class Encoding>(Encoding) {
    std::uint64_t all = 0;
    for (std::size_t block = 0; block < 6; ++block) {
      numbers values(Encoding::block_size);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(2 * problem::unit(values.size() * block + i) - 1);
      all = digest(there_and_back<Encoding>(values), all);
    }
    return all;
  };
  CHECK(of(acco::block_dct_top<100>{}) == 10997882511178926559ULL);
  CHECK(of(acco::block_dct2_top<512>{}) == 11129533053289543060ULL);
}

TEST_CASE_TEMPLATE("codes are added as coefficients: over all, or as if all had sent the mean of the senders", Encoding,
                   acco::block_dct_top<8>, acco::block_dct2_top<8, 2>) {
  constexpr std::size_t n = Encoding::block_size, bytes = Encoding::block_bytes;
  constexpr int ranks = 4;
  constexpr bool tile = !std::is_same_v<Encoding, acco::block_dct_top<8>>;
  using over_senders = std::conditional_t<tile, acco::block_dct2_top<8, 2, acco::mean_over::senders>,
                                          acco::block_dct_top<8, 256, 8, acco::mean_over::senders>>;
  std::vector<std::byte> codes(ranks * bytes);
  const auto source = [&](int k) { return static_cast<std::byte const*>(codes.data()) + static_cast<std::size_t>(k) * bytes; };
  std::vector<double> plain(n), of_senders(n);
  std::vector<int> senders(n);
  numbers decoded(n), sum(n);
  for (int k = 0; k < ranks; ++k) {
    numbers values = drawn(n, static_cast<std::size_t>(k));
    for (float& each : values) each = k == 2 ? 0.0F : each + 2;  // one has nothing; the others share a coefficient
    Encoding::encode(values.data(), codes.data() + static_cast<std::size_t>(k) * bytes);
    Encoding::decode(source(k), decoded.data());
    for (std::size_t i = 0; i < n; ++i) plain[i] += static_cast<double>(decoded[i]);
    Encoding::chosen::each_kept(source(k), [&](std::size_t place, float value) {
      of_senders[place] += static_cast<double>(value / Encoding::transform::share);
      ++senders[place];
    });
  }
  CHECK(*std::max_element(senders.begin(), senders.end()) == 3);
  for (std::size_t i = 0; i < n; ++i) of_senders[i] *= senders[i] == 0 ? 1.0 : static_cast<double>(ranks) / senders[i];
  Encoding::decode_sum(ranks, source, sum.data());
  CHECK(distance(sum, plain) < 1e-6 * norm(plain));
  over_senders::decode_sum(ranks, source, sum.data());
  CHECK(distance(defined<Encoding>(sum), of_senders) < 1e-6 * norm(of_senders));
  CHECK(distance(sum, plain) > 0.1 * norm(plain));  // the two do differ
  // of arrays, as storages have them; of one alone what it is decoded to
  numbers of_array(n);
  acco::coding::decode_sum(over_senders{}, ranks, source, of_array.data(), n, false);
  CHECK(of_array == sum);
  over_senders::decode_sum(1, source, sum.data());
  Encoding::decode(source(0), decoded.data());
  CHECK(sum == decoded);
}

TEST_CASE("a sum of codes is not finite where one of them is not, and may leave the range of floats") {
  using code = acco::block_dct_top<8>;
  constexpr std::size_t n = code::block_size;
  std::vector<std::byte> codes(2 * code::block_bytes);
  numbers values(n, 1.0F), sum(n), decoded(n);
  const auto source = [&](int k) {
    return static_cast<std::byte const*>(codes.data()) + static_cast<std::size_t>(k) * code::block_bytes;
  };
  code::encode(values.data(), codes.data());
  values[7] = std::numeric_limits<float>::infinity();
  code::encode(values.data(), codes.data() + code::block_bytes);
  code::decode_sum(2, source, sum.data());
  CHECK(!std::isfinite(sum[100]));
  constexpr float largest = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < n; ++i) values[i] = i % 64 < 32 ? largest : -largest;  // few coefficients go beyond both edges
  code::encode(values.data(), codes.data());
  code::encode(values.data(), codes.data() + code::block_bytes);
  code::decode_sum(2, source, sum.data());
  CHECK(!std::isfinite(sum[20]));
  code::decode_sum(1, source, sum.data());
  code::decode(codes.data(), decoded.data());
  CHECK(sum == decoded);
  CHECK(std::all_of(sum.begin(), sum.end(), [](float each) { return std::isfinite(each); }));
}
