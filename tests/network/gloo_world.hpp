// SPDX-License-Identifier: Apache-2.0
// Ranks are threads of this process; what they say travels over TCP on the loopback interface.
#pragma once

#include <memory>

#include <gloo/rendezvous/hash_store.h>

#include <acco/network/gloo.hpp>

#include "support/worlds.hpp"

namespace worlds {

struct gloo {
  static constexpr char const* name = "gloo";
  static constexpr int most_ranks = 4;
  static inline std::size_t piece_bytes = 8192;  // so small that rounds have several

  using backend = acco::gloo_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    static auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
    ::gloo::rendezvous::HashStore store;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& thread) {
      auto context = std::make_shared<::gloo::rendezvous::Context>(thread.rank(), thread.size());
      context->connectFullMesh(store, device);
      function(acco::gloo_backend(context, {.piece_bytes = piece_bytes}));
    });
  }
};
using under_test = gloo;

}  // namespace worlds
