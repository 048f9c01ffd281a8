// SPDX-License-Identifier: Apache-2.0
// Ranks are threads of this process; what they say travels over TCP on the loopback interface.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <gloo/rendezvous/hash_store.h>
#include <unistd.h>

#include <acco/network/gloo.hpp>

#include "support/worlds.hpp"
#include "wan/network.hpp"

namespace worlds {

struct gloo {
  static constexpr char const* name = "gloo";
  static constexpr int most_ranks = 4;
  static constexpr int most_hosts = 8;
  static inline std::size_t piece_bytes = 8192;  // so small that rounds have several
  /// To each rank; 0: one, of a context made here; or, over a long link, as many as its round trip asks for.
  static inline int connections =
      std::getenv("ACCO_TEST_CONNECTIONS") != nullptr ? std::atoi(std::getenv("ACCO_TEST_CONNECTIONS")) : 0;
  /// Where there are several connections messages carry checksums, too.
  static constexpr acco::checksums checked = acco::has_xxhash ? acco::checksums::always : acco::checksums::none;
  /// "50 20 1": ranks are on hosts of their own, 50 to 70 ms from each other; a hundredth of the packets is lost,
  /// another one comes twice, and they overtake each other.
  static inline char const* const far = std::getenv("ACCO_TEST_LINK");

  /// Bytes of arriving pieces and mailboxes in a world of three; over a long link more, by its round trip.
  static bool messages_of_3(std::size_t bytes) {
    const std::size_t pieces = 4 * 2 * piece_bytes;
    if (far != nullptr) return bytes > pieces;
    return bytes == pieces + (connections < 2 ? 0 : 2 * acco::gloo_mailbox::memory(std::size_t{32} << 10U));
  }

  using backend = acco::gloo_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    if (connections != 0 || far != nullptr) return run_over_files(ranks, function);
    static auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
    ::gloo::rendezvous::HashStore store;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
      auto context = std::make_shared<::gloo::rendezvous::Context>(thread.rank(), thread.size());
      context->connectFullMesh(store, device);
      function(acco::gloo_backend(context, {.piece_bytes = piece_bytes}));
    });
  }

 private:
  template <class Function>
  static void run_over_files(int ranks, Function& function) {
    static std::atomic<int> count = 0;
    const std::string run = "run " + std::to_string(++count);
    auto const directory = std::filesystem::temp_directory_path() / ("acco_pools_" + std::to_string(getpid()));
    wan::network const* const link = far == nullptr ? nullptr : long_link();
    setenv("GLOO_SOCKET_IFNAME", link == nullptr ? "lo" : wan::network::card, 1);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
      if (link != nullptr) link->enter(thread.rank());
      function(acco::gloo_backend::from_files(
          {thread.rank(), ranks}, directory, run,
          {.piece_bytes = piece_bytes, .deadline = 60, .connections = connections, .checksums = checked}));
    });
    unsetenv("GLOO_SOCKET_IFNAME");
    std::filesystem::remove_all(directory);
  }
  static wan::network const* long_link() {
    static const wan::network link = [] {
      double delay = 0, jitter = 0, loss = 0;
      if (std::sscanf(far, "%lf %lf %lf", &delay, &jitter, &loss) != 3) throw std::runtime_error("ACCO_TEST_LINK: three numbers");
      if (auto const why = wan::network::missing(); !why.empty()) {
        std::printf("skipped: %s\n", why.c_str());
        std::exit(0);
      }
      return wan::network(
          most_hosts,
          {.delay = delay * 1e-3, .jitter = jitter * 1e-3, .loss = loss / 100, .twice = loss / 100, .overtake = true});
    }();
    return &link;
  }
};
using under_test = gloo;

}  // namespace worlds
