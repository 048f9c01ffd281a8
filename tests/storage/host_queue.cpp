// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/storage/host_queue.hpp>

TEST_CASE("tasks run in order, more of them than the ring holds, and wait() sees them all done") {
  acco::host_queue queue;
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) queue.enqueue([&seen, i] { seen.push_back(i); });
  queue.wait();
  REQUIRE(seen.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
  CHECK(queue.idle());
}

TEST_CASE("idle() does not block and turns true by itself") {
  acco::host_queue queue;
  std::atomic<bool> go = false;
  queue.enqueue([&go] { go.wait(false); });
  CHECK_FALSE(queue.idle());
  go = true;
  go.notify_one();
  queue.wait();
  CHECK(queue.idle());
}

TEST_CASE("a task that throws ends the queue: later tasks are dropped, wait() throws, recover() begins anew") {
  acco::host_queue queue;
  int ran = 0;
  queue.enqueue([&ran] { ++ran; });
  queue.enqueue([] { throw std::runtime_error("broken"); });
  queue.enqueue([&ran] { ++ran; });
  CHECK_THROWS_WITH(queue.wait(), "broken");
  CHECK_THROWS_WITH(queue.wait(), "broken");
  CHECK(queue.failed());
  CHECK(ran == 1);
  queue.recover();
  queue.enqueue([&ran] { ++ran; });
  queue.wait();
  CHECK(ran == 2);
}

TEST_CASE("a task that will not run is told so, once: after a failure, and when the queue ends") {
  struct counted {
    int* ran;
    int* dropped_;
    void operator()() const { ++*ran; }
    void dropped() const noexcept { ++*dropped_; }
  };
  int ran = 0, dropped = 0;
  {
    acco::host_queue queue;
    queue.enqueue(counted{&ran, &dropped});
    queue.enqueue([] { throw std::runtime_error("broken"); });
    queue.enqueue(counted{&ran, &dropped});
    CHECK_THROWS_WITH(queue.wait(), "broken");
    CHECK(ran == 1);
    CHECK(dropped == 1);
    queue.enqueue(counted{&ran, &dropped});  // too late
    CHECK_THROWS_WITH(queue.wait(), "broken");
    CHECK(dropped == 2);
    queue.recover();
    queue.enqueue(counted{&ran, &dropped});
    queue.wait();
    CHECK(ran == 2);
    std::atomic<bool> go = false;
    queue.enqueue([&go] { go.wait(false); });
    queue.enqueue(counted{&ran, &dropped});
    std::thread releases([&go] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // stop() waits for the task that runs
      go = true;
      go.notify_one();
    });
    queue.stop();
    releases.join();
    CHECK(ran == 2);
    CHECK(dropped == 3);
    CHECK(queue.idle());
    queue.enqueue(counted{&ran, &dropped});  // nobody is left to run it
  }
  CHECK(ran == 2);
  CHECK(dropped == 4);
  {
    acco::host_queue driven({[](void*) {}, [](void*) {}, nullptr});
    driven.enqueue(counted{&ran, &dropped});
  }
  CHECK(dropped == 5);
}

TEST_CASE("a pending task is asked again and holds up those behind it") {
  acco::host_queue queue;
  std::vector<int> seen;
  int asked = 0;
  queue.enqueue([&] {
    seen.push_back(1);
    return ++asked < 5 ? acco::progress::pending : acco::progress::done;
  });
  queue.enqueue([&seen] { seen.push_back(2); });
  queue.wait();
  CHECK(seen == std::vector<int>{1, 1, 1, 1, 1, 2});
}

TEST_CASE("a task beside others begins while they are under way; they end in order, and what is not beside them waits") {
  for (const bool driven : {false, true}) {
    CAPTURE(driven);
    acco::host_queue queue = driven ? acco::host_queue({[](void*) {}, [](void*) {}, nullptr}) : acco::host_queue();
    std::string seen;  // of whom, and how long it might wait: r(est), g(lance), n(one)
    bool began[3] = {}, all = false;
    const auto transfer = [&](int k) {
      return [&seen, &began, &all, &queue, k] {
        const auto how = queue.patience();
        if (!began[k]) seen += std::string(1, static_cast<char>('a' + k)) + "rgn"[static_cast<int>(how)] + ' ';
        const bool first = !std::exchange(began[k], true);
        all = began[0] && began[1] && began[2];
        if (first && how != acco::patience::rest) return acco::progress::begun;
        if (!all) return acco::progress::pending;  // the first of them would never end alone
        seen += static_cast<char>('A' + k);
        return acco::progress::done;
      };
    };
    std::atomic<bool> go = false;
    queue.enqueue([&go, driven] { return go || driven ? acco::progress::done : acco::progress::pending; });
    queue.enqueue(transfer(0));
    queue.beside();
    queue.enqueue(transfer(1));
    queue.beside();
    queue.enqueue(transfer(2));
    queue.enqueue([&seen] { seen += " then"; });
    go = true;
    queue.wait();
    CHECK(seen == "ag bn cn ABC then");
  }
}

TEST_CASE("tasks that have begun beside each other end before a failure is told; those that have not are dropped") {
  acco::host_queue queue;
  queue.reserve(8, true);
  std::atomic<int> begun = 0, ended = 0, dropped = 0;
  struct transfer {
    std::atomic<int>*begun, *ended, *dropped_;
    int asked = 0;
    acco::progress operator()() {
      if (++asked == 1) {
        ++*begun;
        return acco::progress::begun;
      }
      if (*begun < 2 || asked < 20) return acco::progress::pending;  // long behind the failure
      ++*ended;
      return acco::progress::done;
    }
    void dropped() noexcept { ++*dropped_; }
  };
  queue.enqueue(transfer{&begun, &ended, &dropped});
  queue.beside();
  queue.enqueue(transfer{&begun, &ended, &dropped});
  queue.on(acco::lane::update);
  queue.enqueue([&begun] { return begun == 2 ? acco::progress::done : acco::progress::pending; });
  queue.enqueue([]() -> void { throw std::runtime_error("it cannot be decoded"); });
  const auto mark = queue.mark();
  queue.on(acco::lane::network);
  queue.after(mark);
  queue.beside();
  queue.enqueue(transfer{&begun, &ended, &dropped});
  CHECK_THROWS_WITH(queue.wait(), "it cannot be decoded");
  CHECK(begun == 2);
  CHECK(ended == 2);
  CHECK(dropped == 1);
}

TEST_CASE("a task beside others waits for its mark; one that has only begun in part holds up those behind it") {
  acco::host_queue queue;
  queue.reserve(8, true);
  std::atomic<bool> encoded = false;
  std::string seen;
  int asked = 0;
  bool late = false;
  const auto transfer = [&](char of) {
    return [&seen, of, begun = false]() mutable {
      if (std::exchange(begun, true)) return acco::progress::done;
      seen += of;
      return acco::progress::begun;
    };
  };
  queue.on(acco::lane::network);
  queue.enqueue([&, begun = false]() mutable {
    if (!std::exchange(begun, true)) return acco::progress::begun;
    encoded = true;
    return late ? acco::progress::done : acco::progress::pending;  // until the one behind the mark has begun
  });
  queue.on(acco::lane::update);
  queue.enqueue([&encoded] { return encoded ? acco::progress::done : acco::progress::pending; });
  const auto mark = queue.mark();
  queue.on(acco::lane::network);
  queue.after(mark);
  queue.beside();
  queue.enqueue([&] {
    if (asked == 0) CHECK(encoded);
    late = true;
    return ++asked < 3 ? acco::progress::advanced : acco::progress::done;
  });
  queue.beside();
  queue.enqueue(transfer('x'));
  queue.wait();
  CHECK(asked == 3);
  CHECK(seen == "x");
}

TEST_CASE("a driven queue runs inside wait and poll, and asks its driver when it cannot go on") {
  struct world {
    int waits = 0, polls = 0;
    bool ready = false;
  } w;
  acco::host_queue queue({[](void* c) {
                            auto* const me = static_cast<world*>(c);
                            me->ready = ++me->waits == 3;
                          },
                          [](void* c) { ++static_cast<world*>(c)->polls; }, &w});
  int after = 0;
  queue.enqueue([&w] { return w.ready ? acco::progress::done : acco::progress::pending; });
  queue.enqueue([&after] { ++after; });
  queue.poll();
  CHECK(w.polls == 1);
  CHECK(after == 0);
  queue.wait();
  CHECK(w.waits == 3);
  CHECK(after == 1);
  queue.poll();  // nothing to do: the driver is left alone
  CHECK(w.polls == 1);
}

TEST_CASE("destruction drops what has not begun") {
  std::atomic<int> ran = 0;
  std::atomic<bool> begun = false, go = false;
  {
    acco::host_queue queue;
    queue.enqueue([&] {
      begun = true;
      begun.notify_one();
      go.wait(false);
      ++ran;
    });
    for (int i = 0; i < 10; ++i) queue.enqueue([&ran] { ++ran; });
    begun.wait(false);
    go = true;
    go.notify_one();
  }
  CHECK(ran >= 1);
}

TEST_CASE("lanes run beside each other, each in order; a mark orders them") {
  acco::host_queue queue;
  queue.reserve(200, true);
  std::vector<int> network, update;
  std::atomic<int> step = 0;
  for (int k = 0; k < 50; ++k) {  // neither lane could do this alone: each waits for the other in the middle of a task
    queue.on(acco::lane::network);
    queue.enqueue([&, k] {
      network.push_back(k);
      while (step.load() < 2 * k) std::this_thread::yield();
      step.store(2 * k + 1);
    });
    queue.on(acco::lane::update);
    queue.enqueue([&, k] {
      update.push_back(k);
      while (step.load() < 2 * k + 1) std::this_thread::yield();
      step.store(2 * k + 2);
    });
  }
  queue.wait();
  CHECK(step == 100);
  for (int k = 0; k < 50; ++k) CHECK((network[static_cast<std::size_t>(k)] == k && update[static_cast<std::size_t>(k)] == k));

  for (int round = 0; round < 20; ++round) {
    std::vector<char> order;  // no lock: the marks are the order
    queue.on(acco::lane::network);
    queue.enqueue([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      order.push_back('a');
    });
    const auto a = queue.mark();
    queue.on(acco::lane::update);
    queue.after(a);
    queue.enqueue([&] { order.push_back('b'); });
    const auto b = queue.mark();
    queue.on(acco::lane::network);
    queue.after(b);
    queue.enqueue([&] { order.push_back('c'); });
    queue.wait();
    CHECK(std::string(order.begin(), order.end()) == "abc");
  }
}

TEST_CASE("what ends a round, or throws, drops the tasks of both lanes that wait for it; then the queue goes on") {
  for (const bool overlap : {false, true}) {
    acco::host_queue queue;
    queue.reserve(64, overlap);
    for (const bool throws : {false, true}) {
      std::atomic<int> ran = 0;
      queue.on(acco::lane::update);
      queue.enqueue([throws] {
        if (throws) throw std::runtime_error("broken");
        return acco::progress::ended;
      });
      const auto end = queue.mark();
      queue.enqueue([&ran] { ++ran; });
      queue.on(acco::lane::network);
      queue.after(end);
      for (int k = 0; k < 5; ++k) queue.enqueue([&ran] { ++ran; });
      if (throws) {
        CHECK_THROWS_WITH(queue.wait(), "broken");
        queue.recover();
      } else {
        queue.wait();
      }
      CHECK(ran == 0);
      queue.enqueue([&ran] { ++ran; });
      queue.wait();
      CHECK(ran == 1);
    }
  }
}

TEST_CASE("a task that waits without a deadline is given up, and named") {
  std::atomic<bool> go = false;  // outlives the queue, whose thread may still look at it
  acco::host_queue queue;
  queue.deadline = 0.05;
  queue.place = {.rank = 3, .round = 7, .phase = "commit"};
  queue.enqueue([&go] { go.wait(false); });
  std::string what;
  try {
    queue.wait();
  } catch (acco::deadline_error const& e) {
    what = e.what();
  }
  go = true;
  go.notify_one();
  CHECK(what.find("rank 3, round 7, commit: a task of this rank's queue has not ended within twice the deadline of 0.05 s") !=
        std::string::npos);
}
