// SPDX-License-Identifier: Apache-2.0
// All ranks see one directory, and write and read files there.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

namespace detail {
inline constexpr std::uint32_t file_format = 0x61636331;  // "acc1"
}
/// Through files in `directory`, which all ranks see, under the name `run`. Files that an earlier run left behind, even of the
/// same name, are recognised: nobody goes on before rank 0 has seen everybody's answer to a number drawn for this run.
inline contributions through_files(rank_of me, std::filesystem::path const& directory, std::string const& run,
                                   std::string const& mine, double deadline) {
  using namespace detail;
  namespace fs = std::filesystem;
  const error_place where{me.rank, -1, "start-up"};
  const double until = steady_seconds() + deadline;
  const auto ranks = static_cast<std::size_t>(me.size);
  std::error_code failed;
  if (fs::create_directories(directory, failed))
    fs::permissions(directory, fs::perms::owner_all, failed);  // whoever writes there may join
  const auto file = [&](std::string_view what, std::size_t rank) {
    return directory / std::string(run).append(".").append(what).append(".").append(std::to_string(rank));
  };
  std::random_device entropy;
  const std::uint64_t nonce = std::uint64_t{entropy()} << 32U | entropy();

  const auto write = [&](fs::path const& path, std::string const& body) {  // appears whole or not at all
    const fs::path draft = fs::path(path).concat("." + std::to_string(nonce));
    {
      std::ofstream out(draft, std::ios::binary);
      out << body;
      out.flush();
      if (!out) {
        throw usage_error(where, text("cannot write ", std::string_view(draft.native())),
                          text("Give a directory that every rank can write to"));
      }
    }
    fs::rename(draft, path);
  };
  const auto read = [&](fs::path const& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::vector<bool> here(ranks, false);
  const auto nap = [&](char const* what) {
    if (steady_seconds() > until) {
      here[static_cast<std::size_t>(me.rank)] = true;
      auto const [who, first] = some_ranks(me.size, [&](int rank) { return !here[static_cast<std::size_t>(rank)]; });
      throw deadline_error(
          where,
          text("rank ", who, " did not ", what, " in ", std::string_view(directory.native()), " under the name '", run,
               "' within ", deadline, " s"),
          text("Check that it runs, sees the same directory, and was given the same run identifier and number of ranks"), first);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };

  std::string member;
  put(member, file_format);
  put(member, me.size);
  put(member, nonce);
  put(member, mine);
  write(file("member", static_cast<std::size_t>(me.rank)), member);

  contributions all(ranks);
  if (me.rank == 0) {
    std::vector<std::uint64_t> nonces(ranks, 0);
    std::uint64_t roster_number = nonce;
    for (;;) {
      bool changed = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::string body = read(file("member", rank));
        reader in{body};
        const bool ours = in.number<std::uint32_t>() == file_format;
        const int size = in.number<int>();
        const auto number = in.number<std::uint64_t>();
        std::string theirs = in.bytes();
        if (!in.good || !ours || number == nonces[rank]) continue;
        if (size != me.size) continue;  // of another run; if it is alive it will say so itself
        nonces[rank] = number;
        all[rank] = std::move(theirs);
        here[rank] = true;
        changed = true;
      }
      const bool complete = std::find(here.begin(), here.end(), false) == here.end();
      if (complete && changed) {
        std::string roster;
        put(roster, file_format);
        put(roster, ++roster_number);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          put(roster, nonces[rank]);
          put(roster, all[rank]);
        }
        write(file("roster", 0), roster);
      }
      if (complete) {
        std::vector<bool> agreed(ranks, false);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const std::string body = read(file("seen", rank));
          reader in{body};
          agreed[rank] =
              rank == 0 || (in.number<std::uint64_t>() == roster_number && in.number<std::uint64_t>() == nonces[rank] && in.good);
        }
        if (std::find(agreed.begin(), agreed.end(), false) == agreed.end()) break;
        if (steady_seconds() > until) here = agreed;  // a file was there, of a process that is not
      }
      nap("join");
    }
    std::string go;
    put(go, roster_number);
    write(file("go", 0), go);
  } else {
    std::uint64_t answered = 0;
    here.assign(ranks, true);
    here[0] = false;
    for (;;) {
      const std::string body = read(file("roster", 0));
      reader in{body};
      const bool ours = in.number<std::uint32_t>() == file_format;
      const auto number = in.number<std::uint64_t>();
      bool mentions_me = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        mentions_me = in.number<std::uint64_t>() == nonce ? true : mentions_me;
        all[rank] = in.bytes();
      }
      if (ours && in.good && mentions_me) {
        if (answered != number) {
          std::string seen;
          put(seen, number);
          put(seen, nonce);
          write(file("seen", static_cast<std::size_t>(me.rank)), seen);
          answered = number;
        }
        const std::string word = read(file("go", 0));
        reader decision{word};
        if (decision.number<std::uint64_t>() == number && decision.good) break;
      }
      nap("gather all ranks");
    }
  }
  fs::remove(file("member", static_cast<std::size_t>(me.rank)), failed);
  fs::remove(file("seen", static_cast<std::size_t>(me.rank)), failed);
  return all;
}

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous
