// SPDX-License-Identifier: Apache-2.0
// Which ranks of a world are left when some are lost: a roll call through a directory that all see.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "acco/clock.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Without whom nobody goes on, and how long who has come waits for others.
struct quorum {
  int least = 0;      ///< ranks; 0: more than half of the world, so that no two parts of it go on
  double grace = 10;  ///< seconds, from when a rank comes, after which those that have come are all
  int lost = 0;       ///< ranks that are lost for certain: when all others have come, nobody waits any longer
};

namespace rendezvous {

namespace detail {
/// Throws `usage_error` where nobody could go on, or nobody could know when.
inline void require_roll_call(rank_of me, std::string const& run, quorum const& enough, double deadline, error_place where) {
  if (me.rank < 0 || me.rank >= me.size)
    throw usage_error(where, text("there is no rank ", me.rank, " of ", me.size), text("Ranks are numbered from 0"));
  require_file_name(run, where);
  require_positive("the roll call's deadline", deadline, where);
  require_not_negative("quorum::grace", enough.grace, where);
  const auto require_number = [&](char const* name, int value, int most) {
    if (value < 0 || value > most) throw usage_error(where, text(name, " is ", value), text("Give a number from 0 to ", most));
  };
  require_number("quorum::least", enough.least, me.size);
  require_number("quorum::lost", enough.lost, me.size - 1);
}
}  // namespace detail

/// The ranks of a world that come, from the lowest on, the same list on all of them: all, or at least a quorum, when
/// the grace time of one of them has ended. `run` names this roll call, is the same on all ranks, and was never used in
/// this directory, where small files stay. Blocks at most `deadline` seconds. Throws `deadline_error` that names who is
/// missing where too few come, and where the others have gone on before this rank came; `usage_error` where nothing can
/// be written, another process has come as this rank, or what is given makes no sense.
[[nodiscard]] inline std::vector<int> those_left(rank_of me, std::filesystem::path const& directory, std::string const& run,
                                                 quorum const& enough, double deadline) {
  namespace fs = std::filesystem;
  const error_place where{me.rank, -1, "roll call"};
  detail::require_roll_call(me, run, enough, deadline, where);
  const fs::path list = directory / (run + ".left of " + std::to_string(me.size));
  const auto sign_of = [&](int rank) { return fs::path(list).concat("." + std::to_string(rank)); };
  std::error_code failed;
  if (fs::create_directories(directory, failed)) fs::permissions(directory, fs::perms::owner_all, failed);
  const auto cannot_write = [&](fs::path const& what) {
    return usage_error(
        where, text("cannot write ", std::string_view(what.native())),
        text("Give a directory that every rank can write to, and each roll call a name that was never used there"));
  };
  std::FILE* const sign = std::fopen(sign_of(me.rank).c_str(), "wx");  // no other process is this rank
  if (sign == nullptr || std::fclose(sign) != 0) throw cannot_write(sign_of(me.rank));
  const int least = enough.least > 0 ? enough.least : me.size / 2 + 1;
  for (const double came = steady_seconds();; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    if (std::ifstream in(list); in) {
      std::vector<int> left;
      for (int rank = 0; in >> rank;) left.push_back(rank);
      if (std::find(left.begin(), left.end(), me.rank) != left.end()) return left;
      throw deadline_error(
          where, text("the others have gone on without this rank, which came too late"),
          text("Construct another optimizer, and join a world in which they regroup; or give a longer grace time"));
    }
    std::vector<int> here;
    for (int rank = 0; rank < me.size; ++rank) {
      if (fs::exists(sign_of(rank), failed)) here.push_back(rank);
    }
    const auto present = static_cast<int>(here.size());
    const double waited = steady_seconds() - came;
    if (present == me.size ||
        (present >= least && (present >= me.size - enough.lost || waited >= std::min(enough.grace, deadline)))) {
      const fs::path draft = fs::path(sign_of(me.rank)).concat(".draft");
      std::ofstream out(draft);
      for (const int rank : here) out << rank << ' ';
      out.close();
      if (!out) throw cannot_write(draft);
      fs::create_hard_link(draft, list, failed);  // whole, by the first one: the others' fail
      const bool is_there = !failed || fs::exists(list);
      fs::remove(draft, failed);
      if (!is_there) {
        throw usage_error(where, text("cannot link ", std::string_view(list.native())),
                          text("Give a directory on a file system that has hard links"));
      }
    } else if (waited >= deadline) {
      auto const who = ranks_where(me.size, [&](int rank) { return std::find(here.begin(), here.end(), rank) == here.end(); });
      throw deadline_error(where,
                           text("of ", me.size, " ranks ", present, " came within ", deadline, " s, and ", least,
                                " are to go on; missing: rank ", who.words),
                           text("Start the training again from its last checkpoint, or let fewer be enough (quorum::least)"),
                           who.lowest);
    }
  }
}

}  // namespace rendezvous
}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
