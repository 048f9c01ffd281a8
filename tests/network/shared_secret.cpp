// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <acco/network/shared_secret.hpp>

#include "network/rendezvous_world.hpp"

using namespace start_up;
namespace fs = std::filesystem;

namespace {

const acco::shared_secret ours("the secret of this run, in 43 bytes of text");
const acco::shared_secret theirs("the secret of that run, in 43 bytes of text");

std::string hexadecimal(std::string const& bytes) {
  std::string result;
  for (const char c : bytes) {
    result.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4U]);
    result.push_back("0123456789abcdef"[static_cast<unsigned char>(c) & 15U]);
  }
  return result;
}

/// Somebody between rank 1 and rank 0, who knows the protocol and not the secret: passes on what both say, changed.
struct man_in_the_middle {
  template <class Change>
  man_in_the_middle(std::uint16_t to, Change change)
      : here(0), port(here.port), thread_([this, to, change] {
          REQUIRE(here.socket.ready(POLLIN, acco::net::after(enough())));
          frames::channel guest(acco::net::socket_handle(accept(here.socket.get(), nullptr, nullptr)));
          frames::channel host(dial(to));
          for (bool open = true; open;) {
            for (auto [from, into] : {std::pair{&guest, &host}, {&host, &guest}}) {
              const auto got = from->receive(1U << 20U);
              if (got == frames::channel::arrival::nothing) continue;
              open = got == frames::channel::arrival::whole_frame;
              if (!open) break;
              std::string body(from->body());
              change(from->kind(), body);
              say(into->socket(), frame_of(from->kind(), body, std::string(from->proof()), from->start()));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  listener here;
  std::uint16_t port;

 private:
  std::jthread thread_;
};

}  // namespace

TEST_CASE("the code is HMAC-SHA-256 (RFC 4231, test case 6)") {
  const acco::shared_secret key(std::string(131, '\xaa'));
  CHECK(hexadecimal(key("Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("a secret that is too short; from a file that others may read, that is not there, that is right") {
  CHECK_THROWS_WITH_AS(acco::shared_secret("short"), doctest::Contains("a shared secret of 5 bytes"), acco::usage_error);
  const fs::path file = fs::temp_directory_path() / ("acco_secret_" + std::to_string(getpid()));
  CHECK_THROWS_WITH_AS((void)acco::shared_secret::from_file(file), doctest::Contains("cannot be read"), acco::usage_error);
  std::ofstream(file) << "the secret of this run, in 43 bytes of text\nand what follows\n";
  chmod(file.c_str(), 0640);
  CHECK_THROWS_WITH_AS((void)acco::shared_secret::from_file(file), doctest::Contains("others may read or write"),
                       acco::usage_error);
  chmod(file.c_str(), 0600);
  CHECK(acco::shared_secret::from_file(file)("x") == ours("x"));
  fs::remove(file);
}

TEST_CASE("ranks that know the secret meet") {
  const auto results = all_ranks({{0, 3}, {1, 3}, {2, 3}}, tcp(free_port(), {.deadline = enough(), .run = "r", .secret = ours}));
  for (auto const& each : results) {
    CHECK(each.error == "");
    CHECK(each.got == names(3));
  }
}

TEST_CASE("a rank with another secret, or with none, is not let in, says so, and ends nothing for the others") {
  const auto port = free_port();
  std::vector<outcome> results(4);
  {
    const auto rank = [&](std::size_t at, rank_of me, tcp_options const& chosen) {
      return std::jthread([&results, at, me, chosen, port] { results[at] = told([&] { return tcp(port, chosen)(me); }); });
    };
    const auto zero = rank(0, {0, 2}, {.deadline = enough(), .secret = ours});
    auto other = rank(1, {1, 2}, {.deadline = 2, .secret = theirs});
    auto none = rank(2, {1, 2}, {.deadline = enough()});
    other.join();
    none.join();
    const auto right = rank(3, {1, 2}, {.deadline = enough(), .secret = ours});
  }
  CHECK(results[0].got == names(2));
  CHECK(results[3].got == names(2));
  CHECK(results[1].type == "deadline");
  CHECK(contains(results[1].error, "did not prove within 2 s that it knows this run's secret"));
  CHECK(results[2].type == "usage");
  CHECK(contains(results[2].error, "asks for proof of a shared secret, and this rank was given none"));
}

TEST_CASE("rank 0 without the secret learns nothing, and a rank that has it does not join") {
  const auto port = free_port();
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    return me.rank == 0 ? tcp(port, {.deadline = 4})(me) : tcp(port, {.deadline = 2, .secret = ours})(me);
  });
  CHECK(contains(results[0].error, "rank 1 did not come"));
  CHECK(contains(results[0].error, "left when rank 0 had answered (have all ranks the same secret?)"));
  CHECK(contains(results[1].error, "did not prove within 2 s that it knows this run's secret"));
}

TEST_CASE(
    "who knows the protocol and not the secret: dropped, without and with a proof, its own or one of another conversation") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens(
      [&] { zero = told([&] { return tcp(port, {.deadline = enough(), .run = "r", .secret = ours})({0, 2}); }); });
  frames::conversation heard{"r", 1, 2, std::string(frames::nonce_size, 'n')};  // a rank's, which somebody recorded
  for (int attempt = 0; attempt < 4; ++attempt) {
    frames::channel line(dial(port));
    say(line.socket(), hello("r", 1, 2));
    REQUIRE(hear(line));
    CHECK(line.kind() == frames::frame::welcome);
    if (attempt == 0) heard.host_nonce = std::string(line.body());
    heard.start = line.start();
    const std::string start = heard.start;
    const std::string proofs[] = {{},
                                  std::string(32, '\0'),
                                  frames::proof_of(theirs, heard, frames::frame::join, {}),
                                  frames::proof_of(ours, heard, frames::frame::join, {})};
    say(line.socket(), frame_of(frames::frame::join, {}, proofs[attempt], start));
    CHECK(!hear(line));
  }
  CHECK(tcp(port, {.deadline = enough(), .run = "r", .secret = ours})({1, 2}) == names(2));
  listens.join();
  CHECK(zero.error == "");
}

TEST_CASE("a word that somebody changed on its way is believed by nobody") {
  using frames::frame;
  const auto changes = [](frame changed, bool secret) {
    CAPTURE(static_cast<int>(changed));
    const auto port = free_port();
    man_in_the_middle between(port, [changed](frame kind, std::string& body) {
      if (kind == changed && body.empty()) return body.push_back('x');
      if (kind == changed) body.back() = static_cast<char>(body.back() ^ 1);
    });
    const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
      tcp_options chosen{.deadline = me.rank == 0 ? 6.0 : 3.0};
      if (secret) chosen.secret = ours;
      return tcp(me.rank == 0 ? port : between.port, chosen)(me);
    });
    const bool deceived =
        results[0].got == contributions{"I am 0", "I am 0"} || results[1].got == contributions{"I am 0", "I am 0"};
    if (secret) {
      CHECK(!deceived);
      CHECK(results[1].error != "");
      if (changed == frame::bring) CHECK(contains(results[0].error, "what rank 1 brought was changed on its way"));
      if (changed == frame::answer) CHECK(contains(results[1].error, "what rank 0 said was changed on its way"));
    } else if (changed == frame::bring || changed == frame::answer) {
      CHECK(deceived);  // that is what the secret is for
    }
  };
  std::vector<std::jthread> all;  // most of them wait for their deadlines
  for (frame changed : {frame::hello, frame::welcome, frame::join, frame::assembled, frame::bring, frame::answer}) {
    for (bool secret : {false, true}) all.emplace_back(changes, changed, secret);
  }
}

TEST_CASE("a refusal without proof is not believed, and is passed on as what somebody says") {
  const auto port = free_port();
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    return me.rank == 0 ? tcp(port, {.deadline = 4, .run = "new", .secret = theirs})(me)
                        : tcp(port, {.deadline = 2, .run = "old", .secret = ours})(me);
  });
  CHECK(results[1].type == "deadline");
  CHECK(contains(results[1].error, "that it knows this run's secret; it says: rank 0 at 127.0.0.1:"));
  CHECK(contains(results[1].error, "is of run 'new', and this process is of run 'old'"));
  const auto same = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    return tcp(port, {.deadline = me.rank == 0 ? 4.0 : enough(), .run = me.rank == 0 ? "new" : "old", .secret = ours})(me);
  });
  CHECK(same[1].type == "mismatch");
}
