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

/// Somebody between rank 1 and rank 0, who knows the protocol and not the secret: passes on what both say, one kind
/// changed.
struct man_in_the_middle {
  man_in_the_middle(std::uint16_t to, std::string const& changed)
      : here(0), port(here.port), thread_([this, to, changed] {
          frames::line guest = here.next(), host = dial(to);
          for (frames::line* from : {&host, &guest, &guest, &host}) {
            if (!hear(*from)) return;
            if (from->kind == changed) from->fields.back() = static_cast<char>(from->fields.back() ^ 1);
            say(from == &host ? guest : host, message(from->kind, from->fields, from->proof));
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
  CHECK(contains(results[1].error, "did not prove that it knows this run's secret"));
  CHECK(contains(results[1].error, "; it says: rank 0 at 127.0.0.1:"));
  CHECK(results[2].type == "mismatch");
  CHECK(contains(results[2].error, "knows another secret than this process, or one of them knows none"));
}

TEST_CASE("rank 0 without the secret learns nothing, and a rank that has it does not join") {
  const auto port = free_port();
  const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
    return me.rank == 0 ? tcp(port, {.deadline = 4})(me) : tcp(port, {.deadline = 2, .secret = ours})(me);
  });
  CHECK(contains(results[0].error, "rank 1 did not come"));
  CHECK(contains(results[0].error, " did not prove that they know the secret"));
  CHECK_MESSAGE(contains(results[1].error, "did not prove that it knows this run's secret"), results[1].error);
}

TEST_CASE(
    "who knows the protocol and not the secret: refused, without and with a proof, its own or one of another conversation") {
  const auto port = free_port();
  outcome zero;
  std::jthread listens(
      [&] { zero = told([&] { return tcp(port, {.deadline = enough(), .run = "r", .secret = ours})({0, 2}); }); });
  std::string recorded;  // a true rank's proof, which somebody heard
  for (int attempt = 0; attempt < 4; ++attempt) {
    frames::line line = dial(port);
    REQUIRE(hear(line));
    CHECK(line.kind == "greeting");
    line.talk = line.fields;
    if (attempt == 0) recorded = line.prove(ours, "hello", hello("r", 1, 2));
    const std::string proofs[] = {{}, std::string(32, '\0'), line.prove(theirs, "hello", hello("r", 1, 2)), recorded};
    say(line, message("hello", hello("r", 1, 2), proofs[attempt == 0 ? 1 : attempt]));
    CHECK(hear(line));
    CHECK(line.kind == "refusal");
    CHECK(!hear(line));
  }
  CHECK(tcp(port, {.deadline = enough(), .run = "r", .secret = ours})({1, 2}) == names(2));
  listens.join();
  CHECK(zero.error == "");
}

TEST_CASE("a word that somebody changed on its way is believed by nobody") {
  const auto changes = [](std::string const& changed, bool secret) {
    CAPTURE(changed);
    const auto port = free_port();
    man_in_the_middle between(port, changed);
    const auto results = all_ranks({{0, 2}, {1, 2}}, [&](rank_of me) {
      tcp_options chosen{.deadline = me.rank == 0 ? 4.0 : 2.0, .run = "r"};
      if (secret) chosen.secret = ours;
      return tcp(me.rank == 0 ? port : between.port, chosen)(me);
    });
    if (secret) {
      CHECK(results[1].error != "");
      CHECK((results[0].got.empty() || results[0].got == names(2)));
    } else if (changed == "bring" || changed == "answer") {  // that is what the secret is for
      CHECK((results[0].got == contributions{"I am 0", "I am 0"} || results[1].got == contributions{"I am 0", "I am 0"}));
    }
  };
  std::vector<std::jthread> all;  // most of them wait for their deadlines
  for (char const* changed : {"greeting", "hello", "bring", "answer"}) {
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
