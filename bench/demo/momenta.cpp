// SPDX-License-Identifier: Apache-2.0
// bench_demo basis, bench_demo state: what ranks keep to themselves.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "asked.hpp"
#include "bases.hpp"
#include "host_model.hpp"
#include "matrix.hpp"

namespace {

using acco::threads_backend;
using asked::question;

std::size_t steps_of(question const& a, int ranks) {
  return static_cast<std::size_t>(a.samples / 32) / static_cast<std::size_t>(ranks);
}

/// Trains by DeMo, sharded. Before each step `before(rank, step, the sum of its gradients)`, after it
/// `after(rank, step, its momentum)`: a rank comes to the next step's `after` when all have left this one's.
using seen = std::function<void(int rank, std::size_t step, std::span<float const>)>;
void along_training(question const& a, int ranks, seen const& before, seen const& after) {
  using storage = acco::host_storage<float>;
  const acco::synchronous schedule{.commit = asked::sharded, .pace = asked::eight};
  const acco::lion rule = [] {
    acco::lion found = asked::signs(0.1);
    found.learning_rate = 1e-3;
    return found;
  }();
  toy_gpt::settings s;
  s.model = asked::small;
  const toy_gpt::corpus text(a.data.empty() ? toy_gpt::repository_text(".") : toy_gpt::read_file(a.data), s.model.context);
  toy_gpt::use_one_thread_for_products();
  threads_backend::run(ranks, [&](threads_backend const& world) {
    toy_gpt::flush_subnormal_numbers();
    toy_gpt::host_model<float> model(s);
    acco::round_engine<storage> training(  // which shows its momentum
        std::make_unique<acco::schedule_of<std::remove_const_t<decltype(schedule)>, storage>>(schedule),
        std::make_unique<acco::rule_of<acco::lion, storage>>(rule), storage{},
        std::make_unique<acco::backend_of<threads_backend, storage>>(world), model.layout(),
        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = a.samples / 20, .total = a.samples}});
    training.initialize(model.initial(1));
    toy_gpt::batch data;
    std::uint64_t next = 0;
    for (std::size_t step = 0; step < steps_of(a, ranks);) {
      text.draw(data, 4, 1, static_cast<std::uint64_t>(world.rank()), next++);
      const double loss = model.add_gradients(data, training.parameters(), training.gradients());
      if (next % 8 == 0) before(world.rank(), step, training.gradients());
      if (training.accumulated(4, loss)) after(world.rank(), step++, training.feedback());
    }
    training.finish(acco::unfinished::commit);
  });
}

double product(std::span<float const> x, std::span<float const> y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

}  // namespace

void asked::basis(question const& a) {
  constexpr std::size_t chunk = 64, travel = 4, kept[] = {1, 4, 16};
  constexpr transform bases[] = {transform::cosine, transform::as_it_is, transform::hadamard, transform::random};
  constexpr char const* names[] = {"cosine", "none", "Hadamard", "random rotation"};
  struct sums {
    std::vector<float> matrix = {}, momentum = {}, before = {};  // the last: coefficients of the gradient, a step ago
    double held[3] = {}, products[2] = {}, sizes[2] = {}, whole = 0;
  };
  std::array<sums, 4> all;
  const std::size_t steps = steps_of(a, 1);
  along_training(
      a, 1,
      [&](int, std::size_t step, std::span<float const> g) {
        const std::size_t chunks = g.size() / chunk;
        const bool looks = step >= steps / 10 && step % 4 == 0;
        for (std::size_t b = 0; b < all.size(); ++b) {
          sums& mine = all[b];
          if (mine.matrix.empty()) mine.matrix = matrix_of(bases[b], chunk);
          mine.momentum.resize(chunks * chunk);
          mine.before.resize(chunks * chunk);
          for (std::size_t n = 0; n < chunks * chunk; n += chunk) {
            float *const momentum = mine.momentum.data() + n, *const before = mine.before.data() + n;
            for (std::size_t i = 0; i < chunk; ++i) momentum[i] = 0.99F * momentum[i] + g[n + i];
            std::array<float, chunk> c, now, sent;
            std::array<double, chunk> squares;
            turn(mine.matrix, chunk, momentum, c.data());
            turn(mine.matrix, chunk, g.data() + n, now.data());
            for (std::size_t i = 0; i < chunk; ++i) squares[i] = static_cast<double>(c[i]) * static_cast<double>(c[i]);
            std::sort(squares.begin(), squares.end(), std::greater<>());
            keep_largest(c.data(), chunk, travel);
            for (std::size_t k = 0; k < 3 && looks; ++k)
              mine.held[k] += std::accumulate(squares.begin(), squares.begin() + static_cast<std::ptrdiff_t>(kept[k]), 0.0);
            if (looks) mine.whole += std::accumulate(squares.begin(), squares.end(), 0.0);
            for (std::size_t i = 0; i < chunk && looks; ++i) {
              const double x = static_cast<double>(now[i]), y = static_cast<double>(before[i]);
              mine.products[c[i] != 0] += x * y;
              mine.sizes[c[i] != 0] += (x * x + y * y) / 2;
            }
            std::copy(now.begin(), now.end(), before);
            turn_back(mine.matrix, chunk, c.data(), sent.data());
            for (std::size_t i = 0; i < chunk; ++i) momentum[i] -= sent[i];
          }
        }
      },
      [](int, std::size_t, std::span<float const>) {});
  std::printf(
      "One rank's momentum (decay 0.99), of which the %zu largest of each chunk of %zu travel: the part of its energy that the k "
      "largest hold; the correlation of a gradient's coefficient with itself a step before, of those that travel and of those "
      "that stay\n\n| transform | k = 1 | 4 | 16 | travels | stays |\n|---|---|---|---|---|---|\n",
      travel, chunk);
  for (std::size_t b = 0; b < all.size(); ++b) {
    std::printf("| %s |", names[b]);
    for (const double part : all[b].held) std::printf(" %.3f |", part / all[b].whole);
    std::printf(" %.3f | %.3f |\n", all[b].products[1] / all[b].sizes[1], all[b].products[0] / all[b].sizes[0]);
  }
}

void asked::state(question const& a) {
  constexpr int n = 4;
  struct line {
    double momentum = 0, gradient = 0, apart = 0, alike = 0;
  };
  std::vector<line> told(steps_of(a, n));
  std::vector<std::vector<float>> momenta(n);
  std::mutex together;
  std::size_t come = 0;
  along_training(
      a, n,
      [&](int rank, std::size_t step, std::span<float const> g) {
        const std::lock_guard hold(together);
        told[step].gradient += std::sqrt(product(g, g)) / n;
        momenta[static_cast<std::size_t>(rank)].resize(g.size());
      },
      [&](int rank, std::size_t step, std::span<float const> momentum) {
        const std::lock_guard hold(together);
        auto& mine = momenta[static_cast<std::size_t>(rank)];
        std::copy_n(momentum.begin(), mine.size(), mine.begin());
        if (++come % n != 0) return;
        std::vector<float> mean(mine.size(), 0.0F);
        for (auto const& each : momenta)
          for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i] / n;
        for (auto each : momenta) {
          told[step].momentum += std::sqrt(product(each, each)) / n;
          for (std::size_t i = 0; i < mean.size(); ++i) each[i] -= mean[i];
          told[step].apart += std::sqrt(product(each, each)) / n;
        }
        auto const &x = momenta[0], &y = momenta[1];
        told[step].alike = product(x, y) / std::sqrt(product(x, x) * product(y, y));
      });
  std::printf(
      "What 4 ranks keep apart in a training by DeMo, sharded, 16 of 256, decay 0.99: the length of a rank's momentum, the same "
      "over the length of its gradient, how far it is from the mean of all ranks' momenta, and the cosine of the angle between "
      "those of two ranks\n\n| step | momentum | of one gradient | from the mean | alike |\n|---|---|---|---|---|\n");
  const std::size_t every = std::max<std::size_t>(told.size() / 10, 1);
  for (std::size_t step = every; step <= told.size(); step += every) {
    line const& at = told[step - 1];
    std::printf("| %zu | %.3g | %.2f | %.3g | %.3f |\n", step, at.momentum, at.momentum / at.gradient, at.apart, at.alike);
  }
}
