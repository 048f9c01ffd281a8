// SPDX-License-Identifier: Apache-2.0
// What an optimizer does not train: others may write to it at any time, and it may be each rank's own.
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/patience.hpp"

namespace {
constexpr std::size_t weights = 40, statistics = 10;

/// An encoder that the critic trains and that is frozen in the actor. One rank ends its micro-batches in another order:
/// where the actor's rounds end, the encoder differs between the ranks.
template <class Schedule>
void share_an_encoder(Schedule const& schedule) {
  constexpr std::size_t n = 2000;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout of_actor, of_critic;
    of_actor.add("actor", {n}).add("encoder", {n}, of_actor.add_group({.frozen = true}));
    of_critic.add("encoder", {n}).add("critic", {n});
    const acco::options chosen{.deadline = 60 * patience(), .compare_every = 1};
    acco::optimizer actor{schedule, acco::sgd{.learning_rate = 0.25}, acco::host_storage<float>{}, world, of_actor, chosen};
    acco::optimizer critic{schedule, acco::sgd{.learning_rate = 0.5}, acco::host_storage<float>{}, world, of_critic, chosen};
    std::vector<float> a(n, 1.0F), e(n, 2.0F), c(n, 3.0F), ga(n), ge(n), gc(n);
    using tensors = std::vector<acco::tensor_memory<float>>;
    critic.adopt(tensors{{e.data(), ge.data()}, {c.data(), gc.data()}});
    actor.adopt(tensors{{a.data(), ga.data()}, {e.data(), nullptr}});
    const auto ends = [](auto& training, std::vector<float>& gradients, std::vector<float>& more) {
      for (float& each : gradients) each += 1;
      if (&more != &gradients) {
        for (float& each : more) each += 1;
      }
      (void)training.accumulated(1);
    };
    for (int m = 0; m < 40; ++m) {
      if (world.rank() == 0) {
        ends(actor, ga, ga);
        if (m % 2 == 0) (void)actor.state_digest();  // waits for the actor's round
        ends(critic, ge, gc);
      } else {
        ends(critic, ge, gc);
        ends(actor, ga, ga);
      }
    }
    actor.finish();
    critic.finish();
    const auto steps = static_cast<float>(critic.steps());
    CHECK(steps >= 20);
    CHECK(actor.steps() == critic.steps());
    CHECK(a == std::vector<float>(n, 1 - 0.25F * steps));
    CHECK(e == std::vector<float>(n, 2 - 0.5F * steps));
    CHECK(c == std::vector<float>(n, 3 - 0.5F * steps));
  });
}

acco::parameter_layout layout_of(acco::update_group const& of_mean) {
  acco::parameter_layout layout;
  const auto mean = layout.add_group(of_mean), still = layout.add_group({.frozen = true});
  layout.add("weight", {weights}).add("mean", {statistics}, mean).add("bias", {7}).add("still", {5}, still);
  return layout;
}
/// Statistics that the program writes, on each rank its own, lie among the weights. Whether that ended by a
/// `corruption_error`.
template <class Schedule>
bool ends_corrupted(Schedule const& schedule, acco::update_group const& of_mean, acco::options chosen) {
  bool corrupted = false;
  chosen.deadline = 60 * patience();
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto const layout = layout_of(of_mean);
    std::vector<float> p(layout.size(), 1.0F), g(layout.size());
    std::vector<float> mean(statistics, 1.0F);
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.25}, acco::host_storage<float>{}, world, layout, chosen};
    training.adopt(p, g);
    try {
      for (int m = 0; m < 30; ++m) {
        for (std::size_t i = 0; i < weights; ++i) g[i] += 1;
        for (std::size_t i = 0; i < 7; ++i) g[weights + statistics + i] += 1;
        for (std::size_t i = 0; i < statistics; ++i)
          p[weights + i] = mean[i] = 0.5F * mean[i] + static_cast<float>(world.rank() + m % 3);
        (void)training.accumulated(1);
      }
      training.finish();
    } catch (acco::corruption_error const&) {
      if (world.rank() == 0) corrupted = true;
      return;
    }
    CHECK(std::vector<float>(p.begin() + weights, p.begin() + weights + statistics) == mean);
    CHECK(p[0] == 1 - 0.25F * static_cast<float>(training.steps()));
  });
  return corrupted;
}
}  // namespace

TEST_CASE("an encoder that another optimizer trains is not looked at by the one in which it is frozen") {
  share_an_encoder(acco::delayed{});
  share_an_encoder(acco::two_phase{.pace = acco::fixed_pace{1}});
}

TEST_CASE("what another optimizer trains is not written by the one in which it is frozen") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::parameter_layout of_actor, of_critic;
    of_actor.add("actor", {30}).add("encoder", {20}, of_actor.add_group({.frozen = true}));
    of_critic.add("encoder", {20}).add("critic", {10});
    const acco::options looks{.check_habits = acco::habit_checks::on};
    const acco::sgd rule{.learning_rate = 0.5};
    std::vector<float> a(30), e(20, 2.0F), c(10), ga(30), ge(20), gc(10);
    acco::optimizer critic{acco::synchronous{}, rule, acco::host_storage<float>{}, world, of_critic, looks};
    acco::optimizer actor{acco::synchronous{}, rule, acco::host_storage<float>{}, world, of_actor, looks};
    using tensors = std::vector<acco::tensor_memory<float>>;
    critic.adopt(tensors{{e.data(), ge.data()}, {c.data(), gc.data()}});
    const std::vector<double> masters(50, 7.0);
    actor.adopt(tensors{{a.data(), ga.data()}, {e.data(), nullptr}}, std::span<double const>(masters));
    CHECK(a[0] == 7.0F);
    CHECK(e[5] == 2.0F);
    ge[5] += 1;
    critic.accumulated(1);
    CHECK(e[5] == 1.5F);
    const std::vector<float> given(50, 9.0F);
    actor.set_parameters(given);
    CHECK(a[0] == 9.0F);
    CHECK(e[5] == 1.5F);
    actor.set_parameters("actor", std::span(given).first(30));
    critic.accumulated(1);  // it finds nothing that was written
    actor.accumulated(1);
    critic.finish();
    actor.finish();
    CHECK(e[5] == 1.5F);
    actor.set_parameters(given);  // nobody trains it now
    CHECK(e[5] == 9.0F);
  });
}

TEST_CASE("frozen tensors that the program writes, on each rank its own, are compared only where that is asked for by name") {
  const auto all = [](auto schedule, bool waits) {
    for (const bool per_rank : {false, true}) {
      const acco::update_group mean{.frozen = true, .per_rank = per_rank};
      const acco::options usual{.check_habits = acco::habit_checks::on, .compare_every = 1};
      CHECK_FALSE(ends_corrupted(schedule, mean, usual));
      acco::options looks = usual;
      looks.compare_frozen = true;
      if (per_rank || waits) CHECK(ends_corrupted(schedule, mean, looks) == !per_rank);  // else they are read meanwhile
    }
  };
  all(acco::synchronous{}, true);
  all(acco::two_phase{.pace = acco::fixed_pace{1}}, false);
}

TEST_CASE("what is per_rank keeps each rank's values where others get rank 0's, under local updates too") {
  const auto with = [](auto schedule, auto storage) {
    using P = typename decltype(storage)::parameter_type;
    acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
      auto const layout = layout_of({.frozen = true, .per_rank = true});
      const auto own = static_cast<float>(world.rank() + 1);
      std::vector<P> now(layout.size());
      auto const is = [&](float common, float mean) {
        for (std::size_t i = 0; i < now.size(); ++i)
          CHECK(static_cast<float>(now[i]) == (i >= weights && i < weights + statistics ? mean : common));
      };
      const auto made = [&] {
        return acco::optimizer{schedule, acco::sgd{}, storage, world, layout, acco::options{.deadline = 60 * patience()}};
      };
      const auto begins = [&](auto const& initial) {
        auto training = made();
        training.initialize(initial);
        now.assign(training.parameters().begin(), training.parameters().end());
        is(1, own);
        training.finish();
      };
      begins(std::vector<P>(layout.size(), P(own)));
      if constexpr (!std::is_same_v<P, float>) begins(std::vector<float>(layout.size(), own));
      std::vector<P> gradients(layout.size());
      {
        auto training = made();
        now.assign(layout.size(), P(own));
        training.adopt(now, gradients);
        is(1, own);
        training.finish();
        training.set_parameters(std::vector<P>(layout.size(), P(2 * own)));
        is(2, 2 * own);
        training.set_parameters(training.parameters());
        training.set_parameters("bias", std::vector<P>(7, P(2.0F)));
        is(2, 2 * own);
        training.finish();
      }
      std::vector<acco::tensor_memory<P>> tensors;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k)
        tensors.push_back({now.data() + layout[k].offset, gradients.data() + layout[k].offset});
      auto training = made();
      now.assign(layout.size(), P(own));
      training.adopt(tensors);
      is(1, own);
      training.finish();
      training.set_parameters(std::vector<P>(layout.size(), P(3 * own)));
      is(3, 3 * own);
      training.finish();
    });
  };
  with(acco::two_phase{}, acco::host_storage<float>{});
  with(acco::synchronous{}, acco::host_storage<acco::bfloat16>{});
  with(acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 2}, acco::host_storage<acco::bfloat16>{});
}
