// SPDX-License-Identifier: Apache-2.0
// A save is every rank's: it is made when all have asked, at a cut that each one's newest `position` belongs to.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"

namespace {
template <class Training>
auto micro_batch(Training& t) {
  for (float& each : t.gradients()) each += 1;
  return t.accumulated(1);
}
}  // namespace

TEST_CASE("ranks that ask at different times are saved when the last one has asked, each where it is then") {
  const scratch folder;
  std::array<std::size_t, 2> at{};
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    t.initialize(std::vector<float>(300, 1.0F));
    std::size_t m = 0, saves = 0;
    const std::size_t asks = world.rank() == 0 ? 20 : 50;
    for (; m < 100; ++m) {
      if (m == 4 || m == asks) t.save(folder.run(), [&m] { return m; });
      auto const r = micro_batch(t);
      if (!r || r->saved == nullptr) continue;
      ++saves;
      CHECK(r->saved->complete());
      CHECK(r->saved->step >= (saves == 1 ? 2U : 25U));
    }
    t.finish();
    REQUIRE(t.saved() != nullptr);
    CHECK(t.saved()->complete());
    CHECK(t.saved()->step >= 25);
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    auto const found = t.restore(folder.run());
    at[static_cast<std::size_t>(world.rank())] = found.position<std::size_t>();
    t.finish();
  });
  CHECK(at[0] >= 50);
  CHECK(at[0] == at[1]);
}

TEST_CASE("step() returns the outcome of a save whichever round's report told it; the copy has room for what differs, no more") {
  const scratch folder;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 12800};
    t.initialize(std::vector<float>(12800, 1.0F));
    std::size_t told = 0, asked = 0;
    for (std::size_t k = 0; k < 1000000 && told < 6; ++k) {
      const bool idle = told == asked;
      if (idle && asked < 6) {
        t.save(folder.run());
        ++asked;
      }
      auto const r = t.step([](auto, std::span<float> g) {
        for (float& each : g) each += 1;
        return 1;
      });
      told += r.saved != nullptr ? 1U : 0U;
    }
    CHECK(told == 6);
    CHECK(t.memory().staging == 4 * 6400 * 4);  // masters, two slots, and the prediction in use
    t.finish();
  });
}

TEST_CASE("where some have not asked before finish, that is told on every rank, and nothing is written") {
  const scratch folder;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::synchronous{}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    t.initialize(std::vector<float>(300, 1.0F));
    t.save(folder.run());  // every rank has somebody who writes from here on
    for (std::size_t m = 0; m < 20; ++m) (void)micro_batch(t);
    t.finish();
    REQUIRE(t.saved() != nullptr);
    REQUIRE(t.saved()->complete());
    const std::string first = t.saved()->path;
    for (std::size_t m = 0; m < 10; ++m) {
      if (m == 3 && world.rank() != 1) t.save(folder.run());
      auto const r = micro_batch(t);
      CHECK((r->saved == nullptr || r->saved->path == first));  // the first may have ended inside finish
    }
    t.finish();
    CHECK(!t.saved()->complete());
    CHECK(std::string(t.saved()->problem).find("only 2 of 3 ranks had asked for it before finish()") != std::string::npos);
    t.save(folder.run());  // and then all do
    t.finish();
    CHECK(t.saved()->complete());
    CHECK(t.saved()->path != first);
  });
}

TEST_CASE("what looks on may differ in a restore; a limit of the norm may not") {
  const scratch folder;
  const auto run = [&](acco::options const& chosen, auto&& begin) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300, chosen};
      begin(t);
      for (std::size_t m = 0; m < 8; ++m) (void)micro_batch(t);
      t.finish();
    });
  };
  run({}, [&](auto& t) {
    t.initialize(std::vector<float>(300, 1.0F));
    t.save(folder.run());
  });
  run({.keep_checkpoints = 5, .compare_every = 7, .digest_every = 2}, [&](auto& t) { CHECK(t.restore(folder.run()).exact); });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      300,
                      acco::options{.norm_limit = 10}};
    CHECK_THROWS_WITH_AS(t.restore(folder.run()), doctest::Contains("options.norm_limit = 0"), acco::checkpoint_error);
  });
}

TEST_CASE("a checkpoint of before snapshots in memory went is restored: its construction names them") {
  const scratch folder;
  const auto with = [&](acco::options const& chosen, auto&& action) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300, chosen};
      action(t);
      t.finish();
    });
  };
  with({.norm_limit = 10}, [&](auto& t) {
    t.initialize(std::vector<float>(300, 1.0F));
    for (std::size_t m = 0; m < 8; ++m) (void)micro_batch(t);
    t.save(folder.run());
  });
  const std::string file = acco::latest_checkpoint(folder.run()).value() + "/manifest.json";
  auto manifest = acco::checkpoints::read_manifest(content(file));
  auto const spike = std::find(manifest.construction.begin(), manifest.construction.end(), "options.on_norm_spike = 0");
  REQUIRE(spike != manifest.construction.end());
  manifest.construction.insert(spike + 1, {"options.snapshots = 2", "options.snapshot_every = 50"});
  write(file, acco::checkpoints::write_manifest(manifest));
  with({.norm_limit = 10}, [&](auto& t) { CHECK(t.restore(folder.run()).exact); });

  for (std::string& line : manifest.construction) {  // norm_spike::rewind
    if (line == "options.on_norm_spike = 0") line = "options.on_norm_spike = 2";
  }
  write(file, acco::checkpoints::write_manifest(manifest));
  with({.norm_limit = 10, .on_norm_spike = acco::norm_spike::skip},
       [&](auto& t) { CHECK(t.restore(folder.run(), acco::changes::allowed).step == 4); });
}

TEST_CASE("whoever survives another rank's end is told from which checkpoint to go on") {
  const scratch folder;
  std::string told;
  const auto train = [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    t.initialize(std::vector<float>(300, 1.0F));
    try {
      for (bool saved = false; !saved; saved = t.saved() != nullptr) {
        t.save(folder.run());
        (void)micro_batch(t);
      }
      for (int m = 0; m < 7; ++m) {  // rank 1 ends in the midst of a step
        if (m == 5 && world.rank() == 1) throw std::runtime_error("this rank ends");
        (void)micro_batch(t);
      }
    } catch (acco::peer_error const& e) {
      CHECK(e.peer() == 1);
      REQUIRE(t.saved() != nullptr);
      CHECK(t.saved()->complete());
      told = t.saved()->path;
      CHECK(t.saved()->step < t.steps() + 1);
      throw;
    }
  };
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(2, train), "this rank ends", std::runtime_error);
  REQUIRE_FALSE(told.empty());
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    CHECK(t.restore(told).exact);
    t.finish();
  });
}

TEST_CASE("a rank that asks alone is told so by finish, where the others never asked for anything") {
  const scratch folder;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 300};
    t.initialize(std::vector<float>(300, 1.0F));
    for (std::size_t m = 0; m < 8; ++m) {
      if (m == 2 && world.rank() == 1) t.save(folder.run());
      (void)micro_batch(t);
    }
    t.finish();
    REQUIRE((t.saved() != nullptr) == (world.rank() == 1));
    if (world.rank() == 1) CHECK(std::string(t.saved()->problem).find("only 1 of 3 ranks had asked") != std::string::npos);
  });
}

namespace {
/// A storage that cannot be copied from, as somebody's own may be.
struct plain_storage : acco::host_storage<float> {
  using host_storage::host_storage;
  static constexpr acco::storage_traits traits{.digests = true};
  static void stage() = delete;
  void allocate_staging() const = delete;
};
}  // namespace

TEST_CASE("a storage that cannot be copied from cannot be saved, and comes back from a file all the same") {
  const scratch folder;
  const auto train = [&](auto storage, bool restores) {
    std::vector<float> committed(300);
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage, world, 300};
      if (restores) {
        CHECK(t.restore(folder.run()).step > 0);
      } else {
        t.initialize(std::vector<float>(300, 1.0F));
        for (int m = 0; m < 8; ++m) (void)micro_batch(t);
        t.save(folder.run());
        t.finish();
        REQUIRE(t.saved()->complete());
      }
      for (int m = 0; m < 8; ++m) (void)micro_batch(t);
      t.finish();
      if (world.rank() == 0) std::copy(t.parameters().begin(), t.parameters().end(), committed.begin());
    });
    return committed;
  };
  const std::vector<float> uninterrupted = train(acco::host_storage<float>{}, false);
  CHECK(train(plain_storage{}, true) == uninterrupted);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, plain_storage{}, world, 300};
    t.initialize(std::vector<float>(300, 1.0F));
    CHECK_THROWS_WITH_AS(t.save(folder.run()), doctest::Contains("this storage cannot be saved"), acco::usage_error);
  });
}

namespace {
/// Counts what is copied to the host while the ranks train.
struct counted_storage : acco::host_storage<float> {
  using host_storage::host_storage;
  static inline std::size_t elements = 0;
  template <class T, class Visitor>
  static void visit_on_host(queue& q, T const* from, std::size_t count, Visitor&& visit) {
    elements += count;
    host_storage::visit_on_host(q, from, count, visit);
  }
};
}  // namespace

TEST_CASE("what is frozen is copied once, and again when it is another: set anew, or in the trainer's own arrays") {
  for (const bool adopted : {false, true}) {
    CAPTURE(adopted);
    const scratch folder;
    acco::parameter_layout layout;
    layout.add("a", {300}).add("still", {5000}, layout.add_group({.frozen = true}));
    std::vector<float> parameters(5300, 1.0F), gradients(5300);
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, counted_storage{}, world, layout,
                        acco::options{.keep_checkpoints = 9}};
      if (adopted) {
        t.adopt(parameters, gradients);
      } else {
        t.initialize(parameters);
      }
      CHECK(t.memory().staging == 0);
      const auto saved = [&](float frozen) {
        counted_storage::elements = 0;
        t.save(folder.run());
        for (int m = 0; m < 6; ++m) (void)micro_batch(t);
        t.finish();
        REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
        std::vector<float> found(5000);
        acco::model_file(std::string(t.saved()->path) + "/frozen.safetensors").read("still", 0, std::span(found));
        CHECK(found == std::vector<float>(5000, frozen));
        return counted_storage::elements;
      };
      CHECK(saved(1) == 5000);
      CHECK(t.memory().staging > 5000 * sizeof(float));
      CHECK(saved(1) == (adopted ? 5000 : 0));
      if (adopted) {
        std::fill(parameters.begin() + 300, parameters.end(), 2.0F);
      } else {
        t.set_parameters(std::vector<float>(5300, 2.0F));
      }
      CHECK(saved(2) == 5000);
      CHECK(saved(2) == (adopted ? 5000 : 0));
    });
  }
}
