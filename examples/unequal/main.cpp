// SPDX-License-Identifier: Apache-2.0
// One of four ranks is three times slower, and documents are of unequal length: how much of the ranks' summed speed is
// left where all wait for the slowest, and where the fast ones go on; and the loss at equal tokens.
//
//   unequal [TOKENS]     of each training, 400000
#include <cstdio>
#include <cstdlib>
#include <string>

#include "training.hpp"

int main(int count, char** words) {
  unequal::settings s;
  if (count > 1) s.tokens = std::atof(words[1]);
  if (!(s.tokens >= 1)) return std::fprintf(stderr, "unequal: '%s' tokens: give a number, 400000 say\n", words[1]), 1;
  const unequal::source texts(1);
  std::printf("%d ranks, one of them %g times slower; the source's own loss: %.4f nats a token\n\n", s.ranks, s.slower,
              unequal::validation_loss(texts, texts.best()));
  std::printf("                             of the summed speed   tokens an update   loss\n");
  const auto print = [&](char const* name, unequal::outcome const& of) {
    std::printf("%-32s        %.3f             %7.0f       %.4f\n", name, of.share, of.tokens / static_cast<double>(of.updates),
                unequal::validation_loss(texts, of.parameters));
  };
  print("synchronous, fixed_pace", train(s, texts, acco::synchronous{.pace = acco::fixed_pace{5}}));
  print("two_phase, elastic_pace", train(s, texts, acco::two_phase{.pace = acco::elastic_pace{}}));
}
