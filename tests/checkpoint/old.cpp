// SPDX-License-Identifier: Apache-2.0
// Checkpoints that a library of before has written (old/COMMIT, made by old/make.sh) are restored, and the trainings go
// on as that library itself went on from them, in every bit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/old/trainings.hpp"
#include "checkpoint/scratch.hpp"
#include "support/data.hpp"

namespace {
using namespace old_trainings;

std::filesystem::path old_folder() { return test_data("checkpoint/old"); }
}  // namespace

TEST_CASE("checkpoints of ff0f135 are restored, on as many ranks and on others") {
  std::size_t tried = 0;
  for_each([&](traits const& is, auto schedule, auto rule, auto storage, acco::parameter_layout const& layout,
               acco::options const& options) {
    CAPTURE(is.name);
    const scratch folder;  // nothing is written beside the test
    std::filesystem::copy(old_folder() / "ff0f135" / is.name, folder.run(), std::filesystem::copy_options::recursive);
    const outcome then = read(folder.run() + "/after.txt");
    REQUIRE(then.numbers.size() > 10);
    for (const int count : {ranks, 1, 3, 4}) {
      CAPTURE(count);
      acco::threads_backend::run(count, [&](acco::threads_backend const& world) {
        acco::optimizer training{schedule, rule, storage, world, layout, options};
        auto const found = training.restore(folder.run(), is.option_went ? acco::changes::allowed : acco::changes::none);
        CHECK(found.exact == (count == ranks && !is.option_went));
        outcome now{told_by(found)};
        CHECK(std::equal(now.numbers.begin(), now.numbers.end(), then.numbers.begin()));
        outcome const rest = train(training, world.rank(), count, is, after(found.trainers.front()));
        now.numbers.insert(now.numbers.end(), rest.numbers.begin(), rest.numbers.end());

        // Other ranks encode other gradients, so those bits are their own.
#if defined(FP_FAST_FMA) || defined(__FMA__)
        if (world.rank() == 0) MESSAGE("this build may fuse multiplications and additions, which changes bits");
#else
        if (count == ranks || is.any_ranks) CHECK(now == then);
#endif
      });
      ++tried;
    }
  });
  CHECK(tried == 28);
}
