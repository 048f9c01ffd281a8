// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, joined by a link that may be simulated. Optimizers of bfloat16 are made in on_threads_bfloat16.cpp,
// so that two cores share the work of compiling; those of on_threads_decorated.cpp, on_threads_muon.cpp,
// on_threads_local.cpp, on_threads_elastic.cpp are in toy_gpt_family only.
#pragma once

#include <acco/collective/around/rate_limited.hpp>
#include <acco/collective/threads.hpp>

#include "train_over.hpp"

namespace toy_gpt {

using threads_link = acco::decorated_backend<acco::threads_backend, acco::rate_limit>;
extern template acco::any_optimizer<acco::bfloat16> make_training(settings const&, acco::host_storage<acco::bfloat16> const&,
                                                                  threads_link const&, acco::parameter_layout const&,
                                                                  acco::options const&);

/// Makes the optimizers of toy_gpt_family, in that program.
using family_maker = acco::any_optimizer<float> (*)(settings const&, acco::host_storage<float> const&, threads_link const&,
                                                    acco::parameter_layout const&, acco::options const&);
inline family_maker family = nullptr;
/// The same for elastic scheduling, which is two optimizers: trains one rank.
inline void (*elastic)(threads_link const&, job&, summary&) = nullptr;
void train_elastic(threads_link const& world, job& one, summary& result);

template <>
struct family_of<acco::host_storage<float>, threads_link> {
  static acco::any_optimizer<float> make(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                         acco::parameter_layout const& layout, acco::options const& options) {
    if (family == nullptr) throw std::invalid_argument(s.label() + " --rule " + s.rule + " is made by toy_gpt_family");
    return family(s, storage, world, layout, options);
  }
};

acco::any_optimizer<float> make_decorated(settings const&, acco::host_storage<float> const&, threads_link const&,
                                          acco::parameter_layout const&, acco::options const&);
acco::any_optimizer<float> make_with_muon(settings const&, acco::host_storage<float> const&, threads_link const&,
                                          acco::parameter_layout const&, acco::options const&);
acco::any_optimizer<float> make_local(settings const&, acco::host_storage<float> const&, threads_link const&,
                                      acco::parameter_layout const&, acco::options const&);

}  // namespace toy_gpt
