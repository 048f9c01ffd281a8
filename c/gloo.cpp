// SPDX-License-Identifier: Apache-2.0
#include <acco/gloo.hpp>

#include "backend.hpp"
#include "library.hpp"

namespace acco_c {

std::shared_ptr<carrier> make_gloo(acco_gloo_options const& options) {
  acco::gloo_options chosen;
  chosen.piece_bytes = options.piece_bytes;
  chosen.deadline = options.deadline;
  if (options.network_interface != nullptr) chosen.interface = options.network_interface;
  if (options.listen != nullptr) chosen.listen = options.listen;
  if (options.run != nullptr) chosen.run = options.run;
  return std::make_shared<carrier_of<acco::gloo_backend>>(acco::gloo_backend::from_environment(chosen));
}

}  // namespace acco_c
