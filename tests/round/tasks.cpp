// SPDX-License-Identifier: Apache-2.0
// What overlaps what inside a round, and that many groups cost nothing.
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

std::atomic<int> updated;  // elements, of this process's only rank

/// Counts what it has updated.
struct counting_rule {
  static constexpr std::size_t slot_count = 0;
  static constexpr bool scalar_only = true;
  struct constants {};
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const { return {}; }
  template <class Real>
  static void apply(Real& parameter, Real gradient, std::array<Real, 0>&, constants const&) {
    ++updated;
    parameter -= gradient;
  }
};

/// The gather of the first bucket ends when the last bucket has been updated, or never.
struct waits_for_updates {
  int elements;
  std::atomic<bool>* met;
  template <class Backend>
  void before(acco::host_queue& queue, Backend const&, acco::collective_call call) const {
    if (call.operation != acco::collective::all_gather) return;
    queue.enqueue([all = *this] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (updated.load() < all.elements && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      *all.met = updated.load() == all.elements;
    });
  }
  template <class Backend>
  void after(acco::host_queue&, Backend const&, acco::collective_call) const {}
};

/// Nothing is reduced before it opens.
struct gate {
  std::atomic<bool>* go;
  template <class Backend>
  void before(acco::host_queue& queue, Backend const&, acco::collective_call call) const {
    if (call.operation == acco::collective::reduce_scatter) queue.enqueue([open = go] { open->wait(false); });
  }
  template <class Backend>
  void after(acco::host_queue&, Backend const&, acco::collective_call) const {}
};

/// No collective ends before it opens, or, so that nothing hangs, before a second has passed.
struct closed {
  std::atomic<bool>*go, *late;
  static constexpr std::size_t tasks(std::size_t of_backend) { return of_backend + 1; }
  template <class Backend>
  void before(acco::host_queue& queue, Backend const&, acco::collective_call) const {
    queue.enqueue([all = *this] {
      for (int k = 0; !*all.go && k < 1000; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!*all.go) *all.late = true;
    });
  }
  template <class Backend>
  void after(acco::host_queue&, Backend const&, acco::collective_call) const {}
};

/// Boundaries of a schedule while nothing moves: whether the trainer had to wait for room in the queue.
bool waits_for_room(acco::any_optimizer<float> training, std::atomic<bool>& go, std::atomic<bool>& late) {
  go = true;
  late = false;
  const std::size_t count = training.layout().size();
  training.initialize(std::vector<float>(count, 1.0F));
  for (int micro_batch = 0; micro_batch < 6; ++micro_batch) {
    for (float& g : training.gradients()) g += 0.5F;
    training.sum_over_ranks({});  // nothing is in flight: only what this boundary enqueues stands in the queue
    go = false;
    training.accumulated(1);
    go = true;
  }
  training.finish();
  return late;
}

}  // namespace

TEST_CASE("a boundary never waits for room in the queue, whatever travels, however decorated") {
  std::atomic<bool> go = true, late = false;
  acco::trace trace;
  const acco::decorated_backend solo(acco::solo_backend{}, closed{&go, &late});
  const acco::link_model link{.bytes_per_second = 1e15};
  const acco::coded<acco::block_int8<>, acco::block_int4<>> few;
  const auto all = [&](auto const& world) {
    for (const std::size_t buckets : {1U, 2U, 9U}) {
      for (const auto what : {acco::non_finite::raise, acco::non_finite::skip}) {
        CAPTURE(buckets);
        const acco::options options{.clip_norm = 1, .on_non_finite = what, .bucket_elements = 64};
        const auto waits = [&](auto schedule) {
          return waits_for_room(
              acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world, 64 * buckets, options}, go, late);
        };
        REQUIRE_FALSE(waits(acco::delayed{}));
        REQUIRE_FALSE(waits(acco::delayed{.commit = few}));
        REQUIRE_FALSE(waits(acco::two_phase{.pace = acco::fixed_pace{1}}));
        REQUIRE_FALSE(waits(acco::two_phase{.estimate = acco::block_int4<>{}, .pace = acco::fixed_pace{1}}));
        REQUIRE_FALSE(waits(acco::two_phase{.estimate = acco::block_int4<>{}, .commit = few}));
        REQUIRE_FALSE(waits(acco::weight_prediction{}));
        REQUIRE_FALSE(waits(acco::weight_prediction{.commit = few}));
      }
    }
  };
  all(solo);
#ifdef ACCO_TEST_ALL  // the next has one more
  all(acco::debug(acco::traced(acco::rate_limited(solo, link), trace)));
#endif
  all(acco::traced(acco::debug(acco::traced(acco::rate_limited(solo, link), trace)), trace));
  all(acco::debug(acco::debug(acco::debug(solo))));
}

TEST_CASE("while one bucket is gathered the others are updated, under a decorator too; in one bucket they could not be") {
  for (const std::size_t buckets : {4U, 8U}) {
    std::atomic<bool> met = false;
    const int count = static_cast<int>(64 * buckets);
    updated = 0;
    const acco::decorated_backend world(acco::solo_backend{}, waits_for_updates{count, &met});
    acco::optimizer training{acco::synchronous{},
                             counting_rule{},
                             acco::host_storage<float>{},
                             world,
                             static_cast<std::size_t>(count),
                             acco::options{.bucket_elements = 64}};
    training.initialize(std::vector<float>(static_cast<std::size_t>(count), 1.0F));
    updated = 0;
    training.accumulated(1);
    CHECK(met);
    CHECK(updated == count);
  }
}

TEST_CASE("the number of groups is no limit to a round: a boundary enqueues it all, whatever the groups, and does not wait") {
  acco::parameter_layout layout;
  const auto no_decay = layout.add_group({.weight_decay = 0.0});
  for (int k = 0; k < 96 * 8; ++k) layout.add("t" + std::to_string(k), {100}, k % 2 == 0 ? 0 : no_decay);
  std::atomic<bool> go = false;
  for (const std::size_t bucket : {0U, 10000U}) {
    go = false;
    const acco::decorated_backend world(acco::solo_backend{}, gate{&go});
    acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{},
                             world,           layout,        acco::options{.bucket_elements = bucket}};
    training.initialize(std::vector<float>(layout.size(), 1.0F));
    training.accumulated(1);  // returns although the network does not move: it would wait here for ever
    go = true;
    go.notify_all();
    training.finish();
    CHECK(training.steps() == 1);
  }
}
