// SPDX-License-Identifier: Apache-2.0
// What only Gloo has: contexts made by its user, start-up from the environment and from files.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "network/gloo_world.hpp"
#include "network/own_sockets.hpp"
#include "support/patience.hpp"

namespace {

/// Bytes; 0 of what is not TCP.
std::uint64_t received(int socket) {
  constexpr std::size_t at = 128;  // tcpi_bytes_received of Linux's struct tcp_info, before which the C library's ends
  std::byte info[256] = {};
  socklen_t length = sizeof info;
  std::uint64_t result = 0;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, info, &length) == 0) std::memcpy(&result, info + at, sizeof result);
  return result;
}
/// function(thread, transport).
template <class Function>
void on_two_ranks(Function&& function) {
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::HashStore store;
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    auto context = std::make_shared<gloo::rendezvous::Context>(thread.rank(), 2);
    context->connectFullMesh(store, device);
    acco::gloo_transport transport(context);
    function(thread, transport);
  });
}

/// On the loopback interface, at a port that the kernel has chosen.
struct listening_socket {
  int number = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  listening_socket() {
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const own = reinterpret_cast<sockaddr*>(&at);
    REQUIRE(bind(number, own, sizeof at) == 0);
    REQUIRE(listen(number, 2) == 0);
    REQUIRE(getsockname(number, own, &length) == 0);
  }
  listening_socket(listening_socket const&) = delete;
  listening_socket& operator=(listening_socket const&) = delete;
  ~listening_socket() { close(number); }
  [[nodiscard]] int connect_with(int dialled) const {
    return connect(dialled, reinterpret_cast<sockaddr const*>(&at), sizeof at);
  }
};

}  // namespace

TEST_CASE("from files: three ranks find each other and train; the waiting thread uses no processor time") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_gloo_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
    const auto backend = acco::gloo_backend::from_files({thread.rank(), 3}, directory, "run 1", {.deadline = 60 * patience()});
    CHECK(backend.rank() == thread.rank());
    acco::host_queue queue;
    double mine[1] = {backend.rank() + 1.0}, sum[1] = {0};
    if (thread.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    const std::clock_t before = std::clock();  // of the whole process
    backend.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(sum));
    queue.wait();
    CHECK(sum[0] == 6);
    if (thread.rank() == 0)
      CHECK(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < 1);  // two ranks that spin take four
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

TEST_CASE(
    "connections by the round trip: one on a short link, one each way for each 10 ms on a long one, few where ranks are many") {
  using acco::gloo_pool::connections_for;
  CHECK(connections_for(0.0049, 2) == 1);
  CHECK(connections_for(0.03, 2) == 8);
  CHECK(connections_for(0.1, 2) == 22);
  CHECK(connections_for(10, 2) == 32);
  CHECK(connections_for(10, 65) == 4);
  CHECK(connections_for(10, 1000) == 1);
}

TEST_CASE("the round trip of a connection is what the kernel has seen; of no connection there is none") {
  const listening_socket listening;
  const int dialled = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(listening.connect_with(dialled) == 0);
  CHECK(acco::net::round_trip(dialled) > 0);
  CHECK(acco::net::round_trip(dialled) < 10);  // what stands elsewhere in the kernel's answer is not in this range
  CHECK(acco::net::round_trip(-1) == 0);
  close(dialled);
}

TEST_CASE("several connections to each rank: one rank's wish counts for all, results have the same bits") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_pool_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
    const int rank = thread.rank();
    const auto make = [&](char const* run, int connections) {
      return acco::gloo_backend::from_files({rank, 3}, directory, run,
                                            {.piece_bytes = 8192, .deadline = 60 * patience(), .connections = connections});
    };
    const auto backend = make("several", rank == 1 ? 3 : 0);
    CHECK(backend.connections_a_rank() == 3);
    const auto pair = backend.split(rank == 2 ? 1 : 0);
    CHECK(pair.connections_a_rank() == (rank == 2 ? 1 : 3));
    std::vector<float> mine(3 * 20000);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
    const auto reduced = [&](auto const& world) {
      acco::host_queue queue;
      std::vector<float> own(mine.size() / 3), whole(mine.size());
      world.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(own));
      world.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(whole));
      queue.wait();
      return whole;
    };
    CHECK(reduced(backend) == reduced(thread));
    CHECK_THROWS_WITH_AS((void)make("many", rank == 2 ? 65 : 1), doctest::Contains("connections is 65 on rank 2"),
                         acco::usage_error);
    const auto with_pieces = [&](char const* run, std::size_t bytes) {
      (void)acco::gloo_backend::from_files({rank, 3}, directory, run, {.piece_bytes = bytes, .deadline = 60 * patience()});
    };
    CHECK_THROWS_WITH_AS(
        with_pieces("other pieces", rank == 2 ? 65536 : 8192),
        doctest::Contains(rank == 2 ? "65536 bytes here, and of 8192 on rank 0" : "8192 bytes here, and of 65536 on rank 2"),
        acco::mismatch_error);
    with_pieces("what is usual, chosen by one", rank == 2 ? acco::gloo_backend::usual_piece / 2 : 0);
    CHECK_THROWS_WITH_AS(with_pieces("too large", (std::size_t{1} << 30U) + 1), doctest::Contains("piece_bytes is 1073741825"),
                         acco::usage_error);
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

TEST_CASE("several connections to each rank: pieces of all operations take turns, each connection has them one way") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_turns_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  constexpr std::size_t piece = std::size_t{40} << 10U, gathers = 30;
  std::barrier both(2);
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    const auto backend = acco::gloo_backend::from_files(acco::rank_of{thread.rank(), 2}, directory, "turns",
                                                        {.piece_bytes = piece, .deadline = 60 * patience(), .connections = 5});
    acco::host_queue queue;
    const std::vector<std::byte> mine(piece);
    std::vector<std::byte> all(2 * piece);
    for (std::size_t k = 0; k < gathers; ++k) {
      backend.all_gather(queue, acco::sharded<std::byte const>(mine), acco::replicated<std::byte>(all));
      queue.wait();
    }
    both.arrive_and_wait();
    if (thread.rank() == 0) {
      std::vector<std::uint64_t> pieces;  // over both ranks' ends
      for (const int each : own::sockets()) {
        if (received(each) > piece) pieces.push_back(received(each) / piece);
      }
      std::sort(pieces.begin(), pieces.end());
      CHECK(pieces == std::vector<std::uint64_t>{gathers / 3, gathers / 3, gathers / 3, gathers / 2, gathers / 2});
    }
    both.arrive_and_wait();
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

TEST_CASE("messages leave no faster than is asked for") {
  std::barrier both(2);
  on_two_ranks([&](acco::threads_backend const&, acco::gloo_transport& transport) {
    const auto paced = [&] {
      both.arrive_and_wait();
      const std::vector<int> all = own::sockets();
      const auto count = std::count_if(all.begin(), all.end(), [](int each) { return own::pace_of(each) == 12345678; });
      both.arrive_and_wait();
      return count;
    };
    transport.pace(1e12);  // more than the kernel can count
    CHECK(paced() == 0);
    transport.pace(12345678.9);
    CHECK(paced() == 2);
  });
}

TEST_CASE("several connections to each rank: what a rank has sent before it ended in peace arrives, and more does not") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_peace_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    const auto backend =
        acco::gloo_backend::from_files({thread.rank(), 2}, directory, "peace", {.deadline = 60 * patience(), .connections = 2});
    acco::host_queue queue;
    queue.deadline = 60 * patience();
    const int mails = static_cast<int>(acco::gloo_mailbox::open);  // as many as leave at once; two a broadcast
    for (int k = 0; k <= mails / 2; ++k) {
      if (k == 1 && thread.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      double number[2] = {thread.rank() + k + 1.0, 7};
      backend.broadcast(queue, acco::replicated<double>(number), 1);
      queue.wait();
      CHECK(number[0] == k + 2);
    }
    if (thread.rank() == 1) return;
    double number[2] = {};
    backend.broadcast(queue, acco::replicated<double>(number), 1);
    CHECK_THROWS_AS(queue.wait(), acco::peer_error);
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

namespace {
/// One bit of one message that it sends, from 0, is another one. (Whose transport it is cannot be chosen later.)
struct flipping_transport : acco::gloo_transport {
  using gloo_transport::gloo_transport;
  [[nodiscard]] request send(int to, acco::message_label label, void const* from, std::size_t bytes) {
    if (label.operation == acco::collective::none || sent_++ != flipped) return gloo_transport::send(to, label, from, bytes);
    damaged_.assign(static_cast<std::byte const*>(from), static_cast<std::byte const*>(from) + bytes);
    damaged_[bytes / 2] ^= std::byte{4};
    return gloo_transport::send(to, label, damaged_.data(), bytes);
  }
  int flipped = -1;

 private:
  int sent_ = 0;
  std::vector<std::byte> damaged_;
};
}  // namespace

TEST_CASE("a flipped bit in a message or in its checksum: the rank that sent it is named, by everybody") {
  if (!acco::has_xxhash) {
    MESSAGE("skipped: this was built without xxHash");
    return;
  }
  static auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
  for (int flipped = 0; flipped < 8; ++flipped) {
    CAPTURE(flipped);
    ::gloo::rendezvous::HashStore store;
    std::atomic<int> damaged = 0;
    acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
      auto context = std::make_shared<::gloo::rendezvous::Context>(thread.rank(), thread.size());
      context->connectFullMesh(store, device);
      // they outlive the world, whose messages may be on their way to them
      std::vector<float> own(3000, static_cast<float>(thread.rank() + 1)), whole(9000);
      double number = 1;
      auto const all = std::make_shared<acco::connections<flipping_transport>>(context);
      all->set_sum(acco::found_message_sum);
      if (thread.rank() == 1) all->transport().flipped = flipped;
      const acco::message_backend<flipping_transport> world(
          std::make_shared<acco::message_collectives<flipping_transport>>(8192, 8192, all));
      acco::host_queue queue;
      queue.place = {thread.rank(), 7, "commit"};
      queue.deadline = 60 * patience();
      try {  // two messages to each, and a checksum
        world.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(whole));
        queue.wait();
        CHECK(whole[0] == 1);
        CHECK(std::count(whole.begin() + 3000, whole.begin() + 6000, 2.0F) == 3000);
        for (int k = 0; k < 3; ++k) {
          world.all_reduce(queue, acco::partial<double const>({&number, 1}), acco::replicated<double>({&number, 1}));
          queue.wait();
        }
        FAIL_CHECK("nobody found it");
      } catch (acco::peer_error const& e) {
        const std::string what = e.what();
        CAPTURE(what);
        CHECK(e.peer() == 1);
        CHECK(e.round() == 7);
        if (thread.rank() != 1 && what.find("tells") == std::string::npos) {
          ++damaged;
          CHECK(what.find("a message from rank 1 is damaged (operation ") != std::string::npos);
        }
      }
      queue.stop();
    });
    CHECK(damaged == 1);
  }
}

TEST_CASE("checksums: on a local network where some rank asks for them, in its parts, too") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_sums_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
    const auto make = [&](char const* run, acco::checksums chosen) {
      return acco::gloo_backend::from_files({thread.rank(), 3}, directory, run,
                                            {.deadline = 60 * patience(), .checksums = chosen});
    };
    const auto usual = make("usual", acco::checksums::long_links);
    CHECK_FALSE(usual.has_checksums());
    CHECK_FALSE(usual.split(0).has_checksums());
    const int rank = thread.rank();
    const auto agreed = [&](double round_trip, acco::gloo_options const& mine) {
      acco::host_queue queue;
      return acco::gloo_pool::agreed(usual, queue, round_trip, mine).sum != nullptr;
    };
    CHECK(agreed(rank == 1 ? 0.005 : 0.001, {}) == acco::has_xxhash);  // one is far
    CHECK_FALSE(agreed(0.004, {}));
    CHECK_FALSE(agreed(0.1, {.checksums = acco::checksums::none}));
    CHECK(agreed(0.1, {.checksums = rank == 0 ? acco::checksums::none : acco::checksums::long_links}) == acco::has_xxhash);
    CHECK_FALSE(agreed(0.1, {.sum = rank == 2 ? nullptr : acco::found_message_sum}));
    const auto wanted = rank == 2 ? acco::checksums::always : acco::checksums::none;
    for (const int asks : {1, 2}) {  // the rank without xxHash itself, or another one
      CHECK_THROWS_WITH_AS((void)acco::gloo_backend::from_files(
                               {thread.rank(), 3}, directory, "without " + std::to_string(asks),
                               {.deadline = 60 * patience(),
                                .checksums = thread.rank() == asks ? acco::checksums::always : acco::checksums::none,
                                .sum = thread.rank() == 1 ? nullptr : acco::found_message_sum}),
                           doctest::Contains(acco::has_xxhash ? "rank 1's program was built without xxHash"
                                                              : "'s program was built without xxHash"),
                           acco::usage_error);
    }
    if (!acco::has_xxhash) return;
    const auto checked = make("all", wanted);
    CHECK(checked.has_checksums());
    const auto part = checked.split(0);
    CHECK(part.has_checksums());
    double number = 1;
    acco::host_queue queue;
    part.all_reduce(queue, acco::partial<double const>({&number, 1}), acco::replicated<double>({&number, 1}));
    queue.wait();
    CHECK(number == 3);
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

#if defined(ACCO_WITH_XXHASH)
TEST_CASE("a sum is XXH3's by whichever registers it is made: ranks on other processors make the same") {
  std::vector<unsigned char> bytes(5000);
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<unsigned char>(k * k % 251);
  for (const std::size_t n : {0U, 1U, 16U, 240U, 241U, 1024U, 4999U})
    CHECK(acco::xxh3(bytes.data(), n) == XXH3_64bits_withSeed(bytes.data(), n, 0));
}
#endif

TEST_CASE("who looks whether a message has come, and waits for none, finds one that has") {
  on_two_ranks([&](acco::threads_backend const& thread, acco::gloo_transport& transport) {
    const double longest = 60 * patience();
    int most = 0;
    for (std::uint32_t k = 0; k < 100; ++k) {
      char looked_for = 1, behind_it = 1;
      const acco::message_label first{2 * k, acco::collective::none, 0, 0}, second{2 * k + 1, acco::collective::none, 0, 0};
      if (thread.rank() == 1) {
        auto one = transport.send(0, first, &looked_for, 1);
        CHECK(transport.complete(one, longest) == acco::delivery::done);
        auto other = transport.send(0, second, &behind_it, 1);
        CHECK(transport.complete(other, longest) == acco::delivery::done);
        continue;
      }
      auto one = transport.receive(1, first, &looked_for, 1), other = transport.receive(1, second, &behind_it, 1);
      CHECK(transport.complete(other, longest) == acco::delivery::done);
      int looks = 1;
      while (transport.complete(one, 0) != acco::delivery::done) {
        ++looks;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      most = std::max(most, looks);
    }
    CHECK(most <= 5);  // it may have been kept from a processor
    (void)thread.split(0, 0, longest);
  });
}

namespace {

enum class hung_up { seen, not_possible, address_taken };

// Two ranks; one of them hangs up, while another connection of its address, which leads to `listening`, goes on.
hung_up hang_up_beside(listening_socket const& listening) {
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::HashStore store;
  std::latch connected(2), ended(2);
  std::atomic<int> ends = -1;
  std::atomic<bool> taken = false;
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    const int rank = thread.rank(), other = 1 - rank;
    auto context = std::make_shared<acco::addressed_context>(rank, 2);
    context->connectFullMesh(store, device);
    context->set_ends(other, store.get(std::to_string(rank)), store.get(std::to_string(other)));
    // The kernel gives an address again where it is not one at which somebody was awaited: that of who has dialled.
    using gloo::transport::tcp::Address;
    auto const& own = static_cast<Address const&>(context->getPair(other)->address());
    const int dialled = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (own.str() != Address(store.get(std::to_string(rank))).str()) {
      const sockaddr_storage here = own.getSockaddr();
      CHECK(setsockopt(dialled, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
      if (bind(dialled, reinterpret_cast<sockaddr const*>(&here), sizeof(sockaddr_in)) != 0) {
        CHECK(errno == EADDRINUSE);  // the kernel has given it to another program, too, which does not share it
        taken = true;
      } else {
        CHECK(listening.connect_with(dialled) == 0);
        ends = rank;
      }
    }
    auto transport = std::make_unique<acco::gloo_transport>(context);
    connected.arrive_and_wait();
    if (rank == ends) {
      transport->hang_up_at_end();
      transport.reset();
      CHECK(send(dialled, &on, 1, MSG_NOSIGNAL) == 1);
    } else if (ends >= 0) {
      const auto hear = [&] {
        char word = 0;
        auto request = transport->receive(other, {}, &word, 1);
        (void)transport->complete(request, 60 * patience());
      };
      CHECK_THROWS_AS(hear(), acco::delivery_failure);
    }
    ended.arrive_and_wait();  // the context lives until then: it is not its end that was heard
    close(dialled);
  });
  return ends >= 0 ? hung_up::seen : taken ? hung_up::address_taken : hung_up::not_possible;
}

}  // namespace

TEST_CASE("who hangs up ends its own connections, not another one of the same address that leads elsewhere") {
  const listening_socket listening;
  auto end = hung_up::address_taken;
  for (int trial = 0; trial < 20 && end == hung_up::address_taken; ++trial) {
    end = hang_up_beside(listening);
  }
  CHECK(end != hung_up::address_taken);
  if (end == hung_up::not_possible) {
    MESSAGE("skipped: this Gloo keeps its addresses to itself");
  } else if (end == hung_up::seen) {
    char byte = 0;
    const int accepted = accept(listening.number, nullptr, nullptr);
    CHECK(recv(accepted, &byte, 1, 0) == 1);  // it was not ended before
    close(accepted);
  }
}

TEST_CASE("several connections to each rank: who makes another call is named at once") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_calls_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    const auto backend =
        acco::gloo_backend::from_files({thread.rank(), 2}, directory, "calls", {.deadline = 60 * patience(), .connections = 2});
    acco::host_queue queue;
    queue.deadline = 60 * patience();
    double mine[2] = {1, 2}, sum[2] = {};
    const std::size_t count = thread.rank() == 0 ? 1 : 2;
    backend.all_reduce(queue, acco::partial<double const>(std::span<double const>(mine, count)),
                       acco::replicated<double>(std::span<double>(sum, count)));
    try {
      queue.wait();
      FAIL_CHECK("two lengths made a sum");
    } catch (acco::error const& e) {  // who looked first has told the other one
      CAPTURE(e.what());
      CHECK(std::string(e.what()).find("calls something else") != std::string::npos);
      CHECK(e.peer() >= 0);
    }
  });
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

TEST_CASE("several connections to each rank: who fails tells the other one why, whichever rank it is") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_why_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  for (const int tired : {0, 1}) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
      const auto backend = acco::gloo_backend::from_files({thread.rank(), 2}, directory, "why" + std::to_string(tired),
                                                          {.deadline = 60 * patience(), .connections = 3});
      if (thread.rank() == tired) {
        backend.abort("it is tired");
        return;
      }
      acco::host_queue queue;
      queue.deadline = 60 * patience();
      const double mine[1] = {1};
      double sum[1] = {};
      backend.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(sum));
      CHECK_THROWS_WITH_AS(queue.wait(), doctest::Contains("it is tired"), acco::peer_error);
    });
  }
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}

TEST_CASE("a rank outside of the group, a deadline that is none, an interface that does not exist") {
  CHECK_THROWS_AS((void)acco::gloo_backend::from_files({3, 3}, "/tmp", "x", {.deadline = 1}), acco::usage_error);
  for (const double none : {std::numeric_limits<double>::quiet_NaN(), 0.0, -1e300}) {
    CHECK_THROWS_WITH_AS((void)acco::gloo_backend::from_files({0, 1}, "/tmp", "x", {.deadline = none}),
                         doctest::Contains("the start-up's deadline is "), acco::usage_error);
    CHECK_THROWS_WITH_AS((void)acco::gloo_backend(std::make_shared<gloo::Context>(0, 1), {.deadline = none}),
                         doctest::Contains("rank 0, start-up: gloo_options::deadline is "), acco::usage_error);
  }
  CHECK_THROWS_WITH_AS(
      (void)acco::gloo_backend::from_files({0, 2}, "/tmp", "x", {.deadline = 1, .interface = "nonesuch0"}),
      doctest::Contains("this host has no network interface called 'nonesuch0'. gloo_options::interface, or GLOO_SOCKET_IFNAME"),
      acco::usage_error);
}

// The thread sanitizer does not see Gloo's own thread let go of a farewell that nobody waited for;
// tests/network/messages.cpp shows it the same over another transport.
#if !defined(ACCO_THREAD_SANITIZER)
TEST_CASE("a rank that does not come is named by those who wait for somebody else, too") {
  worlds::gloo::run(8, [](acco::gloo_backend const& world) {
    acco::host_queue queue;
    queue.deadline = worlds::gloo::far != nullptr ? 10 : 2;
    double mine[1] = {world.rank() + 1.0}, sum[1] = {0};
    for (int k = 0; k < 2; ++k) {
      if (k == 1 && world.rank() == 5) {
        std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * queue.deadline));
        return;
      }
      // Who waits for rank 5 itself comes last: the others' deadlines pass first.
      std::this_thread::sleep_for(std::chrono::milliseconds((world.rank() + 8 - 5) % 8 * 40));
      try {
        world.all_reduce(queue, acco::partial<double const>(mine), acco::replicated<double>(sum));
        queue.wait();
        CHECK(k == 0);
        CHECK(sum[0] == 36);
      } catch (acco::error const& e) {
        const std::string what(e.what());
        CAPTURE(what);
        CHECK(e.peer() == 5);
        CHECK(what.find("rank 5 did not come to all_reduce") != std::string::npos);
      }
    }
  });
}
#endif

TEST_CASE("a wait that ended with an exception is forgotten: its deadline passes over a message that is gone") {
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  gloo::rendezvous::HashStore store;
  acco::threads_backend::run(2, [&](acco::threads_backend const& thread) {
    auto context = std::make_shared<gloo::rendezvous::Context>(thread.rank(), thread.size());
    context->connectFullMesh(store, device);
    if (thread.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 0 waits by then
      return context->closeConnections();
    }
    acco::gloo_transport transport(context);
    int word = 0;
    bool failed = false;
    try {
      auto request = transport.receive(1, {}, &word, sizeof word);
      (void)transport.complete(request, 0.3);
    } catch (acco::delivery_failure const&) {
      failed = true;
    }
    CHECK(failed);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // a sanitizer sees whoever touches the message now
  });
}
