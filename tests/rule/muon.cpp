// SPDX-License-Identifier: Apache-2.0
// Rules that update whole matrices: where these lie, that the rounds do what they do with single elements, and Muon
// itself.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"

namespace {

/// Heavy ball, element by element.
struct apart {
  static constexpr std::size_t slot_count = 1;
  struct constants {
    double rate, momentum;
  };
  [[nodiscard]] constants prepare(acco::update_step const& step, acco::update_group const&) const {
    return {0.05 / static_cast<double>(step.count + 10), 0.8};
  }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 1>& slots, constants const& c) {
    slots[0] = Real(c.momentum) * slots[0] + g;
    p = p - Real(c.rate) * slots[0];
  }
};
/// The same by matrices, which stay as they are.
struct together {
  static constexpr std::size_t slot_count = 1;
  using constants = apart::constants;
  [[nodiscard]] constants prepare(acco::update_step const& step, acco::update_group const& group) const {
    return apart{}.prepare(step, group);
  }
  [[nodiscard]] static constexpr bool whole(acco::update_group const& group) noexcept { return group.momentum.value_or(1) == 1; }
  [[nodiscard]] static constexpr std::size_t scratch_of(std::size_t, std::size_t) noexcept { return 0; }
  template <class Real>
  static constexpr Real before_matrix(Real g, std::array<Real, 1>& slots, constants const& c) {
    return slots[0] = Real(c.momentum) * slots[0] + g;
  }
  template <class Real>
  static void on_matrix(acco::matrix_view<Real> const&, constants const&) {}
  template <class Real>
  static constexpr void after_matrix(Real& p, Real element, std::array<Real, 1>&, constants const& c) {
    p = p - Real(c.rate) * element;
  }
};
/// Whichever a group names: one engine trains matrices either way.
const acco::rules either{apart{}, together{}, acco::sgd{.learning_rate = 0.02}};
/// The same of a rule that branches.
struct together_one_by_one : together {
  static constexpr bool scalar_only = true;
};
static_assert(acco::update_rule<together> && acco::matrix_rule<together> && !acco::matrix_rule<apart> &&
              !acco::has_apply<together>);
static_assert(acco::muon::scratch_of(24, 8) == 24 * 8 + 2 * 8 * 8 + 512 * 32);  // whatever the processor
static_assert(acco::matrix_rule<acco::rules<acco::muon, acco::adamw>> && !acco::matrix_rule<acco::rules<acco::adamw>>);

/// Rule `of_matrices` for some tensors, `of_others` for the others.
acco::parameter_layout mixed(std::size_t of_matrices = 0, std::size_t of_others = 1) {
  acco::parameter_layout layout;
  const auto others = layout.add_group({.rule = of_others}), still = layout.add_group({.frozen = true});
  const auto matrices = of_matrices == 0 ? 0 : layout.add_group({.rule = of_matrices});
  return layout.add("embedding", {50, 3}, others)
      .add("a", {24, 8}, matrices)
      .add("still", {5, 5}, still)
      .add("bias", {7}, others)
      .add("b", {8, 24}, matrices)
      .add("nothing", {0, 4}, matrices)
      .add("c", {5, 4, 3}, matrices)
      .add("norm", {100}, others)
      .add("d", {1, 130}, matrices);
}

/// One rule for all.
acco::parameter_layout uniform(std::size_t rule = 0) {
  acco::parameter_layout layout;
  const auto group = rule == 0 ? 0 : layout.add_group({.rule = rule});
  return layout.add("a", {24, 8}, group).add("b", {8, 24}, group).add("c", {5, 4, 3}, group).add("d", {1, 130}, group);
}

struct found {
  std::vector<float> parameters;
  std::uint64_t digest = 0;
  std::uint64_t bytes = 0;
  bool operator==(found const& other) const { return parameters == other.parameters && digest == other.digest; }
};

template <class Storage, class Schedule, class Rule>
found trained(int ranks, Schedule schedule, Rule rule, acco::options const& chosen = {}, int micro_batches = 24,
              acco::parameter_layout const& layout = mixed()) {
  found result;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, rule, Storage{}, world, layout, chosen};
    using parameter = typename Storage::parameter_type;
    training.initialize(problem::converted<parameter>(problem::initial(training.layout().size())));
    for (int m = 0; m < micro_batches; ++m) {
      const auto p = training.parameters();
      const auto g = training.gradients();
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double target = problem::unit(i * 13 + static_cast<std::size_t>(world.rank() * 5 + m % 3));
        g[i] = static_cast<typename Storage::gradient_type>(static_cast<double>(g[i]) + static_cast<double>(p[i]) - target);
      }
      if (auto const report = training.accumulated(1, 0); report && world.rank() == 0) result.bytes = report->bytes_sent;
    }
    training.finish();
    const auto digest = training.world_digest();
    if (world.rank() != 0) return;
    result.digest = digest;
    for (auto const each : training.parameters()) result.parameters.push_back(static_cast<float>(each));
  });
  return result;
}

/// Singular values in fp64, by Jacobi rotations of the rows.
std::vector<double> singular_values(std::vector<double> x, std::size_t rows, std::size_t columns) {
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = i + 1; j < rows; ++j) {
        double a = 0, b = 0, c = 0;
        for (std::size_t k = 0; k < columns; ++k) {
          a += x[i * columns + k] * x[i * columns + k];
          b += x[j * columns + k] * x[j * columns + k];
          c += x[i * columns + k] * x[j * columns + k];
        }
        if (c == 0) continue;
        const double t = (b - a) / (2 * c), tangent = (t < 0 ? -1 : 1) / (std::abs(t) + std::sqrt(1 + t * t));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = tangent * cosine;
        for (std::size_t k = 0; k < columns; ++k) {
          const double u = x[i * columns + k], v = x[j * columns + k];
          x[i * columns + k] = cosine * u - sine * v;
          x[j * columns + k] = sine * u + cosine * v;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < columns; ++k) sum += x[i * columns + k] * x[i * columns + k];
    values.push_back(std::sqrt(sum));
  }
  return values;
}
std::vector<double> transposed(std::vector<double> const& x, std::size_t rows, std::size_t columns) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
  }
  return y;
}
/// What Newton and Schulz come to, as it stands in the text, by loops.
std::vector<double> textbook(std::vector<double> x, std::size_t rows, std::size_t columns, double scale) {
  if (rows > columns) return transposed(textbook(transposed(x, rows, columns), columns, rows, scale), columns, rows);
  const auto product = [](std::vector<double> const& a, std::vector<double> const& b, std::size_t m, std::size_t n,
                          std::size_t k) {
    std::vector<double> c(m * k, 0.0);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t l = 0; l < n; ++l) {
        for (std::size_t j = 0; j < k; ++j) c[i * k + j] += a[i * n + l] * b[l * k + j];
      }
    }
    return c;
  };
  double squares = 0;
  for (const double each : x) squares += each * each;
  for (double& each : x) each /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    auto const gram = product(x, transposed(x, rows, columns), rows, columns, rows);
    auto const square = product(gram, gram, rows, rows, rows);
    std::vector<double> sum(rows * rows);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = -4.7750 * gram[i] + 2.0315 * square[i];
    auto const rest = product(sum, x, rows, rows, columns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + rest[i];
  }
  for (double& each : x) each *= scale;
  return x;
}

}  // namespace

TEST_CASE("a placement: every element once, whole matrices in one share, shares no larger than it takes") {
  std::size_t gaps = 0;
  for (std::size_t seed = 0; seed < 200; ++seed) {
    acco::parameter_layout layout;
    const auto others = layout.add_group({.rule = 1}), still = layout.add_group({.frozen = true});
    const auto draw = [&](std::size_t k, std::size_t most) {
      return static_cast<std::size_t>(problem::unit(seed * 1000 + k) * static_cast<double>(most));
    };
    std::size_t largest = 0, trainable = 0;
    const std::size_t tensors = 1 + draw(0, 12);
    for (std::size_t k = 0; k < tensors; ++k) {
      const std::size_t rows = draw(3 * k + 1, 40), columns = draw(3 * k + 2, 40), kind = draw(3 * k + 3, 4);
      layout.add(std::to_string(k), {rows, columns}, kind == 0 ? others : kind == 1 ? still : 0);
      if (kind != 1) trainable += rows * columns;
      if (kind > 1) largest = std::max(largest, rows * columns);
    }
    const int ranks = 1 + static_cast<int>(draw(900, 8));
    const std::size_t bucket = draw(901, 3) * 700;
    CAPTURE(seed);
    const auto whole = [&](std::size_t k) { return layout[k].group == 0; };
    const acco::placement placed(layout, ranks, bucket, whole);
    CHECK(placed.empty() == (largest == 0));
    if (placed.empty()) continue;
    const acco::partition shares = placed.shares(ranks);
    std::vector<int> owner(trainable, -1), bucket_of(trainable, -1);
    std::vector<std::size_t> offset(trainable, 0);
    std::size_t bad = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      shares.for_shares(rank, [&](std::size_t at, std::size_t first, std::size_t count) {
        REQUIRE(first + count <= trainable);
        for (std::size_t i = 0; i < count; ++i) {
          bad += owner[first + i] == -1 ? 0U : 1U;
          owner[first + i] = rank;
          offset[first + i] = at + i;
          bucket_of[first + i] = static_cast<int>((at + i) / shares[0].share);
        }
      });
    }
    for (std::size_t i = 0; i < trainable; ++i) {
      const auto told = shares.owner_of(i);
      bad += told.rank == owner[i] && told.offset == offset[i] && told.left > 0 ? 0U : 1U;
      bad += i + 1 < trainable && told.left > 1 && offset[i + 1] != offset[i] + 1 ? 1U : 0U;
    }
    std::size_t first = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      if (layout[k].group == still) continue;
      for (std::size_t i = first; whole(k) && i < first + layout[k].size; ++i) {
        bad += owner[i] == owner[first] && bucket_of[i] == bucket_of[first] && offset[i] == offset[first] + (i - first) ? 0U : 1U;
      }
      first += layout[k].size;
    }
    const std::size_t parts = acco::partition(trainable, ranks, bucket).buckets() * static_cast<std::size_t>(ranks);
    const std::size_t least = (std::max((trainable + parts - 1) / parts, largest) + 63) / 64 * 64;
    CHECK(bad == 0);
    CHECK(shares[0].share >= least);
    CHECK(shares[0].share <= 2 * least + 64);
    gaps += shares.size() - trainable;
  }
  CHECK(gaps > 0);
}

TEST_CASE("whole matrices give the bits of single elements, in schedules of every kind, for any ranks and buckets") {
  std::size_t compared = 0;
  const auto compare = [&]<class Storage>(std::type_identity<Storage>, auto schedule) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const std::size_t bucket : {0U, 300U}) {
        CAPTURE(ranks);
        CAPTURE(bucket);
        const acco::options chosen{.average_decay = 0.9, .bucket_elements = bucket};
        auto const expected = trained<Storage>(ranks, schedule, either, chosen, 24, mixed(0, 2));
        CHECK(trained<Storage>(ranks, schedule, either, chosen, 24, mixed(1, 2)) == expected);
        ++compared;
      }
    }
  };
  using same = acco::host_storage<float>;
  compare(std::type_identity<same>(), acco::synchronous{.pace = acco::fixed_pace{2}});
  compare(std::type_identity<same>(), acco::weight_prediction{.pace = acco::fixed_pace{2}});
  compare(std::type_identity<same>(), acco::two_phase{.pace = acco::fixed_pace{1}});
#ifdef ACCO_TEST_ALL  // where matrices lie is not a matter of their type
  compare(std::type_identity<acco::host_storage<acco::bfloat16, float>>(), acco::two_phase{});
#endif
  compare(std::type_identity<same>(), acco::delayed{.predictor = acco::extrapolation{}});
  compare(std::type_identity<same>(), acco::delayed{.compensation = acco::delay_compensation{}});
  // bfloat16 rounds element by element, wherever these lie: gaps travel encoded, too
  compare(std::type_identity<same>(), acco::two_phase{.estimate = acco::bfloat16_wire{},
                                                      .commit = acco::coded{acco::bfloat16_wire{}, acco::bfloat16_wire{}}});
  CHECK(compared >= 6);
  // by an engine without matrices
  auto const expected = trained<same>(3, acco::two_phase{}, apart{}, {}, 24, uniform());
  CHECK(trained<same>(3, acco::two_phase{}, either, {}, 24, uniform()) == expected);
  CHECK(trained<same>(3, acco::two_phase{}, either, {}, 24, uniform(1)) == expected);
#ifdef ACCO_TEST_ALL
  CHECK(trained<same>(3, acco::two_phase{}, together{}, {}, 24, uniform()) == expected);
#endif
  CHECK(trained<same>(3, acco::two_phase{}, together_one_by_one{}, {}, 24, uniform()) == expected);
}

TEST_CASE("workers that exchange train matrices to the bits of single elements; so do estimates of one rank's own") {
  const auto bits = [](int ranks, auto schedule) {
    using storage = acco::host_storage<float>;
    auto const expected = trained<storage>(ranks, schedule, either, {}, 24, mixed(0, 2));
    auto const got = trained<storage>(ranks, schedule, either, {}, 24, mixed(1, 2));
    CHECK(got.parameters == expected.parameters);
    CHECK(got.parameters[0] != 0);
  };
  bits(4, acco::local_updates{.method = acco::diloco, .ranks_a_group = 2, .steps = 3});
  bits(1, acco::two_phase{.estimate = acco::own_corrected{}, .pace = acco::fixed_pace{2}});
}

TEST_CASE("a matrix whose gradient is left out, or whose step is skipped, stays as single elements would") {
  const auto with = [](std::size_t rule, auto schedule) {
    std::vector<float> result;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::parameter_layout layout;
      layout.add("silent", {9, 9}, layout.add_group({.rule = rule, .leave_without_gradient = true}))
          .add("a", {20, 20}, layout.add_group({.rule = rule}));
      acco::optimizer training{schedule, either, acco::host_storage<float>{},
                               world,    layout, acco::options{.on_non_finite = acco::non_finite::skip}};
      training.initialize(std::vector<float>(481, 1.0F));
      for (int m = 0; m < 9; ++m) {
        training.gradients()[100] += static_cast<float>(m);
        if (m == 4) training.gradients()[200] = INFINITY;
        if (m == 1 || m == 6) training.gradients()[3] = 2;  // and between them it has moved by nothing
        (void)training.accumulated(1, 0);
      }
      training.finish();
      if (world.rank() == 0) result.assign(training.parameters().begin(), training.parameters().end());
    });
    return result;
  };
  const auto compare = [&](auto schedule) {
    auto const expected = with(0, schedule);
    CHECK(with(1, schedule) == expected);
    CHECK(expected[3] != 1.0F);
    CHECK(expected[4] == 1.0F);
  };
  compare(acco::delayed{.predictor = acco::extrapolation{}});
  compare(acco::delayed{.compensation = acco::delay_compensation{.strength = 0.5}});
}

TEST_CASE("orthogonalize: the iteration of the text in every shape; singular values come close to 1, directions stay") {
  for (auto const& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {9, 1}, {4, 4}, {5, 7}, {33, 17}, {16, 64}, {3, 1100}, {1100, 3}, {70, 65}, {2, 2}, {64, 600}}) {
    const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
    CAPTURE(m);
    CAPTURE(n);
    std::vector<double> x(m * n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (problem::unit(i * 7 + m) - 0.5) * 1e-3;
    auto const expected = textbook(x, m, n, 3.0);
    const std::size_t room = acco::matrices::scratch_of_orthogonalize(m, n);
    std::vector<float> narrow(x.begin(), x.end()), scratch(room);
    acco::matrices::orthogonalize(acco::matrix_view<float>{narrow.data(), m, n, scratch.data()}, {}, 3.0);
    std::vector<double> wide = x, scratch_wide(room);
    acco::matrices::orthogonalize(acco::matrix_view<double>{wide.data(), m, n, scratch_wide.data()}, {}, 3.0);
    double worst = 0, worst_narrow = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(wide[i] - expected[i]));
      worst_narrow = std::max(worst_narrow, std::abs(static_cast<double>(narrow[i]) - expected[i]));
    }
    CHECK(worst < 1e-11);
    CHECK(worst_narrow < 1e-3);
    if (m == 16) {
      for (const double s : singular_values(wide, m, n)) {
        CHECK(s > 3 * 0.6);
        CHECK(s < 3 * 1.25);
      }
    }
  }
  std::vector<float> zero(12, 0.0F), scratch(acco::matrices::scratch_of_orthogonalize(3, 4));
  acco::matrices::orthogonalize(acco::matrix_view<float>{zero.data(), 3, 4, scratch.data()}, {}, 1.0);
  CHECK(zero == std::vector<float>(12, 0.0F));
  // the last are what is left of a momentum without gradients
  for (const float each : {1e-4F, 1e-20F, 1e-30F, 1e-39F, 1e-44F}) {
    std::vector<float> tiny(12, each);
    acco::matrices::orthogonalize(acco::matrix_view<float>{tiny.data(), 3, 4, scratch.data()}, {}, 1.0);
    CAPTURE(each);
    if (each == 1e-4F) {
      CHECK(tiny[0] > 0.15F);  // of a matrix of rank one, 1 / sqrt(12) about
    } else {
      CHECK(std::abs(tiny[0]) < 1e-9F);  // it comes to rest
    }
  }
}

TEST_CASE("muon: updates as in the text, AdamW beside it; both scales; the same for every number of ranks") {
  const auto layout = mixed();
  for (const bool spectral : {false, true}) {
    for (const bool nesterov : {true, false}) {
      const acco::muon rule{.learning_rate = 0.03,
                            .momentum = 0.9,
                            .weight_decay = 0.2,
                            .nesterov = nesterov,
                            .scale = spectral ? acco::muon_scale::spectral : acco::muon_scale::as_adamw};
      std::vector<double> p(problem::initial(layout.size())), m(layout.size(), 0.0);
      const int ranks = 3, steps = 5;
      for (int step = 0; step < steps; ++step) {
        std::vector<double> g(layout.size(), 0.0);
        for (std::size_t i = 0; i < g.size(); ++i) {
          for (int rank = 0; rank < ranks; ++rank)
            g[i] += (p[i] - problem::unit(i * 13 + static_cast<std::size_t>(rank * 5 + step % 3))) / ranks;
        }
        for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
          auto const each = layout[k];
          if (each.group != 0 || each.size == 0) continue;
          std::vector<double> u(each.size);
          for (std::size_t i = 0; i < each.size; ++i) {
            double& momentum = m[each.offset + i];
            const double fresh = 0.1 * g[each.offset + i];
            momentum = 0.9 * momentum + fresh;
            u[i] = nesterov ? fresh + 0.9 * momentum : momentum;
          }
          const std::size_t rows = each.shape[0], columns = each.size / rows;
          const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
          u = textbook(u, rows, columns, spectral ? std::sqrt(std::max(1.0, r / c)) : 0.2 * std::sqrt(std::max(r, c)));
          for (std::size_t i = 0; i < each.size; ++i) p[each.offset + i] = p[each.offset + i] * (1 - 0.03 * 0.2) - 0.03 * u[i];
        }
        for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
          auto const each = layout[k];
          for (std::size_t i = each.offset; each.group == 1 && i < each.offset + each.size; ++i) p[i] -= 0.02 * g[i];
        }
      }
      auto const got = trained<acco::host_storage<double>>(ranks, acco::synchronous{},
                                                           acco::rules{rule, acco::sgd{.learning_rate = 0.02}}, {}, steps);
      for (std::size_t i = 0; i < p.size(); ++i) CHECK(got.parameters[i] == doctest::Approx(p[i]).epsilon(1e-6));
    }
  }
  const acco::rules both{acco::muon{.learning_rate = 0.03}, acco::adamw{.learning_rate = 0.03}};
  const auto one = trained<acco::host_storage<float>>(1, acco::two_phase{.pace = acco::fixed_pace{2}}, both);
  CHECK(trained<acco::host_storage<float>>(1, acco::two_phase{.pace = acco::fixed_pace{2}}, both, {.bucket_elements = 64}) ==
        one);
}

TEST_CASE("nothing more travels for matrices; memory() says what is allocated, and rounds allocate nothing") {
  counting::resource counted;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::host_storage<float> storage;
    if (world.rank() == 0) storage.memory = &counted;
    acco::optimizer training{acco::two_phase{}, acco::rules{acco::muon{}, acco::adamw{}}, storage, world, mixed()};
    training.initialize(std::vector<float>(training.layout().size(), 0.5F));
    const auto memory = training.memory();
    if (world.rank() == 0) {
      CHECK(memory.total() == counted.now.load());
      CHECK(memory.scratch >= 4 * (24 * 8 + acco::matrices::scratch_of_orthogonalize(24, 8)));
    }
    std::size_t calls = 0, made = 0;
    std::optional<acco::round_report> last;
    for (int m = 0; m < 32; ++m) {
      if (m == 16) calls = counted.calls.load(), made = counting::news();
      if (m == 24) CHECK(counting::news() == made);
      for (float& g : training.gradients()) g += 1;
      if (auto const report = training.accumulated(1, 0)) last = report;
    }
    training.finish();
    if (world.rank() == 0) CHECK(counted.calls.load() == calls);
    acco::partition const shares = acco::placement(training.layout(), 2, 2U << 20U, [&](std::size_t k) {
                                     return training.layout()[k].group == 0;
                                   }).shares(2);
    REQUIRE(last.has_value());
    CHECK(last->bytes_sent < 2 * 4 * shares.padded_size() / 2 + 1000);  // there and back, half of it, and the counts
  });
}

namespace {
/// Memory that is not zero, nor a number.
class spoilt_memory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const found = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    std::memset(found, 0xff, bytes);
    return found;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};
}  // namespace

TEST_CASE("where nothing lies nothing travels: neither what memory held, nor what a block before has left") {
  const auto with = [](std::pmr::memory_resource* memory) {
    std::vector<float> result;
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::host_storage<float> storage;
      storage.memory = memory;
      acco::parameter_layout layout;
      const auto whole = layout.add_group({.rule = 1});
      // a share has room for the first
      layout.add("a", {24, 8}, whole).add("b", {10, 10}, whole).add("c", {9, 11}, whole);
      acco::optimizer training{acco::delayed{.commit = acco::block_int8{}}, either, storage, world, layout};
      training.initialize(std::vector<float>(training.layout().size(), 0.5F));
      for (int m = 0; m < 12; ++m) {
        for (float& g : training.gradients()) g += 1;
        (void)training.accumulated(1, 0);
      }
      training.finish();
      if (world.rank() == 0) result.assign(training.parameters().begin(), training.parameters().end());
    });
    return result;
  };
  spoilt_memory spoilt;
  CHECK(with(&spoilt) == with(std::pmr::new_delete_resource()));

  constexpr std::size_t block = acco::block_int8<>::block_size;
  std::vector<float> large(block, 1e6F), small(block, 1e-3F), none(block, 0.0F), back(block, 0.0F);
  std::vector<std::byte> code(acco::block_int8<>::block_bytes);
  const acco::trainable_run all{0, 0, block}, some[] = {{0, 0, 8}, {block - 8, 8, 8}};
  unsigned long long bad = 0, first = 0;
  const auto encode = [&](std::vector<float> const& values, acco::trainable_view<float> view) {
    acco::coding::encode_difference(acco::block_int8<>{}, values.data(), view, 0, block, code.data(), {&bad, &first});
  };
  encode(large, {none.data(), &all, 1});
  encode(small, {none.data(), some, 2, nullptr, true});
  acco::block_int8<>{}.decode(code.data(), back.data());
  CHECK(back[3] == doctest::Approx(1e-3).epsilon(0.01));
  CHECK(back[100] == 0.0F);
}

TEST_CASE("tensors of the trainer's own arrays are matrices, too") {
  std::vector<float> expected;
  const auto layout = mixed();
  const acco::rules both{acco::muon{.learning_rate = 0.03}, acco::adamw{.learning_rate = 0.03}};
  for (const bool own : {false, true}) {
    std::vector<std::vector<float>> p, g;
    std::vector<acco::tensor_memory<float>> tensors;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      p.emplace_back(layout[k].size + 3, 0.25F);
      g.emplace_back(layout[k].size + 3, 0.0F);
    }
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) tensors.push_back({p[k].data(), g[k].data()});
    acco::optimizer training{acco::two_phase{}, both, acco::host_storage<float>{}, acco::threads_backend::world(1)[0], layout};
    if (own) {
      training.adopt(tensors);
    } else {
      training.initialize(std::vector<float>(layout.size(), 0.25F));
    }
    for (int m = 0; m < 12; ++m) {
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const each = training.tensor(layout[k].name);
        for (std::size_t i = 0; i < each.gradients.size(); ++i)
          each.gradients[i] += each.parameters[i] - static_cast<float>(problem::unit(k * 100 + i));
      }
      (void)training.accumulated(1, 0);
    }
    training.finish();
    std::vector<float> all(layout.size());
    training.gather_committed(all);
    if (!own) expected = all;
    CHECK(all == expected);
    if (own) CHECK(p[1][5] == expected[layout[1].offset + 5]);
  }
  CHECK(expected[layout[1].offset] != 0.25F);
}

TEST_CASE("a rule for matrices names the tensor that is none") {
  acco::parameter_layout layout;
  layout.add("weight", {4, 4}).add("bias", {4});
  const auto make = [&](acco::parameter_layout const& of) {
    acco::optimizer training{acco::synchronous{}, acco::muon{}, acco::host_storage<float>{}, acco::solo_backend{}, of};
  };
  CHECK_THROWS_WITH_AS(make(layout),
                       doctest::Contains("tensor 'bias' has 1 dimension and 4 elements, and its rule updates matrices"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(make(acco::parameter_layout(10)), doctest::Contains("tensor 'parameters' has 1 dimension"),
                       acco::usage_error);
  acco::parameter_layout other;
  other.add("weight", {4, 4}, other.add_group({.beta1 = 0.5}));
  CHECK_THROWS_WITH_AS(make(other),
                       doctest::Contains("a group has a beta or epsilon of its own, which the rule muon does not take"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(acco::muon{.iterations = 0}.check(), doctest::Contains("muon::iterations is 0"), acco::usage_error);
  acco::parameter_layout alone;
  alone.add("weight", {4, 4});
  make(alone);
}
