// SPDX-License-Identifier: Apache-2.0
#include "on_threads.hpp"

#include <vector>

namespace toy_gpt {
namespace {

/// All ranks are threads of this process, joined by a link that may be simulated.
class threads_runner : public runner {
 public:
  explicit threads_runner(int ranks) : ranks_(ranks) {}
  [[nodiscard]] int first_rank() const override { return 0; }
  [[nodiscard]] int size() const override { return ranks_; }
  void train(job& one) override {
    std::vector<summary> results(static_cast<std::size_t>(ranks_));
    const double megabits = one.chosen.link_megabits;
    acco::threads_backend::run(ranks_, [&](acco::threads_backend const& world) {
      const threads_link link = acco::rate_limited(world, {.bytes_per_second = megabits > 0 ? megabits * 125000 : 1e15});
      summary& result = results[static_cast<std::size_t>(world.rank())];
      if (one.chosen.schedule == "elastic") {
        elastic(link, one, result);
      } else {
        train_over(link, one, result);
      }
    });
    one.result = results[0];
  }

 private:
  int ranks_;
};

const registered_place here("threads", "cpu",
                            [](settings const& s, int&, char**&) { return std::make_unique<threads_runner>(s.ranks); });

}  // namespace
}  // namespace toy_gpt
