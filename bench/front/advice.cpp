// SPDX-License-Identifier: Apache-2.0
// What acco::advise says of links on which the exchange takes from a fiftieth of the computation to 64 times as long, as
// docs/links.md shows it. Arithmetic: measures nothing.
#include <cstdio>

#include <acco/schedule/advice.hpp>

int main() {
  std::printf("| M / C | take | x synchronous | of all | loss |\n|---|---|---|---|---|\n");
  for (const double ratio : {0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0}) {
    const acco::proposal p = acco::advise({.compute_seconds = 1, .exchange_seconds = ratio}, acco::measured_ways).front();
    std::printf("| %g | `%s` | %.2f | %.0f %% | %+.2f %% |\n", ratio, p.code().c_str(), p.speed, 100 * p.of_computation,
                p.of.loss_percent);
  }
}
