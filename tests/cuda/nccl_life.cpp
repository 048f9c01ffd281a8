// SPDX-License-Identifier: Apache-2.0
// nccl_backend over a stand-in for NCCL (emulated/nccl.h): how communicators begin and end, in every way that a
// training can end, and in which order their collectives come to a GPU. It says nothing about NCCL itself.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/collective/around/debug.hpp>
#include <acco/collective/around/traced.hpp>
#include <acco/cuda.hpp>
#include <acco/nccl.hpp>

#include "conformance/backend.hpp"
#include "cuda/cuda_world.hpp"

namespace {

namespace stub = emulated::nccl;

/// Ranks are threads with a device each.
struct nccl_world {
  template <class T>
  using array = worlds::managed_array<T>;
  static acco::cuda_queue queue(acco::nccl_backend const& backend, acco::cuda_issue issue = acco::cuda_issue::thread) {
    return acco::cuda_queue(nullptr, backend.watch(), 0, issue);
  }
  using backend = acco::nccl_backend;

  static void threads(int ranks, std::function<void(int)> const& function) {
    std::vector<std::thread> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.emplace_back([&function, rank] {
        cudaSetDevice(rank);
        try {
          function(rank);
        } catch (std::exception const& e) {
          FAIL_CHECK("rank " << rank << " threw: " << e.what());
        }
      });
    }
    for (std::thread& each : all) each.join();
  }
  template <class Function>
  static void run(int ranks, Function&& function, acco::nccl_options const& chosen = {.deadline = 20}) {
    std::promise<std::string> brought;
    const std::shared_future<std::string> id = brought.get_future().share();
    threads(ranks, [&](int rank) {
      const auto exchange = [&](std::string const& mine) {
        if (rank == 0) brought.set_value(mine);
        return std::vector<std::string>(1, id.get());
      };
      function(acco::nccl_backend::from_exchange({rank, ranks}, exchange, chosen));
    });
  }
};

/// All that was made has been freed, once, and nothing was used after that.
void check_books() {
  stub::books const& b = stub::book();
  CHECK(b.made == b.destroyed + b.aborted);
  CHECK(b.used_after_free == 0);
  CHECK(b.freed_twice == 0);
  CHECK(b.memory == 0);
}
struct clean_books {
  clean_books() { stub::book().clear(); }
  ~clean_books() { check_books(); }
};

/// What NCCL does from now on, while ranks train.
template <class Set>
void tell(Set&& set) {
  const std::lock_guard lock(stub::book().mutex);
  set(stub::book());
}

void busy(cudaStream_t stream, int milliseconds) {
  stream->enqueue([milliseconds] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

template <class Schedule = acco::delayed<>>
struct trainer {
  acco::cuda_stream stream;
  acco::optimizer<Schedule, acco::adamw, acco::cuda_storage<float>, acco::nccl_backend> training;

  static acco::cuda_storage<float> on(cudaStream_t stream, acco::cuda_memory_resource* memory) {
    static acco::cuda_managed_memory managed;
    return {.computation = stream, .memory = memory != nullptr ? memory : &managed};
  }
  explicit trainer(acco::nccl_backend const& world, double deadline = 20, acco::cuda_memory_resource* memory = nullptr,
                   Schedule schedule = {})
      : training(schedule, acco::adamw{}, on(stream.get(), memory), world, 1000, acco::options{.deadline = deadline}) {
    training.initialize(std::vector<float>(1000, 1.0F));
  }
  void step() {
    stream.get()->enqueue([g = training.gradients()] { std::fill(g.begin(), g.end(), 1.0F); });
    training.accumulated(1);
  }
};

}  // namespace

TEST_CASE("collectives over the stand-in conform") {
  const clean_books books;
  for (const int ranks : {1, 2, 3}) {
    conformance::collectives<nccl_world, float, float>(ranks);
    conformance::collectives<nccl_world, double, double>(ranks);
  }
}

TEST_CASE("a training that ends well destroys every communicator, its own and the world's") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    for (int k = 0; k < 2; ++k) {  // one after the other
      trainer<> mine(world);
      for (int m = 0; m < 5; ++m) mine.step();
      mine.training.finish();
    }
    const acco::nccl_backend copy = world;
    acco::nccl_backend moved = copy;
    const acco::nccl_backend last = std::move(moved);
    CHECK(last.communicator() == world.communicator());
  });
  CHECK(stub::book().made == 6);
  CHECK(stub::book().destroyed == 6);
  CHECK(stub::book().finalized == 6);
}

TEST_CASE("one rank throws: its channel is aborted, the others' at the deadline, and the world serves a new optimizer") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    try {
      trainer<> mine(world, 2);
      mine.step();
      if (world.rank() == 1) throw std::runtime_error("no more data");
      for (int m = 0; m < 5; ++m) mine.step();
      FAIL("the other rank is gone");
    } catch (acco::deadline_error const& e) {
      CHECK(world.rank() == 0);
      CHECK(std::string(e.what()).find("did not come to this round's collectives") != std::string::npos);
    } catch (std::runtime_error const&) {
      CHECK(world.rank() == 1);
    }
    CHECK(world.communicator() != nullptr);
    trainer<> again(world);
    for (int m = 0; m < 3; ++m) again.step();
    again.training.finish();
  });
  CHECK(stub::book().made == 6);
  CHECK(stub::book().aborted == 2);
  CHECK(stub::book().destroyed == 4);
}

TEST_CASE("after an abort no call reaches NCCL: later calls of the optimizer repeat the error") {
  const clean_books books;
  nccl_world::run(1, [](acco::nccl_backend const& world) {
    trainer<> mine(world);
    mine.step();
    busy(mine.stream.get(), 50);  // the host has to wait, and looks
    tell([](stub::books& b) { b.fails = true; });
    CHECK_THROWS_AS(
        [&] {
          for (int m = 0; m < 3; ++m) mine.step();
        }(),
        acco::peer_error);
    CHECK_THROWS_AS(mine.training.finish(), acco::peer_error);
    CHECK_THROWS_AS((void)mine.training.state_digest(), acco::peer_error);
    tell([](stub::books& b) { b.fails = false; });
  });
  CHECK(stub::book().aborted == 1);
}

TEST_CASE("a healthy rank alone computes longer than the deadline") {
  const clean_books books;
  nccl_world::run(1, [](acco::nccl_backend const& world) {
    trainer<> mine(world, 0.2);
    for (int m = 0; m < 3; ++m) {
      busy(mine.stream.get(), 350);
      mine.step();
    }
    CHECK_NOTHROW(mine.training.finish());
  });
}

TEST_CASE("an exception that passes a world by aborts its communicator: nobody waits for others who may never come") {
  const clean_books books;
  stub::book().stuck = true;
  nccl_world::run(1, [](acco::nccl_backend world) {
    CHECK_THROWS_AS(
        [mine = std::make_optional(std::move(world))]() mutable {
          const std::optional<acco::nccl_backend> inside = std::exchange(mine, std::nullopt);
          throw std::runtime_error("elsewhere");
        }(),
        std::runtime_error);
    CHECK(stub::book().aborted == 1);
    CHECK(stub::book().finalized == 0);
  });
}

TEST_CASE("the caller's own communicator is the caller's to destroy, unless it was aborted") {
  const clean_books books;
  const auto make = [](int rank, int ranks, ncclUniqueId id) {
    ncclComm_t own = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    (void)ncclCommInitRankConfig(&own, ranks, id, rank, &config);
    ncclResult_t code = ncclInProgress;
    while (code == ncclInProgress) (void)ncclCommGetAsyncError(own, &code);
    return own;
  };
  ncclUniqueId id{};
  (void)ncclGetUniqueId(&id);
  nccl_world::threads(2, [&](int rank) {
    ncclComm_t own = make(rank, 2, id);
    std::optional<acco::nccl_backend> world(std::in_place, own, 2);
    try {
      trainer<> mine(*world, 2);
      mine.step();
      if (rank == 0) throw std::runtime_error("no more data");
      for (int m = 0; m < 4; ++m) mine.step();
    } catch (std::exception const&) {
    }
    CHECK(world->communicator() == own);  // only the optimizer's channel has ended
    if (rank == 1) {
      CHECK_THROWS_AS((void)world->duplicate(), acco::deadline_error);  // the other one does not come
      CHECK(world->communicator() == nullptr);
      CHECK_THROWS_AS((void)world->duplicate(), acco::peer_error);
    }
    own = world->communicator();
    world.reset();
    if (own != nullptr) (void)ncclCommDestroy(own);
  });
}

TEST_CASE("a start-up that nobody else comes to ends at its deadline, and frees what it began") {
  const clean_books books;
  const auto alone = [](std::string const& mine) { return std::vector<std::string>(1, mine); };
  CHECK_THROWS_WITH_AS((void)acco::nccl_backend::from_exchange({0, 2}, alone, {.deadline = 0.1}),
                       doctest::Contains("ncclCommInitRankConfig did not end within 0.1 s: a rank did not come"),
                       acco::deadline_error);
  CHECK(stub::book().aborted == 1);
  for (const double none : {std::numeric_limits<double>::quiet_NaN(), 0.0, -1e300})
    CHECK_THROWS_WITH_AS((void)acco::nccl_backend::from_exchange({0, 2}, alone, {.deadline = none}),
                         doctest::Contains("rank 0, start-up: nccl_options::deadline is "), acco::usage_error);
  CHECK_THROWS_WITH_AS((void)acco::nccl_backend(nullptr, 0.0), doctest::Contains("nccl_backend's deadline is 0"),
                       acco::usage_error);
}

TEST_CASE("a communicator that does not flush is aborted in the end") {
  const clean_books books;
  stub::book().stuck = true;
  nccl_world::run(1, [](acco::nccl_backend const&) {});
  CHECK(stub::book().aborted == 1);
}

TEST_CASE("symmetric memory is registered with the optimizer's channel, and never deregistered after an abort") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    acco::nccl_symmetric_memory memory(world);
    trainer<> mine(world, 20, &memory);
    for (int m = 0; m < 3; ++m) mine.step();
    mine.training.finish();
  });
  CHECK(stub::book().registered == stub::book().deregistered);
  CHECK(stub::book().registered > 8);
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    acco::nccl_symmetric_memory memory(world);
    try {
      trainer<> mine(world, 2, &memory);
      mine.step();
      if (world.rank() == 1) throw std::runtime_error("no more data");
      for (int m = 0; m < 4; ++m) mine.step();
    } catch (std::exception const&) {
    }
  });
  CHECK(stub::book().registered > stub::book().deregistered);
  CHECK(stub::book().aborted == 2);
}

TEST_CASE("an allocation of symmetric memory that others do not come to ends at the deadline") {
  const clean_books books;
  nccl_world::run(2,
                  [](acco::nccl_backend const& world) {
                    if (world.rank() == 1) return;
                    acco::nccl_symmetric_memory memory(world);
                    CHECK_THROWS_WITH_AS((void)memory.allocate(1 << 10, nullptr),
                                         doctest::Contains("ncclCommWindowRegister did not end within 2 s"),
                                         acco::deadline_error);
                    CHECK_THROWS_AS((void)memory.allocate(1 << 10, nullptr), acco::peer_error);
                  },
                  {.deadline = 2});
}

TEST_CASE("split: a world for each colour, ordered by key, then rank") {
  const clean_books books;
  nccl_world::run(4, [](acco::nccl_backend const& world) {
    const int rank = world.rank();
    CHECK_THROWS_WITH_AS((void)world.split(-1, 0), doctest::Contains("split got a color of -1"), acco::usage_error);
    const acco::nccl_backend part = world.split(rank % 2, rank < 2 ? 5 : 1);
    CHECK(part.size() == 2);
    CHECK(part.rank() == (rank < 2 ? 1 : 0));
    auto queue = nccl_world::queue(part);
    worlds::managed_array<double> mine(1, rank), sum(1);
    part.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(sum));
    queue.wait();
    CHECK(sum[0] == (rank % 2 == 0 ? 2 : 4));
    trainer<> training(part);
    for (int m = 0; m < 3; ++m) training.step();
    training.training.finish();
    const acco::nccl_backend all = world.split(7, 0);
    CHECK(all.rank() == rank);
    CHECK(all.size() == 4);
    if (rank == 3) {
      CHECK_THROWS_AS((void)world.split(0, 0, 0.1), acco::deadline_error);
      CHECK(world.communicator() == nullptr);
    }
  });
}

TEST_CASE("collectives of several communicators come to the GPU in the order in which the host issues them") {
  const clean_books books;
  nccl_world::run(1, [](acco::nccl_backend const& world) {
    const acco::nccl_backend first = world.duplicate(), second = world.duplicate();
    acco::cuda_stream one, other;
    const auto issue = acco::cuda_issue::thread;
    acco::cuda_queue early(one.get(), first.watch(), 0, issue), late(other.get(), second.watch(), 0, issue);
    worlds::managed_array<double> in(1, 1.0), out(2);
    stub::book().log.clear();
    for (int k = 0; k < 3; ++k) {
      busy(one.get(), 20);  // what the first waits for; the second could begin at once
      early.after_computation();
      first.all_reduce(early, acco::partial<double const>(in), acco::replicated<double>({out.data(), 1}));
      late.after_computation();
      second.all_reduce(late, acco::partial<double const>(in), acco::replicated<double>({out.data() + 1, 1}));
    }
    early.wait();
    late.wait();
    std::vector<int> const& ran = stub::book().log;
    REQUIRE(ran.size() == 6);
    for (std::size_t k = 0; k < ran.size(); ++k) CHECK(ran[k] == ran[k % 2]);
    CHECK(ran[0] < ran[1]);
  });
}

TEST_CASE("the trainer's thread does not wait for NCCL to accept a round's collectives") {
  const clean_books books;
  nccl_world::run(1, [](acco::nccl_backend const& world) {
    acco::cuda_stream stream;
    const acco::options chosen{.deadline = 5, .bucket_elements = 50};  // twenty buckets
    acco::optimizer training{
        acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, trainer<>::on(stream.get(), nullptr), world, 1000, chosen};
    training.initialize(std::vector<float>(1000, 1.0F));
    const auto step = [&] {
      stream.get()->enqueue([g = training.gradients()] { std::fill(g.begin(), g.end(), 1.0F); });
      return training.accumulated(1);
    };
    for (int m = 0; m < 6; ++m) {
      tell([](stub::books& b) { b.held = true; });
      if (m == 0) CHECK_FALSE(step());  // nothing to land: comes back while NCCL holds the round
      tell([](stub::books& b) { b.held = false; });
      if (m != 0) CHECK(step());
    }
    training.finish();
  });
}

TEST_CASE("NCCL does not accept a collective: the deadline; a lost peer, with rank and round") {
  const clean_books books;
  for (const bool lost : {false, true}) {
    nccl_world::run(2, [lost](acco::nccl_backend const& world) {
      trainer<> mine(world, lost ? 20 : 0.5);
      if (world.rank() == 0) tell([](stub::books& b) { b.held = true; });
      std::thread peer;
      if (lost && world.rank() == 0) {
        peer = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          tell([](stub::books& b) { b.fails = true; });
        });
      }
      try {
        for (int m = 0; m < 5; ++m) mine.step();
        FAIL_CHECK("NCCL holds the round");
      } catch (acco::error const& e) {
        CHECK(e.rank() == world.rank());
        CHECK(e.round() >= 0);
        const std::string said = e.what();
        CHECK_MESSAGE(said.find(lost ? "remote process exited" : " within 0.5 s") != std::string::npos, said);
      }
      if (peer.joinable()) peer.join();
    });
    tell([](stub::books& b) { b.held = b.fails = false; });
  }
}

namespace {
/// NCCL works at each collective for a time of its own.
void work_at_random() {
  tell([](stub::books& b) {
    b.working = [seed = std::uint32_t{7}]() mutable {
      seed = seed * 1664525U + 1013904223U;
      return static_cast<double>(seed >> 8U) / (1U << 24U) * 600e-6;
    };
  });
}
}  // namespace

TEST_CASE("several optimizers on a GPU, whose threads NCCL delays: one order on all ranks") {
  const clean_books books;
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::uint64_t> digests[2];
    for (const bool delayed : {false, true}) {
      if (delayed) work_at_random();
      std::mutex mutex;
      nccl_world::run(ranks, [&](acco::nccl_backend const& world) {
        trainer<> one(world);
        trainer<acco::two_phase<>> other(world);
        for (int m = 0; m < 12; ++m) {
          one.step();
          other.step();
          if (m % 3 == 0) one.step();
        }
        one.training.finish();
        other.training.finish();
        const std::uint64_t both = one.training.state_digest() ^ other.training.state_digest();
        const std::lock_guard lock(mutex);
        digests[delayed ? 1 : 0].push_back(both);
      });
      tell([](stub::books& b) { b.working = nullptr; });
    }
    CHECK(digests[0].size() == static_cast<std::size_t>(ranks));
    std::sort(digests[0].begin(), digests[0].end());
    std::sort(digests[1].begin(), digests[1].end());
    CHECK(digests[0] == digests[1]);
  }
}

TEST_CASE("of two optimizers on a GPU one fails: the other goes on") {
  const clean_books books;
  for (const int ranks : {2, 3}) {
    work_at_random();
    nccl_world::run(ranks, [&](acco::nccl_backend const& world) {
      auto one = std::make_unique<trainer<>>(world, 1);
      trainer<> other(world, 20);
      bool lives = true;
      for (int m = 0; m < 10; ++m) {
        try {
          if (one && world.rank() == 1 && m == 4) throw std::runtime_error("no more data");
          if (lives) one->step();
        } catch (std::exception const& e) {
          const bool mine = std::string(e.what()) == "no more data";
          CHECK_MESSAGE(mine == (world.rank() == 1 && m == 4), e.what());
          lives = false;
          one.reset();
        }
        other.step();
      }
      CHECK_FALSE(lives);
      other.training.finish();
    });
    tell([](stub::books& b) { b.working = nullptr; });
  }
}

TEST_CASE("a collective that is not issued leaves its place in the GPU's order to those behind it") {
  const clean_books books;
  nccl_world::run(1, [](acco::nccl_backend const& world) {
    const acco::nccl_backend first = world.duplicate(), second = world.duplicate();
    worlds::managed_array<double> in(1, 1.0), out(2);
    const auto sum = [&](acco::nccl_backend const& over, acco::cuda_queue& queue, std::size_t at) {
      over.all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>({out.data() + at, 1}));
    };
    acco::cuda_stream one, other;
    acco::cuda_queue late(other.get(), second.watch(), 0, acco::cuda_issue::thread);
    late.deadline = 5;
    SUBCASE("its queue has failed before, or fails before it") {
      acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
      early.issue([](cudaStream_t) { throw std::runtime_error("a launch failed"); });
      for (int k = 0; k < 2; ++k) {
        sum(first, early, 0);
        sum(second, late, 1);
        CHECK_NOTHROW(late.wait());
        CHECK_THROWS_WITH(early.wait(), "a launch failed");
      }
    }
    SUBCASE("its queue is destroyed") {
      std::promise<void> go;
      std::thread goes;
      {
        acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
        early.issue([&go](cudaStream_t) { go.get_future().wait(); });
        sum(first, early, 0);
        sum(second, late, 1);
        goes = std::thread([&go] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          go.set_value();
        });
      }
      CHECK_NOTHROW(late.wait());
      goes.join();
    }
    SUBCASE("its communicator is aborted") {
      acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
      tell([](stub::books& b) { b.held = true; });
      sum(first, early, 0);
      sum(second, late, 1);
      first.abort("");
      tell([](stub::books& b) { b.held = false; });
      CHECK_NOTHROW(late.wait());
      CHECK_THROWS_AS(early.wait(), acco::peer_error);
    }
    SUBCASE("another waits for its turn, and is aborted") {
      acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
      tell([](stub::books& b) { b.held = true; });
      sum(first, early, 0);
      sum(second, late, 1);
      second.abort("");
      CHECK_THROWS_AS(late.wait(), acco::peer_error);  // at once: the deadline's error is another
      tell([](stub::books& b) { b.held = false; });
      CHECK_NOTHROW(early.wait());
    }
    SUBCASE("another waits for its turn, and its peer is lost") {
      acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
      std::promise<void> go;
      early.issue([&go](cudaStream_t) { go.get_future().wait(); });
      sum(first, early, 0);
      sum(second, late, 1);
      tell([](stub::books& b) { b.fails = true; });
      CHECK_THROWS_WITH_AS(late.wait(), doctest::Contains("a collective failed: remote process exited"), acco::peer_error);
      tell([](stub::books& b) { b.fails = false; });
      go.set_value();
      CHECK_NOTHROW(early.wait());
    }
    SUBCASE("NCCL does not accept it: what the thread found is what the host is told") {
      late.deadline = 0.1;
      tell([](stub::books& b) { b.held = true; });
      sum(second, late, 1);
      while (!late.idle()) std::this_thread::yield();
      CHECK_THROWS_WITH_AS(late.watch().look(late.watch().context, late.place, 0, 5),
                           doctest::Contains("all_reduce did not end within 0.1 s"), acco::deadline_error);
      CHECK_THROWS_WITH_AS(late.wait(), doctest::Contains("all_reduce did not end within 0.1 s"), acco::deadline_error);
    }
    SUBCASE("its turn does not come within the deadline") {
      acco::cuda_queue early(one.get(), first.watch(), 0, acco::cuda_issue::thread);
      late.deadline = 0.2;
      early.issue([](cudaStream_t) { std::this_thread::sleep_for(std::chrono::seconds(2)); });
      sum(first, early, 0);
      busy(other.get(), 1500);  // computes: nobody is late, but for the order
      late.after_computation();
      sum(second, late, 1);
      CHECK_THROWS_WITH_AS(late.wait(), doctest::Contains("did not come to this round's collectives within 0.2 s"),
                           acco::deadline_error);
      CHECK_NOTHROW(early.wait());
    }
  });
}

TEST_CASE("two optimizers share a GPU: trained side by side; a pace that differs from rank to rank is refused") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    trainer<> one(world);
    using elastic = acco::delayed<acco::elastic_pace>;
    const auto refused = [&] { const trainer<elastic> other(world, 20, nullptr, elastic{}); };
    CHECK_THROWS_WITH_AS(refused(), doctest::Contains("several optimizers use NCCL on one GPU"), acco::usage_error);
    {
      trainer<acco::two_phase<>> other(world);
      for (int m = 0; m < 6; ++m) {
        one.step();
        other.step();
        if (m % 2 == 0) other.step();
      }
      other.training.finish();
    }
    for (int m = 0; m < 2; ++m) one.step();
    one.training.finish();
  });
  nccl_world::run(2, [](acco::nccl_backend const& world) {  // alone it may
    using elastic = acco::delayed<acco::elastic_pace>;
    trainer<elastic> mine(world, 20, nullptr, elastic{});
    CHECK_THROWS_AS(trainer<>(world, 20), acco::usage_error);
    for (int m = 0; m < 4 + 2 * world.rank(); ++m) mine.step();
    mine.training.finish();
  });
}

TEST_CASE("debug and traced over NCCL: the same bits; a missing rank; beside another optimizer") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    const auto train = [](auto backend, double deadline, int steps, int computing) {
      acco::cuda_stream stream;
      acco::optimizer training{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, trainer<>::on(stream.get(), nullptr), backend, 1000,
          acco::options{.deadline = deadline}};
      training.initialize(std::vector<float>(1000, 1.0F));
      for (int m = 0; m < steps; ++m) {
        if (m == 1) busy(stream.get(), computing);
        stream.get()->enqueue([g = training.gradients()] { std::fill(g.begin(), g.end(), 1.0F); });
        training.accumulated(1);
      }
      if (steps == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4000));
      training.finish();
      return training.state_digest();
    };
    acco::trace trace;
    const std::uint64_t plain = train(world, 20, 4, 10);
    // longer than the deadline: nobody is late
    CHECK(train(acco::debug(acco::traced(world, trace)), 3, 4, 3500) == plain);
    CHECK(trace.size() > 20);
    CHECK_THROWS_AS((void)train(acco::debug(acco::traced(world, trace)), 1, world.rank() == 0 ? 3 : 1, 10), acco::error);

    trainer<> one(world);
    one.step();
    CHECK(train(acco::debug(acco::traced(world, trace)), 20, 4, 10) == plain);
    one.training.finish();
  });
}

TEST_CASE_TEMPLATE("sums that NCCL leaves in 16 bits: as those of threads over device memory, with buckets and regions", T,
                   acco::bfloat16 AND_IN_DEEP(acco::half)) {
  const clean_books books;
  acco::parameter_layout layout;
  layout.add("weight", {61, 67}).add("bias", {67}).add("head", {5003});
  const auto train = [&](auto const& world, acco::norm_detail norms, std::size_t bucket) {
    acco::cuda_storage<T> storage{.warn = nullptr};
    acco::options chosen{.clip_norm = 1, .deadline = 20};
    chosen.bucket_elements = bucket;
    chosen.norms = norms;
    acco::optimizer training{
        acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.01}, storage, world, layout, chosen};
    training.initialize(std::vector<T>(layout.size(), T(1.0F)));
    std::vector<double> told;
    for (int m = 0; m < 6; ++m) {
      emulated::of(nullptr).enqueue([g = training.gradients(), m, rank = world.rank()] {
        for (std::size_t i = 0; i < g.size(); ++i)  // whole numbers: sums are exact in any order and type
          g[i] += static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(m)) % 5) - 2 + rank);
      });
      if (auto const& report = training.accumulated(1)) told.push_back(report->gradient_norm);
    }
    training.finish();
    told.push_back(static_cast<double>(training.state_digest() % 1000003));
    return told;
  };
  for (const acco::norm_detail norms : {acco::norm_detail::total, acco::norm_detail::tensors}) {
    for (const std::size_t bucket : {std::size_t{0}, std::size_t{2048}}) {
      std::vector<std::vector<double>> nccl(2), threads(2);
      nccl_world::run(2, [&](auto const& world) { nccl[static_cast<std::size_t>(world.rank())] = train(world, norms, bucket); });
      acco::threads_backend::run(
          2, [&](auto world) { threads[static_cast<std::size_t>(world.rank())] = train(world, norms, bucket); });
      CHECK(nccl == threads);
      CHECK(nccl[0].size() >= 3);
      CHECK(nccl[0][0] > 1);
    }
  }
}

TEST_CASE("a micro-batch longer than the deadline makes nobody late, with acco::debug in front of another optimizer either") {
  const clean_books books;
  nccl_world::run(2, [](acco::nccl_backend const& world) {
    const auto both = [&](auto const& first) {
      acco::cuda_stream stream;
      acco::cuda_storage<float> storage{.computation = stream.get(), .warn = nullptr};
      const acco::options chosen{.deadline = 0.4};
      acco::optimizer one{acco::delayed{}, acco::adamw{}, storage, first, 1000, chosen};
      one.initialize(std::vector<float>(1000, 1.0F));
      acco::optimizer two{acco::delayed{}, acco::adamw{}, storage, world, 1000, chosen};
      two.initialize(std::vector<float>(1000, 1.0F));
      for (int m = 0; m < 2; ++m) {
        stream.get()->enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); });
        one.accumulated(1);
        two.accumulated(1);
      }
      one.finish();
      two.finish();
      CHECK(two.steps() == 2);
    };
    both(world);
    acco::trace trace;
    both(acco::debug(acco::traced(world, trace)));
  });
}
