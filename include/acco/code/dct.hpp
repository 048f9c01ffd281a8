// SPDX-License-Identifier: Apache-2.0
// The orthonormal discrete cosine transform: what changes slowly from number to number becomes few coefficients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What the transform multiplies by, made by the compiler: cosines in 29 bits. A number of 24 bits times one of 29 is
/// exact in double, so it makes no difference whether a compiler fuses a product with the sum behind it, and host and
/// device compute the same bits.
template <std::size_t Leaf>
struct dct_constants {
  static constexpr double half_root = 379625062.0 / (1U << 29U);  ///< 1 / root 2
  static constexpr std::size_t steps = 128;                       ///< of a quarter of a turn
  using matrix = double[Leaf][Leaf];

  /// Orthonormal transforms of `Leaf` numbers, [in][out]: DCT-II, its inverse, and DCT-IV, which is its own.
  alignas(64) matrix second = {};
  alignas(64) matrix third = {};
  alignas(64) matrix fourth = {};
  double quarter[steps + 1] = {};  ///< cos(j pi / 256)

  constexpr dct_constants() {
    static_assert(steps % (2 * Leaf) == 0);
    double exact[steps + 1] = {};
    for (std::size_t j = 0; j <= steps; ++j) exact[j] = j <= steps / 2 ? series(j, 0) : series(steps - j, 1);
    const auto cosine_of = [&exact](std::size_t j) {
      j %= 4 * steps;
      if (j > 2 * steps) j = 4 * steps - j;
      return j <= steps ? exact[j] : -exact[2 * steps - j];
    };
    double norm = 1;  // root (2 / Leaf)
    std::size_t n = 2;
    for (; n < Leaf; n *= 4) norm /= 2;
    if (n != Leaf) norm *= root_of_two;
    for (std::size_t in = 0; in < Leaf; ++in) {
      for (std::size_t out = 0; out < Leaf; ++out) {
        second[in][out] = rounded(norm * (out == 0 ? root_of_two / 2 : cosine_of((2 * in + 1) * out * (steps / Leaf))));
        third[out][in] = second[in][out];
        fourth[in][out] = rounded(norm * cosine_of((2 * in + 1) * (2 * out + 1) * (steps / Leaf / 2)));
      }
    }
    for (std::size_t j = 0; j <= steps; ++j) quarter[j] = rounded(exact[j]);
  }
  /// Of (2n + 1) pi / 4N.
  [[nodiscard]] constexpr double cosine(std::size_t n, std::size_t N) const noexcept {
    return quarter[(2 * n + 1) * (steps / 2 / N)];
  }
  [[nodiscard]] constexpr double sine(std::size_t n, std::size_t N) const noexcept {
    return quarter[steps - (2 * n + 1) * (steps / 2 / N)];
  }

 private:
  static constexpr double root_of_two = 1.41421356237309504880;
  static constexpr double rounded(double x) noexcept { return (x + 0x1.8p23) - 0x1.8p23; }  // to a multiple of 2^-29
  /// Taylor's, of the cosine (first = 0) or the sine (1) of j pi / 256, up to pi / 4.
  static constexpr double series(std::size_t j, int first) noexcept {
    const double x = static_cast<double>(j) * (3.14159265358979323846 / (2 * steps));
    double term = first == 0 ? 1 : x, sum = term;
    for (int n = first + 1; n < 20; n += 2) {
      term *= -x * x / (n * (n + 1));
      sum += term;
    }
    return sum;
  }
};

template <std::size_t Leaf>
using dct_matrix = typename dct_constants<Leaf>::matrix dct_constants<Leaf>::*;

/// The DCT-II along the rows of `Columns` numbers each, orthonormal,
/// X[k] = root(2 / N) sum over n of x[n] cos((2n + 1) k pi / 2N), X[0] over root 2, and its inverse: of all columns at
/// once, in one order of operations everywhere. It is taken apart by rotations only, which lose no accuracy (Plonka and
/// Tasche, Linear Algebra and its Applications 394, 2005): a DCT-II is one of half the size and a DCT-IV, a DCT-IV is
/// two DCT-II of half the size, down to transforms of 16 numbers, which are sums of products in double. What lies
/// between two steps is rounded to float.
///
/// `Lanes` is who computes: `each<rows, columns>(f)` calls f(row, column) for all of them, or for the first column of
/// as many as `load(from)` reads and `store(numbers, to)` writes, in double, as `of(x)` makes of a constant; what they
/// write is there for all when it returns; `copy(from, to)` moves as many. `sums<columns, leaf, matrix>(x)` replaces the rows
/// x by matrix^T x, sums in double from the first row on. `constants<leaf>()` says where the constants lie,
/// `transpose<rows, columns>(from, to)` makes to[c][r] = from[r][c].
template <class Lanes, std::size_t Columns>
struct dct {
  Lanes lanes = {};

  /// N rows x become their transform; `room` is for as many, too.
  template <std::size_t N>
  constexpr void turn(float* x, float* room) {
    second<N, leaf_of(N)>(x, room);
  }
  template <std::size_t N>
  constexpr void turn_back(float* x, float* room) {
    third<N, leaf_of(N)>(x, room);
  }

 private:
  static constexpr double root = dct_constants<16>::half_root;
  static constexpr std::size_t leaf_of(std::size_t n) noexcept { return n < 16 ? n : 16; }

  /// All products are exact.
  template <class Numbers>
  static constexpr void put(float* to, Numbers const& a, Numbers const& by, Numbers const& b, Numbers const& other) noexcept {
    Lanes::store(a * by + b * other, to);
  }
  template <std::size_t N, std::size_t leaf>
  constexpr void second(float* x, float* room) {
    if constexpr (N == leaf) {
      lanes.template sums<Columns, leaf, &dct_constants<leaf>::second>(x);
    } else {
      constexpr std::size_t half = N / 2;
      Lanes::template each<half, Columns>([x, room](std::size_t n, std::size_t c) {
        const auto a = Lanes::load(x + n * Columns + c), b = Lanes::load(x + (N - 1 - n) * Columns + c);
        put(room + n * Columns + c, a, Lanes::of(root), b, Lanes::of(root));
        put(room + (half + n) * Columns + c, a, Lanes::of(root), b, Lanes::of(-root));
      });
      second<half, leaf>(room, x);
      fourth<half, leaf>(room + half * Columns, x + half * Columns);
      Lanes::template each<half, Columns>([x, room](std::size_t k, std::size_t c) {
        Lanes::copy(room + k * Columns + c, x + 2 * k * Columns + c);
        Lanes::copy(room + (half + k) * Columns + c, x + (2 * k + 1) * Columns + c);
      });
    }
  }
  template <std::size_t N, std::size_t leaf>
  constexpr void third(float* x, float* room) {
    if constexpr (N == leaf) {
      lanes.template sums<Columns, leaf, &dct_constants<leaf>::third>(x);
    } else {
      constexpr std::size_t half = N / 2;
      Lanes::template each<half, Columns>([x, room](std::size_t k, std::size_t c) {
        Lanes::copy(x + 2 * k * Columns + c, room + k * Columns + c);
        Lanes::copy(x + (2 * k + 1) * Columns + c, room + (half + k) * Columns + c);
      });
      third<half, leaf>(room, x);
      fourth<half, leaf>(room + half * Columns, x + half * Columns);
      Lanes::template each<half, Columns>([x, room](std::size_t n, std::size_t c) {
        const auto a = Lanes::load(room + n * Columns + c), b = Lanes::load(room + (half + n) * Columns + c);
        put(x + n * Columns + c, a, Lanes::of(root), b, Lanes::of(root));
        put(x + (N - 1 - n) * Columns + c, a, Lanes::of(root), b, Lanes::of(-root));
      });
    }
  }
  template <std::size_t N, std::size_t leaf>
  constexpr void fourth(float* x, float* room) {
    if constexpr (N == leaf) {
      lanes.template sums<Columns, leaf, &dct_constants<leaf>::fourth>(x);
    } else {
      constexpr std::size_t half = N / 2;
      Lanes::template each<half, Columns>([x, room](std::size_t n, std::size_t c) {
        auto const& angles = Lanes::template constants<leaf>();
        const double sign = n % 2 == 0 ? 1 : -1;
        const auto cosine = Lanes::of(angles.cosine(n, N)), sine = Lanes::of(angles.sine(n, N));
        const auto a = Lanes::load(x + n * Columns + c), b = Lanes::load(x + (N - 1 - n) * Columns + c);
        put(room + n * Columns + c, a, cosine, b, sine);
        put(room + (half + n) * Columns + c, a, Lanes::of(sign * angles.sine(n, N)), b, Lanes::of(-sign * angles.cosine(n, N)));
      });
      second<half, leaf>(room, x);
      second<half, leaf>(room + half * Columns, x + half * Columns);
      Lanes::template each<half, Columns>([x, room](std::size_t k, std::size_t c) {
        if (k == 0) {
          Lanes::copy(room + c, x + c);
          Lanes::copy(room + half * Columns + c, x + (N - 1) * Columns + c);
        } else {
          const auto a = Lanes::load(room + k * Columns + c), b = Lanes::load(room + (N - k) * Columns + c);
          put(x + 2 * k * Columns + c, a, Lanes::of(root), b, Lanes::of(-root));
          put(x + (2 * k - 1) * Columns + c, a, Lanes::of(root), b, Lanes::of(root));
        }
      });
    }
  }
};

/// One thread, for itself.
template <std::size_t Columns>
struct dct_on_host {
  std::uintptr_t ahead = 0;  ///< what is asked for while it computes: `lines` of 64 bytes in a step, none in the end
  std::size_t lines = 0;

  using numbers = pack<double, (Columns < simd_bytes / sizeof(double) ? Columns : simd_bytes / sizeof(double))>;

  template <std::size_t rows, std::size_t columns, class F>
  static void each(F&& f) {
    static_assert(columns % numbers::lanes == 0);
    for (std::size_t n = 0; n < rows; ++n) {
      for (std::size_t c = 0; c < columns; c += numbers::lanes) f(n, c);
    }
  }
  [[nodiscard]] static numbers of(double x) noexcept { return numbers(x - typename numbers::vector{}); }
  [[nodiscard]] static numbers load(float const* from) noexcept { return numbers::load(from); }
  static void store(numbers const& x, float* to) noexcept { x.store(to); }
  static void copy(float const* from, float* to) noexcept { std::memcpy(to, from, numbers::lanes * sizeof(float)); }
  template <std::size_t columns, std::size_t leaf, dct_matrix<leaf> which>
  void sums(float* x) noexcept {
    if constexpr (columns < wide::lanes) {
      sums_of_few<columns, leaf, which>(x);
    } else {
      sums_of_many<columns, leaf, which>(x);
    }
  }
  template <std::size_t leaf>
  static dct_constants<leaf> const& constants() noexcept {
    static constexpr dct_constants<leaf> made;
    return made;
  }
  /// to[c][r] = from[r][c].
  template <std::size_t rows, std::size_t columns>
  static void transpose(float const* from, float* to) noexcept {
#if defined(__CUDACC__)  // nvcc takes the shuffle for one of another type
    for (std::size_t i = 0; i < rows * columns; ++i) to[i % columns * rows + i / columns] = from[i];
#else
    constexpr std::size_t least = rows < columns ? rows : columns, side = least < 8 ? least : 8;
    for (std::size_t r = 0; r < rows; r += side) {
      for (std::size_t c = 0; c < columns; c += side)
        transpose_square(from + r * columns + c, columns, to + c * rows + r, rows, std::make_index_sequence<side>());
    }
#endif
  }

 private:
  using wide = pack<double>;
  /// A matrix of which every number stands `columns` times.
  template <std::size_t columns, std::size_t leaf>
  struct repeated {
    alignas(64) double of[leaf][leaf * columns] = {};
    constexpr explicit repeated(double const (&matrix)[leaf][leaf]) {
      for (std::size_t n = 0; n < leaf; ++n) {
        for (std::size_t k = 0; k < leaf * columns; ++k) of[n][k] = matrix[n][k / columns];
      }
    }
  };
  /// As often as a wide register has room for them.
  template <std::size_t... Lane>
  static wide again(numbers const& row, std::index_sequence<Lane...>) noexcept {
#if defined(__CUDACC__)
    return wide(typename wide::vector{row.value[Lane % numbers::lanes]...});
#else
    return wide(__builtin_shufflevector(row.value, row.value, (Lane % numbers::lanes)...));
#endif
  }
  template <std::size_t columns, std::size_t leaf, dct_matrix<leaf> which>
  void sums_of_many(float* x) noexcept {
    auto const& matrix = constants<leaf>().*which;
    constexpr std::size_t together = leaf < 8 ? leaf : 8;
    for (std::size_t c = 0; c < columns; c += numbers::lanes) {
      for (std::size_t k = 0; k < lines; ++k, ahead += 64)
        __builtin_prefetch(reinterpret_cast<void const*>(ahead));  // NOLINT(performance-no-int-to-ptr): no object need be there
      numbers in[leaf];
      for (std::size_t n = 0; n < leaf; ++n) in[n] = load(x + n * columns + c);
      for (std::size_t k = 0; k < leaf; k += together) {
        numbers total[together];
        for (numbers& each : total) each = numbers(0.0);
        for (std::size_t n = 0; n < leaf; ++n) {
          for (std::size_t j = 0; j < together; ++j) total[j].value += in[n].value * matrix[n][k + j];
        }
        for (std::size_t j = 0; j < together; ++j) store(total[j], x + (k + j) * columns + c);
      }
    }
  }
  /// Of fewer columns than a register has numbers: it has several rows of sums.
  template <std::size_t columns, std::size_t leaf, dct_matrix<leaf> which>
  static void sums_of_few(float* x) noexcept {
    static_assert(leaf * columns % wide::lanes == 0);
    static constexpr repeated<columns, leaf> matrix(dct_constants<leaf>().*which);
    constexpr std::size_t registers = leaf * columns / wide::lanes, together = registers < 8 ? registers : 8;
    wide in[leaf];
    for (std::size_t n = 0; n < leaf; ++n) in[n] = again(load(x + n * columns), std::make_index_sequence<wide::lanes>());
    for (std::size_t k = 0; k < registers; k += together) {
      wide total[together];
      for (wide& each : total) each = wide(0.0);
      for (std::size_t n = 0; n < leaf; ++n) {
        for (std::size_t j = 0; j < together; ++j) total[j] += in[n] * wide::load(matrix.of[n] + (k + j) * wide::lanes);
      }
      for (std::size_t j = 0; j < together; ++j) total[j].store(x + (k + j) * wide::lanes);
    }
  }

#if !defined(__CUDACC__)
  template <std::size_t Side>
  struct square {
    typedef float row __attribute__((vector_size(Side * sizeof(float))));  // NOLINT(modernize-use-using): needs a typedef
  };
  /// Squares of half the side change places, then within each of the four, and so on.
  template <std::size_t... Lane>
  static void transpose_square(float const* from, std::size_t apart, float* to, std::size_t there,
                               std::index_sequence<Lane...> lanes) noexcept {
    constexpr std::size_t side = sizeof...(Lane);
    typename square<side>::row rows[side];
    for (std::size_t k = 0; k < side; ++k) std::memcpy(&rows[k], from + k * apart, sizeof rows[k]);
    if constexpr (side > 4) swap_halves<side, 4>(rows, lanes);
    if constexpr (side > 2) swap_halves<side, 2>(rows, lanes);
    swap_halves<side, 1>(rows, lanes);
    for (std::size_t k = 0; k < side; ++k) std::memcpy(to + k * there, &rows[k], sizeof rows[k]);
  }
  template <std::size_t side, std::size_t half, std::size_t... Lane>
  static void swap_halves(typename square<side>::row* rows, std::index_sequence<Lane...>) noexcept {
    for (std::size_t k = 0; k < side; ++k) {
      if ((k & half) != 0) continue;
      const auto a = rows[k], b = rows[k + half];
      rows[k] = __builtin_shufflevector(a, b, ((Lane & half) != 0 ? side + Lane - half : Lane)...);
      rows[k + half] = __builtin_shufflevector(a, b, ((Lane & half) != 0 ? side + Lane : Lane + half)...);
    }
  }
#endif
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
