// SPDX-License-Identifier: Apache-2.0
// What codes have lost, in checkpoints: back to as many ranks, dropped elsewhere.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"

namespace {
constexpr std::size_t parameters = 20 * 20;

template <class Training>
auto micro_batch(Training& t, int rank, std::size_t m) {
  std::vector<double> sum(t.gradients().size(), 0.0);
  const double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), std::span<double>(sum));
  for (std::size_t i = 0; i < sum.size(); ++i) t.gradients()[i] += static_cast<float>(sum[i]);
  return t.accumulated(1, loss);
}
std::vector<float> initial() { return problem::converted<float>(problem::initial(parameters)); }

constexpr std::size_t micro_batches = 14, at_save = 5;

/// What a training that was saved on the way, and restored under other options or ranks, says of itself; whether it ends as the
/// one that never stopped.
struct comparison {
  bool exact = false, same = false;
  acco::restored_residuals residuals = acco::restored_residuals::none;
};
template <class Schedule>
comparison go_on(Schedule const& schedule, int ranks = 2, int then = 2, acco::options const& chosen = {},
                 acco::options const& restart = {}, acco::changes allowed = acco::changes::none) {
  const scratch folder;
  const auto make = [&](acco::threads_backend const& world, acco::options const& with) {
    acco::parameter_layout layout;
    layout.add("matrix", {20, 20});
    return acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world, layout, with};
  };
  std::uint64_t straight = 0;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto first = make(world, chosen);
    first.initialize(initial());
    std::size_t m = 0;
    for (; m < micro_batches; ++m) {
      if (m == at_save) first.save(folder.run(), [&m] { return m; });
      micro_batch(first, world.rank(), m);
    }
    first.finish();
    REQUIRE(first.saved() != nullptr);
    REQUIRE(first.saved()->complete());
    const std::uint64_t digest = first.world_digest();
    if (world.rank() == 0) straight = digest;
  });
  comparison found;
  acco::threads_backend::run(then, [&](acco::threads_backend const& world) {
    auto again = make(world, restart);
    auto const back = again.restore(folder.run(), allowed);
    const auto from = back.template position<std::size_t>(0);
    CHECK(from >= at_save);
    CHECK(from < micro_batches);
    for (std::size_t m = from + 1; m < micro_batches; ++m) micro_batch(again, world.rank(), m);
    again.finish();
    const bool same = again.world_digest() == straight;
    if (world.rank() == 0) found = {back.exact, same, back.residuals};
  });
  return found;
}
template <class Gradients>
auto committing(Gradients const& gradients) {
  return acco::delayed{.commit = acco::coded<Gradients, acco::block_int4<>>{gradients, {}}};
}

}  // namespace

TEST_CASE("what codes have lost is in a checkpoint: on as many ranks the training goes on as if it had never stopped") {
  using acco::restored_residuals;
  const auto exactly = [](comparison const& found, restored_residuals residuals) {
    CHECK(found.exact);
    CHECK(found.same);
    CHECK(found.residuals == residuals);
  };
  exactly(go_on(committing(acco::block_gauss3{})), restored_residuals::none);
  exactly(go_on(committing(acco::with_error_feedback<acco::block_gauss2>{})), restored_residuals::exact);
  exactly(go_on(committing(acco::with_error_feedback<acco::block_gauss2, acco::int8_blocks>{})), restored_residuals::exact);
  exactly(go_on(committing(acco::with_ef21<acco::block_gauss2>{})), restored_residuals::exact);
  static_assert(acco::power_sgd{.rank = 1}.pays(20, 20));
  exactly(go_on(committing(acco::power_sgd{.rank = 1})), restored_residuals::exact);
}
TEST_CASE("what codes have lost is dropped where ranks or buckets are others, or it is not wanted; a plan always: they say so") {
  using acco::restored_residuals;
  const auto dropped = [](comparison const& found) {
    CHECK(!found.exact);
    CHECK(!found.same);
    CHECK(found.residuals == restored_residuals::dropped);
  };
  const auto wire = committing(acco::with_error_feedback<acco::block_gauss2>{});
  const acco::options without{.residuals = acco::residual_saving::dropped};
  dropped(go_on(wire, 2, 3));
  dropped(go_on(committing(acco::with_ef21<acco::block_gauss2>{}), 2, 1));
  dropped(go_on(committing(acco::power_sgd{.rank = 1}), 2, 3));
  dropped(go_on(wire, 2, 2, without, without));
  dropped(go_on(wire, 2, 2, without, {}));
  dropped(go_on(wire, 2, 2, {}, {.bucket_elements = 128}, acco::changes::allowed));
  const comparison planned =
      go_on(committing(acco::auto_encoding{.budget = 0.2, .every = 100}));  // its next commit is in 8 bits again
  CHECK(!planned.exact);
  CHECK(!planned.same);
  CHECK(planned.residuals == restored_residuals::none);
}
