// SPDX-License-Identifier: Apache-2.0
// Local updates are saved: a training that is killed and goes on is the one that was never stopped, in every bit; the
// anchor comes back among any number of workers.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/types.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/outer.hpp>

#include "calls.hpp"
#include "scratch.hpp"

namespace {

acco::parameter_layout model() {
  acco::parameter_layout layout;
  const std::size_t frozen = layout.add_group({.frozen = true});
  layout.add("first", {37});
  layout.add("still", {5}, frozen);
  layout.add("second", {11, 9});
  return layout;
}
/// What a worker's clock shows where steps are by speed: the first rank is three times slower than the others.
thread_local double now = 0;
double turned() noexcept { return now; }
struct fedavg_on_clocks : acco::waiting<> {
  constexpr fedavg_on_clocks() : acco::waiting<>(acco::fedavg) {}
  [[nodiscard]] constexpr acco::exchange_settings settings() const {
    auto settings = acco::waiting<>::settings();
    settings.seconds = &turned;
    return settings;
  }
};
/// A rank's gradients of a micro-batch.
template <class Training>
double learn(Training& training, int rank, std::uint64_t micro_batch) {
  auto const x = training.parameters();
  auto const g = training.gradients();
  now += rank == 0 ? 3 : 1;
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto wanted = static_cast<float>((i * 7 + micro_batch * 5 + static_cast<std::uint64_t>(rank) * 3) % 17) * 0.25F;
    g[i] += x[i] - wanted;
    loss += static_cast<double>((x[i] - wanted) * (x[i] - wanted));
  }
  return loss;
}
/// What a report says, and what the parameters are, in every digit.
template <class Training>
std::string told(Training& training, acco::round_report const& report) {
  std::string line;
  const auto add = [&](double number) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%a ", number);
    line += digits;
  };
  for (const double number :
       {static_cast<double>(report.round), static_cast<double>(report.step), report.samples, report.weight, report.mean_loss,
        report.gradient_norm, report.clip_scale, report.learning_rate_scale, static_cast<double>(report.bytes_sent)})
    add(number);
  line += report.committed ? "committed " : "";
  if (report.outer) {
    line += "outer ";
    for (const double number :
         {static_cast<double>(report.outer->exchange), report.outer->weight, report.outer->samples, report.outer->norm,
          report.outer->gap, static_cast<double>(report.outer->fragment), static_cast<double>(report.outer->bytes_sent)})
      add(number);
  }
  for (const float each : training.parameters()) add(static_cast<double>(each));
  return line;
}

/// Thrown by all ranks where a run is killed.
struct killed {};

struct run_of_ranks {
  std::vector<std::map<std::uint64_t, std::string>> lines;  ///< by rank and micro-batch
  std::vector<std::uint64_t> began;                         ///< by rank: its first micro-batch
  std::vector<std::string> end;                             ///< by rank
  std::vector<acco::restored> found;
};
struct plan_of_run {
  std::string folder;                                 ///< or none
  std::uint64_t save_at = 0, kill_at = 0, last = 40;  ///< micro-batches
  bool resumes = false;
};

/// make(world) gives an optimizer.
template <class Make>
run_of_ranks run(int ranks, Make&& make, plan_of_run const& plan) {
  run_of_ranks all;
  const auto count = static_cast<std::size_t>(ranks);
  all.lines.resize(count);
  all.began.resize(count, 0);
  all.end.resize(count);
  all.found.resize(count);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    auto training = make(world);
    std::uint64_t next = 0;
    if (plan.resumes) {
      all.found[rank] = training.restore(plan.folder);
      next = all.found[rank].template position<std::uint64_t>(rank % static_cast<std::size_t>(all.found[rank].ranks));
    } else {
      training.initialize(std::vector<float>(model().size(), 1.0F));
    }
    all.began[rank] = next;
    bool saved = false;
    try {
      while (next < plan.last) {
        const std::uint64_t mine = next++;
        const double loss = learn(training, world.rank(), mine);
        auto const report = training.accumulated(1 + world.rank() % 2, loss);
        if (report) all.lines[rank][mine] = told(training, *report);
        if (report && report->saved != nullptr) {
          CHECK_MESSAGE(report->saved->complete(), report->saved->problem);
          saved = true;
        }
        if (mine + 1 == plan.save_at) training.save(plan.folder, [&next] { return next; });
        if (plan.kill_at != 0 && mine + 1 >= plan.kill_at && saved) throw killed{};
      }
      training.finish();
      char digits[64];
      std::snprintf(digits, sizeof digits, "%llu %llu %a ", static_cast<unsigned long long>(training.world_digest()),
                    static_cast<unsigned long long>(training.steps()), training.samples());
      all.end[rank] = digits;
      for (const float each : training.parameters()) {
        std::snprintf(digits, sizeof digits, "%a ", static_cast<double>(each));
        all.end[rank] += digits;
      }
    } catch (killed const&) {
    } catch (acco::peer_error const&) {  // of the others, who were killed
    }
  });
  return all;
}
/// Kills and resumes it after saves at several places; all must be as in peace.
template <class Make>
void check_exact(int ranks, Make&& make, std::vector<std::uint64_t> const& places) {
  const run_of_ranks peace = run(ranks, make, {});
  for (const std::uint64_t place : places) {
    INFO("saved after " << place << " micro-batches");
    const scratch files;
    (void)run(ranks, make, {.folder = files.run(), .save_at = place, .kill_at = place + 1, .last = 1000});
    const run_of_ranks again = run(ranks, make, {.folder = files.run(), .resumes = true});
    for (std::size_t rank = 0; rank < peace.end.size(); ++rank) {
      CHECK(again.found[rank].exact);
      CHECK(again.began[rank] > place);
      CHECK(again.began[rank] < place + 30);
      CHECK(!again.lines[rank].empty());
      for (auto const& [micro_batch, line] : again.lines[rank]) {
        INFO("rank " << rank << ", micro-batch " << micro_batch << " of " << again.began[rank]);
        auto const in_peace = peace.lines[rank].find(micro_batch);
        REQUIRE(in_peace != peace.lines[rank].end());
        REQUIRE(line == in_peace->second);
      }
      CHECK(again.end[rank] == peace.end[rank]);
    }
  }
}
template <class Method, class Exchange = acco::full, class Inner = acco::synchronous<>>
auto maker(Method method, unsigned steps, int group = 1, unsigned fragments = 1, Exchange exchange = {}, Inner inner = {},
           acco::options const& chosen = {}) {
  return [=](acco::threads_backend const& world) {
    return acco::optimizer{acco::local_updates{.method = method,
                                               .inner = inner,
                                               .ranks_a_group = group,
                                               .steps = steps,
                                               .fragments = fragments,
                                               .exchange = exchange},
                           acco::adamw{.learning_rate = 0.05},
                           acco::host_storage<float>{},
                           world,
                           model(),
                           chosen};
  };
}

auto sparse(double decay) {
  return acco::coded{.gradients = acco::with_feedback{acco::block_top<8, 256, 2>{}, acco::error_feedback{.decay = decay}},
                     .parameters = acco::loosely<acco::block_top<16, 256, 2>>{}};
}

}  // namespace

TEST_CASE("killed and resumed, a training is the one that was never stopped") {
  SUBCASE("diloco in four bits") { check_exact(3, maker(acco::diloco, 4, 1, 1, acco::block_int4<>{}), {1, 2, 3, 4, 9}); }
  SUBCASE("co2 in four bits") { check_exact(2, maker(acco::co2, 3, 1, 1, acco::block_int4<>{}), {1, 2, 3, 4, 5, 6}); }
  SUBCASE("streaming_diloco in four bits, two ranks a worker") {
    check_exact(4, maker(acco::streaming_diloco, 6, 2, 3, acco::block_int4<>{}), {1, 4, 5, 6, 7, 8});
  }
  SUBCASE("every step, an average, and the inner rounds a step late") {
    check_exact(2, maker(acco::fedavg, 1, 1, 1, acco::full{}, acco::delayed{}, {.average_decay = 0.5}), {1, 2, 3});
  }
  SUBCASE("kept steps, two of two workers, under two_phase") {
    check_exact(4, maker(acco::keeping{.rule = acco::diloco.rule, .delay = 2}, 3, 2, 1, acco::full{}, acco::two_phase{}),
                {1, 4, 6, 7});
  }
  SUBCASE("fragments whose exchanges start early and land at the boundary") {
    const acco::restarting early{.rule = acco::diloco.rule, .delay = 2, .keep_local = 0.5, .lands_at_boundary = true};
    check_exact(2, maker(early, 6, 1, 2, acco::block_int4<>{}), {1, 2, 3, 4, 5, 6});
  }
  SUBCASE("inner rounds in four bits with error feedback, two ranks a worker") {
    check_exact(
        4,
        maker(acco::diloco, 3, 2, 1, acco::full{}, acco::synchronous{.commit = acco::with_error_feedback<acco::block_int4<>>{}}),
        {1, 3, 4, 5});
  }
  SUBCASE("a sparse exchange, of whose losses a part is forgotten") {
    check_exact(3, maker(acco::local_sgd, 2, 1, 1, sparse(0.9)), {2, 3});
  }
  SUBCASE("slots that are exchanged every second and third time, the inner rounds a step late") {
    const auto make = [](acco::threads_backend const& world) {
      return acco::optimizer{
          acco::local_updates{
              .method = acco::diloco, .inner = acco::delayed{}, .ranks_a_group = 2, .steps = 2, .slots_every = {2, 3}},
          acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{}, world, model()};
    };
    check_exact(4, make, {1, 3, 5, 7, 8});
  }
  SUBCASE("steps by speed") {
    const auto make = [](acco::threads_backend const& world) {
      return acco::optimizer{acco::local_updates{.method = fedavg_on_clocks{}, .steps = 4, .steps_by_speed = true},
                             acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{}, world, model()};
    };
    check_exact(2, make, {1, 3, 5, 6, 7});
  }
  SUBCASE("eager") { check_exact(2, maker(acco::eager_diloco, 2, 1, 1, acco::block_int8<>{}), {2, 3}); }
}

TEST_CASE("so few numbers that a worker owns none of an exchange that is under way") {
  const scratch files;
  std::vector<std::vector<float>> ends;
  for (const bool resumes : {false, true}) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::local_updates{.method = acco::delayed_diloco, .steps = 4}, acco::sgd{.learning_rate = 0.05},
                               acco::host_storage<float>{}, world, std::size_t{20}};
      std::uint64_t next = 0;
      if (resumes) {
        auto const found = training.restore(files.run());
        CHECK(found.exact);
        next = found.position<std::uint64_t>();
      } else {
        training.initialize(std::vector<float>(20, 1.0F));
        training.save(files.run(), [&next] { return next; });
      }
      while (next < 16) {
        (void)learn(training, world.rank(), next++);
        (void)training.accumulated(1);
      }
      training.finish();
      if (world.rank() == 0) ends.emplace_back(training.parameters().begin(), training.parameters().end());
    });
  }
  CHECK(ends[0] == ends[1]);
}
TEST_CASE("a save that was wished for before a worker was lost is forgotten") {
  const scratch files;
  acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
    const int mine = lobby.rank();
    const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 2 ? 1 : 0, mine);
    auto training = maker(acco::diloco, 2)(all);
    training.initialize(std::vector<float>(model().size(), 1.0F));
    training.save(files.run());
    const auto step = [&](std::uint64_t k) {
      (void)learn(training, mine, k);
      return training.accumulated(1);
    };
    for (std::uint64_t k = 0; k < 2; ++k) (void)step(k);  // the cut is granted
    if (mine == 2) return;
    double one[1] = {1};
    CHECK_THROWS_AS(training.sum_over_ranks(one), acco::peer_error);
    training.regroup(left);
    for (std::uint64_t k = 2; k < 6; ++k) (void)step(k);
    training.save(files.run("again"));
    training.finish();
    CHECK(training.saved()->complete());
  });
}
TEST_CASE("a worker that was stopped until the others had gone on without it saves nothing when it wakes") {
  const scratch files;
  std::atomic<bool> gone_on = false;
  acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
    const int mine = lobby.rank();
    const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 2 ? 1 : 0, mine);
    auto training = maker(acco::diloco, 2, 1, 1, acco::full{}, acco::synchronous{}, {.deadline = 2})(all);
    training.initialize(std::vector<float>(model().size(), 1.0F));
    const auto steps = [&](std::uint64_t from, std::uint64_t to) {
      for (std::uint64_t k = from; k < to; ++k) {
        (void)learn(training, mine, k);
        (void)training.accumulated(1);
      }
    };
    steps(0, 2);
    if (mine == 2) {
      while (!gone_on) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      training.save(files.run());
      CHECK_THROWS_AS(steps(2, 6), acco::error);
      CHECK_THROWS_AS(training.finish(), acco::error);
      CHECK(training.saved() == nullptr);
      return;
    }
    CHECK_THROWS_AS(steps(2, 4), acco::error);  // its own deadline, or the word of the other one
    training.regroup(left);
    steps(4, 6);
    training.save(files.run("again"));
    training.finish();
    CHECK(training.saved()->complete());
    gone_on = true;
  });
  CHECK(!acco::latest_checkpoint(files.run()).has_value());
  CHECK(acco::latest_checkpoint(files.run("again")).has_value());
}
TEST_CASE("among other workers the anchor and its momentum go on, and workers begin at it") {
  const scratch files;
  const auto saved_with = [&](int ranks, int group, std::string const& name) {
    std::vector<float> anchor;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto training = maker(acco::diloco, 2, group)(world);
      training.initialize(std::vector<float>(model().size(), 1.0F));
      for (std::uint64_t k = 0; k < 6; ++k) {
        (void)learn(training, world.rank(), k);
        (void)training.accumulated(1);
      }
      training.save(files.run(name));
      training.finish();
      CHECK(training.saved()->complete());
      CHECK(acco::verify_checkpoint(training.saved()->path).problems.empty());
      if (world.rank() == 0) anchor.assign(training.parameters().begin(), training.parameters().end());
    });
    return anchor;
  };
  auto const anchor = saved_with(4, 2, "a");
  const auto next_of = [&](int ranks, int group) {
    std::vector<float> next;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto training = maker(acco::diloco, 2, group)(world);
      auto const found = training.restore(files.run("a"));
      CHECK(found.exact == (ranks == 4 && group == 2));
      CHECK(training.steps() == 6);
      CHECK(training.samples() == 24);
      CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == anchor);
      for (int k = 0; k < 2; ++k) (void)training.accumulated(1);  // no gradients: the change is 0
      if (world.rank() == 0) next.assign(training.parameters().begin(), training.parameters().end());
      training.finish();
    });
    return next;
  };
  auto const next = next_of(3, 1);
  double moved = 0;
  for (std::size_t i = 0; i < anchor.size(); ++i) moved = std::max(moved, static_cast<double>(std::abs(next[i] - anchor[i])));
  CHECK(moved > 0.05);  // by the momentum; what adamw decays is far less
  for (auto const& other : {next_of(4, 4), next_of(6, 3)}) {
    for (std::size_t i = 0; i < next.size(); ++i) CHECK(other[i] == doctest::Approx(next[i]).epsilon(1e-5));
  }
  CHECK(acco::model_file(*acco::latest_checkpoint(files.run("a")) + "/master.safetensors").find("second") != nullptr);
}

TEST_CASE("another method is refused by what differs, and a training without workers") {
  const scratch files;
  const auto save = [&](auto&& make, char const* run) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto training = make(world);
      training.initialize(std::vector<float>(model().size(), 1.0F));
      training.save(files.run(run));
      training.finish();
    });
  };
  save(maker(acco::diloco, 2), "full");
  save(maker(acco::local_sgd, 2, 1, 1, sparse(0.9)), "sparse");
  const auto check_refused = [&](auto&& make, std::string const& line, char const* run = "full") {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto training = make(world);
      try {
        (void)training.restore(files.run(run));
        FAIL("was not refused");
      } catch (acco::checkpoint_error const& e) {
        INFO(e.what());
        CHECK(std::string(e.what()).find("the checkpoint has '" + line) != std::string::npos);
      }
    });
  };
  check_refused(maker(acco::co2, 2), "local_updates.delay = 0'");
  check_refused(maker(acco::slowmo, 2), "outer: rule.learning_rate = 0.7");
  check_refused(maker(acco::diloco, 2, 1, 1, acco::block_int8<>{}), "outer: ");
  check_refused(maker(acco::local_sgd, 2, 1, 1, sparse(1)), "outer: commit feedback.decay = 0.9'", "sparse");
  check_refused(
      [](acco::threads_backend const& world) {
        return acco::optimizer{acco::synchronous{}, acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{}, world,
                               model()};
      },
      "local_updates.steps = 2'");
}

TEST_CASE("a save that fails leaves the training as it is; its reports are as in peace") {
  struct full_disk final : acco::checkpoints::system_calls {
    ssize_t pwrite(int, std::span<std::byte const>, std::uint64_t) override {
      errno = ENOSPC;
      return -1;
    }
  };
  const scratch files;
  full_disk full;
  acco::checkpoints::system_calls sound;
  const in_their_place calls([&](int rank) -> acco::checkpoints::system_calls& { return rank == 1 ? full : sound; });
  auto const peace = run(2, maker(acco::diloco, 2), {});
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    auto training = maker(acco::diloco, 2)(world);
    training.initialize(std::vector<float>(model().size(), 1.0F));
    for (std::uint64_t k = 0; k < 40; ++k) {
      const double loss = learn(training, world.rank(), k);
      auto const report = training.accumulated(1 + world.rank() % 2, loss);
      CHECK(told(training, *report) == peace.lines[rank].at(k));
      if (k == 3) training.save(files.run());
    }
    training.finish();
    REQUIRE(training.saved() != nullptr);
    CHECK(!training.saved()->complete());
  });
  CHECK(!acco::latest_checkpoint(files.run()));
}

TEST_CASE("workers that come to finish at different times, with a save under way or granted") {
  for (std::uint64_t early = 4; early < 9; ++early) {
    INFO("a worker finishes after " << early << " steps");
    const scratch files;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto training = maker(acco::co2, 2)(world);
      training.initialize(std::vector<float>(model().size(), 1.0F));
      for (std::uint64_t k = 0; k < (world.rank() == 0 ? 12 : early); ++k) {
        (void)learn(training, world.rank(), k);
        if (k == 2) training.save(files.run());
        (void)training.accumulated(1);
      }
      training.finish();
      REQUIRE(training.saved() != nullptr);  // made, or failed in words
      INFO(training.saved()->problem);
      const bool complete = training.saved()->complete();
      training.save(files.run());
      CHECK(training.saved()->complete());
      CHECK((complete || std::string(training.saved()->problem).empty()));
    });
    REQUIRE(acco::latest_checkpoint(files.run()));
  }
}
