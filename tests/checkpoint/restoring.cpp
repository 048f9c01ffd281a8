// SPDX-License-Identifier: Apache-2.0
// What meets a checkpoint: paces that measure or differ by rank, a trainer's own arrays, spikes of the norm.
#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

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
    // it does in commas/checkpoint
    "the locale changes between save and restore: its decimal point is nobody's business") {
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

TEST_CASE("a pace is reminded of nothing that it cannot have found") {
  for (const double second :
       {-1.0, 8.0, 1e6, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    acco::auto_pace pace{.micro_batches = 8};
    pace.load_state({3, second, 1, 1, 1});
    CHECK(pace.minimum(acco::step_part::second) == 4);
    pace.load_state({second, 2, 1, 1, 1});
    CHECK(pace.minimum(acco::step_part::second) == 4);
  }
  acco::auto_pace pace{.micro_batches = 8};
  pace.load_state({6, 3, 1, 1, 1});
  CHECK(pace.minimum(acco::step_part::second) == 3);
}

namespace {
/// A save is cut at a spike, which is left out.
template <class Schedule>
void cut_at_a_spike(Schedule const& schedule) {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{schedule,
                             acco::sgd{.learning_rate = 1e-2},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.norm_limit = 10, .on_norm_spike = acco::norm_spike::skip}};
    };
    auto t = make();
    t.initialize(initial());
    const auto step = [&](auto& training, std::size_t m) {
      std::vector<double> sum(parameters, 0.0);
      const double loss =
          problem::add_sample(problem::sample_id(world.rank(), m, 0), training.parameters(), std::span<double>(sum));
      const bool spike = m == 51 || m == 53;  // of two_phase second parts: no prediction has them
      for (std::size_t i = 0; i < sum.size(); ++i) training.gradients()[i] += static_cast<float>((spike ? 1000 : 1) * sum[i]);
      return training.accumulated(1, loss);
    };
    std::size_t spikes = 0;
    for (std::size_t m = 0; m < 120; ++m) {
      if (m == 50) t.save(folder.run(), [&m] { return m; });
      auto const r = step(t, m);
      spikes += r && r->spike ? 1 : 0;
    }
    t.finish();
    CHECK(spikes == 2);
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
    auto again = make();
    auto const found = again.restore(folder.run());
    const auto at = found.template position<std::size_t>();
    CHECK(at == 51);
    for (std::size_t m = at + 1; m < 120; ++m) (void)step(again, m);
    again.finish();
    CHECK(again.world_digest() == t.world_digest());
  });
}
}  // namespace

TEST_CASE("a commit that is a spike, and is left out, may be the cut") {
  cut_at_a_spike(acco::two_phase{.pace = acco::fixed_pace{1}});
  cut_at_a_spike(acco::synchronous{});
  cut_at_a_spike(acco::delayed{});
}

TEST_CASE("after an error that all ranks throw alike another optimizer goes on from the last checkpoint, without the bad data") {
  const scratch folder;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    const auto make = [&] {
      return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::sgd{.learning_rate = 1e-2},
                             acco::host_storage<float>{},
                             world,
                             parameters,
                             acco::options{.norm_limit = 10}};
    };
    std::size_t m = 0;
    bool thrown = false;
    {
      auto t = make();
      t.initialize(initial());
      for (; m < 60; ++m) {
        if (m == 40) {
          t.save(folder.run(), [&m] { return m; });
          t.finish();
          REQUIRE(t.saved()->complete());
        }
        if (m == 50 && world.rank() == 1) t.gradients()[7] = 1e6F;
        try {
          (void)micro_batch(t, world.rank(), m);
        } catch (acco::spike_error const&) {
          thrown = true;
          break;
        }
      }
    }
    REQUIRE(thrown);
    auto t = make();
    auto const found = t.restore(folder.run());
    CHECK(found.exact);
    for (auto k = found.position<std::size_t>(); k < 80; ++k) {
      if (k != 50) (void)micro_batch(t, world.rank(), k);
    }
    t.finish();
    CHECK(t.steps() > 30);
  });
}

TEST_CASE("the end of a save is told by a report, also where updates are skipped") {
  int told = 0;
  for (int times = 0; times < 20; ++times) {
    const scratch folder(in_memory());
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::synchronous{},
                        acco::sgd{.learning_rate = 0.01},
                        acco::host_storage<float>{},
                        world,
                        parameters,
                        acco::options{.on_non_finite = acco::non_finite::skip}};
      t.initialize(initial());
      for (std::size_t m = 0; m < 5; ++m) (void)micro_batch(t, 0, m);
      t.save(folder.run());
      (void)micro_batch(t, 0, 5);
      auto const cut = micro_batch(t, 0, 6);
      int reports = cut->saved != nullptr ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(times));
      t.gradients()[0] = std::numeric_limits<float>::infinity();
      auto const skipped = t.accumulated(1);
      reports += skipped && skipped->saved != nullptr ? 1 : 0;
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

TEST_CASE("a trainer with arrays of its own that restores and has not called adopt: found at once, however long it trained") {
  std::vector<float> own(8, 1.0F), gradients(8);
  for (const bool adopts : {false, true}) {
    const scratch folder;
    const auto begun = [&] {
      return acco::optimizer{acco::synchronous{},  acco::sgd{}, acco::host_storage<float>{},
                             acco::solo_backend{}, 8,           acco::options{.check_habits = acco::habit_checks::on}};
    };
    auto first = begun();
    first.adopt(own, gradients);
    for (std::size_t m = 0; m < 30; ++m) {
      gradients[m % 8] += 1;
      first.accumulated(1);
    }
    first.finish();
    first.save(folder.run());
    auto second = begun();
    if (adopts) second.adopt(own, gradients);
    second.restore(folder.run());
    int done = 0;
    std::string said;
    try {
      for (; done < 20; ++done) second.accumulated(1);
    } catch (acco::usage_error const& e) {
      said = e.what();
    }
    if (adopts) {
      CHECK(done == 20);
    } else {
      CHECK(done == 9);
      CHECK(said.find("take part where adopt was called, on every start, before restore") != std::string::npos);
    }
  }
}
