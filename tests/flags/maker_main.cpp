// SPDX-License-Identifier: Apache-2.0
// Trains and regroups what a shared object made that has no RTTI and hides its symbols; errors are caught on both
// sides.
#include <cstdio>
#include <vector>

#include "maker.hpp"

namespace {
void fail() { throw acco::usage_error({}, acco::text("nothing is wrong"), acco::text("Catch it")); }
/// A backend of another type, which must not be taken for the right one.
struct another_world : acco::threads_backend {};
}  // namespace

int main() {
  bool caught = false, refused = false;
  try {
    maker::fail();
  } catch (acco::usage_error const&) {
    caught = true;
  } catch (...) {
  }
  const bool caught_there = maker::catches(fail);
  float weight = 0;
  try {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto training = maker::make(world);
      training.initialize(std::vector<float>(10, 1.0F));
      const auto train = [&] {
        for (int m = 0; m < 4; ++m) {
          for (float& gradient : training.gradients()) gradient += 1;
          training.accumulated(1);
        }
        training.finish();
      };
      train();
      training.regroup(world.split(0));
      train();
      if (world.rank() == 0) weight = training.parameters()[0];
      try {
        training.regroup(another_world{world});
      } catch (acco::usage_error const&) {
        if (world.rank() == 0) refused = true;
      }
    });
  } catch (std::exception const& e) {
    std::printf("%s\n", e.what());
  }
  std::printf("caught here %d, there %d; regrouped and trained to %g; another type refused %d\n", caught, caught_there,
              static_cast<double>(weight), refused);
  return caught && caught_there && refused && weight != 0 && weight < 1 ? 0 : 1;
}
