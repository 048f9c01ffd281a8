// SPDX-License-Identifier: Apache-2.0
// A rank ends while the others connect with it anew: behind the exchange of addresses, over which nobody waits any more.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <acco/clock.hpp>
#include <acco/network/gloo.hpp>
#include <acco/network/gloo_mail.hpp>

#include "network/gloo_world.hpp"
#include "support/patience.hpp"

namespace {

using gloo_connections = acco::connections<acco::gloo_transport>;
using gloo_messages = acco::message_backend<acco::gloo_transport>;

/// Ranks connected by a context of their own, which ends with them, without a word. Gloo dials
/// lower addresses.
template <class Function>
void connected(int ranks, int connections, Function&& function) {
  static auto device = ::gloo::transport::tcp::CreateDevice("127.1.1.1");
  ::gloo::rendezvous::HashStore store;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
    auto context = std::make_shared<::gloo::rendezvous::Context>(thread.rank(), thread.size());
    context->connectFullMesh(store, device);
    function(acco::gloo_backend(std::move(context), {.connections = connections}));
  });
}

/// What the rank that is looked at does when it has brought its addresses, and has got the others'.
template <class Meeting, class Then>
struct meets {
  Meeting of;
  Then then;
  [[nodiscard]] acco::rendezvous::contributions deliver(acco::rendezvous::contributions parts) const {
    auto result = of.deliver(std::move(parts));
    then();
    return result;
  }
};
/// `split`, step by step: its connections. It is to dial those that call `split`, which wait for it.
template <class Then>
std::shared_ptr<gloo_connections> split_by_hand(acco::gloo_backend const& world, int color, int key, Then&& then) {
  const double deadline = 60 * patience();
  auto const mine = acco::agree_on_split(world, color, key, deadline);
  const meets<acco::gloo_start::meeting_in_world<acco::gloo_backend>, Then> meeting{{world, mine, deadline}, then};
  const acco::rank_of me{mine.rank, mine.size()};
  auto context =
      acco::gloo_start::meshed(me, [] { return ::gloo::transport::tcp::CreateDevice("127.1.1.2"); }, "lo", deadline, meeting);
  return std::make_shared<gloo_connections>(std::move(context));
}
gloo_messages world_of(std::shared_ptr<gloo_connections> const& all) {
  return gloo_messages(std::make_shared<acco::message_collectives<acco::gloo_transport>>(8192, 8192, all));
}

/// Ends in the midst of `widen`.
struct ends_in_it : gloo_messages {
  using gloo_messages::gloo_messages;
  void all_to_all(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    gloo_messages::all_to_all(queue, in, out);
    queue.wait();
    throw std::runtime_error("it ends");
  }
};
void end_in_widening(std::shared_ptr<gloo_connections> const& all) {
  const ends_in_it world(std::make_shared<acco::message_collectives<acco::gloo_transport>>(8192, 8192, all));
  try {
    (void)acco::gloo_pool::widen(world, *all, {.connections = 3}, 60 * patience());
    FAIL_CHECK("it went on");
  } catch (acco::peer_error const&) {
  }
}

/// A rank that has brought an address, and accepts nobody yet: its Gloo is late.
class late_rank {
 public:
  explicit late_rank(acco::gloo_backend const& world) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_storage at{};
    auto& internet = reinterpret_cast<sockaddr_in&>(at);
    internet.sin_family = AF_INET;
    internet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof internet;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), length) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length) == 0);
    const std::vector<char> mine = ::gloo::transport::tcp::Address(at).bytes();
    const double deadline = 60 * patience();
    auto const part = acco::agree_on_split(world, 0, 0, deadline);
    acco::rendezvous::contributions parts(static_cast<std::size_t>(part.size()), std::string(mine.begin(), mine.end()));
    (void)acco::gloo_start::meeting_in_world<acco::gloo_backend>{world, part, deadline}.deliver(std::move(parts));
  }
  late_rank(late_rank const&) = delete;
  late_rank& operator=(late_rank const&) = delete;
  ~late_rank() { ::close(listener_); }
  /// Who accepts one that was reset has nobody at its other end, and Gloo ends the process then.
  [[nodiscard]] bool accepts_one_that_was_not_reset() const {
    const int one = ::accept(listener_, nullptr, nullptr);
    sockaddr_storage other{};
    socklen_t length = sizeof other;
    const bool has_other = one >= 0 && ::getpeername(one, reinterpret_cast<sockaddr*>(&other), &length) == 0;
    ::close(one);
    return has_other;
  }

 private:
  int listener_;
};

/// Every rank's one, added up.
template <class World>
double sum(World const& world) {
  double number = 1;
  acco::host_queue queue;
  queue.place = {world.rank(), 1, "sum"};
  queue.deadline = 600 * patience();
  world.all_reduce(queue, acco::partial<double const>({&number, 1}), acco::replicated<double>({&number, 1}));
  queue.wait();
  return number;
}

/// work(deadline) ends with an error that names `lost`, long before a deadline of ten minutes; its phase.
template <class Work>
std::string phase_of_loss(int lost, int me, Work&& work) {
  const double from = acco::steady_seconds();
  std::string phase = "nobody was lost";
  try {
    work(600 * patience());
  } catch (acco::peer_error const& e) {
    const std::string what = e.what();
    CAPTURE(what);
    CHECK(e.peer() == lost);
    CHECK(e.rank() == me);
    phase = e.where().phase;
  }
  CHECK(acco::steady_seconds() - from < 60 * patience());
  return phase;
}

/// The connection to a rank that has sent one message, or none, and has ended.
class ended_sender : public ::gloo::Context {
 public:
  explicit ended_sender(int messages) : ::gloo::Context(0, 2) { transportContext_ = std::make_shared<buffers>(messages); }

 private:
  struct buffer : ::gloo::transport::UnboundBuffer {
    buffer(void* to, std::size_t bytes, int& left) : UnboundBuffer(to, bytes), messages_left(left) {}
    bool waitRecv(int*, std::chrono::milliseconds) override { return true; }
    bool waitSend(int*, std::chrono::milliseconds) override { return true; }
    void abortWaitRecv() override {}
    void abortWaitSend() override {}
    void send(int, std::uint64_t, std::size_t, std::size_t) override {}
    void recv(int, std::uint64_t, std::size_t, std::size_t) override {
      if (messages_left-- <= 0) throw std::runtime_error("Connection closed by peer");
      const double number = 7;
      std::memcpy(ptr, acco::gloo_mailbox::written(3, &number, sizeof number).get(), acco::gloo_mailbox::room(sizeof number));
    }
    void recv(std::vector<int>, std::uint64_t, std::size_t, std::size_t) override {}
    int& messages_left;
  };
  struct buffers : ::gloo::transport::Context {
    explicit buffers(int messages) : Context(0, 2), left(messages) {}
    std::unique_ptr<::gloo::transport::Pair>& createPair(int of) override { return getPair(of); }
    std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* to, std::size_t bytes) override {
      return std::make_unique<buffer>(to, bytes, left);
    }
    int left;
  };
};

}  // namespace

TEST_CASE("a mailbox takes what a rank has sent that has ended behind its first message; without one it is an error") {
  ended_sender one(1), none(0);
  acco::gloo_mailbox box(one, 1, 0, sizeof(double));
  double number = 0;
  box.take(box.ask(), 3, &number, sizeof number);
  CHECK(number == 7);
  CHECK_THROWS_AS(acco::gloo_mailbox(none, 1, 0, sizeof(double)), std::runtime_error);
}

TEST_CASE("a rank ends while the others connect in a split: they know it by the world that is split, in its numbers") {
  constexpr int ranks = 4;
  for (int lost = 0; lost < ranks; ++lost) {
    CAPTURE(lost);
    connected(ranks, 1, [&](acco::gloo_backend const& world) {
      const int me = world.rank();
      if (me == lost) {
        CHECK_THROWS_AS(split_by_hand(world, 0, ranks - me, [] { throw std::runtime_error("it ends"); }), acco::peer_error);
      } else {
        CHECK(phase_of_loss(lost, me, [&](double deadline) { (void)world.split(0, ranks - me, deadline); }) == "split");
      }
    });
  }
}

TEST_CASE("a rank ends while the others connect several times in a split: they know it by the world that is split") {
  constexpr int ranks = 3;
  for (int lost = 0; lost < ranks; ++lost) {
    CAPTURE(lost);
    connected(ranks, 3, [&](acco::gloo_backend const& world) {
      const int me = world.rank();
      if (me == lost) return end_in_widening(split_by_hand(world, 0, 0, [] {}));
      // a rank that had been connected with it already learns it later
      auto const phase = phase_of_loss(lost, me, [&](double deadline) { (void)sum(world.split(0, 0, deadline)); });
      CHECK((phase == "split" || phase == "sum"));
    });
  }
}

TEST_CASE("a rank ends while the others connect several times at the start: they know it by the first connections") {
  constexpr int ranks = 3;
  for (int lost = 0; lost < ranks; ++lost) {
    CAPTURE(lost);
    static auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
    ::gloo::rendezvous::HashStore store;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
      const int me = thread.rank();
      auto context = std::make_shared<::gloo::rendezvous::Context>(me, ranks);
      context->connectFullMesh(store, device);
      auto const all = std::make_shared<gloo_connections>(context);
      if (me == lost) return end_in_widening(all);
      auto const world = world_of(all);
      auto const phase = phase_of_loss(lost, me, [&](double deadline) {
        (void)acco::gloo_pool::widen(world, *all, {.connections = 3}, deadline);
        (void)sum(world);
      });
      CHECK((phase == "start-up" || phase == "sum"));
    });
  }
}

TEST_CASE("a split goes on though a rank of another part has ended in peace") {
  connected(4, 1, [](acco::gloo_backend const& world) {
    const int me = world.rank();
    if (me == 3) {
      (void)world.split(1, 0, 60 * patience());
    } else if (me == 2) {  // comes late: the others look several times
      auto const all = split_by_hand(world, 0, 0, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
      all->transport().hang_up_at_end();
      auto const part = world_of(all);
      (void)acco::gloo_pool::widen(part, *all, {.connections = 1, .checksums = acco::checksums::none}, 60 * patience());
      CHECK(sum(part) == 3);
    } else {
      CHECK(sum(world.split(0, 0, 60 * patience())) == 3);
    }
  });
}

TEST_CASE("who gives up does not reset connections that a late rank has not accepted yet") {
  for (const bool while_connecting : {true, false}) {
    CAPTURE(while_connecting);
    std::promise<void> gave_up;
    connected(3, 1, [&](acco::gloo_backend const& world) {
      const int me = world.rank();
      if (me == 0) {
        CHECK_THROWS_AS((void)world.split(0, 0, 60 * patience()), acco::peer_error);
        gave_up.set_value();
      } else if (me == 1) {
        const late_rank late(world);
        gave_up.get_future().wait();
        CHECK(late.accepts_one_that_was_not_reset());
      } else if (while_connecting) {
        CHECK_THROWS_AS(split_by_hand(world, 0, 0,
                                      [] {
                                        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it has dialled rank 1
                                        throw std::runtime_error("it ends");
                                      }),
                        std::exception);
      } else {
        CHECK(late_rank(world).accepts_one_that_was_not_reset());
      }
    });
  }
}

TEST_CASE("ranks that end in peace, some behind a sum, are lost to nobody who still connects, or asks for that sum") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_ends_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  for (int round = 0; round < 24; ++round) {
    CAPTURE(round);
    acco::threads_backend::run(4, [&](acco::threads_backend const& thread) {
      const auto world = acco::gloo_backend::from_files({thread.rank(), 4}, directory, "ends " + std::to_string(round),
                                                        {.deadline = 60 * patience(), .connections = 3});
      if (round % 2 == 0) CHECK(sum(world) == 4);
    });
  }
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}
