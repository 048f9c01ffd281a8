// SPDX-License-Identifier: Apache-2.0
// An optimizer made in a file with some flags is trained by a file with others. Where this processor lacks what the
// other flags ask for, only the file without them runs: it must not have got any of the other's code.
#include <cmath>
#include <cstdio>

#include "trainer.hpp"

int main() {
  const acco::options chosen{.learning_rate = acco::warmup_cosine{.warmup = 2, .total = 20}};
  auto plain = trainer::with_no_flags::make({}, chosen);
  const float expected = trainer::with_no_flags::train(plain);
  std::printf("%.9g\n", static_cast<double>(expected));
#if defined(ALL)
  std::printf("%.9g\n", static_cast<double>(trainer::with_no_flags::train_on_two_ranks()));
#endif
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#endif
  auto other = trainer::with_other_flags::make({}, chosen);
  auto mixed = trainer::with_no_flags::make({}, chosen);
  const float a = trainer::with_no_flags::train(other), b = trainer::with_other_flags::train(mixed);
  std::printf("%.9g %.9g\n", static_cast<double>(a), static_cast<double>(b));
#if defined(ALL)
  std::printf("%.9g\n", static_cast<double>(trainer::with_other_flags::train_on_two_ranks()));
#endif
  return std::abs(a - expected) < 1e-5F && std::abs(b - expected) < 1e-5F && expected < 1 ? 0 : 1;
}
