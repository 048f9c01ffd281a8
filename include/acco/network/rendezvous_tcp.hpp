// SPDX-License-Identifier: Apache-2.0
// Rank 0 listens, and the others come to it: at the address and port that the launcher's environment says, or where a
// file in a directory that all ranks see says. What they say: rendezvous.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <sys/socket.h>

#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_host.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

namespace detail {

/// Where rank 0 is now: its addresses, which start it is (empty: not known), or why that cannot be told.
struct whereabouts {
  std::vector<net::endpoint> found{};
  std::string start{}, trouble{};
};

/// Every other rank: dials rank 0's addresses in turn, again and again.
class tcp_guest : start_up {
 public:
  tcp_guest(start_up with, std::function<whereabouts()> look) : start_up(std::move(with)), look_(std::move(look)) { reach(); }
  [[nodiscard]] net::endpoint own_end() const { return net::end_of(line_.socket, getsockname); }

  [[nodiscard]] contributions deliver(contributions const& mine) {
    const std::string brought = pack(mine);
    if (2 * brought.size() > most)
      throw usage_error(where, text("this rank brings ", brought.size(), " bytes to the start-up"),
                        text("At most ", most / 2, " bytes can be brought"));
    for (;; rest(), reach()) {
      const std::string hello = hello_of(chosen.run, me.rank, me.size, draw_nonce());
      (void)line_.say(chosen.secret, "hello", hello, until);
      line_.talk += " " + hello;
      (void)line_.say(chosen.secret, "bring", brought, until);  // where that fails, a refusal may still be read
      const auto came = line_.await(most, until);
      if (came == line::state::waits && !trouble_.empty()) fail_unreached("");  // of an attempt before: it says more
      if (came == line::state::waits)
        throw deadline_error(where, text("rank 0 at ", place, " waited for other ranks longer than ", chosen.deadline, " s"),
                             text("Look at rank 0's output for who is missing"), 0);
      const bool refused = line_.kind == "refusal";
      contributions told = refused || line_.kind == "answer" ? unpack(line_.fields, refused ? 4 : ranks) : contributions();
      if (came != line::state::whole || told.empty()) {
        trouble_ = "it left before all ranks had come";
      } else if (chosen.secret && !line_.proven(chosen.secret)) {
        trouble_ = "what listens there did not prove that it knows this run's secret";
        if (refused) trouble_ += "; it says: " + printable(told[2], 400);
      } else {
        line_ = {};
        if (!refused) return told;
        const text what(printable(told[2], 700)), advice(printable(told[3], 700));
        if (told[0] == "d") throw deadline_error(where, what, advice, whole_number(told[1]));
        throw mismatch_error(where, what, advice, whole_number(told[1]));
      }
    }
  }

 private:
  /// Until rank 0 has greeted it.
  void reach() {
    for (;; rest()) {
      const whereabouts there = look_();
      std::string unreached = there.trouble;
      for (net::endpoint const& each : there.found) {
        const auto timeout = std::min(until, net::after(there.found.size() > 1 ? 2 : 10));
        line_ = {net::dial(each, timeout)};
        if (!line_.socket) unreached = std::strerror(errno);
        if (line_.socket && greeted(there.start, timeout)) return;
      }
      line_ = {};
      if (net::clock::now() >= until) fail_unreached(unreached);
    }
  }
  [[noreturn]] void fail_unreached(std::string const& unreached) const {
    throw deadline_error(
        where,
        text("rank 0 could not be reached at ", place, " within ", chosen.deadline,
             " s: ", trouble_.empty() ? unreached : trouble_),
        text("Look at rank 0's output. Check that MASTER_ADDR and MASTER_PORT are those of rank 0's host, that no other program "
             "has that port, and that no firewall is between"),
        0);
  }
  void rest() {
    std::this_thread::sleep_until(std::min(until, net::clock::now() + nap_));
    nap_ = std::min(2 * nap_, std::chrono::milliseconds(400));
  }
  bool greeted(std::string const& expected, net::clock::time_point timeout) {
    const auto came = line_.await(most_of_strangers, timeout);
    const contributions said = came == line::state::whole && line_.kind == "greeting" ? unpack(line_.fields, 2) : contributions();
    if (said.empty() || (!expected.empty() && said[0] != expected)) {
      if (trouble_.empty()) trouble_ = "what listens there did not answer as rank 0 of this version of acco";
      return false;
    }
    if (!start_.empty() && start_ != said[0])
      throw mismatch_error(
          where,
          text("this rank has joined a start at ", place,
               ", which ended, and finds another one there: another job uses this port, or rank 0 was started again"),
          text("Start all ranks again, each job with another MASTER_PORT"), 0);
    start_ = said[0];
    line_.talk = line_.fields;
    return true;
  }

  std::function<whereabouts()> look_;
  line line_;
  std::string trouble_, start_;
  std::chrono::milliseconds nap_{50};
};

}  // namespace detail

/// One start-up: all ranks come together and hear what the others bring, once. Collective; from the constructor's
/// beginning to the end at most chosen.deadline seconds, and the time in which a name server answers.
///
/// A process that dies before all have come leaves its place to a new process of its rank. Two processes of one rank,
/// or different numbers of ranks, end the start-up on all ranks that have come, with the same cause. Strangers, and
/// processes of other runs, end nothing.
///
/// Throws `deadline_error` that names who is missing, `usage_error` (the port is in use), `mismatch_error` (two
/// processes of one rank, different numbers of ranks, another run, a secret missing). Not thread-safe.
class tcp_rendezvous {
 public:
  /// Rank 0 listens at `port`; all others dial address:port, which leads to rank 0's host.
  tcp_rendezvous(rank_of me, std::string const& address, std::uint16_t port, tcp_options const& chosen = {})
      : with_{me, text(address, ":", port).c_str(), chosen} {
    const std::string digits = std::to_string(port);
    start(address, digits, [address, digits] {
      net::lookup now = net::look_up(address, digits);
      return detail::whereabouts{std::move(now.found), {}, std::string("its host's name is unknown: ") + gai_strerror(now.code)};
    });
    choose_address(me.rank == 0 ? net::look_up(address, digits).found : std::vector<net::endpoint>(),
                   net::is_numeric(address) || address == "localhost");
  }
  /// Where a launcher's environment says, which also names the run where `chosen` does not.
  tcp_rendezvous(launch_environment const& mine, tcp_options const& chosen)
      : tcp_rendezvous(mine, mine.address, mine.port, named(chosen, mine.run)) {}
  /// Rank 0 listens at a port that the system gives it, and tells where in a file, RUN.rank0, in a directory that all
  /// ranks see. One that an earlier run has left leads nobody astray: it tells which start it is of, too.
  tcp_rendezvous(rank_of me, std::filesystem::path const& directory, tcp_options const& chosen)
      : with_{me, "the address in " + (directory / (chosen.run + ".rank0")).string(), chosen} {
    namespace fs = std::filesystem;
    detail::require_file_name(chosen.run, with_.where);
    const fs::path file = directory / (chosen.run + ".rank0");
    start({}, "0", [file] {
      std::string words;
      std::getline(std::ifstream(file, std::ios::binary), words);
      const auto fields = detail::unpack(words, 1 + static_cast<std::size_t>(std::count(words.begin(), words.end(), ' ')));
      detail::whereabouts there{{}, {}, words.empty() ? "there is no such file" : "that file is damaged"};
      if (!fields.empty()) there.start = fields[0];
      for (std::size_t i = 1; i + 1 < fields.size(); i += 2) there.found.push_back({fields[i], fields[i + 1]});
      return there;
    });
    choose_address({}, false);
    if (!host_) return;
    std::error_code failed;
    if (fs::create_directories(directory, failed)) fs::permissions(directory, fs::perms::owner_all, failed);
    const fs::path draft = fs::path(file).concat("." + std::to_string(net::clock::now().time_since_epoch().count()));
    const bool written = static_cast<bool>(std::ofstream(draft, std::ios::binary) << host_->whereabouts() << std::flush);
    fs::rename(draft, file, failed);  // appears whole or not at all
    if (!written || failed)
      throw usage_error(with_.where, text("cannot write ", std::string_view(file.native())),
                        text("Give a directory that every rank can write to"));
    file_ = file;
  }

  /// The address of this host, in digits, by which the other ranks reach it. Where MASTER_ADDR is a name that leads to
  /// a loopback address: this host's first other one.
  [[nodiscard]] std::string const& own_address() const noexcept { return own_address_; }

  /// Everybody gets what everybody brings, by rank.
  [[nodiscard]] contributions bring(std::string const& mine) { return deliver(contributions(with_.ranks, mine)); }
  /// Each rank brings a part for each rank, and gets what everybody brought for it, by rank.
  [[nodiscard]] contributions deliver(contributions const& mine) {
    if (mine.size() != with_.ranks)
      throw usage_error(with_.where, text("this rank brings ", mine.size(), " parts for ", with_.ranks, " ranks"),
                        text("Bring one for each rank"));
    contributions all = host_ ? host_->deliver(mine) : guest_ ? guest_->deliver(mine) : mine;
    std::error_code ignored;
    if (!file_.empty()) std::filesystem::remove(file_, ignored);
    return all;
  }

  /// Of the deadline.
  [[nodiscard]] double seconds_left() const { return std::chrono::duration<double>(with_.until - net::clock::now()).count(); }

 private:
  static tcp_options named(tcp_options chosen, std::string const& run) {
    if (chosen.run.empty()) chosen.run = run;
    return chosen;
  }
  void start(std::string const& address, std::string const& port, std::function<detail::whereabouts()> const& look) {
    with_.require_possible();
    if (with_.me.rank != 0) {
      guest_.emplace(with_, look);
    } else if (with_.me.size > 1) {
      host_.emplace(with_, address, port);
    }
  }
  void choose_address(std::vector<net::endpoint> candidates, bool as_written) {
    if (guest_) candidates = {guest_->own_end()};
    const std::vector<net::endpoint> own = net::own_addresses({}, {});
    own_address_ = own.empty() ? "127.0.0.1" : own.front().host;
    for (net::endpoint const& each : candidates) {
      const auto is_it = [&](net::endpoint const& one) { return one.host == each.host; };
      if (each.loopback() ? as_written : std::any_of(own.begin(), own.end(), is_it)) own_address_ = each.host;
    }
  }

  detail::start_up with_;
  std::optional<detail::tcp_host> host_;
  std::optional<detail::tcp_guest> guest_;
  std::filesystem::path file_;
  std::string own_address_;
};

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous

#include "acco/restore_macros.hpp"
