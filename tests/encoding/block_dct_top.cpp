// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <numbers>
#include <numeric>

#include <acco/encoding/block_dct_top.hpp>

#include "conformance/encoding.hpp"
#include "encoding/gaussian.hpp"

namespace {

constexpr std::size_t n = 256;
using transform = acco::dct<acco::dct_on_host>;

/// As it is defined, in n^2 operations.
std::vector<double> defined(float const* x) {
  static const std::vector<long double> cosines = [] {
    std::vector<long double> made(4 * n);
    for (std::size_t j = 0; j < 4 * n; ++j)
      made[j] = std::cos(static_cast<long double>(j) * std::numbers::pi_v<long double> / static_cast<long double>(2 * n));
    return made;
  }();
  std::vector<double> result(n);
  for (std::size_t k = 0; k < n; ++k) {
    long double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<long double>(x[i]) * cosines[(2 * i + 1) * k % (4 * n)];
    result[k] = static_cast<double>(sum * std::sqrt((k == 0 ? 1.0L : 2.0L) / n));
  }
  return result;
}
double norm(std::vector<double> const& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }

/// A walk: neighbours are alike.
std::vector<float> smooth_numbers() {
  std::vector<float> values = gaussian_numbers(n);
  for (std::size_t i = 1; i < n; ++i) values[i] += values[i - 1];
  return values;
}

}  // namespace

TEST_CASE_TEMPLATE("the largest coefficients conform", Encoding, acco::block_dct_top<1>, acco::block_dct_top<16>,
                   acco::block_dct_top<255>, acco::block_dct_top<16, acco::mean_over::senders>) {
  conformance::encoding_suite(Encoding{}, 2.0, Encoding::kept == 1 ? 0.998 : Encoding::kept == 16 ? 0.95 : 0.05);
}

TEST_CASE("the transform is the DCT-II to 1e-6, keeps the energy, and comes back") {
  std::vector<std::vector<float>> some;
  for (std::size_t i : {0U, 1U, 31U, 100U, 128U, 255U}) {
    some.emplace_back(n, 0.0F);
    some.back()[i] = 1;
  }
  some.emplace_back(n, 1.0F);
  some.push_back(smooth_numbers());
  const std::vector<float> drawn = gaussian_numbers(20 * n);
  for (std::size_t block = 0; block < 20; ++block)
    some.emplace_back(drawn.begin() + static_cast<std::ptrdiff_t>(block * n),
                      drawn.begin() + static_cast<std::ptrdiff_t>((block + 1) * n));
  double most = 0, energy = 0, back = 0;
  for (auto const& x : some) {
    std::vector<float> turned = x, room(n);
    transform::turn(turned.data(), room.data());
    const std::vector<double> exact = defined(x.data());
    std::vector<double> off(n), lost(n), all(x.begin(), x.end());
    for (std::size_t k = 0; k < n; ++k) off[k] = static_cast<double>(turned[k]) - exact[k];
    most = std::max(most, norm(off) / norm(all));
    energy = std::max(energy, std::abs(norm({turned.begin(), turned.end()}) / norm(all) - 1));
    transform::turn_back(turned.data(), room.data());
    for (std::size_t i = 0; i < n; ++i) lost[i] = static_cast<double>(turned[i]) - all[i];
    back = std::max(back, norm(lost) / norm(all));
  }
  CHECK(most < 1e-6);
  CHECK(energy < 1e-6);
  CHECK(back < 1e-6);
}

TEST_CASE("coefficients that are known: of a constant, of a cosine") {
  std::vector<float> x(n, 3.0F), room(n);
  transform::turn(x.data(), room.data());
  CHECK(x[0] == doctest::Approx(3 * 16).epsilon(1e-6));
  CHECK(std::abs(x[1]) < 1e-5F);
  for (const std::size_t k : {1U, 2U, 77U, 128U, 255U}) {
    for (std::size_t i = 0; i < n; ++i)
      x[i] = static_cast<float>(std::cos(static_cast<double>((2 * i + 1) * k) * std::numbers::pi / (2 * n)));
    transform::turn(x.data(), room.data());
    for (std::size_t j = 0; j < n; ++j) CHECK(std::abs(x[j] - (j == k ? 11.3137085F : 0.0F)) < 1e-5F);
  }
}

TEST_CASE_TEMPLATE("the largest coefficients arrive; of smooth numbers they are more than the largest numbers", Encoding,
                   acco::block_dct_top<4>, acco::block_dct_top<32>) {
  const auto lost = []<class E>(E, std::vector<float> const& values) {
    std::byte bytes[E::block_bytes];
    std::vector<float> decoded(n);
    E::encode(values.data(), bytes);
    E::decode(bytes, decoded.data());
    double off = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      off += std::pow(static_cast<double>(decoded[i]) - static_cast<double>(values[i]), 2);
      all += std::pow(static_cast<double>(values[i]), 2);
    }
    return off / all;
  };
  const std::vector<float> drawn = gaussian_numbers(20 * n);
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < 20; ++block) {
    const std::vector<float> values(drawn.begin() + static_cast<std::ptrdiff_t>(block * n),
                                    drawn.begin() + static_cast<std::ptrdiff_t>((block + 1) * n));
    const std::vector<double> exact = defined(values.data());
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return std::abs(exact[a]) > std::abs(exact[b]); });
    double rest = 0, all = 0;
    for (std::size_t k = 0; k < n; ++k) {
      all += exact[k] * exact[k];
      if (k >= Encoding::kept) rest += exact[order[k]] * exact[order[k]];
    }
    std::byte bytes[Encoding::block_bytes];
    Encoding::encode(values.data(), bytes);
    std::vector<std::size_t> where(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(Encoding::kept));
    std::sort(where.begin(), where.end());
    for (std::size_t k = 0; k < Encoding::kept; ++k) wrong += static_cast<std::size_t>(bytes[2 + k]) == where[k] ? 0U : 1U;
    const double quantised = std::pow(exact[order[0]] / 252, 2) * static_cast<double>(Encoding::kept);
    wrong += std::abs(lost(Encoding{}, values) - rest / all) <= quantised / all + 1e-6 ? 0U : 1U;
  }
  CHECK(wrong == 0);
  const std::vector<float> smooth = smooth_numbers();
  CHECK(lost(Encoding{}, smooth) < 0.5 * lost(acco::block_top<Encoding::kept>{}, smooth));
}

TEST_CASE("very small and very large numbers: never what is not finite") {
  using code = acco::block_dct_top<16>;
  std::vector<float> values(n), decoded(n);
  std::byte bytes[code::block_bytes];
  const auto there_and_back = [&] {
    code::encode(values.data(), bytes);
    code::decode(bytes, decoded.data());
  };
  constexpr float largest = std::numeric_limits<float>::max();
  const std::vector<float> drawn = gaussian_numbers(n);
  for (const int pattern : {0, 1, 2, 3}) {
    for (std::size_t i = 0; i < n; ++i) {
      const bool minus = pattern == 1 ? i >= n / 2 : pattern == 2 ? i % 2 == 1 : pattern == 3 && drawn[i] < 0;
      values[i] = minus ? -largest : largest;
    }
    there_and_back();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += std::abs(decoded[i]) <= largest ? 0U : 1U;
    CHECK(wrong == 0);
    if (pattern == 0) CHECK(static_cast<double>(decoded[100]) > 0.99 * static_cast<double>(largest));
    if (pattern == 1) CHECK(decoded[20] > 0);
  }
  for (const float magnitude : {1e-33F, 4e-29F, 1e-20F}) {
    values.assign(n, magnitude);
    there_and_back();
    const double arrived = static_cast<double>(decoded[7]) / static_cast<double>(magnitude);
    CHECK(std::abs(arrived - (magnitude < 1e-30F ? 0 : 1)) <= 0.01);
  }
}

TEST_CASE("the same bits of every compiler and processor, whether it fuses products with sums or not") {
  using code = acco::block_dct_top<100>;
  std::vector<float> values(n), decoded(n), room(n);
  std::byte bytes[code::block_bytes];
  std::uint64_t digest = 0;
  const auto mix = [&digest](std::vector<float> const& all) {
    for (float const each : all) digest = digest * 6364136223846793005ULL + std::bit_cast<std::uint32_t>(each);
  };
  for (std::size_t block = 0; block < 50; ++block) {
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(2 * problem::unit(n * block + i) - 1);
    code::encode(values.data(), bytes);
    code::decode(bytes, decoded.data());
    mix(decoded);
    transform::turn(values.data(), room.data());
    mix(values);
  }
  CHECK(digest == 3539952895769219618ULL);
}

TEST_CASE("codes are added as coefficients: over all, or as if all had sent the mean of the senders") {
  using over_all = acco::block_dct_top<8>;
  using over_senders = acco::block_dct_top<8, acco::mean_over::senders>;
  constexpr int ranks = 4;
  const std::vector<float> drawn = gaussian_numbers(ranks * n);
  std::vector<std::byte> codes(ranks * over_all::block_bytes);
  std::vector<float> decoded(n), sum(n);
  const auto source = [&](int k) {
    return static_cast<std::byte const*>(codes.data()) + static_cast<std::size_t>(k) * over_all::block_bytes;
  };
  std::vector<double> plain(n), of_senders(n), weight_of_senders(n);
  constexpr double weights[ranks] = {3, 1, 0, 7};
  for (const bool weighed : {false, true}) {
    std::fill(plain.begin(), plain.end(), 0.0);
    std::fill(of_senders.begin(), of_senders.end(), 0.0);
    std::fill(weight_of_senders.begin(), weight_of_senders.end(), 0.0);
    double all = 0;
    for (int k = 0; k < ranks; ++k) {
      std::vector<float> values(drawn.begin() + k * static_cast<std::ptrdiff_t>(n),
                                drawn.begin() + (k + 1) * static_cast<std::ptrdiff_t>(n));
      for (std::size_t i = 0; i < n; ++i)
        values[i] = k == 2 ? 0.0F : values[i] + 2;  // one has nothing; the others share a coefficient
      for (std::size_t i = 0; i < n && k == 0; ++i)
        values[i] += 4 * static_cast<float>(std::cos(static_cast<double>((2 * i + 1) * 3) * std::numbers::pi / (2 * n)));
      if (k == 3) std::fill(values.begin(), values.end(), 1.0F);  // and one has nothing else
      over_all::encode(values.data(), codes.data() + static_cast<std::size_t>(k) * over_all::block_bytes);
      if (k == 3) {  // and names one that rank 0 sends, with a code of 0
        std::byte* const bytes = codes.data() + static_cast<std::size_t>(k) * over_all::block_bytes;
        REQUIRE(bytes[over_all::block_bytes - 1] == std::byte{0});
        bytes[2 + over_all::kept - 1] = std::byte{3};
      }
      over_all::decode(source(k), decoded.data());
      const std::vector<double> coefficients = defined(decoded.data());
      const double weight = weighed ? weights[k] : 1;
      all += weight;
      for (std::size_t i = 0; i < n; ++i) {
        plain[i] += static_cast<double>(decoded[i]);
        of_senders[i] += coefficients[i];
        weight_of_senders[i] += std::abs(coefficients[i]) > 1e-4 ? weight : 0;
      }
    }
    std::size_t sent_by_some = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (weight_of_senders[i] == 0) continue;
      sent_by_some += weight_of_senders[i] < all ? 1U : 0U;
      of_senders[i] *= all / weight_of_senders[i];
    }
    CHECK(sent_by_some > 10);
    double const* const given = weighed ? weights : nullptr;
    over_all::decode_sum(ranks, source, given, sum.data());
    double off = 0;
    for (std::size_t i = 0; i < n; ++i) off = std::max(off, std::abs(static_cast<double>(sum[i]) - plain[i]));
    CHECK(off < 1e-5);
    over_senders::decode_sum(ranks, source, given, sum.data());
    const std::vector<double> arrived = defined(sum.data());
    off = 0;
    for (std::size_t i = 0; i < n; ++i) off = std::max(off, std::abs(arrived[i] - of_senders[i]));
    CHECK(off < 1e-3);
    CHECK(std::abs(static_cast<double>(sum[0]) - plain[0]) > 1e-3);  // the two do differ
    // one alone arrives as it is decoded
    over_senders::decode_sum(1, source, given, sum.data());
    over_all::decode(source(0), decoded.data());
    CHECK(sum == decoded);
  }
  // of arrays, by what a storage is given
  acco::coding::decode_sum(acco::weighed<over_senders>({}, weights), ranks, source, decoded.data(), n, false);
  over_senders::decode_sum(ranks, source, weights, sum.data());
  CHECK(decoded == sum);
  std::uint64_t digest = 0;
  for (float const each : sum) digest = digest * 6364136223846793005ULL + std::bit_cast<std::uint32_t>(each);
  CHECK(digest == 1996714609549046154ULL);  // the same bits everywhere
}

TEST_CASE("a sum of codes is not finite where one of them is not, and may leave the range of floats") {
  using code = acco::block_dct_top<8>;
  std::vector<std::byte> codes(2 * code::block_bytes);
  std::vector<float> values(n, 1.0F), sum(n);
  const auto source = [&](int k) {
    return static_cast<std::byte const*>(codes.data()) + static_cast<std::size_t>(k) * code::block_bytes;
  };
  code::encode(values.data(), codes.data());
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    values[7] = bad;
    code::encode(values.data(), codes.data() + code::block_bytes);
    code::decode_sum(2, source, nullptr, sum.data());
    CHECK(!std::isfinite(sum[100]));
  }
  constexpr float largest = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < n; ++i) values[i] = i < n / 2 ? largest : -largest;  // few coefficients go beyond both edges
  std::vector<float> decoded(n);
  code::encode(values.data(), codes.data());
  code::encode(values.data(), codes.data() + code::block_bytes);
  code::decode_sum(2, source, nullptr, sum.data());
  CHECK(!std::isfinite(sum[100]));
  code::decode_sum(1, source, nullptr, sum.data());
  code::decode(codes.data(), decoded.data());
  CHECK(sum == decoded);
  CHECK(std::all_of(sum.begin(), sum.end(), [](float each) { return std::isfinite(each); }));
}
