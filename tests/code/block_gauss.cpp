// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include <acco/code/block_gauss.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

namespace {

/// Lloyd's iteration for a unit Gaussian: the levels, and what they lose.
struct best_levels {
  std::vector<double> levels;
  double lost = 1;
  explicit best_levels(int count) {
    const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); };
    const auto below = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
    for (int k = 0; k < count; ++k) levels.push_back(-3 + 6 * (k + 0.5) / count);
    for (int turn = 0; turn < 20000; ++turn) {
      lost = 1;
      double from = -40;
      for (std::size_t k = 0; k < levels.size(); ++k) {
        const double to = k + 1 < levels.size() ? (levels[k] + levels[k + 1]) / 2 : 40;
        const double share = below(to) - below(from);
        const double level = (density(from) - density(to)) / share;
        lost -= level * level * share;
        levels[k] = level;  // the thresholds behind it move with it: the same fixed point
        from = to;
      }
    }
  }
};

/// What a code of so many bits loses at most of numbers that are not Gaussian, and of a block with a single one.
template <class Encoding>
constexpr double lost_of_any() {
  constexpr auto magnitudes = Encoding::arithmetic::magnitudes;
  static_assert(magnitudes == 8 || magnitudes == 4 || magnitudes == 2, "what does a code of so many levels lose?");
  return magnitudes == 8 ? 0.03 : magnitudes == 4 ? 0.08 : 0.25;
}

}  // namespace

TEST_CASE_TEMPLATE("levels of a Gaussian conform", Encoding, acco::block_gauss4, acco::block_gauss3, acco::block_gauss2) {
  conformance::encoding_suite(Encoding{}, 1.0, lost_of_any<Encoding>());
}

TEST_CASE("levels are the best for a Gaussian: Lloyd's iteration finds them, and what they lose") {
  const auto is_found = [](acco::packed_levels levels, int positive, int count, double lost) {
    const best_levels best(count);
    CHECK(best.lost == doctest::Approx(lost).epsilon(5e-3));
    std::size_t wrong = 0;
    for (int k = 0; k < positive; ++k) {
      const double found = best.levels[best.levels.size() - static_cast<std::size_t>(positive - k)];
      wrong += std::abs(found - levels[static_cast<unsigned>(k)] / 4096.0) <= 0.6 / 4096 ? 0U : 1U;
    }
    CHECK(wrong == 0);
  };
  is_found(acco::gaussian_levels<2>(false), 2, 4, 0.1175);
  is_found(acco::gaussian_levels<2>(true), 2, 3, 0.1902);
  is_found(acco::gaussian_levels<3>(false), 4, 8, 0.03455);
  is_found(acco::gaussian_levels<3>(true), 4, 7, 0.0440);
  is_found(acco::gaussian_levels<4>(false), 8, 16, 0.00950);
  is_found(acco::gaussian_levels<4>(true), 8, 15, 0.01074);
}

TEST_CASE("Gaussian numbers lose what the levels lose, with zeros among them what one level less loses") {
  std::vector<float> values = gaussian_numbers(256 * 2000);
  const auto near = [&](auto e, double lost) {
    CHECK(lost_of(e, std::span<float const>(values)) == doctest::Approx(lost).epsilon(0.03));
  };
  near(acco::block_gauss4{}, 0.0095);
  near(acco::block_gauss3{}, 0.0345);
  near(acco::block_gauss2{}, 0.1175);
  for (std::size_t i = 0; i < values.size(); i += 256) values[i + i / 256 % 256] = 0;
  near(acco::block_gauss4{}, 0.01074);
  near(acco::block_gauss3{}, 0.0440);
  near(acco::block_gauss2{}, 0.1902);
}

TEST_CASE_TEMPLATE("one number far out: it arrives, and the others do not become noise", Encoding, acco::block_gauss4,
                   acco::block_gauss3, acco::block_gauss2) {
  for (const float out : {6.0F, 10.0F, 100.0F, -1e6F}) {
    std::vector<float> values = gaussian_numbers(256 * 200);
    for (std::size_t block = 0; block < 200; ++block) values[256 * block + block % 256] = out;
    double all = 0;
    for (const float each : values) all += std::pow(static_cast<double>(each), 2) / 200;
    const double others = 255 / all;  // of which nothing may arrive, but no more may be lost
    CHECK(lost_of(Encoding{}, std::span<float const>(values)) < std::min(1.02 * others + 1e-4, 0.4));
  }
  float values[256], decoded[256];
  std::fill(values, values + 256, 1e38F);
  std::byte bytes[Encoding::block_bytes];
  Encoding::encode(values, bytes);
  Encoding::decode(bytes, decoded);
  for (const float each : decoded) CHECK(std::abs(each) < 2e38F);
}

TEST_CASE_TEMPLATE("what is exactly 0 stays 0, and what stands beside it is as coarse as ever, however rare it is", Encoding,
                   acco::block_gauss4, acco::block_gauss3, acco::block_gauss2) {
  for (const std::size_t some : {1UL, 3UL, 40UL, 255UL}) {
    const std::vector<float> drawn = gaussian_numbers(some * 500);
    std::size_t moved = 0;
    double lost = 0, all = 0;
    for (std::size_t block = 0; block < 500; ++block) {
      float values[256] = {}, decoded[256];
      for (std::size_t k = 0; k < some; ++k) values[(37 * k + block) % 256] = drawn[block * some + k];
      std::byte bytes[Encoding::block_bytes];
      Encoding::encode(values, bytes);
      Encoding::decode(bytes, decoded);
      for (std::size_t k = 0; k < 256; ++k) {
        moved += values[k] == 0 && decoded[k] != 0 ? 1U : 0U;
        lost += std::pow(static_cast<double>(values[k] - decoded[k]), 2);
        all += std::pow(static_cast<double>(values[k]), 2);
      }
    }
    CHECK(moved == 0);
    CHECK(lost / all < lost_of_any<Encoding>());
  }
}

TEST_CASE_TEMPLATE("the packed loops do what the arithmetic of one number says, bit by bit", Encoding, acco::block_gauss4,
                   acco::block_gauss3, acco::block_gauss2) {
  constexpr std::size_t n = Encoding::block_size;
  using arithmetic = typename Encoding::arithmetic;
  constexpr int bits = std::bit_width(2 * arithmetic::magnitudes - 1);
  for (const float magnitude : {1e-35F, 1e-28F, 3e-7F, 1.0F, 12345.0F, 1e37F}) {
    for (const bool zeros : {false, true}) {
      std::vector<float> values = gaussian_numbers(n);
      float decoded[n];
      double squares = 0;
      for (float& each : values) each *= magnitude;
      if (zeros) values[17] = 0, values[18] = -0.0F;
      for (const float each : values) squares += static_cast<double>(each) * static_cast<double>(each);
      std::byte bytes[Encoding::block_bytes];
      Encoding::encode(values.data(), bytes);
      Encoding::decode(bytes, decoded);
      const std::uint16_t scale_bits = acco::block_scale::of_root_mean_square(squares, zeros ? n - 2 : n);
      const float scale = acco::block_scale::value(scale_bits);
      CHECK(acco::block_scale::has_codes(scale_bits) == (magnitude > 1e-30F));
      const acco::packed_levels levels = arithmetic::levels_of(zeros);
      auto const* const planes = reinterpret_cast<unsigned char const*>(bytes) + acco::block_scale::bytes;
      const auto at = [&](std::size_t i) -> std::uint32_t {  // the i-th number's code, as the documentation says
        if (bits == 4) return planes[i % 128] >> (i / 128 * 4) & 15U;
        const std::uint32_t two = planes[i % 64] >> (i / 64 * 2) & 3U;
        return bits == 2 ? two : two | (planes[64 + i % 32] >> (i / 32) & 1U) << 2U;
      };
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n && scale > 0; ++i) {
        const std::uint32_t code = arithmetic::code(values[i], levels, scale);
        wrong += code == at(i) && decoded[i] == arithmetic::value(code, levels, scale) ? 0U : 1U;
        // the product is exact, so a fused multiply-add behind it rounds as an addition does
        const double level = levels[code % arithmetic::magnitudes] / 4096.0 * static_cast<double>(scale);
        wrong += std::abs(static_cast<double>(decoded[i])) == level ? 0U : 1U;
        double nearest = std::numeric_limits<double>::infinity();
        for (unsigned k = 0; k < arithmetic::magnitudes; ++k)
          nearest = std::min(
              nearest, std::abs(std::abs(static_cast<double>(values[i])) - levels[k] / 4096.0 * static_cast<double>(scale)));
        wrong += std::abs(std::abs(static_cast<double>(values[i])) - level) <= nearest ? 0U : 1U;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("bytes are those that the documentation says") {
  static_assert(acco::encoded_size<acco::block_gauss4>(2560) == 1300);
  static_assert(acco::encoded_size<acco::block_gauss3>(2560) == 980);
  static_assert(acco::encoded_size<acco::block_gauss2>(2561) == 11 * 66);
}
