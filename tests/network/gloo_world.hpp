// SPDX-License-Identifier: Apache-2.0
// Ranks are threads of this process; what they say travels over TCP on the loopback interface.
#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gloo/rendezvous/hash_store.h>
#include <unistd.h>

#include <acco/network/gloo.hpp>

#include "support/worlds.hpp"

namespace worlds {

struct gloo {
  static constexpr char const* name = "gloo";
  static constexpr int most_ranks = 4;
  static inline std::size_t piece_bytes = 8192;  // so small that rounds have several
  /// To each rank; 0: one, of a context made here.
  static inline int connections =
      std::getenv("ACCO_TEST_CONNECTIONS") != nullptr ? std::atoi(std::getenv("ACCO_TEST_CONNECTIONS")) : 0;

  using backend = acco::gloo_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    if (connections != 0) return run_over_files(ranks, function);
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
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
      function(acco::gloo_backend::from_files({thread.rank(), ranks}, directory, run,
                                              {.piece_bytes = piece_bytes, .deadline = 60, .connections = connections}));
    });
    unsetenv("GLOO_SOCKET_IFNAME");
    std::filesystem::remove_all(directory);
  }
};
using under_test = gloo;

}  // namespace worlds
