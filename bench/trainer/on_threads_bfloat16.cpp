// SPDX-License-Identifier: Apache-2.0
#include "on_threads.hpp"

namespace toy_gpt {

template acco::any_optimizer<acco::bfloat16> make_training(settings const&, acco::host_storage<acco::bfloat16> const&,
                                                           threads_link const&, acco::parameter_layout const&,
                                                           acco::options const&);

}  // namespace toy_gpt
