// SPDX-License-Identifier: Apache-2.0
// What meets a checkpoint: paces that measure or differ by rank, a trainer's own arrays, the state going back in memory
// meanwhile.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"

namespace {
constexpr std::size_t parameters = 400;

template <class Training>
auto micro_batch(Training& t, int rank, std::size_t m) {
  std::vector<double> sum(t.gradients().size(), 0.0);
  const double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), std::span<double>(sum));
  for (std::size_t i = 0; i < sum.size(); ++i) t.gradients()[i] += static_cast<float>(sum[i]);
  return t.accumulated(1, loss);
}
std::vector<float> initial() { return problem::converted<float>(problem::initial(parameters)); }
}  // namespace

TEST_CASE(
    "the locale changes between save and restore: its decimal point is nobody's business") {  // it does in commas/checkpoint
  const scratch folder;
  const std::string here = std::setlocale(LC_NUMERIC, nullptr);
  for (std::string const& there : {std::string("C"), here}) {
    std::setlocale(LC_NUMERIC, there.c_str());
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::delayed{}, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float>{}, world,
                        parameters,      acco::options{.clip_norm = 12.5}};
      if (acco::has_checkpoints(folder.run())) {
        CHECK(t.restore(folder.run()).exact);
      } else {
        t.initialize(initial());
        micro_batch(t, world.rank(), 0);
        t.save(folder.run());
      }
      t.finish();
    });
  }
  std::setlocale(LC_NUMERIC, here.c_str());
}

TEST_CASE("a pace that has measured: its split comes back, and is not measured again") {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    // The commit takes longer than an estimate in few bits does: the first part becomes the longer one.
    const auto slow = acco::rate_limited(world, {.bytes_per_second = 1e6, .latency = 1e-5});
    const auto make = [&] {
      return acco::optimizer{acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::auto_pace{.micro_batches = 8}},
                             acco::adamw{}, acco::host_storage<float>{}, slow, 4000};
    };
    const auto step = [&](auto& t, std::size_t m) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (std::size_t i = 0; i < t.gradients().size(); ++i) t.gradients()[i] += t.parameters()[i] + static_cast<float>(m);
      return t.accumulated(1);
    };
    auto first = make();
    first.initialize(std::vector<float>(4000, 1.0F));
    unsigned split = 0;
    for (std::size_t m = 0; m < 100; ++m) {
      if (auto const r = step(first, m)) split = r->second;
    }
    CHECK(split != 4);
    first.save(folder.run());
    first.finish();
    REQUIRE(first.saved()->complete());
    const std::uint64_t digest = first.world_digest();

    auto again = make();
    auto const found = again.restore(folder.run());
    CHECK(found.exact);
    CHECK(again.world_digest() == digest);
    for (std::size_t m = 100; m < 120; ++m) {
      auto const here = step(again, m), there = step(first, m);
      REQUIRE(here.has_value() == there.has_value());
      if (!here) continue;
      CHECK(here->second == split);
      CHECK(here->micro_batches == there->micro_batches);
      CHECK(here->step == there->step);
    }
    again.finish();
    first.finish();
    CHECK(again.world_digest() == first.world_digest());
    CHECK(std::vector<float>(again.parameters().begin(), again.parameters().end()) ==
          std::vector<float>(first.parameters().begin(), first.parameters().end()));
  });
}

TEST_CASE("under an elastic pace the state comes back, and the ranks go on with as many micro-batches as they like") {
  const scratch folder;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{acco::two_phase{.pace = acco::elastic_pace{.at_least = 1, .at_most = 6}},
                             acco::adamw{},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.digest_every = 1}};
    };
    auto t = make();
    t.initialize(initial());
    std::size_t m = 0;
    t.save(folder.run(), [&m] { return m; });
    for (; m < 1000000 && t.saved() == nullptr; ++m) (void)micro_batch(t, world.rank(), m);
    REQUIRE(t.saved() != nullptr);
    REQUIRE(t.saved()->complete());
    const std::uint64_t step = t.saved()->step, digest = t.saved()->digest;
    t.finish();
    auto again = make();
    auto const found = again.restore(folder.run());
    CHECK(found.step == step);
    if (world.rank() == 0) CHECK(found.digest == digest);
    CHECK(found.position<std::size_t>() < m);
    std::uint64_t steps = 0;
    for (m = found.position<std::size_t>() + 1; m < 1000000 && steps < step + 10; ++m) {
      if (auto const r = micro_batch(again, world.rank(), m)) steps = r->step;
    }
    again.finish();
    CHECK(again.steps() >= step + 10);
  });
}

TEST_CASE("into a trainer's own arrays, which stay where they are") {
  const scratch folder;
  for (const bool tensors : {false, true}) {
    CAPTURE(tensors);
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::parameter_layout layout;
      layout.add("a", {300}).add("b", {10, 10});
      const auto make = [&] {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world,
                               layout};
      };
      std::vector<std::uint64_t> told;
      std::size_t from = 0;
      std::uint64_t end = 0;
      {
        auto t = make();
        t.initialize(initial());
        std::size_t m = 0;
        t.save(folder.run(tensors ? "tensors" : "whole"), [&m] { return m; });
        for (; m < 40; ++m) (void)micro_batch(t, world.rank(), m);
        t.finish();
        REQUIRE(t.saved()->complete());
        end = t.world_digest();
      }
      std::vector<float> p(parameters, 7.0F), g(parameters, 3.0F);
      auto t = make();
      if (tensors) {
        t.adopt(std::vector<acco::tensor_memory<float>>{{p.data(), g.data()}, {p.data() + 300, g.data() + 300}});
      } else {
        t.adopt(p, g);
      }
      auto const found = t.restore(folder.run(tensors ? "tensors" : "whole"));
      CHECK(p != std::vector<float>(parameters, 7.0F));
      CHECK(g == std::vector<float>(parameters, 0.0F));
      from = found.position<std::size_t>() + 1;
      CHECK(from < 40);
      for (std::size_t m = from; m < 40; ++m) {
        std::vector<double> sum(parameters, 0.0);
        const double loss =
            problem::add_sample(problem::sample_id(world.rank(), m, 0), std::span<float const>(p), std::span<double>(sum));
        for (std::size_t i = 0; i < sum.size(); ++i) g[i] += static_cast<float>(sum[i]);
        (void)t.accumulated(1, loss);
      }
      t.finish();
      CHECK(t.world_digest() == end);
    });
  }
}

TEST_CASE("back to a snapshot while a save is being written: what was cut is written, and what goes on is another state") {
  const scratch folder;
  std::atomic<bool> writes{false}, may_write{false};
  struct waiting final : acco::checkpoints::system_calls {
    std::atomic<bool>*writes, *may_write;
    ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
      writes->store(true);
      while (!may_write->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return system_calls::pwrite(file, bytes, at);
    }
  } slow;
  slow.writes = &writes;
  slow.may_write = &may_write;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return slow; });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::adamw{},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.deadline = 60, .snapshots = 2, .snapshot_every = 4}};
    };
    auto t = make();
    t.initialize(initial());
    std::size_t m = 0, cut = 0;
    for (; m < 40; ++m) (void)micro_batch(t, world.rank(), m);
    t.save(folder.run(), [&] { return cut = m; });
    for (; cut == 0 || m < cut + 6; ++m) (void)micro_batch(t, world.rank(), m);
    for (int wait = 0; !writes && wait < 5000; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(writes);
    const std::uint64_t steps = t.steps();
    auto const back = t.rewind(2);
    CHECK(back.step < steps);
    CHECK(t.saved() == nullptr);
    may_write = true;
    for (m = back.micro_batches; m < 1000000 && t.saved() == nullptr; ++m)
      (void)micro_batch(t, world.rank(), 1000 + m);  // other data
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
    const std::uint64_t step = t.saved()->step, digest = t.saved()->digest;
    t.finish();
    auto again = make();
    auto const found = again.restore(folder.run());
    CHECK(found.step == step);
    if (world.rank() == 0) CHECK(found.digest == digest);
    CHECK(again.world_digest() == found.digest);
    CHECK(found.position<std::size_t>() == cut);
    again.finish();
  });
}

TEST_CASE("a pace is reminded of nothing that it cannot have found") {
  for (const double second :
       {-1.0, 8.0, 1e6, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    acco::auto_pace pace{.micro_batches = 8};
    pace.remind({3, second, 1, 1, 1});
    CHECK(pace.minimum(acco::step_part::second) == 4);
    pace.remind({second, 2, 1, 1, 1});
    CHECK(pace.minimum(acco::step_part::second) == 4);
  }
  acco::auto_pace pace{.micro_batches = 8};
  pace.remind({6, 3, 1, 1, 1});
  CHECK(pace.minimum(acco::step_part::second) == 3);
}

namespace {
template <class Schedule>
void cut_at_a_spike(Schedule const& schedule) {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{
          schedule,
          acco::sgd{.learning_rate = 1e-2},
          acco::host_storage<float>{},
          world,
          parameters,
          acco::options{.norm_limit = 10, .on_norm_spike = acco::norm_spike::rewind, .snapshots = 2, .snapshot_every = 2}};
    };
    auto t = make();
    t.initialize(initial());
    std::size_t rewinds = 0;
    for (std::size_t m = 0; m < 120; ++m) {
      const bool spike = m >= 50 && m < 54;
      if (m == 49) t.save(folder.run(), [&m] { return m; });
      std::vector<double> sum(t.gradients().size(), 0.0);
      const double loss = problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), std::span<double>(sum));
      for (std::size_t i = 0; i < sum.size(); ++i) t.gradients()[i] += static_cast<float>((spike ? 1000 : 1) * sum[i]);
      auto const r = t.accumulated(1, loss);
      rewinds += r && r->rewound ? 1 : 0;
    }
    t.finish();
    CHECK(rewinds > 0);
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
    auto again = make();
    auto const found = again.restore(folder.run());
    CHECK(found.template position<std::size_t>() >= 54);  // the wish waited for a commit that was no spike
    for (std::size_t m = found.template position<std::size_t>() + 1; m < 120; ++m) (void)micro_batch(again, world.rank(), m);
    again.finish();
    CHECK(again.world_digest() == t.world_digest());
  });
}
}  // namespace

TEST_CASE("a commit that is a spike, and leads back, is no cut") {
  cut_at_a_spike(acco::two_phase{.pace = acco::fixed_pace{1}});
  cut_at_a_spike(acco::synchronous{});
  cut_at_a_spike(acco::delayed{});
}

TEST_CASE("the end of a save is told by a report, also where rounds fail and the training goes back") {
  int told = 0;
  for (int times = 0; times < 20; ++times) {
    const scratch folder(in_memory());
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::synchronous{},
                        acco::sgd{.learning_rate = 0.01},
                        acco::host_storage<float>{},
                        world,
                        parameters,
                        acco::options{.snapshots = 4, .snapshot_every = 1}};
      t.initialize(initial());
      for (std::size_t m = 0; m < 5; ++m) (void)micro_batch(t, 0, m);
      t.save(folder.run());
      (void)micro_batch(t, 0, 5);
      auto const cut = micro_batch(t, 0, 6);
      int reports = cut->saved != nullptr ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(times));
      t.gradients()[0] = std::numeric_limits<float>::infinity();
      try {
        auto const r = t.accumulated(1);
        reports += r && r->saved != nullptr ? 1 : 0;
      } catch (acco::non_finite_error const&) {
        (void)t.rewind(1);
      }
      for (std::size_t m = 8; m < 1000000 && reports == 0; ++m) {
        auto const r = micro_batch(t, 0, m);
        reports += r && r->saved != nullptr ? 1 : 0;
        if (m > 2000 && t.saved() != nullptr) break;
      }
      told += reports;
      t.finish();
    });
  }
  CHECK(told == 20);
}

TEST_CASE("scaling of the loss that begins with a restore begins at its initial scale; another's stays within the limits") {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&](std::optional<acco::loss_scaling> scale) {
      return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::adamw{},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.loss_scale = scale, .keep_checkpoints = 9}};
    };
    const auto save = [&](auto& t) {
      for (std::size_t m = 0; m < 8; ++m) (void)micro_batch(t, world.rank(), m);
      t.save(folder.run());
      t.finish();
      REQUIRE(t.saved()->complete());
    };
    auto without = make({});
    without.initialize(initial());
    save(without);
    auto scaled = make(acco::loss_scaling{.initial = 65536, .least = 16});
    (void)scaled.restore(folder.run(), acco::changes::allowed);
    CHECK(scaled.loss_scale() == 65536);
    save(scaled);
    auto less = make(acco::loss_scaling{.initial = 64, .least = 16, .most = 1024});
    (void)less.restore(folder.run(), acco::changes::allowed);
    CHECK(less.loss_scale() == 1024);
    less.finish();
  });
}

namespace {
/// Gradients that nearly cancel within a part.
template <class Training>
auto cancelling_micro_batch(Training& t, std::size_t m) {
  for (std::size_t i = 0; i < t.gradients().size(); ++i) {
    const double turn = 0.1 + problem::unit(m * 1000 + i) + t.parameters()[i];
    t.gradients()[i] += static_cast<float>((m % 2 == 0 ? 1 : -0.93) * turn);
  }
  return t.accumulated(1);
}
}  // namespace

TEST_CASE("in place, where kept gradients are marked, a training that goes on is the one that was never stopped") {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{4}},
                             acco::adamw{.learning_rate = 1e-2},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.in_place = true, .snapshots = 5, .snapshot_every = 3, .digest_every = 1}};
    };
    const auto train = [&](auto& t, std::size_t from, std::size_t until) {
      std::vector<std::uint64_t> digests;
      for (std::size_t m = from; m < until; ++m) {
        if (auto const r = cancelling_micro_batch(t, m); r && r->digest) digests.push_back(*r->digest);
      }
      return digests;
    };
    auto t = make();
    t.initialize(initial());
    (void)train(t, 0, 90);
    std::size_t at = 0;
    t.save(folder.run(), [&at] { return at; });
    std::vector<std::uint64_t> expected;
    for (at = 90; at < 600; ++at) {
      if (auto const r = cancelling_micro_batch(t, at); r && r->digest) expected.push_back(*r->digest);
    }
    auto const back = t.rewind(5);
    auto const replayed = train(t, back.micro_batches, 600);
    REQUIRE(replayed.size() > 5);
    CHECK(std::equal(replayed.rbegin(), replayed.rend(), expected.rbegin()));
    t.finish();
    REQUIRE(t.saved()->complete());

    auto again = make();
    auto const found = again.restore(folder.run());
    auto const resumed = train(again, found.template position<std::size_t>() + 1, 600);
    REQUIRE(resumed.size() > 20);
    CHECK(std::equal(resumed.rbegin(), resumed.rend(), expected.rbegin()));
    again.finish();
    CHECK(again.world_digest() == t.world_digest());
  });
}

TEST_CASE("what was restored can be gone back to before there is another snapshot, under every schedule") {
  const auto train = [](auto const& schedule) {
    const scratch folder;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto make = [&] {
        return acco::optimizer{schedule,
                               acco::adamw{.learning_rate = 1e-2},
                               acco::host_storage<float>{},
                               world,
                               parameters,
                               acco::options{.snapshots = 2, .snapshot_every = 1000, .digest_every = 1}};
      };
      const auto digests = [&](auto& t, std::size_t from, std::size_t until) {
        std::vector<std::uint64_t> found;
        for (std::size_t m = from; m < until; ++m) {
          if (auto const r = micro_batch(t, world.rank(), m); r && r->digest) found.push_back(*r->digest);
        }
        return found;
      };
      auto t = make();
      t.initialize(initial());
      std::size_t at = 0;
      t.save(folder.run(), [&at] { return at; });
      for (; at < 30; ++at) (void)micro_batch(t, world.rank(), at);
      t.finish();
      REQUIRE(t.saved()->complete());
      auto again = make();
      auto const found = again.restore(folder.run());
      const std::size_t from = found.template position<std::size_t>() + 1;
      auto const first = digests(again, from, 40);
      REQUIRE(first.size() > 5);
      auto const back = again.rewind(3);
      CHECK(back.step == found.step);
      CHECK(back.micro_batches == 0);  // since the restore
      CHECK(digests(again, from, 40) == first);
      again.finish();
    });
  };
  train(acco::two_phase{.pace = acco::fixed_pace{1}});
  train(acco::two_phase{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}}});
  train(acco::synchronous{});
  train(acco::synchronous{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}}});
  train(acco::delayed{});
  train(acco::weight_prediction{});
}
