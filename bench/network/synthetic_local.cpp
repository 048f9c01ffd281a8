// SPDX-License-Identifier: Apache-2.0
// The synthetic load under local updates: every rank a worker, synchronous inside, with the methods' own constants but for the
// steps from one exchange to the next.
#include <acco/outer.hpp>

#include "synthetic.hpp"

namespace synthetic {
namespace {

template <class World, acco::wire Exchange>
acco::any_optimizer<float> make_with(settings const& s, World const& world, Exchange const& exchange) {
  const auto with = [&](auto const& method, unsigned fragments = 1) {
    const acco::local_updates level{.method = method,
                                    .inner = acco::synchronous{.pace = s.whole()},
                                    .steps = s.local_steps,
                                    .fragments = fragments,
                                    .exchange = exchange};
    return optimizer_with(level, s, world);
  };
  if (s.schedule == "local_sgd") return with(acco::local_sgd);
  if (s.schedule == "slowmo") return with(acco::slowmo);
  if (s.schedule == "diloco") return with(acco::diloco);
  if (s.schedule == "delayed_diloco") return with(acco::delayed_diloco);
  if (s.schedule == "eager_diloco") return with(acco::eager_diloco);
  if (s.schedule == "streaming_diloco") return with(acco::streaming_diloco, s.fragments);
  if (s.schedule == "co2") return with(acco::co2);
  return with(acco::overlap_local_sgd);
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
