// SPDX-License-Identifier: Apache-2.0
// The synthetic load whose rounds travel in codes that are chosen when the program runs: one engine for all of them.
#include <cstddef>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <acco/encoding/block_dct_top.hpp>
#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_sign.hpp>
#include <acco/encoding/block_ternary.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/encoding/one_of.hpp>

#include "synthetic.hpp"

namespace synthetic {
namespace {

using code =
    acco::one_of<acco::block_int8<>, acco::block_int4<>, acco::block_gauss4, acco::block_gauss3, acco::block_gauss2,
                 acco::rotated_gauss3, acco::block_ternary, acco::block_sign, acco::block_top<32>, acco::block_dct_top<16>>;
constexpr std::string_view words[] = {"int8",     "int4",    "gauss4", "gauss3", "gauss2",
                                      "rotated3", "ternary", "sign",   "top32",  "dct16"};
static_assert(code::count == std::size(words));

code code_of(std::string_view word) {
  for (std::size_t k = 0; k < std::size(words); ++k) {
    if (words[k] == word) return {k};
  }
  throw std::invalid_argument(std::string(word) + " is no code of this load");
}

template <class World>
acco::any_optimizer<float> make(settings const& s, World const& world) {
  const auto slash = [](std::string_view both) { return both.find('/'); };
  const auto gradients = [&](std::string_view both) { return both.substr(0, slash(both)); };
  const auto parameters = [&](std::string_view both) { return code_of(both.substr(slash(both) + 1)); };
  acco::coded<acco::with_error_feedback<code>, code> commit{{code_of(gradients(s.commit))}, parameters(s.commit)};
  commit.gradients.keep = s.feedback;
  const auto with = [&](auto const& schedule) { return optimizer_with(schedule, s, world); };
  if (s.schedule == "synchronous") return with(acco::synchronous{.commit = commit, .pace = s.whole()});
  if (s.schedule == "delayed") return with(acco::delayed{.commit = commit, .pace = s.whole()});
  const auto two_phase = [&](auto const& estimated) {
    const acco::coded<std::remove_cvref_t<decltype(estimated)>, code> estimate{estimated, parameters(s.estimate)};
    return with(acco::two_phase{.estimate = estimate, .commit = commit, .pace = s.split()});
  };
  if (s.schedule != "two_phase") throw std::invalid_argument(s.schedule + " has no codes of its own here");
  return gradients(s.estimate) == "own" ? two_phase(acco::own_slice{}) : two_phase(code_of(gradients(s.estimate)));
}

}  // namespace

void print_codes() {
  constexpr std::size_t block = 256;
  std::cout << R"({"full": 4, "own": 0)";
  for (std::size_t k = 0; k < std::size(words); ++k) {
    std::size_t bytes = 0;
    code{k}.visit([&]<class Each>(Each const&) { bytes = acco::encoded_size<Each>(block); });
    std::cout << ", \"" << words[k] << "\": " << static_cast<double>(bytes) / block;
  }
  std::cout << "}\n";
}
acco::any_optimizer<float> make_in_codes(settings const& s, acco::gloo_backend const& world) { return make(s, world); }
acco::any_optimizer<float> make_in_codes(settings const& s, acco::solo_backend const& world) { return make(s, world); }

}  // namespace synthetic
