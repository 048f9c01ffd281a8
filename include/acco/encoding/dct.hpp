// SPDX-License-Identifier: Apache-2.0
// The orthonormal discrete cosine transform of a block: what changes slowly from number to number becomes few coefficients.
#pragma once

#include <cstddef>

#include "acco/number/pack.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What the transform multiplies by, made by the compiler: cosines in 29 bits. A number of 24 bits times one of 29 is exact in
/// double, so it makes no difference whether a compiler fuses a product with the sum behind it, and host and device compute the
/// same bits.
struct dct_constants {
  static constexpr std::size_t leaf = 32;
  static constexpr double half_root = 379625062.0 / (1U << 29U);  ///< 1 / root 2
  using matrix = double[leaf][leaf];

  /// Orthonormal transforms of 32 numbers, [in][out]: DCT-II, its inverse, and DCT-IV, which is its own.
  alignas(64) matrix second = {};
  alignas(64) matrix third = {};
  alignas(64) matrix fourth = {};
  double cosine[64] = {}, sine[64] = {};                ///< of (2n + 1) pi / 512
  double double_cosine[32] = {}, double_sine[32] = {};  ///< of (2n + 1) pi / 256

  constexpr dct_constants() {
    double quarter[257] = {};  // cos(j pi / 512)
    for (std::size_t j = 0; j <= 256; ++j) quarter[j] = rounded(j <= 128 ? series(j, 0) : series(256 - j, 1));
    const auto cosine_of = [&quarter](std::size_t j) {
      j %= 1024;
      if (j > 512) j = 1024 - j;
      return j <= 256 ? quarter[j] : -quarter[512 - j];
    };
    for (std::size_t n = 0; n < leaf; ++n) {
      for (std::size_t k = 0; k < leaf; ++k) {
        second[n][k] = (k == 0 ? half_root : cosine_of((2 * n + 1) * k * 8)) / 4;
        third[k][n] = second[n][k];
        fourth[n][k] = cosine_of((2 * n + 1) * (2 * k + 1) * 4) / 4;
      }
    }
    for (std::size_t n = 0; n < 64; ++n) {
      cosine[n] = quarter[2 * n + 1];
      sine[n] = quarter[256 - (2 * n + 1)];
    }
    for (std::size_t n = 0; n < 32; ++n) {
      double_cosine[n] = quarter[2 * (2 * n + 1)];
      double_sine[n] = quarter[256 - 2 * (2 * n + 1)];
    }
  }

 private:
  static constexpr double rounded(double x) noexcept { return (x + 0x1.8p23) - 0x1.8p23; }  // to a multiple of 2^-29
  /// Taylor's, of the cosine (first = 0) or the sine (1) of j pi / 512, up to pi / 4.
  static constexpr double series(std::size_t j, int first) noexcept {
    const double x = static_cast<double>(j) * (3.14159265358979323846 / 512);
    double term = first == 0 ? 1 : x, sum = term;
    for (int n = first + 1; n < 20; n += 2) {
      term *= -x * x / (n * (n + 1));
      sum += term;
    }
    return sum;
  }
};

/// The DCT-II of 256 numbers, orthonormal, X[k] = root(2 / 256) sum over n of x[n] cos((2n + 1) k pi / 512), X[0] over root 2,
/// and its inverse: in one order of operations everywhere. It is taken apart by rotations only, which lose no accuracy (Plonka
/// and Tasche, Linear Algebra and its Applications 394, 2005): a DCT-II is one of half the size and a DCT-IV, a DCT-IV is two
/// DCT-II of half the size, down to eight transforms of 32 numbers, which are sums of products in double. What lies between two
/// steps is rounded to float.
///
/// `Lanes` is who computes: `each<count>(f)` calls f(i) for all i below `count`, and what they write is there for all when it
/// returns; `sums(matrix, x)` replaces the 32 numbers x by x * matrix, each a sum in double from the first number on;
/// `constants()` says where the constants lie.
template <class Lanes>
struct dct {
  static constexpr std::size_t size = 256;

  /// x becomes its transform; `room` is for 256 numbers, too.
  static constexpr void turn(float* x, float* room) { second<size>(x, room); }
  static constexpr void turn_back(float* x, float* room) { third<size>(x, room); }

 private:
  static constexpr std::size_t leaf = dct_constants::leaf;
  static constexpr double root = dct_constants::half_root;

  /// Both products are exact.
  [[nodiscard]] static constexpr float sum(float a, double by, float b, double other) noexcept {
    return static_cast<float>(static_cast<double>(a) * by + static_cast<double>(b) * other);
  }
  template <std::size_t N>
  static constexpr void second(float* x, float* room) {
    if constexpr (N == leaf) {
      Lanes::sums(Lanes::constants().second, x);
    } else {
      constexpr std::size_t half = N / 2;
      Lanes::template each<half>([x, room](std::size_t n) {
        const float a = x[n], b = x[N - 1 - n];
        room[n] = sum(a, root, b, root);
        room[half + n] = sum(a, root, b, -root);
      });
      second<half>(room, x);
      fourth<half>(room + half, x + half);
      Lanes::template each<half>([x, room](std::size_t k) {
        x[2 * k] = room[k];
        x[2 * k + 1] = room[half + k];
      });
    }
  }
  template <std::size_t N>
  static constexpr void third(float* x, float* room) {
    if constexpr (N == leaf) {
      Lanes::sums(Lanes::constants().third, x);
    } else {
      constexpr std::size_t half = N / 2;
      Lanes::template each<half>([x, room](std::size_t k) {
        room[k] = x[2 * k];
        room[half + k] = x[2 * k + 1];
      });
      third<half>(room, x);
      fourth<half>(room + half, x + half);
      Lanes::template each<half>([x, room](std::size_t n) {
        const float a = room[n], b = room[half + n];
        x[n] = sum(a, root, b, root);
        x[N - 1 - n] = sum(a, root, b, -root);
      });
    }
  }
  template <std::size_t N>
  static constexpr void fourth(float* x, float* room) {
    if constexpr (N == leaf) {
      Lanes::sums(Lanes::constants().fourth, x);
    } else {
      static_assert(N == 128 || N == 64);
      constexpr std::size_t half = N / 2;
      Lanes::template each<half>([x, room](std::size_t n) {
        auto const& angles = Lanes::constants();
        const double cosine = N == 128 ? angles.cosine[n] : angles.double_cosine[n];
        const double sine = N == 128 ? angles.sine[n] : angles.double_sine[n];
        const float a = x[n], b = x[N - 1 - n];
        room[n] = sum(a, cosine, b, sine);
        room[half + n] = n % 2 == 0 ? sum(a, sine, b, -cosine) : sum(a, -sine, b, cosine);
      });
      second<half>(room, x);
      second<half>(room + half, x + half);
      Lanes::template each<half>([x, room](std::size_t k) {
        if (k == 0) {
          x[0] = room[0];
          x[N - 1] = room[half];
        } else {
          const float a = room[k], b = room[N - k];
          x[2 * k] = sum(a, root, b, -root);
          x[2 * k - 1] = sum(a, root, b, root);
        }
      });
    }
  }
};

/// One thread, for itself.
struct dct_on_host {
  template <std::size_t count, class F>
  static void each(F&& f) {
    for (std::size_t i = 0; i < count; ++i) f(i);
  }
  static void sums(dct_constants::matrix const& matrix, float* x) noexcept {
    using numbers = pack<double>;
    constexpr std::size_t leaf = dct_constants::leaf, packs = leaf / numbers::lanes;
    numbers total[packs];
    for (std::size_t p = 0; p < packs; ++p) total[p] = numbers(0.0);
    for (std::size_t n = 0; n < leaf; ++n) {
      const numbers number(static_cast<double>(x[n]));
      for (std::size_t p = 0; p < packs; ++p) total[p] += number * numbers::load(&matrix[n][p * numbers::lanes]);
    }
    for (std::size_t p = 0; p < packs; ++p) total[p].store(x + p * numbers::lanes);
  }
  static dct_constants const& constants() noexcept {
    static constexpr dct_constants made;
    return made;
  }
};

}  // namespace ACCO_SIMD_NAMESPACE
