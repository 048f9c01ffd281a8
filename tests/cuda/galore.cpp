// SPDX-License-Identifier: Apache-2.0
// Matrices in bases on device memory: each step against the loops of the host, and trainings against the published algorithm.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <acco/galore.hpp>

#include "cuda/cuda_world.hpp"
#include "projected/beside_published.hpp"
#include "support/problem.hpp"

namespace {

void settle_device() { acco::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }

template <class T>
using array = worlds::managed_array<T>;

/// Matrices of two groups, wider and taller, of one tile and of several, none a whole number of them; and two other tensors.
template <class P, class G, class M>
struct problem_of {
  using storage = worlds::managed_storage<P, G, M>;
  using real = typename storage::sum_type;
  using view_type = acco::projection_view<P, G, real>;
  static constexpr std::size_t others[] = {1, 777};
  std::size_t rank;
  array<acco::projected_matrix> matrices;
  array<acco::trained_tensor<P, G>> tensors;
  array<P> parameters, z;
  array<G> gradients, inner;
  array<M> masters;
  array<real> base, bases, thin, converted, leaving, arriving;
  std::size_t sides = 0, longer = 0;

  explicit problem_of(std::size_t r) : rank(r) {
    std::size_t at = 0, of_bases = 0, of_thin = 0, most = 0, most_thin = 0;
    const auto add = [&](std::size_t rows, std::size_t columns) {
      acco::projected_matrix m{};
      m.tensor = matrices.size();
      m.rows = rows, m.columns = columns, m.rank = r;
      m.group = matrices.size() % 2;
      m.base = at, m.basis = of_bases, m.thin = of_thin, m.z = of_thin + 5;
      matrices.push_back(m);
      at += m.size(), of_bases += r * m.side(), of_thin += r * m.other();
      sides += m.side(), longer += m.other();
      most = std::max(most, m.size()), most_thin = std::max(most_thin, r * m.other());
    };
    add(50, 131), add(140, 65), add(64, 64), add(41, 300), add(70, 38);
    const auto fill = [](auto& to, std::size_t count, std::size_t seed) {
      using T = typename std::remove_cvref_t<decltype(to)>::value_type;
      for (std::size_t i = 0; i < count; ++i) to.push_back(T(static_cast<float>(problem::unit(seed * 100'003 + i) - 0.5)));
    };
    const std::size_t beside = others[0] + others[1], inside = 5 + of_thin + beside + 3;
    fill(parameters, at + beside, 1), fill(gradients, at + beside, 2), fill(inner, inside, 3), fill(z, inside, 4);
    fill(masters, inside, 5), fill(base, at, 6), fill(bases, of_bases, 7), fill(leaving, std::max(of_bases, of_thin), 8);
    arriving.assign(leaving.size(), real(9));
    thin.assign(most_thin, real(9));
    converted.assign(most, real(9));
    for (acco::projected_matrix const& m : matrices)
      tensors.push_back({parameters.data() + m.base, gradients.data() + m.base, m.z, r * m.other()});
    std::size_t z_of = 5 + of_thin;
    for (const std::size_t count : others) {
      tensors.push_back({parameters.data() + at, gradients.data() + at, z_of, count});
      at += count, z_of += count;
    }
  }
  view_type view() {
    return {matrices.data(),  tensors.data(), matrices.size(), tensors.size(), base.data(), bases.data(),         thin.data(),
            converted.data(), rank,           base.size(),     sides,          longer,      others[0] + others[1]};
  }
};
template <class T>
double number(T x) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}
template <class T>
double furthest(array<T> const& a, array<T> const& b) {
  double found = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart = std::abs(number(a[i]) - number(b[i]));
    found = apart <= found ? found : apart;
  }
  return found;
}

struct device {
  using storage = worlds::managed_storage<double>;
  using array = worlds::managed_array<double>;
  static void settle() { settle_device(); }
};

}  // namespace

TEST_CASE_TEMPLATE("every step between matrices and coordinates gives what the host gives, with however few thread blocks", Types,
                   std::tuple<double, double, double>, std::tuple<acco::bfloat16, acco::bfloat16, float>,
                   std::tuple<acco::half, float, float>) {
  using P = std::tuple_element_t<0, Types>;
  using G = std::tuple_element_t<1, Types>;
  using problem_type = problem_of<P, G, std::tuple_element_t<2, Types>>;
  using real = typename problem_type::real;
  // sums of up to 300 products, of numbers below a half; what is stored in 16 bits may be rounded to a neighbour
  constexpr double close = sizeof(real) == 8 ? 1e-12 : 1e-4, of_parameters = sizeof(P) == 2 ? 0x1p-6 : close,
                   of_gradients = sizeof(G) == 2 ? 0x1p-5 : close;
  for (const std::size_t rank : {std::size_t{3}, std::size_t{37}}) {
    for (const unsigned ctas : {0U, 1U, 3U}) {
      CAPTURE(rank);
      CAPTURE(ctas);
      problem_type here(rank), there(rank);
      acco::cuda_queue queue(nullptr);
      auto const seen = here.view(), view = there.view();
      const acco::cuda_kernels::projection_launches<typename problem_type::view_type> narrow{{nullptr, ctas}, view};
      const auto same = [&] {
        settle_device();
        CHECK(furthest(here.parameters, there.parameters) <= of_parameters);
        CHECK(furthest(here.inner, there.inner) <= of_gradients);
        CHECK(furthest(here.arriving, there.arriving) <= close);
        CHECK(furthest(here.base, there.base) <= close);
      };
      array<P> const before = there.parameters;
      acco::in_bases::show(seen, 1, 0.75, 0.5, here.z.data());
      narrow.show(1, 0.75, 0.5, there.z.data());
      same();
      const std::size_t first = there.matrices[0].size();
      CHECK(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(first), there.parameters.begin(),
                       [](P a, P b) { return number(a) == number(b); }));  // of the other group
      CHECK(furthest(before, there.parameters) > 0.1);
      acco::in_bases::show(seen, 0, 1, 0.25, here.masters.data());
      narrow.show(0, 1, 0.25, there.masters.data());
      acco::in_bases::show_others(seen, here.masters.data());
      narrow.show_others(there.masters.data());
      same();
      acco::in_bases::show_others(seen, here.z.data());
      narrow.show_others(there.z.data());
      acco::in_bases::project(seen, here.inner.data());
      narrow.project(there.inner.data());
      same();
      for (const auto which : {acco::thin_product::of_basis, acco::thin_product::of_coordinates}) {
        acco::in_bases::multiply_all(seen, which, static_cast<real const*>(here.leaving.data()), here.arriving.data());
        narrow.multiply(which, static_cast<real const*>(there.leaving.data()), there.arriving.data());
        same();
      }
      for (const std::size_t k : {std::size_t{1}, std::size_t{3}}) {  // into B, and into an array
        acco::projected_matrix const& m = here.matrices[k];
        acco::in_bases::expand(seen, m, here.masters.data() + m.z, 0.5, 0.125, here.base.data() + m.base);
        narrow.expand(k, 0.5, 0.125, there.masters.data() + m.z, there.base.data() + m.base);
        same();
        acco::in_bases::expand(seen, m, here.z.data() + m.z, 0.5, 0.125, here.parameters.data() + 7);
        narrow.expand(k, 0.5, 0.125, there.z.data() + m.z, there.parameters.data() + 7);
        same();
      }
      if (ctas != 0) continue;  // the storage's own
      using storage = typename problem_type::storage;
      storage::projection_show(queue, view, 1, 0.5, 2, static_cast<P const*>(there.z.data()));
      storage::projection_show_others(queue, view, static_cast<P const*>(there.z.data()));
      storage::projection_project(queue, view, there.inner.data());
      storage::projection_multiply(queue, view, acco::thin_product::of_basis, there.leaving.data(), there.arriving.data());
      storage::projection_expand(queue, view, 2, 1, 1, static_cast<P const*>(there.z.data()), there.base.data());
      acco::in_bases::show(seen, 1, 0.5, 2, here.z.data());
      acco::in_bases::show_others(seen, here.z.data());
      acco::in_bases::project(seen, here.inner.data());
      acco::in_bases::multiply_all(seen, acco::thin_product::of_basis, static_cast<real const*>(here.leaving.data()),
                                   here.arriving.data());
      acco::in_bases::expand(seen, here.matrices[2], here.z.data(), 1, 1, here.base.data());
      same();
    }
  }
}

TEST_CASE("on the device galore is the published algorithm, after every round, on one rank and on four") {
  using beside_published::compare;
  compare<device>({.decay = 2});
  compare<device>({.ranks = 4});
  compare<device>({.halves = true, .ranks = 4, .decay = 2});
  compare<device>({.halves = true});
}

TEST_CASE("on the device many buckets, tensors of the trainer's own, and NaN where bases are due, change nothing of it") {
  using beside_published::compare;
  compare<device>({.halves = true, .ranks = 2, .decay = 2, .bucket_elements = 64, .adopts = true});
  compare<device>({.ranks = 2, .decay = 2, .broken = {0, 5, 6}, .bucket_elements = 64});
}
