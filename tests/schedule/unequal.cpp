// SPDX-License-Identifier: Apache-2.0
// examples/unequal against the same steps in double precision, in one thread: which packs a round carried is what the
// reports say, all else is the recurrence, in which every token counts once.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/unequal/training.hpp"
#include "support/reference.hpp"

namespace {

using reference::vector;

/// Sums over tokens.
struct sums {
  vector gradient = vector(unequal::parameter_count, 0.0);
  double tokens = 0, loss = 0;
};
void add(sums& to, unequal::pack const& documents, vector const& parameters) {
  for (unequal::document const& each : documents) {
    for (std::size_t i = 1; i < each.size(); ++i) {
      double const* const logits = &parameters[each[i - 1] * unequal::letters];
      double* const gradient = &to.gradient[each[i - 1] * unequal::letters];
      double sum = 0;
      for (std::size_t j = 0; j < unequal::letters; ++j) sum += std::exp(logits[j]);
      for (std::size_t j = 0; j < unequal::letters; ++j) gradient[j] += std::exp(logits[j]) / sum - (j == each[i] ? 1 : 0);
      to.loss -= std::log(std::exp(logits[each[i]]) / sum);
      to.tokens += 1;
    }
  }
}

struct state {
  vector parameters = vector(unequal::parameter_count, 0.0), slots = vector(2 * unequal::parameter_count, 0.0);
  double updates = 0;
};
void update(state& of, vector const& gradient, double tokens) {
  const acco::adamw rule{.learning_rate = 0.05};
  of.updates += 1;
  for (std::size_t i = 0; i < of.parameters.size(); ++i)
    reference::update(rule, of.parameters[i], gradient[i] / tokens, &of.slots[2 * i], of.updates,
                      {rule.learning_rate, rule.weight_decay, false});
}

/// Follows the rounds; `two_phase`: even ones estimate, and what a round carries was computed at the result of the one
/// before the last.
void follow(unequal::settings const& s, unequal::source const& texts, unequal::outcome const& of, bool two_phase) {
  const auto ranks = static_cast<std::size_t>(s.ranks);
  std::vector<std::uint64_t> next(ranks, 0);
  std::vector<vector> shown(two_phase ? 2 : 1, vector(unequal::parameter_count, 0.0));  // at which round k is computed
  state now;
  sums kept;
  double committed = 0;
  const std::size_t rounds = of.rounds[0].size();
  for (std::size_t k = 0; k < rounds; ++k) {
    CAPTURE(k);
    sums fresh;
    for (std::size_t r = 0; r < ranks; ++r) {
      REQUIRE(of.rounds[r].size() == rounds);
      for (std::size_t m = 0; m < of.rounds[r][k].micro_batches; ++m)
        add(fresh, texts.draw(static_cast<int>(r), next[r]++), shown[k]);
    }
    acco::round_report const& told = of.rounds[0][k];
    CHECK(told.weight == fresh.tokens);
    CHECK(told.mean_loss == doctest::Approx(fresh.loss / fresh.tokens).epsilon(1e-5));
    if (two_phase && k % 2 == 0) {
      state ahead = now;
      update(ahead, fresh.gradient, fresh.tokens);
      shown.push_back(ahead.parameters);
      kept = fresh;
      continue;
    }
    for (std::size_t i = 0; i < fresh.gradient.size(); ++i) fresh.gradient[i] += kept.gradient[i];
    fresh.tokens += kept.tokens;
    update(now, fresh.gradient, fresh.tokens);
    shown.push_back(now.parameters);
    committed += fresh.tokens;
    CHECK(told.samples == committed);
    CHECK(told.step_loss == doctest::Approx((fresh.loss + kept.loss) / fresh.tokens).epsilon(1e-5));
  }
  CHECK(of.tokens == committed);
  CHECK(of.updates == static_cast<std::uint64_t>(now.updates));
  double most = 0;
  for (std::size_t i = 0; i < of.parameters.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(of.parameters[i]) - now.parameters[i]));
  CHECK(most < 1e-3);

  sums rest;  // the first part of a step that nobody completed
  for (std::size_t r = 0; r < ranks; ++r)
    while (next[r] < of.micro_batches[r]) add(rest, texts.draw(static_cast<int>(r), next[r]++), now.parameters);
  CHECK(of.dropped == rest.tokens);
}

const unequal::settings few{.ranks = 3, .slower = 3, .microseconds = 1, .tokens = 30'000};

}  // namespace

TEST_CASE("every token counts once, whoever brought it: one rank is slower, documents are of unequal length") {
  const unequal::source texts(1);
  const auto elastic = train(few, texts, acco::two_phase{.pace = acco::elastic_pace{.at_most = 8}});
  follow(few, texts, elastic, true);
  const auto fixed = train(few, texts, acco::synchronous{.pace = acco::fixed_pace{3}});
  follow(few, texts, fixed, false);

  const double begun = std::log(static_cast<double>(unequal::letters));
  const double least = unequal::validation_loss(texts, texts.best());
  CHECK(least < begun - 0.5);
  for (auto const& each : {elastic, fixed}) {
    const double loss = unequal::validation_loss(texts, each.parameters);
    CHECK(loss < begun - 0.2);
    CHECK(loss > least);
  }
}
