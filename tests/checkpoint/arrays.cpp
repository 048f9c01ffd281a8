// SPDX-License-Identifier: Apache-2.0
// An array that somebody declares is in the memory table, in digests and in checkpoints, and comes back on any number
// of ranks: nobody else knows its name.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"

namespace {
/// Eight bits; and whoever reduces keeps a running mean of the sums, cut like the masters, and a copy of this rank's
/// gradients.
struct remembering : acco::block_int8<> {};
}  // namespace

namespace acco {
template <class Storage>
class reducer<remembering, Storage> : public reducer<block_int8<>, Storage> {
  using base = reducer<block_int8<>, Storage>;
  using number = typename Storage::master_type;

 public:
  explicit reducer(remembering const& code) : base(code) {}
  void declare(round_view<Storage>& v, typename base::world_type const& world, bool adds) override {
    base::declare(v, world, adds);
    mean_ = v.arrays.template declare<number>({.name = "mean"}, {0, &memory_table::encoded});
    own_ = v.arrays.template declare<number>({.name = "own", .extent = array_extent::whole}, {0, &memory_table::encoded});
  }
  void settle(round_view<Storage>& v, std::size_t k) override {
    bucket const b = v.shares[k];
    Storage::average(v.queue, &v.numbers->apply, v.sums(b).data(), v.arrays.template as<number>(mean_) + b.offset, b.share, 0.5);
    Storage::convert(v.queue, v.gradients(b), v.arrays.template as<number>(own_) + b.begin, v.whole_of(b));
  }

 private:
  std::size_t mean_ = 0, own_ = 0;
};
}  // namespace acco

namespace {
using storage = acco::host_storage<float>;
constexpr std::size_t elements = 1100;

acco::parameter_layout layout() {
  acco::parameter_layout made;
  made.add("a", {500}).add("still", {50}, made.add_group({.frozen = true})).add("b", {600});
  return made;
}
template <class Code>
acco::any_optimizer<float> make(acco::threads_backend const& world) {
  return acco::optimizer{acco::delayed{.commit = acco::coded{Code{}, acco::full{}}},
                         acco::adamw{.learning_rate = 1e-2},
                         storage{},
                         world,
                         layout(),
                         acco::options{.bucket_elements = 300}};
}
/// So many rounds from `from` on; returns the digest behind them.
std::uint64_t train(acco::any_optimizer<float>& t, int rank, std::size_t from, std::size_t rounds) {
  for (std::size_t m = from; m < from + rounds; ++m) {
    for (std::size_t i = 0; i < t.gradients().size(); ++i)
      t.gradients()[i] += std::sin(static_cast<float>(7 * i + 131 * m + 17 * static_cast<std::size_t>(rank)));
    (void)t.accumulated(1);
  }
  return t.world_digest();
}
void save(acco::any_optimizer<float>& t, std::string const& run) {
  t.finish(acco::unfinished::commit);
  t.save(run);
  t.finish();
  REQUIRE(t.saved() != nullptr);
  REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
}
/// The trainable elements of an array's file.
std::vector<double> values_of(std::string const& run, std::string const& array) {
  const acco::model_file file(acco::latest_checkpoint(run).value() + "/" + array + ".safetensors");
  std::vector<double> values(elements);
  file.read("a", 0, std::span(values).first(500));
  file.read("b", 0, std::span(values).subspan(500));
  return values;
}
std::vector<double> sum_of_own(std::string const& run, std::size_t ranks) {
  std::vector<double> sum(elements);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto const values = values_of(run, acco::name_of_rank("own", rank, ranks));
    for (std::size_t i = 0; i < elements; ++i) sum[i] += values[i];
  }
  return sum;
}
}  // namespace

TEST_CASE("two arrays that a wire of this test declares reach everything that arrays reach") {
  const scratch folder;
  std::uint64_t whole = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make<remembering>(world), without = make<acco::block_int8<>>(world);
    const acco::partition shares(elements, 2, 300);
    CHECK(t.memory().encoded - without.memory().encoded ==
          storage::allocation_size(shares.slice_size() * 4, 0) + storage::allocation_size(shares.padded_size() * 4, 0));
    const std::vector<float> initial(layout().size(), 1.0F);
    t.initialize(initial);
    without.initialize(initial);
    CHECK(train(t, world.rank(), 0, 8) != train(without, world.rank(), 0, 8));  // all that differs between them
    CHECK(t.state_digest() != without.state_digest());
    save(t, folder.run());
    CHECK(t.memory().staging - t.memory().staging % 64 >=
          without.memory().staging + (shares.slice_size() + shares.padded_size()) * 4);
    const std::uint64_t end = train(t, world.rank(), 8, 4);
    if (world.rank() == 0) whole = end;
  });
  auto const mean = values_of(folder.run(), "mean"), own = sum_of_own(folder.run(), 2);
  std::size_t none = 0;
  for (std::size_t i = 0; i < elements; ++i) none += mean[i] == 0 || own[i] == 0 ? 1 : 0;
  CHECK(none == 0);

  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {  // the same ranks: every bit
    auto t = make<remembering>(world);
    CHECK(t.restore(folder.run()).exact);
    CHECK(train(t, world.rank(), 8, 4) == whole);
  });
  for (const int ranks : {1, 3, 5}) {
    CAPTURE(ranks);
    const std::string again = folder.run("of " + std::to_string(ranks));
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto t = make<remembering>(world);
      (void)t.restore(folder.run());
      save(t, again);
    });
    CHECK(values_of(again, "mean") == mean);
    auto const now = sum_of_own(again, static_cast<std::size_t>(ranks));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < elements; ++i) wrong += std::abs(now[i] - own[i]) > 1e-6 ? 1 : 0;
    CHECK(wrong == 0);
  }
  // another training, whose state has fewer arrays
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make<acco::block_int8<>>(world);
    CHECK_THROWS_WITH_AS((void)t.restore(folder.run(), acco::changes::allowed),
                         doctest::Contains("the checkpoint has 5 arrays a parameter, this training has 3"),
                         acco::checkpoint_error);
  });
}

TEST_CASE("two arrays of one name have two names, and shards come before what every rank has whole") {
  acco::state_arrays<storage> arrays(acco::partition(100, 2), 0);
  for (const auto extent : {acco::array_extent::whole, acco::array_extent::shard, acco::array_extent::whole})
    (void)arrays.declare<float>({.name = "kept", .extent = extent}, {0, &acco::memory_table::encoded});
  std::vector<std::string> names;
  for (auto const& each : arrays.shape().kept) names.push_back(each.name);
  CHECK(names == std::vector<std::string>{"kept.2", "kept", "kept.3"});
  CHECK(arrays.shape().shards() == 1);
}

TEST_CASE("shards that come back are of this training's types, also what wires keep; whole arrays of feedback are converted") {
  acco::state_shape now, then;
  for (acco::state_shape* each : {&now, &then}) each->add({.name = "master"});
  now.add({.name = "kept", .use = acco::array_use::feedback});
  CHECK(acco::checkpoints::difference(then, now).empty());  // it begins anew
  then.add({.name = "kept", .type = acco::element_type::float64, .use = acco::array_use::feedback});
  CHECK(acco::checkpoints::difference(then, now).find("'kept' is of another type") != std::string::npos);
  for (acco::state_shape* each : {&now, &then}) each->kept[1].extent = acco::array_extent::whole;
  CHECK(acco::checkpoints::difference(then, now).empty());
}
