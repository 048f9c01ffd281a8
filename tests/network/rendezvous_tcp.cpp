// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cerrno>
#include <csignal>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "network/rendezvous_world.hpp"

using namespace start_up;

TEST_CASE("over TCP everybody gets what everybody brought, in whatever order they come") {
  const auto meet = tcp(free_port(), {.deadline = enough()});
  const auto results = all_ranks({{3, 4}, {0, 4}, {2, 4}, {1, 4}}, [&](rank_of me) {
    std::this_thread::sleep_for(std::chrono::milliseconds(me.rank == 0 ? 200 : 30 * me.rank));
    return meet(me);
  });
  for (auto const& each : results) {
    CHECK(each.error == "");
    CHECK(each.got == names(4));
  }
}

TEST_CASE("a port that a test holds: nobody else binds it or is given it, nobody answers there, and rank 0 can listen") {
  const auto port = free_port();
  CHECK(!acco::net::opened(local(port),
                           [](int it, addrinfo const& at) { return bind(it, at.ai_addr, at.ai_addrlen) ? errno : 0; }));
  CHECK(!hold_port(port));
  CHECK(!acco::net::dial(local(port), acco::net::after(enough())));
  CHECK(errno == ECONNREFUSED);
  const listener zero(port);
  CHECK(acco::net::dial(local(port), acco::net::after(enough())));
}

TEST_CASE("one rank alone needs nobody") {
  CHECK(tcp(free_port(), {.deadline = 1})({0, 1}) == names(1));
  const acco::rendezvous::tcp_rendezvous alone({0, 1}, "127.0.0.1", 1);
  CHECK(alone.own_address() == "127.0.0.1");
}

TEST_CASE("parts: each rank gets what everybody brought for it") {
  const auto port = free_port();
  const auto results = all_ranks({{0, 3}, {1, 3}, {2, 3}}, [&](rank_of me) {
    acco::rendezvous::tcp_rendezvous meeting(me, "127.0.0.1", port, {.deadline = enough()});
    contributions mine;
    for (int to = 0; to < 3; ++to)
      mine.push_back(std::string(static_cast<std::size_t>(to), '.') + std::to_string(10 * me.rank + to));
    return meeting.deliver(mine);
  });
  CHECK(results[0].got == contributions{"0", "10", "20"});
  CHECK(results[1].got == contributions{".1", ".11", ".21"});
  CHECK(results[2].got == contributions{"..2", "..12", "..22"});
  const acco::rendezvous::tcp_options soon{.deadline = 1};
  CHECK_THROWS_WITH_AS((void)acco::rendezvous::tcp_rendezvous({0, 1}, "127.0.0.1", 1, soon).deliver({"a", "b"}),
                       doctest::Contains("2 parts for 1 ranks"), acco::usage_error);
}

TEST_CASE("ranks that do not come are named, and all who came are told so at once") {
  const auto port = free_port();
  const auto results =
      all_ranks({{0, 4}, {2, 4}}, [&](rank_of me) { return tcp(port, {.deadline = me.rank == 0 ? 2.0 : enough()})(me); });
  for (auto const& each : results) {
    CHECK(each.type == "deadline");
    CHECK(contains(each.error, ": rank 1, 3 did not come to 127.0.0.1:" + std::to_string(port) + " within 2 s"));
    CHECK(each.peer == 1);
  }
  CHECK(contains(results[1].error, "acco: rank 2, start-up: "));
  const auto impatient =
      all_ranks({{0, 3}, {2, 3}}, [&](rank_of me) { return tcp(port, {.deadline = me.rank == 0 ? 3.0 : 1.0})(me); });
  CHECK(contains(impatient[1].error, "waited for other ranks longer than 1 s. Look at rank 0's output"));
  CHECK(contains(impatient[0].error, "rank 1, 2 did not come"));
}

TEST_CASE("of a thousand missing ranks a dozen is named, and the advice stays readable") {
  const auto result = told([&] { return tcp(free_port(), {.deadline = 0.1})({0, 1000}); });
  CHECK(contains(result.error, "rank 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 987 more did not come to 127.0.0.1:"));
  CHECK(contains(result.error, "Check that it runs and that its MASTER_ADDR, MASTER_PORT and WORLD_SIZE are the same as here."));
}

TEST_CASE("rank 0 that is not there, a host that is unknown") {
  const auto nobody = all_ranks({{1, 2}}, tcp(free_port(), {.deadline = 1}));
  CHECK(contains(nobody[0].error, "rank 0 could not be reached at 127.0.0.1:"));
  CHECK(contains(nobody[0].error, "Connection refused"));
  CHECK(contains(nobody[0].error, "MASTER_ADDR"));
  const auto unknown = all_ranks({{1, 2}}, tcp(free_port(), {.deadline = 2}, "no.such.host.invalid"));
  CHECK(contains(unknown[0].error, "at no.such.host.invalid:"));
  CHECK(contains(unknown[0].error, " within 2 s: its host's name is unknown: "));
}

namespace {
/// What the system answers to the next questions for the name late.test; then it is this host's.
std::vector<int> failures;
}  // namespace
extern "C" {
// The linker puts it before getaddrinfo (--wrap).
int __real_getaddrinfo(char const* host, char const* port, addrinfo const* hints, addrinfo** found);
int __wrap_getaddrinfo(char const* host, char const* port, addrinfo const* hints, addrinfo** found) {
  if ((hints->ai_flags & AI_NUMERICHOST) != 0 || std::string_view(host) != "late.test")
    return __real_getaddrinfo(host, port, hints, found);
  if (failures.empty()) return __real_getaddrinfo("127.0.0.1", port, hints, found);
  const int code = failures.back();
  failures.pop_back();
  return code;
}
}

TEST_CASE("rank 0's name that is known only later: it is asked for again, whatever the system answers") {
  failures = {EAI_SYSTEM, EAI_FAIL, EAI_AGAIN, EAI_NONAME};
  const std::uint16_t port = free_port();
  const auto got = all_ranks({{0, 2}, {1, 2}}, [port](rank_of me) {
    return tcp(port, {.deadline = enough()}, me.rank == 0 ? "127.0.0.1" : "late.test")(me);
  });
  for (outcome const& each : got) {
    CHECK(each.error == "");
    CHECK(each.got == names(2));
  }
  CHECK(failures.empty());
}

TEST_CASE("a port in use: rank 0 says so, and a stranger who listens there is no rank 0") {
  const listener other;
  const auto results = all_ranks({{0, 2}, {1, 2}}, tcp(other.port, {.deadline = 2}));
  CHECK(contains(results[0].error,
                 "rank 0 cannot listen at 127.0.0.1, port " + std::to_string(other.port) + ": Address already in use"));
  CHECK(contains(results[0].error, "choose another MASTER_PORT"));
  CHECK(contains(results[1].error, "did not answer as rank 0"));
}

TEST_CASE("two processes of one rank, different numbers of ranks, a rank that is none: everybody is told the cause, at once") {
  struct {
    rank_of wrong;
    char const* what;
  } const cases[] = {{{1, 4}, "a process of this rank has come already"},
                     {{3, 5}, "it was started with WORLD_SIZE 5, rank 0 with 4"}};
  for (auto const& each : cases) {
    const auto port = free_port();
    const tcp_options chosen{.deadline = enough(), .run = "r"};
    std::vector<rank_of> ranks{{0, 4}, {1, 4}, {2, 4}, each.wrong};  // rank 3 never comes
    const auto results = all_ranks(ranks, [&](rank_of me) {
      if (me.rank == each.wrong.rank && me.size == each.wrong.size)
        std::this_thread::sleep_for(std::chrono::seconds(1));  // the others have joined
      return tcp(port, chosen)(me);
    });
    for (auto const& result : results) {
      CAPTURE(result.error);
      CHECK(result.type == "mismatch");
      CHECK(contains(result.error, each.what));
    }
    CHECK(contains(results[0].error, "acco: rank 0, start-up: rank " + std::to_string(each.wrong.rank) + " cannot join: "));
    CHECK(contains(results[2].error, "acco: rank 2, start-up: rank " + std::to_string(each.wrong.rank) + " cannot join: "));
  }
}

TEST_CASE("a run's name that does not fit into a rank's first words: every rank says so at once; the longest that fits") {
  const auto port = free_port();
  const auto meet = [&](std::string const& run, double deadline) {
    return all_ranks({{0, 2}, {1, 2}}, tcp(port, {.deadline = deadline, .run = run}));
  };
  for (auto const& each : meet(std::string(5000, 'r'), 0.2)) {
    CHECK(each.type == "usage");
    CHECK(contains(each.error, "start-up: the run's name is too long: it has 5000 bytes. Give a shorter one (option `run`"));
  }
  for (auto const& each : meet(std::string(2000, ' '), 0.2)) CHECK(each.type == "usage");  // it travels as four thousand
  for (auto const& each : meet(std::string(900, '\\'), enough())) CHECK(each.got == names(2));
  std::size_t longest = 3900;
  while (longest < 5000 &&
         told([&] { return tcp(port, {.deadline = 1, .run = std::string(longest + 1, 'r')})({0, 1}); }).error.empty())
    ++longest;
  CHECK(longest > 3950);
  for (auto const& each : meet(std::string(longest, 'r'), enough())) CHECK(each.got == names(2));
}

TEST_CASE("a deadline that is none is refused at once, by every rank; a wait for such a time is over") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto port = free_port();
  for (const double none : {nan, infinity, 0.0, -1.0, -1e300}) {
    CAPTURE(none);
    auto results = all_ranks({{0, 2}, {1, 2}}, tcp(port, {.deadline = none}));
    results.push_back(told([&] { return tcp(port, {.deadline = none})({0, 1}); }));
    for (auto const& each : results) {
      CHECK(each.type == "usage");
      CHECK(contains(each.error, "start-up: the start-up's deadline is "));
      CHECK(contains(each.error, ". Give a finite number above 0"));
    }
  }
  const auto now = acco::net::clock::now();
  for (const double none : {nan, -infinity, -1e300, -1.0}) {
    CHECK(acco::net::after(none) >= now);
    CHECK(acco::net::after(none) <= acco::net::clock::now());
  }
  CHECK(acco::net::after(infinity) > now + std::chrono::hours(24 * 365));
}

TEST_CASE("whoever joined one start ends in no other one") {
  const listener there;
  outcome one;
  std::jthread dials([&] { one = told([&] { return tcp(there.port, {.deadline = enough()})({1, 2}); }); });
  for (const char nonce : {'a', 'b'}) {
    frames::line line = there.next();
    say(line, message("greeting", frames::pack({std::string(16, nonce), std::string(16, 'n')})));
    CHECK(hear(line) == (nonce == 'a'));
  }
  dials.join();
  CHECK(one.type == "mismatch");
  CHECK(contains(one.error, "this rank has joined a start at 127.0.0.1:"));
}

TEST_CASE("an orphan of a dead run cannot join the next one, and is told both names") {
  const auto port = free_port();
  outcome orphan;
  std::jthread old([&] { orphan = told([&] { return tcp(port, {.deadline = enough(), .run = "old"})({1, 2}); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the orphan dials first
    return tcp(port, {.deadline = enough(), .run = "new"})(me);
  });
  old.join();
  CHECK(results[0].error == "");
  CHECK(results[1].got == names(2));
  CHECK(orphan.type == "mismatch");
  CHECK(contains(orphan.error, "is of run 'new', and this process is of run 'old'"));
  CHECK(contains(orphan.error, "ACCO_RUN_ID"));
}

TEST_CASE("a stranger with another number of ranks, a taken rank or no sense, from another run: it ends nothing") {
  const auto port = free_port();
  std::atomic<bool> done = false;
  std::jthread strangers([&] {
    std::vector<frames::line> open;
    for (int rank = -1; rank < 4; ++rank) {
      for (int size : {0, 2, 3, 1 << 30}) {
        open.push_back(dial(port));
        say(open.back(), message("hello", hello("another", rank, size)));
        open.push_back(dial(port));  // the right run; never comes to its end
        say(open.back(), message("hello", hello("this", rank, size)).substr(0, 20));
      }
    }
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return tcp(port, {.deadline = enough(), .run = "this"})(me);
  });
  done = true;
  CHECK(results[0].error == "");
  CHECK(results[1].got == names(2));
}

// One after the other they would take 5 s each, and the deadline is at 60.
TEST_CASE("a thousand silent connections at once do not delay a rank") {
  const many_descriptors raised;
  const auto port = free_port();
  const std::size_t strangers = raised.limit > 2300 ? 1000 : 300;
  std::vector<frames::line> open;
  std::vector<outcome> results(2);
  {
    std::jthread zero([&] { results[0] = told([&] { return tcp(port, {.deadline = enough()})({0, 2}); }); });
    while (open.size() < strangers) {
      open.push_back(dial(port));
      if (open.size() % 3 == 1) say(open.back(), "acc");                                            // half a frame
      if (open.size() % 3 == 2) say(open.back(), message("hello", hello("", 1, 2)).substr(0, 30));  // half a hello
    }
    results[1] = told([&] { return tcp(port, {.deadline = enough()})({1, 2}); });
  }
  CHECK(results[0].error == "");
  CHECK(results[1].got == names(2));
}

TEST_CASE("who does not say who it is for five seconds is let go, and who says too much at once; they are counted") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = 8})({0, 2}); }); });
  frames::line silent = dial(port), half = dial(port), slow = dial(port), long_winded = dial(port);
  say(half, "acc");
  say(long_winded, "acco4 " + std::string(8000, 'x'));  // no stranger makes rank 0 remember more than 4 KiB
  std::jthread drips([&] {
    for (const char each : message("hello", hello("", 1, 2)).substr(0, 10)) {
      say(slow, std::string(1, each));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  for (frames::line* each : {&silent, &half, &slow}) {
    CHECK(hear(*each));   // it is greeted
    CHECK(!hear(*each));  // and let go
  }
  drips.join();
  listens.join();
  CHECK(contains(zero.error, "Connections that were dropped: 3 did not say who they are, 1 did not speak"));
}

TEST_CASE("a guest that never stops speaking: the others have their turn") {
  const auto port = free_port();
  const int ranks = 1 << 16;  // a message may have 512 MiB
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = enough(), .run = "r"})({0, ranks}); }); });
  frames::line endless = dial(port), other = dial(port);
  REQUIRE(hear(endless));
  REQUIRE(hear(other));
  std::string first = message("hello", hello("r", 1, ranks)), again(1U << 20U, 'x');
  SUBCASE("in one message") { first += "acco4 bring "; }
  SUBCASE("message after message") { again = message("bring", frames::pack(contributions(static_cast<std::size_t>(ranks)))); }
  SUBCASE("refused") { first = message("hello", hello("another", 1, ranks)); }
  say(endless, first);
  std::size_t sent = 0;
  const auto pour = [&](std::size_t most) {  // until rank 0 says something to the other, or takes no more
    for (ssize_t n = 0; n >= 0 && sent < most && !other.socket.ready(POLLIN, {});) {
      REQUIRE(endless.socket.ready(POLLOUT, acco::net::after(enough())));
      const std::string_view left = std::string_view(again).substr(sent % again.size());
      n = ::send(endless.socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
  };
  pour(std::size_t{16} << 20U);
  say(other, message("hello", hello("r", 2, ranks + 1)));
  const std::size_t most = std::size_t{96} << 20U;
  pour(most);
  CHECK(sent < most);
  CHECK(hear(other));
  CHECK(other.kind == "refusal");
  endless = {};
  other = {};
  listens.join();
  CHECK(contains(zero.error, "rank 2 cannot join: it was started with WORLD_SIZE 65537, rank 0 with 65536"));
}

TEST_CASE("a long message is read to its end while its deadline lasts, a part at a time") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const acco::net::socket_handle speaks(ends[0]);
  frames::line hears{acco::net::socket_handle(ends[1])};
  const std::size_t all = std::size_t{64} << 20U;
  std::jthread speaker([&] {
    const std::string words = "acco4 " + std::string(all - 6, 'x');
    for (std::string_view left = words; !left.empty();) {
      const ssize_t n = ::send(speaks.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      left.remove_prefix(static_cast<std::size_t>(n));
    }
    ::shutdown(speaks.get(), SHUT_WR);
  });
  REQUIRE(hears.socket.ready(POLLIN, acco::net::after(enough())));
  CHECK(hears.hear(2 * all) == frames::line::state::waits);
  CHECK(hears.in.size() <= 64U << 10U);
  CHECK(hears.await(2 * all, {}) == frames::line::state::waits);  // its deadline is over, and more comes
  CHECK(hears.await(2 * all, acco::net::after(3 * patience())) == frames::line::state::ended);
  CHECK(hears.in.size() == all);
  hears = {};  // nobody waits for what is not read
}

TEST_CASE("random bytes, with and without a beginning that makes sense, end nothing") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = 2 * enough(), .run = "r"})({0, 2}); }); });
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const frames::line to = dial(port);
    REQUIRE(to.socket);
    const std::string good = message("hello", hello("nobody's", 1, 2));
    std::string bytes;
    const unsigned kind = random() % 8;
    if (kind == 1) bytes = good.substr(0, 5);
    if (kind == 2) bytes = good.substr(0, random() % good.size());
    if (kind == 3) (bytes = good)[random() % good.size()] ^= static_cast<char>(1U << (random() % 8));
    if (kind == 4)
      bytes = message(std::string(1, static_cast<char>(random())), hello("nobody's", 1, 2), std::string(random() % 3, 'p'));
    if (kind == 5) bytes = message("hello", hello("nobody's", 1, 2).substr(random() % 28));
    if (kind == 6) bytes = good.substr(0, 6) + std::string(8, static_cast<char>(random())) + "\n";
    if (kind == 7) bytes = "GET / HTTP/1.1\r\n\r\n";
    if (kind != 3)
      for (std::size_t n = random() % 64; n != 0; --n) bytes.push_back(static_cast<char>(random()));
    say(to, bytes);
  }
  const auto one = told([&] { return tcp(port, {.deadline = 2 * enough(), .run = "r"})({1, 2}); });
  listens.join();
  CHECK(zero.error == "");
  CHECK(one.got == names(2));
}

TEST_CASE("connections that keep coming do not take the deadline away, and are counted in what it says") {
  const auto port = free_port();
  std::atomic<bool> done = false;
  std::jthread stranger([&] {
    while (!done) say(dial(port), "GET / HTTP/1.1\r\n\r\n");
  });
  const auto zero = told([&] { return tcp(port, {.deadline = 1, .run = "r"})({0, 2}); });
  const listener still(port);  // for the stranger, who otherwise waits for somebody to dial
  done = true;
  stranger.join();
  CHECK(contains(zero.error, "rank 1 did not come to 127.0.0.1:"));
  CHECK(contains(zero.error, "Connections that were dropped: "));
  CHECK(contains(zero.error, " did not speak this protocol"));
}

namespace {
/// Runs work(), which returns words, in a process of its own that may have `descriptors`; what it said and the
/// processor time it took.
struct in_a_process {
  std::string words;
  double processor_seconds = 0;
};
template <class Work>
auto start(rlim_t descriptors, Work&& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    for (int open = 3; open < 1024; ++open)
      if (open != ends[1]) close(open);
    dup2(ends[1], 3);
    if (ends[1] != 3) close(ends[1]);
    const rlimit few{descriptors, descriptors};
    setrlimit(RLIMIT_NOFILE, &few);
    const std::string words = work();
    (void)!write(3, words.data(), words.size());
    _exit(0);
  }
  close(ends[1]);
  return [pid, from = ends[0]] {
    in_a_process result;
    char some[512];
    for (ssize_t n = 0; (n = read(from, some, sizeof some)) > 0;) result.words.append(some, static_cast<std::size_t>(n));
    close(from);
    int status = 0;
    rusage used{};
    wait4(pid, &status, 0, &used);
    result.processor_seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                               1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return result;
  };
}
}  // namespace

TEST_CASE("no descriptor left for a guest: rank 0 waits without spinning, to its deadline, and says so") {
  const auto port = free_port();
  // 0, 1, 2, pipe, door
  auto ends = start(5, [&] { return told([&] { return tcp(port, {.deadline = 2})({0, 2}); }).error; });
  const frames::line guest = dial(port);
  const in_a_process zero = ends();
  CHECK(contains(zero.words, "rank 1 did not come to 127.0.0.1:"));
  CHECK(contains(zero.words, "no file descriptor left for those who came: ulimit -n"));
  CHECK(zero.processor_seconds < 1);
}

TEST_CASE("strangers hold the last descriptors: the longest silent one makes room for a rank") {
  const auto port = free_port();
  auto ends = start(7, [&] {
    const auto result = told([&] { return tcp(port, {.deadline = enough()})({0, 2}); });
    return result.error + (result.got.empty() ? "" : result.got[1]);
  });
  std::vector<frames::line> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(dial(port));
  const auto one = told([&] { return tcp(port, {.deadline = enough()})({1, 2}); });
  CHECK(one.got == names(2));
  CHECK(ends().words == "I am 1");
}

TEST_CASE("a rank that died before all had come leaves its place to a new process") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = enough(), .run = "r"})({0, 3}); }); });
  std::optional<frames::line> dead(joined(port, "r", 1, 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has joined by then
  dead.reset();
  const auto results = all_ranks({{1, 3}, {2, 3}}, [&](rank_of me) {
    if (me.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return tcp(port, {.deadline = enough(), .run = "r"})(me);
  });
  listens.join();
  CHECK(zero.error == "");
  CHECK(results[0].got == names(3));
  CHECK(results[1].got == names(3));
}

TEST_CASE("what rank 0 says is printed without control characters") {
  const listener there;
  outcome one;
  std::jthread dials([&] { one = told([&] { return tcp(there.port, {.deadline = enough()})({1, 2}); }); });
  frames::line line = there.next();
  say(line, message("greeting", frames::pack({std::string(16, 'a'), std::string(16, 'n')})));
  REQUIRE(hear(line));
  say(line, message("refusal", frames::pack({"m", "0", "\33[2Jgone\n", std::string(3000, 'a')})));
  dials.join();
  CHECK(contains(one.error, "acco: rank 1, start-up: ?[2Jgone?. aaa"));
}

TEST_CASE("numbers that others say are whole, or none") {
  for (auto const& [digits, number] : {std::pair{"0", 0}, {"17", 17}, {"2147483647", 2147483647}})
    CHECK(frames::whole_number(digits) == number);
  for (char const* none : {"", "1x", "x", " 1", "+1", "-1", "-0", "0x1", "1.0", "2147483648"})
    CHECK(frames::whole_number(none) == -1);
}

TEST_CASE("a hello whose numbers are none is a stranger's, and a refusal's names nobody") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = enough(), .run = "r"})({0, 2}); }); });
  const std::string nonce(16, 'n');
  for (contributions const& wrong :
       {contributions{"r", "1x", "2", nonce}, {"r", "1", "2x", nonce}, {"r", "-2147483648", "2", nonce}}) {
    frames::line stranger = dial(port);
    REQUIRE(hear(stranger));
    say(stranger, message("hello", frames::pack(wrong)) + message("bring", frames::pack(contributions(2))));
    CHECK(!hear(stranger));
  }
  CHECK(tcp(port, {.deadline = enough(), .run = "r"})({1, 2}) == names(2));
  listens.join();
  CHECK(zero.got == names(2));

  const listener there;
  outcome one;
  std::jthread dials([&] { one = told([&] { return tcp(there.port, {.deadline = enough()})({1, 2}); }); });
  frames::line line = there.next();
  say(line, message("greeting", frames::pack({std::string(16, 'a'), nonce})));
  REQUIRE(hear(line));
  say(line, message("refusal", frames::pack({"m", "-77", "what", "advice"})));
  dials.join();
  CHECK(one.type == "mismatch");
  CHECK(one.peer == -1);
}

TEST_CASE("MASTER_ADDR in digits: rank 0 listens there and nowhere else") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens([&] { zero = told([&] { return tcp(port, {.deadline = enough()})({0, 2}); }); });
  const frames::line there = dial(port);
  CHECK(!acco::net::dial(local(port, "127.0.0.2"), acco::net::after(enough())));
  CHECK(errno == ECONNREFUSED);
  CHECK(tcp(port, {.deadline = enough()})({1, 2}) == names(2));
  listens.join();
}

TEST_CASE("an address of IPv6 in brackets is that without them") {
  for (char const* bare : {"fd00::1", "::1", "fe80::1"}) {
    CAPTURE(bare);
    const std::string in_brackets = std::string("[") + bare + "]";
    CHECK(acco::net::is_numeric(in_brackets));
    CHECK(acco::net::look_up(in_brackets, "29500").found == std::vector<acco::net::endpoint>{{bare, "29500"}});
  }
  for (char const* wrong : {"[]", "[fd00::1", "fd00::1]", "[[fd00::1]]"}) CHECK(!acco::net::is_numeric(wrong));
}

TEST_CASE("over IPv6") {
  if (!acco::net::listen_at(local(0, "::1"))) {
    MESSAGE("skipped: this machine has no IPv6");
    return;
  }
  const auto results = all_ranks({{0, 2}, {1, 2}}, [port = free_port()](rank_of me) {
    acco::rendezvous::tcp_rendezvous meeting(me, me.rank == 0 ? "[::1]" : "::1", port, {.deadline = enough()});
    return meeting.bring(meeting.own_address());
  });
  CHECK(results[0].got == contributions{"::1", "::1"});
  CHECK(results[1].got == results[0].got);
}

TEST_CASE("listening at one interface; at one that is not there") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens(
      [&] { zero = told([&] { return tcp(port, {.deadline = enough(), .listen = "lo"}, "some-name")({0, 2}); }); });
  CHECK(tcp(port, {.deadline = enough()})({1, 2}) == names(2));
  listens.join();
  CHECK(zero.error == "");
  const auto wrong = told([&] { return tcp(port, {.deadline = enough(), .listen = "nonesuch0"})({0, 2}); });
  CHECK(contains(wrong.error, "rank 0 cannot listen at nonesuch0, port "));
  CHECK(contains(wrong.error, "Cannot assign requested address"));
}

TEST_CASE("a thousand ranks") {
  const many_descriptors raised;
#ifdef ACCO_SANITIZED
  const int most = 200;
#else
  const int most = 1000;
#endif
  const int ranks = raised.limit > 3000 ? most : 200;
  const auto port = free_port();
  std::vector<rank_of> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back({rank, ranks});
  const auto results = all_ranks(all, tcp(port, {.deadline = 4 * enough()}));
  const contributions expected = names(ranks);
  int right = 0;
  for (auto const& each : results) right += each.got == expected;
  CHECK(right == ranks);
}
