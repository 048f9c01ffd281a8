// SPDX-License-Identifier: Apache-2.0
// Back to a snapshot in memory: what follows is what followed then, in every bit; and what leads there: norms far beyond those of
// the last updates.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace {
using world_type = acco::threads_backend;

/// All that a report tells that is not a time.
std::vector<std::uint64_t> told(acco::round_report const& r) {
  std::vector<std::uint64_t> all{r.round, r.committed, r.skipped, r.step, r.micro_batches, r.bytes_sent, r.digest.value_or(1)};
  for (const double number : {r.samples, r.weight, r.mean_loss, r.step_weight, r.step_loss, r.gradient_norm, r.clip_scale,
                              r.loss_scale, r.learning_rate_scale})
    all.push_back(std::bit_cast<std::uint64_t>(number));
  return all;
}
acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  layout.add("a", {50, 7});
  layout.add("still", {70}, layout.add_group({.frozen = true}));
  layout.add("b", {130});
  return layout;
}
/// The micro-batch `m` of a rank: its gradients, times `scale`, and what accumulated says.
template <class Training>
auto micro_batch(Training& t, int rank, std::size_t m, double scale = 1) {
  std::vector<double> sum(t.gradients().size(), 0.0);
  const double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), std::span<double>(sum));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    auto& g = t.gradients()[i];
    g = static_cast<std::remove_cvref_t<decltype(g)>>(static_cast<double>(g) + scale * t.loss_scale() * sum[i]);
  }
  return t.accumulated(1, loss);
}

/// Every rank trains `count` micro-batches; at each of `back`, it goes back by `steps`, and gives the same ones again.
template <class Storage, class Schedule>
void replays(int ranks, Schedule const& schedule, std::size_t bucket, std::uint64_t steps) {
  CAPTURE(ranks);
  const acco::parameter_layout layout = layout_of();
  std::atomic<int> replayed = 0;
  world_type::run(ranks, [&](world_type const& world) {
    using P = typename Storage::parameter_type;
    acco::optimizer t{schedule,
                      acco::adamw{.learning_rate = 1e-2},
                      Storage{},
                      world,
                      layout,
                      acco::options{.clip_norm = 1,
                                    .learning_rate = acco::warmup_cosine{.warmup = 20, .total = 300},
                                    .on_non_finite = acco::non_finite::skip,
                                    .average_decay = 0.9,
                                    .norm_limit = 50,
                                    .on_norm_spike = acco::norm_spike::skip,
                                    .snapshots = 3,
                                    .snapshot_every = 2,
                                    .compare_every = 3,
                                    .digest_every = 1,
                                    .bucket_elements = bucket}};
    t.initialize(problem::converted<P>(problem::initial(layout.size())));
    std::map<std::size_t, std::vector<std::uint64_t>> first;  // reports, by micro-batch
    const auto spoiled = [](std::size_t m) { return m == 9 ? std::numeric_limits<double>::infinity() : 1; };
    std::size_t m = 0;
    for (; m < 30; ++m) {
      if (auto const r = micro_batch(t, world.rank(), m, spoiled(m))) first[m] = told(*r);
    }
    for (int times = 0; times < 2; ++times) {
      const std::uint64_t before = t.steps();
      const acco::rewound found = t.rewind(steps);
      CHECK(found.undone == before - found.step);
      CHECK(found.undone >= steps);
      CHECK(found.undone <= steps + 2);
      CHECK(found.micro_batches < m);
      for (m = found.micro_batches; m < 30; ++m) {
        auto const r = micro_batch(t, world.rank(), m, spoiled(m));
        if (!r) continue;
        REQUIRE(first.count(m) == 1);
        CHECK(told(*r) == first[m]);
        ++replayed;
      }
    }
    const std::uint64_t digest = t.world_digest();
    for (; m < 40; ++m) {
      if (auto const r = micro_batch(t, world.rank(), m)) first[m] = told(*r);
    }
    const acco::rewound again = t.rewind(1);  // to a snapshot that was taken since the state went back
    CHECK(again.step > 0);
    CHECK(again.micro_batches > 30);
    CHECK(again.micro_batches < 40);
    for (m = again.micro_batches; m < 40; ++m) {
      if (auto const r = micro_batch(t, world.rank(), m)) CHECK(told(*r) == first[m]);
    }
    t.finish();
    CHECK(t.world_digest() != digest);
  });
  CHECK(replayed >= 2 * ranks);
}

/// Whether the round that a report of two_phase leaves in flight is one that commits.
bool commits_in_flight(acco::round_report const& r) { return !acco::commits(r.plan); }

/// A training in which one micro-batch of one rank has gradients 1000 times as large.
struct spiky {
  acco::options chosen;
  std::size_t at = 25;
  template <class Each>
  void run(int ranks, Each&& each) const {
    world_type::run(ranks, [&](world_type const& world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                        acco::sgd{.learning_rate = 1e-2},
                        acco::host_storage<float>{},
                        world,
                        layout_of(),
                        chosen};
      t.initialize(problem::converted<float>(problem::initial(layout_of().size())));
      each(t, world.rank());
    });
  }
  [[nodiscard]] double scale(int rank, std::size_t m) const { return m == at && rank == 1 ? 1000 : 1; }
};
}  // namespace

TEST_CASE("a training that goes back goes on as it did from there, in every bit, under every schedule") {
  using acco::host_storage;
  for (const int ranks : {1, 3}) {
    for (const std::uint64_t steps : {1U, 3U}) {
      replays<host_storage<float>>(ranks, acco::two_phase{.pace = acco::fixed_pace{1}}, 0, steps);
      replays<host_storage<acco::bfloat16>>(
          ranks, acco::two_phase{.estimate = acco::bfloat16_wire{}, .pace = acco::fixed_pace{1}}, 192, steps);
      replays<host_storage<float>>(ranks, acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}}, 0, steps);
      replays<host_storage<float>>(ranks, acco::two_phase{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}, 3}}, 64,
                                   steps);
      replays<host_storage<float>>(ranks, acco::synchronous{}, 0, steps);
      replays<host_storage<acco::bfloat16, float>>(ranks, acco::delayed{}, 0, steps);
      replays<host_storage<double>>(ranks, acco::weight_prediction{}, 0, steps);
    }
  }
}

TEST_CASE("where no snapshot reaches that is said, and nothing ends") {
  world_type::run(2, [&](world_type const& world) {
    acco::optimizer t{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{},
                      world,           100,           acco::options{.snapshots = 1, .snapshot_every = 3}};
    t.initialize(std::vector<float>(100, 1.0F));
    for (std::size_t m = 0; m < 12; ++m) (void)micro_batch(t, world.rank(), m);
    CHECK_THROWS_WITH_AS((void)t.rewind(9), doctest::Contains("no snapshot is 9 updates old"), acco::usage_error);
    (void)micro_batch(t, world.rank(), 12);
    CHECK(t.rewind(0).step % 3 == 0);
    t.finish();
    CHECK(t.steps() % 3 == 0);
    acco::optimizer none{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, world, 100};
    none.initialize(std::vector<float>(100, 1.0F));
    (void)micro_batch(none, world.rank(), 0);
    CHECK_THROWS_AS((void)none.rewind(0), acco::usage_error);
    none.finish();
  });
}

TEST_CASE("after an error that all ranks throw alike, too: gradients that are not finite are left out the second time") {
  for (const bool adopts : {false, true}) {
    world_type::run(3, [&](world_type const& world) {
      std::vector<float> parameters = problem::converted<float>(problem::initial(100)), gradients(100, 0.0F);
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                        acco::adamw{},
                        acco::host_storage<float>{},
                        world,
                        100,
                        acco::options{.snapshots = 2, .snapshot_every = 2, .digest_every = 1}};
      adopts ? t.adopt(parameters, gradients) : t.initialize(parameters);
      bool thrown = false;
      std::map<std::uint64_t, std::uint64_t> digests;
      for (std::size_t m = 0; m < 30; ++m) {
        try {
          auto const r = micro_batch(t, world.rank(), m, m == 17 && world.rank() == 2 && !thrown ? 1e300 * 1e300 : 1);
          if (!r || !r->digest) continue;
          if (digests.count(r->step) == 1) CHECK(digests[r->step] == *r->digest);
          digests[r->step] = *r->digest;
        } catch (acco::non_finite_error const& e) {
          CHECK_FALSE(thrown);
          thrown = true;
          CHECK(e.peer() == 2);
          CHECK_THROWS_AS((void)t.accumulated(1), acco::non_finite_error);
          m = t.rewind(1).micro_batches - 1;
        }
      }
      CHECK(thrown);
      t.finish();
      CHECK(t.steps() >= 13);
      CHECK(digests.size() >= 13);
    });
  }
}

TEST_CASE("a norm far beyond the median of the last updates: an error that names both") {
  const spiky training{{.norm_limit = 5}, 40};
  training.run(2, [&](auto& t, int rank) {
    std::string said;
    try {
      for (std::size_t m = 0; m < 60; ++m) (void)micro_batch(t, rank, m, training.scale(rank, m));
    } catch (acco::spike_error const& e) {
      said = e.what();
    }
    CHECK(said.find("more than 5 times the median") != std::string::npos);
    CHECK(t.steps() >= acco::spike_watch::least);
    std::vector<float> committed(t.layout().size());
    t.gather_committed(committed);
    for (const float each : committed) CHECK(std::abs(each) < 10);  // nothing of the spike came into them
  });
}

TEST_CASE("it is left out, and counts as skipped, not as committed; before sixteen updates nothing is a spike") {
  spiky training{{.on_non_finite = acco::non_finite::skip, .norm_limit = 5, .on_norm_spike = acco::norm_spike::skip}, 45};
  training.run(2, [&](auto& t, int rank) {
    std::size_t spikes = 0, skipped = 0;
    for (std::size_t m = 0; m < 70; ++m) {
      if (auto const r = micro_batch(t, rank, m, training.scale(rank, m))) {
        spikes += r->spike ? 1U : 0U;
        skipped += r->skipped ? 1U : 0U;
        CHECK(!r->rewound);
      }
    }
    t.finish();
    CHECK(spikes == 1);
    CHECK(skipped == 1);
    CHECK(t.steps() == 34);
    CHECK(t.samples() == 2 * 68);  // two of each rank are not in it
  });
  training.at = 3;
  training.run(2, [&](auto& t, int rank) {
    for (std::size_t m = 0; m < 70; ++m) (void)micro_batch(t, rank, m, training.scale(rank, m));
    t.finish();
    CHECK(t.totals().skipped == 0);
    CHECK(t.steps() == 35);
  });
}

TEST_CASE("the state goes back to the oldest snapshot, the data go on") {
  const spiky training{{.norm_limit = 5, .on_norm_spike = acco::norm_spike::rewind, .snapshots = 2, .snapshot_every = 4}, 53};
  training.run(3, [&](auto& t, int rank) {
    std::map<std::uint64_t, std::uint64_t> digest_at;  // by updates, of states that were reached
    std::size_t rewinds = 0;
    for (std::size_t m = 0; m < 90; ++m) {
      auto const r = micro_batch(t, rank, m, training.scale(rank, m));
      if (!r) continue;
      const std::uint64_t digest = t.world_digest();
      if (r->rewound) {
        ++rewinds;
        CHECK(r->spike);
        CHECK(r->skipped);
        CHECK(m >= 53);
        CHECK(m <= 57);
        CHECK(r->step % 4 == 0);
        CHECK(r->step >= 16);
        CHECK(r->step <= 22);
        CHECK(digest == digest_at[r->step]);  // that state again: its round is in flight, done
      } else if (rewinds == 0) {
        digest_at[t.steps() + (commits_in_flight(*r) ? 1 : 0)] = digest;
      }
    }
    t.finish();
    CHECK(rewinds == 1);
  });
}

TEST_CASE("who gets no farther by going back is told so") {
  const spiky training{
      {.skip_limit = 3, .norm_limit = 5, .on_norm_spike = acco::norm_spike::rewind, .snapshots = 1, .snapshot_every = 4}};
  training.run(2, [&](auto& t, int rank) {
    std::size_t rewinds = 0;
    std::string said;
    try {
      for (std::size_t m = 0; m < 400; ++m) {
        auto const r = micro_batch(t, rank, m, m > 50 ? 1e4 : 1);
        rewinds += r && r->rewound ? 1U : 0U;
      }
    } catch (acco::spike_error const& e) {
      said = e.what();
    }
    CHECK(rewinds == 3);
    CHECK(said.find("going back has not helped 3 times") != std::string::npos);
  });
}

TEST_CASE("options that mean nothing are refused") {
  const auto refused = [](acco::options const& o) {
    try {
      o.check();
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refused({.norm_limit = 0.5}).find("norm_limit is 0.5") != std::string::npos);
  CHECK(refused({.norm_limit = std::numeric_limits<double>::quiet_NaN()}).find("norm_limit") != std::string::npos);
  CHECK(refused({.norm_limit = 5, .on_norm_spike = acco::norm_spike::rewind}).find("no snapshots") != std::string::npos);
  CHECK(refused({.snapshots = 1, .snapshot_every = 0}).find("snapshot_every") != std::string::npos);
  CHECK(refused({.norm_limit = 5, .snapshots = 1}).empty());
}

namespace {
/// A storage that can neither be copied from nor digested, as somebody's own may be.
struct plain_storage : acco::host_storage<float> {
  using host_storage::host_storage;
  static void stage() = delete;
  void allocate_staging() const = delete;
  static void digest() = delete;
};
}  // namespace

TEST_CASE("a storage that cannot be copied from trains, and says so where copies are asked for") {
  world_type::run(2, [](world_type const& world) {
    const acco::parameter_layout layout = layout_of();
    const auto of = [&](acco::options chosen) {
      return acco::optimizer(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, plain_storage{}, world, layout,
                             std::move(chosen));
    };
    CHECK_THROWS_WITH_AS(of({.snapshots = 1}), doctest::Contains("this storage cannot be copied"), acco::usage_error);
    CHECK_THROWS_WITH_AS(of({.digest_every = 1}), doctest::Contains("this storage cannot be digested"), acco::usage_error);
    auto t = of({});
    t.initialize(problem::converted<float>(problem::initial(layout.size())));
    std::size_t reports = 0;
    for (std::size_t m = 0; m < 20; ++m) reports += micro_batch(t, world.rank(), m) ? 1 : 0;
    CHECK(reports == 19);
    CHECK(t.memory().staging == 0);
    CHECK_THROWS_WITH_AS((void)t.rewind(1), doctest::Contains("no snapshot is"), acco::usage_error);
    t.finish();
  });
}

TEST_CASE("ranks that ask for different numbers of updates are told so, before anything has changed") {
  const spiky training{{.snapshots = 3, .snapshot_every = 2}};
  training.run(3, [&](auto& t, int rank) {
    for (std::size_t m = 0; m < 30; ++m) (void)micro_batch(t, rank, m);
    const std::uint64_t steps = t.steps();
    CHECK_THROWS_WITH_AS((void)t.rewind(rank == 1 ? 5 : 1),
                         doctest::Contains(": rewind: ranks 0 and 2 ask for 1 updates, and rank 1 asks for 5. "),
                         acco::mismatch_error);
    CHECK(t.steps() == steps);
  });
}
TEST_CASE("a number of updates that no training has is told as such") {
  const spiky training{{.snapshots = 3, .snapshot_every = 2}};
  training.run(2, [&](auto& t, int rank) {
    for (std::size_t m = 0; m < 4; ++m) (void)micro_batch(t, rank, m);
    CHECK_THROWS_WITH_AS((void)t.rewind(rank == 0 ? ~std::uint64_t{0} : 3),
                         doctest::Contains(": rewind: rank 0 asks for 2^53 or more updates, and rank 1 asks for 3. "),
                         acco::mismatch_error);
  });
}

TEST_CASE("the snapshot that a training goes back to stays, whichever was being made") {
  for (const std::size_t snapshots : {2U, 3U}) {
    CAPTURE(snapshots);
    world_type::run(2, [&](world_type const& world) {
      acco::optimizer t{acco::delayed{},
                        acco::sgd{.learning_rate = 1e-2},
                        acco::host_storage<float>{},
                        world,
                        layout_of(),
                        acco::options{.snapshots = snapshots, .snapshot_every = 1}};
      t.initialize(problem::converted<float>(problem::initial(layout_of().size())));
      for (std::size_t m = 0; m < 20; ++m) (void)micro_batch(t, world.rank(), m);
      auto const first = t.rewind(1);
      (void)micro_batch(t, world.rank(), first.micro_batches);
      auto const again = t.rewind(0);
      CHECK(again.step == first.step);
      CHECK(again.micro_batches == first.micro_batches);
    });
  }
}
