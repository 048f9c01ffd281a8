// SPDX-License-Identifier: Apache-2.0
// What makes toy_gpt_family of toy_gpt.
#include "on_threads.hpp"

namespace toy_gpt {
namespace {

[[maybe_unused]] const bool here = [] {
  family = [](settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
              acco::parameter_layout const& layout, acco::options const& options) {
    return (is_local(s.schedule) ? make_local
            : s.rule == "muon"   ? make_with_muon
                                 : make_decorated)(s, storage, world, layout, options);
  };
  elastic = train_elastic;
  return has_family = true;
}();

}  // namespace
}  // namespace toy_gpt
