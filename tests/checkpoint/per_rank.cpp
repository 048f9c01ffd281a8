// SPDX-License-Identifier: Apache-2.0
// Frozen tensors that are each rank's own, running statistics say, come back to the rank whose they were.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
constexpr std::size_t weights = 300, means = 10, variances = 5000, size = 2 * weights + means + variances + 20;
constexpr std::size_t mean_at = weights, variance_at = 2 * weights + means, still_at = size - 20;

acco::parameter_layout layout_of(acco::update_group const& of_statistics) {
  acco::parameter_layout layout;
  const auto own = layout.add_group(of_statistics), still = layout.add_group({.frozen = true});
  layout.add("a", {weights}).add("mean", {means}, own).add("b", {weights}).add("variance", {variances}, own);
  return layout.add("still", {20}, still);
}
/// One rank's training, in arrays of its own.
template <class Schedule>
struct one_rank {
  std::vector<float> p = std::vector<float>(size, 1.0F), g = std::vector<float>(size);
  acco::any_optimizer<float> training;

  one_rank(Schedule const& schedule, acco::threads_backend const& world, acco::update_group const& group)
      : training(acco::optimizer{
            schedule, acco::sgd{.learning_rate = 0.25}, acco::host_storage<float>{}, world, layout_of(group),
            acco::options{.deadline = 60 * patience(), .check_habits = acco::habit_checks::off, .compare_every = 1}}) {
    for (std::size_t i = 0; i < 20; ++i) p[still_at + i] = 7;
    training.adopt(p, g);
  }
  void step(int rank) {
    (void)training.step([&] {
      for (std::size_t i = 0; i < weights; ++i) g[i] += 1;
      for (std::size_t i = 0; i < means; ++i) p[mean_at + i] += static_cast<float>(rank + 1);
      for (std::size_t i = 0; i < variances; ++i) p[variance_at + i] += static_cast<float>(rank + 1) * static_cast<float>(i % 7);
      return 1;
    });
  }
  [[nodiscard]] bool has(float mean, float variance) const {  // the second of them all
    bool found = true;
    for (std::size_t i = 0; i < means; ++i) found = found && p[mean_at + i] == mean;
    for (std::size_t i = 0; i < variances; ++i)
      found = found && p[variance_at + i] == 1 + (variance - 1) * static_cast<float>(i % 7);
    for (std::size_t i = 0; i < 20; ++i) found = found && p[still_at + i] == 7;
    return found;
  }
};
struct position {
  float mean, variance;
};
const acco::update_group own{.frozen = true, .per_rank = true}, common{.frozen = true}, trained{.learning_rate_scale = 0};

/// Two checkpoints of one cut, of three ranks, in the midst of a training.
template <class Schedule>
void save(Schedule const& schedule, acco::update_group const& group, scratch const& folder) {
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    one_rank mine(schedule, world, group);
    const auto where = [&] { return position{mine.p[mean_at], mine.p[variance_at + 1]}; };
    for (int k = 0; k < 12; ++k) {
      if (k == 5) mine.training.save(folder.run(), where);
      if (k == 5) mine.training.save(folder.run("best"), where);
      mine.step(world.rank());
    }
    mine.training.finish();
    REQUIRE_MESSAGE(mine.training.saved()->complete(), mine.training.saved()->problem);
  });
}
/// `of`: the rank of then whose values each rank has now; nothing: its own number modulo three.
template <class Schedule>
void restore(Schedule const& schedule, acco::update_group const& group, std::string const& run, int ranks, std::optional<int> of,
             acco::changes changes = acco::changes::allowed) {
  CAPTURE(ranks);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    one_rank mine(schedule, world, group);
    mine.training.finish();
    const acco::restored found = mine.training.restore(run, changes);
    const int whose = of.value_or(world.rank() % 3);
    CHECK(found.per_rank_of == (of ? -1 : whose));
    auto const then = found.position<position>(static_cast<std::size_t>(whose));
    CHECK(then.mean > 2);
    CHECK(mine.has(then.mean, then.variance));
    CHECK(found.exact == (ranks == 3 && !of));
    for (int k = 0; k < 3 && group.frozen; ++k) mine.step(world.rank());
    mine.training.finish();
  });
}
}  // namespace

TEST_CASE("each rank's own frozen tensors come back to it, and among other ranks to those of its number modulo theirs") {
  const auto with = [](auto schedule) {
    const scratch folder(in_memory());
    save(schedule, own, folder);
    for (char const* const name : {"run", "best"}) {
      auto const path = acco::latest_checkpoint(folder.run(name));
      REQUIRE(path.has_value());
      CHECK(acco::verify_checkpoint(*path));
      for (const int ranks : {3, 2, 5}) restore(schedule, own, folder.run(name), ranks, {}, acco::changes::none);
    }
  };
  with(acco::synchronous{});
  with(acco::delayed{});
  with(acco::two_phase{.pace = acco::fixed_pace{1}});
}

TEST_CASE("what was each rank's own and is no more, and the other way round: all have rank 0's") {
  const scratch of_each(in_memory()), of_all(in_memory());
  save(acco::delayed{}, own, of_each);
  save(acco::delayed{}, common, of_all);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    one_rank mine(acco::delayed{}, world, common);
    CHECK_THROWS_WITH_AS((void)mine.training.restore(of_each.run()), doctest::Contains("is another training's"),
                         acco::checkpoint_error);
  });
  for (const int ranks : {2, 3}) {
    restore(acco::delayed{}, common, of_each.run(), ranks, 0);
    restore(acco::delayed{}, trained, of_each.run(), ranks, 0);
    restore(acco::delayed{}, own, of_all.run(), ranks, 0);
  }
}

TEST_CASE("an encoder that the critic trains and that is frozen in the actor is the critic's, whichever is restored first") {
  const scratch folder;
  const auto train = [&](bool resumes, bool critic_first) {
    std::vector<float> end;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      constexpr std::size_t n = 64;
      acco::parameter_layout of_actor, of_critic;
      of_actor.add("actor", {n}).add("encoder", {n}, of_actor.add_group({.frozen = true}));
      of_critic.add("encoder", {n}).add("critic", {n});
      const acco::options looks{.deadline = 60 * patience(), .check_habits = acco::habit_checks::on};
      acco::optimizer critic{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, world, of_critic, looks};
      acco::optimizer actor{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, world, of_actor, looks};
      std::vector<float> a(n, 1.0F), e(n, 1.0F), c(n, 1.0F), ga(n), ge(n), gc(n);
      using tensors = std::vector<acco::tensor_memory<float>>;
      critic.adopt(tensors{{e.data(), ge.data()}, {c.data(), gc.data()}});
      actor.adopt(tensors{{a.data(), ga.data()}, {e.data(), nullptr}});
      int from = 0;
      if (resumes && !critic_first) (void)actor.restore(folder.run("actor"));
      if (resumes) from = critic.restore(folder.run("critic")).position<int>();
      if (resumes && critic_first) (void)actor.restore(folder.run("actor"));
      for (int step = from; step < 40; ++step) {
        for (std::size_t i = 0; i < n; ++i) ga[i] += a[i] * e[i] + static_cast<float>(step % 3);
        (void)actor.accumulated(1);
        for (std::size_t i = 0; i < n; ++i) {
          ge[i] += e[i] * static_cast<float>(step % 5) - 0.3F * static_cast<float>(i);
          gc[i] += c[i] + e[i];
        }
        (void)critic.accumulated(1);
        if (!resumes && step == 20) {
          actor.save(folder.run("actor"), [&] { return step; });
          critic.save(folder.run("critic"), [&] { return step + 1; });
        }
      }
      actor.finish();
      critic.finish();
      if (world.rank() != 0) return;
      end = e;
      end.insert(end.end(), c.begin(), c.end());
    });
    return end;
  };
  auto const whole = train(false, false);
  CHECK(train(true, false) == whole);
  CHECK(train(true, true) == whole);
}
