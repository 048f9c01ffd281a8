// SPDX-License-Identifier: Apache-2.0
// A plan of codes is part of the state: a run that was killed goes on with it, makes the next one when the other would
// have, and among other ranks begins with the codes that most elements had.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"

namespace {

constexpr std::size_t elements = 700, loud = 384, rounds = 24;  // on two ranks a bucket has 384
using names = std::vector<std::string>;

template <class codes = acco::planned<acco::block_gauss4, acco::block_int8<>, acco::block_gauss2>>
acco::any_optimizer<float> make(acco::threads_backend const& world, double budget, unsigned every) {
  return acco::optimizer{
      acco::delayed{.commit = acco::with_feedback{codes{.budget = budget, .every = every}, acco::error_feedback{}}},
      acco::sgd{.learning_rate = 1},
      acco::host_storage<float>{},
      world,
      elements,
      acco::options{.on_non_finite = acco::non_finite::skip,
                    .check_habits = acco::habit_checks::off,
                    .digest_every = 1,
                    .bucket_elements = 300}};
}
/// At first all are 0. Then in turn either bucket is the louder one.
float gradient(int rank, std::size_t m, std::size_t i) {
  if (m < 2) return 0;
  const bool quiet = (i < loud) == (m / 7 % 2 == 1);
  return std::sin(static_cast<float>(7 * i + 131 * m + 17 * static_cast<std::size_t>(rank))) * (quiet ? 0.03F : 1);
}
struct moment {
  std::vector<float> parameters;
  names codes;
  std::uint64_t bytes = 0, digest = 0;
};
using history = std::vector<moment>;
/// One micro-batch; now and then nobody brings any, or a gradient is infinite.
moment step(acco::any_optimizer<float>& t, int rank, std::size_t m) {
  const bool brings = m % 8 != 6;
  for (std::size_t i = 0; brings && i < elements; ++i) t.gradients()[i] += gradient(rank, m, i);
  if (m == 15 && rank == 0) t.gradients()[5] = std::numeric_limits<float>::infinity();
  moment found;
  if (auto const report = t.accumulated(brings ? 1 : 0)) {
    for (acco::planned_bucket const& of : report->codes) found.codes.emplace_back(of.code);
    found.bytes = report->bytes_sent;
    found.digest = report->digest.value_or(0);
  }
  found.parameters.assign(t.parameters().begin(), t.parameters().end());
  return found;
}

}  // namespace

TEST_CASE("a run whose codes are planned, killed at a cut, goes on as if it had not been") {
  for (const std::size_t save_at :
       {std::size_t{0}, std::size_t{6}, std::size_t{12}}) {  // nothing is planned; first plan; another
    CAPTURE(save_at);
    const scratch folder(in_memory());
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const int rank = world.rank();
      auto whole = make(world, 0.7, 5);
      whole.initialize(std::vector<float>(elements, 0.0F));
      history expected;
      std::size_t at = 0;
      for (std::size_t m = 0; m < rounds; ++m) {
        at = m;
        if (m == save_at) whole.save(folder.run(), [&at] { return at; });
        expected.push_back(step(whole, rank, m));
      }
      whole.finish();
      CHECK_MESSAGE(whole.saved()->complete(), whole.saved()->problem);
      auto resumed = make(world, 0.7, 5);
      auto const found = resumed.restore(folder.run());
      CHECK(found.exact);
      const std::size_t from = found.position<std::size_t>() + 1;
      CHECK((from == 2) == (save_at == 0));  // the first gradients that are not 0 come next
      std::size_t plans = 0;
      for (std::size_t m = from; m < rounds; ++m) {
        CAPTURE(m);
        moment const now = step(resumed, rank, m);
        CHECK((now.parameters == expected[m].parameters));
        CHECK(now.digest == expected[m].digest);
        if (m == from) continue;  // the round in which the state was copied
        CHECK(now.codes == expected[m].codes);
        if (m > from + 1) CHECK(now.bytes == expected[m].bytes);  // the first one has told all ranks the plan
        plans += expected[m].codes != expected[m - 1].codes ? 1 : 0;
      }
      CHECK(plans >= 1);
      resumed.finish();
    });
  }
}

TEST_CASE("a plan is made when there are gradients; it comes back among other ranks, and goes with the parameters") {
  const scratch folder(in_memory());
  const names then{"block_gauss4", "block_gauss2"};
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world, 1.2, 100);
    t.initialize(std::vector<float>(elements, 0.0F));
    (void)t.accumulated(1);  // of zeros
    (void)step(t, world.rank(), 4);
    CHECK(step(t, world.rank(), 5).codes == names{then[0], then[0]});
    CHECK(step(t, world.rank(), 7).codes == then);
    t.finish();
    t.save(folder.run());
    t.finish();
  });
  for (const int ranks : {1, 2}) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto t = make(world, 1.2, 100);
      (void)t.restore(folder.run());
      (void)step(t, world.rank(), 8);
      CHECK(step(t, world.rank(), 9).codes == (ranks == 2 ? then : names{then[0], then[1], then[1]}));  // of 320 each
      t.finish();
      t.set_parameters(std::vector<float>(elements, 0.0F));
      t.finish();  // in a round that has nothing
      (void)step(t, world.rank(), 5);
      CHECK(step(t, world.rank(), 7).codes[1] == then[0]);
      t.finish();
    });
  }
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {  // the same codes at other places
    auto t = make<acco::planned<acco::block_gauss4, acco::block_gauss2, acco::block_int8<>>>(world, 1.2, 100);
    auto const dropped = t.restore(folder.run(), acco::changes::allowed).dropped;
    CHECK(dropped.size() == 1);
    CHECK(dropped.at(0).starts_with("plan."));
    (void)step(t, world.rank(), 8);
    CHECK(step(t, world.rank(), 9).codes == names{then[0], then[0]});
    t.finish();
  });
}
