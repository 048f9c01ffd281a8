// SPDX-License-Identifier: Apache-2.0
// A wait for ranks of which one has ended, over a transport that waits as long as it is told to, and says nothing of
// messages that were on their way (as Gloo does of sends). Rank 0 of three; the transport counts the seconds.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <acco/network/connections.hpp>
#include <acco/network/message_channel.hpp>

namespace {

struct world {
  double waited = 0, longest = 0;  // seconds: of all messages, in one call
  int dead = -1, leaving = -1;     // a rank whose connection is lost, one that has told that it ends
  std::function<bool(int peer, double waited)> comes = [](int, double) { return false; };
};

class patient {
 public:
  static constexpr std::size_t largest_message = 1024;
  struct request {
    int peer;
    void* to;
    std::size_t bytes;
    bool farewell, word = false;
  };
  explicit patient(world& in) : world_(in) {}
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 3; }
  [[nodiscard]] double round_trip() const { return 0; }
  request send(int to, acco::message_label, void const*, std::size_t bytes) { return {to, nullptr, bytes, false}; }
  request receive(int from, acco::message_label label, void* to, std::size_t bytes) {
    return {from, to, bytes, label.sequence == 0xffffffff, label.sequence == 0xfffffffe};
  }
  acco::delivery complete(request& which, double seconds) {
    if (which.farewell) {
      if (which.peer == world_.dead) throw acco::delivery_failure(acco::text("it is gone"));
      if (which.peer != world_.leaving) return acco::delivery::expired;
      static_cast<std::int32_t*>(which.to)[0] = 1;  // whom it blames
      static_cast<char*>(which.to)[sizeof(std::int32_t)] = '\0';
      return acco::delivery::done;
    }
    if (which.word) return acco::delivery::expired;  // that they wait, too: nobody says so
    if (world_.comes(which.peer, world_.waited)) return acco::delivery::done;
    world_.waited += seconds;
    world_.longest = std::max(world_.longest, seconds);
    return world_.comes(which.peer, world_.waited) ? acco::delivery::done : acco::delivery::expired;
  }
  bool arrived(request& which) { return world_.comes(which.peer, world_.waited); }
  void leave(acco::message_label, void const*, std::size_t) noexcept {}

 private:
  world& world_;
};
static_assert(acco::message_transport<patient>);

/// Waits for a message from rank 2, then for one that goes to rank 1. How often it looked.
int wait_for_both(world& in, int glances = 0) {
  const acco::collective operation = acco::collective::all_reduce;
  acco::message_channel<patient> group(std::make_shared<acco::connections<patient>>(in), 0);
  acco::message_channel<patient>::batch messages;
  acco::host_queue queue;
  queue.place = {.rank = 0};
  queue.deadline = 60;
  const acco::message_label label = group.next_operation(operation, 0);
  double number = 0;
  int looks = 1;
  group.guarded(queue, operation, [&] {
    group.receive(messages, label, 2, &number, sizeof number);
    group.send(messages, label, 1, &number, sizeof number);
    for (; !group.settle(queue, messages, label, looks <= glances); ++looks) {
      if (looks <= glances && glances < 10) std::this_thread::sleep_for(std::chrono::milliseconds(99));
    }
  });
  return looks;
}
/// The rank that is blamed.
template <class Error>
int blamed(world& in, int glances = 0) {
  try {
    (void)wait_for_both(in, glances);
  } catch (Error const& e) {
    CAPTURE(e.what());
    return e.peer();
  } catch (acco::error const& e) {
    FAIL_CHECK(e.what());
  }
  return -2;
}

}  // namespace

TEST_CASE("a rank is lost with a message on its way to it: that is known within a second, and it is named") {
  world in;
  in.dead = 1;
  SUBCASE("and the others have come") {
    in.comes = [](int peer, double) { return peer == 2; };
  }
  SUBCASE("and another one, that lives, keeps this rank waiting") {}
  CHECK(blamed<acco::peer_error>(in) == 1);
  CHECK(in.waited <= 1);
}

TEST_CASE("a rank tells that it ends while another one is waited for: that is known within a second, and whom it blames") {
  world in;
  in.leaving = 2;
  CHECK(blamed<acco::peer_error>(in) == 1);
  CHECK(in.waited <= 1);
}

TEST_CASE("a rank has ended in peace, its messages have come: another one is still waited for") {
  world in;
  in.dead = 1;
  in.comes = [](int peer, double waited) { return peer == 1 || waited > 30; };
  CHECK(wait_for_both(in) == 1);
  CHECK(in.waited > 30);
}

TEST_CASE("a glance waits for a millisecond at most, and comes back") {
  world in;
  in.comes = [](int, double waited) { return waited > 0.02; };
  const int looks = wait_for_both(in, 1000);
  CHECK(looks >= 20);
  CHECK(in.longest <= 0.001);
  CHECK(in.waited <= 0.022);
}

TEST_CASE("a wait that begins with glances: the deadline is that of both") {
  world in;
  CHECK(blamed<acco::deadline_error>(in, 5) == 2);
  CHECK(in.waited < 60 - 0.3);
  CHECK(in.waited > 60 - 5);
}

TEST_CASE("a wait in slices: the deadline is that of the whole") {
  world in;
  CHECK(blamed<acco::deadline_error>(in) == 2);
  CHECK(in.waited == doctest::Approx(60));
  CHECK(in.longest <= 0.5);
}
