// SPDX-License-Identifier: Apache-2.0
// The synthetic load under local updates: every rank a worker, synchronous inside, with the methods' own constants but for the
// steps from one exchange to the next.
#include <acco/outer.hpp>

#include "synthetic.hpp"

namespace synthetic {
namespace {

template <class World, acco::wire Exchange>
acco::any_optimizer<float> make_with(settings const& s, World const& world, Exchange const& exchange) {
  const acco::synchronous<> inner{.pace = s.whole()};
  const unsigned steps = s.local_steps;
  const auto with = [&](auto const& method) { return optimizer_with(method, s, world); };
  if (s.schedule == "local_sgd") return with(acco::local_sgd{.inner = inner, .steps = steps, .exchange = exchange});
  if (s.schedule == "slowmo") return with(acco::slowmo{.inner = inner, .steps = steps, .exchange = exchange});
  if (s.schedule == "diloco") return with(acco::diloco{.inner = inner, .steps = steps, .exchange = exchange});
  if (s.schedule == "delayed_diloco") return with(acco::delayed_diloco{.inner = inner, .steps = steps, .exchange = exchange});
  if (s.schedule == "eager_diloco") return with(acco::eager_diloco{.inner = inner, .steps = steps, .exchange = exchange});
  if (s.schedule == "streaming_diloco")
    return with(acco::streaming_diloco{.inner = inner, .steps = steps, .fragments = s.fragments, .exchange = exchange});
  if (s.schedule == "co2") return with(acco::co2{.inner = inner, .steps = steps, .exchange = exchange});
  return with(acco::overlap_local_sgd{.inner = inner, .steps = steps, .exchange = exchange});
}
template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
  if (s.exchange == "int8") return make_with(s, world, acco::block_int8<>{});
  if (s.exchange == "int4") return make_with(s, world, acco::block_int4<>{});
  return make_with(s, world, acco::full{});
}

}  // namespace

acco::any_optimizer<float> make_local(settings const& s, acco::gloo_backend const& world) { return make(s, world); }
acco::any_optimizer<float> make_local(settings const& s, acco::solo_backend const& world) { return make(s, world); }

}  // namespace synthetic
