// SPDX-License-Identifier: Apache-2.0
#include "on_gloo.hpp"

namespace toy_gpt {
namespace {

const registered_place here("gloo", "cpu", [](settings const& s, int&, char**&) {
  acco::gloo_options options{.deadline = s.deadline};
  if (s.piece_kib != 0) options.piece_bytes = s.piece_kib * 1024;
  return std::make_unique<process_runner<acco::gloo_backend>>(acco::gloo_backend::from_environment(options));
});

}  // namespace
}  // namespace toy_gpt
