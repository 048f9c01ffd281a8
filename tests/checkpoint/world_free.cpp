// SPDX-License-Identifier: Apache-2.0
// A checkpoint does not know how many ranks there were: tensor files have the same bytes for any number, and any number
// loads them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
struct elements {
  static acco::parameter_layout layout() {
    acco::parameter_layout layout;
    const auto still = layout.add_group({.frozen = true});
    layout.add("wte", {330, 33}).add("still", {7, 9}, still).add("h", {100, 211}).add("empty", {0, 5}).add("last", {});
    return layout;
  }
  static acco::adamw rule() { return {}; }
};
/// Matrices lie whole on their ranks, so a rank's share is of many stretches, and all in another order.
struct matrices {
  static acco::parameter_layout layout() {
    acco::parameter_layout layout;
    const auto still = layout.add_group({.frozen = true}), others = layout.add_group({.rule = 1});
    layout.add("wte", {330, 33}, others).add("still", {7, 9}, still).add("a", {30, 37}).add("norm", {500}, others);
    layout.add("b", {37, 30}).add("c", {23, 100}).add("empty", {0, 5}).add("d", {33, 33}).add("last", {}, others);
    return layout;
  }
  static acco::rules<acco::muon, acco::adamw> rule() { return acco::rules{acco::muon{}, acco::adamw{}}; }
};
template <class Of>
auto make(acco::threads_backend const& world, std::size_t bucket = 0) {
  return acco::optimizer{acco::two_phase{.commit = acco::coded{acco::block_int8{}, acco::block_int8{}}},
                         Of::rule(),
                         acco::host_storage<acco::bfloat16, float>{},
                         world,
                         Of::layout(),
                         acco::options{.average_decay = 0.9, .bucket_elements = bucket}};
}
/// The tensor files, without the number of their run.
std::map<std::string, std::string> tensors_of(std::string const& checkpoint) {
  std::map<std::string, std::string> found;
  for (auto const& each : std::filesystem::directory_iterator(checkpoint)) {
    if (each.path().extension() != ".safetensors") continue;
    std::string bytes = content(each.path().string());
    constexpr std::string_view run = "\"run\":\"";
    const std::size_t at = bytes.find(run);
    REQUIRE(at < 4096);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at + run.size()), 12, '0');
    found[each.path().filename().string()] = std::move(bytes);
  }
  return found;
}
}  // namespace

TEST_CASE_TEMPLATE("restored and saved again at once at any number of ranks: the same bytes, and the same digest for every pair",
                   Of, elements, matrices) {
  const auto layout = Of::layout;
  const scratch folder;
  const std::string first = folder.run("first");
  std::uint64_t end = 0;
  const auto train = [&](auto& t, int rank, std::size_t from) {
    for (std::size_t m = from; m < 12; ++m) {
      double loss = problem::add_sample(problem::sample_id(rank, m, 0), t.parameters(), t.gradients());
      if (m == 5 && from == 0) {
        t.save(first, [&, rank] { return rank * 100 + static_cast<int>(m) + 1; });
      }
      (void)t.accumulated(1, loss);
    }
    t.finish();
    const std::uint64_t digest = t.world_digest();
    if (from == 0) {
      if (rank == 0) end = digest;
    } else {
      CHECK(digest == end);
    }
  };
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto t = make<Of>(world);
    t.initialize(problem::converted<acco::bfloat16>(problem::initial(layout().size())));
    train(t, world.rank(), 0);
    REQUIRE(t.saved() != nullptr);
    CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
  });
  const std::string original = acco::latest_checkpoint(first).value();
  auto const expected = tensors_of(original);
  CHECK(expected.size() == 7);  // masters, two slots, averages, in use, arriving, frozen
  for (auto const& [name, bytes] : expected) CHECK(bytes.size() > 4096);

  std::map<int, std::string> saved;
  const auto again = [&](std::string const& from, int ranks, std::string const& to, std::uint64_t& digest, std::size_t bucket) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto t = make<Of>(world, bucket);
      auto const found = t.restore(from, acco::changes::allowed);  // of the buckets' sizes
      CHECK(found.ranks == (from == original ? 3 : found.ranks));
      if (from == original) CHECK(found.exact == (ranks == 3 && bucket == 0));
      CHECK(found.trainers.size() == static_cast<std::size_t>(found.ranks));
      if (ranks == 3 && from == original) CHECK(found.template position<int>() / 100 == world.rank());
      if (ranks != 3 && from == original) CHECK_THROWS_AS((void)found.template position<int>(), acco::usage_error);
      t.save(to);
      if (world.rank() == 0) digest = found.digest;
      t.finish();
      REQUIRE(t.saved() != nullptr);
      CHECK_MESSAGE(t.saved()->complete(), t.saved()->problem);
    });
  };
  std::uint64_t digest_of_first = 0;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    std::uint64_t digest = 0;
    saved[ranks] = folder.run("by " + std::to_string(ranks));
    again(original, ranks, saved[ranks], digest, ranks == 2 ? 640 : 0);
    digest_of_first = digest_of_first == 0 ? digest : digest_of_first;
    CHECK(digest == digest_of_first);
    CHECK(digest != 0);
  }
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {  // and on it goes
    auto t = make<Of>(world);
    train(t, world.rank(), static_cast<std::size_t>(t.restore(original).template position<int>() % 100));
  });
  // After finish parameters are the masters, so those files are gone; the others are the original's, byte for byte.
  auto const one = tensors_of(acco::latest_checkpoint(saved[1]).value());
  for (auto const& [ranks, run] : saved) {
    CAPTURE(ranks);
    auto const found = tensors_of(acco::latest_checkpoint(run).value());
    CHECK(found == one);
    for (auto const& [name, bytes] : found) CHECK_MESSAGE(bytes == expected.at(name), name);
  }
  for (auto const& [ranks, run] : saved) {
    for (const int to : {1, 2, 3, 5, 8}) {
      if (!thorough() && (ranks != 3 || to > 2)) continue;
      CAPTURE(ranks);
      CAPTURE(to);
      std::uint64_t digest = 0;
      again(run, to, folder.run("pair " + std::to_string(ranks) + " " + std::to_string(to)), digest, 0);
      CHECK(digest == digest_of_first);
    }
  }
}
