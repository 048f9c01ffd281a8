// SPDX-License-Identifier: Apache-2.0
// The synthetic load under local updates: every rank a worker, synchronous inside, with the methods' own constants but
// for the steps from one exchange to the next.
#include "synthetic.hpp"

namespace synthetic {
namespace {

template <class World, class Methods>
acco::any_optimizer<float> make_one(settings const& s, World const& world, Methods) {
  return acco::with_schedule<Methods>(s.schedule, [&](auto method) {
    method.steps = s.local_steps;
    if (s.schedule == "streaming_diloco") method.fragments = s.fragments;
    return optimizer_with(method, s, world);
  });
}
template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
  if (s.exchange == "int8") return make_one(s, world, acco::local_methods<acco::block_int8<>>{});
  if (s.exchange == "int4") return make_one(s, world, acco::local_methods<acco::block_int4<>>{});
  return make_one(s, world, acco::local_methods<>{});
}

}  // namespace

acco::any_optimizer<float> make_local(settings const& s, acco::gloo_backend const& world) { return make(s, world); }
acco::any_optimizer<float> make_local(settings const& s, acco::solo_backend const& world) { return make(s, world); }

}  // namespace synthetic
