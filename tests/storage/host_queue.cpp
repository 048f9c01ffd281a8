// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <stdexcept>
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
