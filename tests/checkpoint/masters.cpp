// SPDX-License-Identifier: Apache-2.0
// Weights get out of an optimizer, and into one, in the type that it keeps them in: nothing is lost where the model
// computes in 16 bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("a", {301, 3});
  layout.add("still", {70}, still);
  layout.add("b", {1});
  layout.add("still.2", {2, 5}, still);
  layout.add("c", {900}, layout.add_group({.weight_decay = 0.1}));
  return layout;
}
/// What 16 bits do not hold.
template <class T>
std::vector<T> exact_values(std::size_t count) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(problem::unit(i) - 0.5) * static_cast<T>(1.0000001));
  return values;
}
template <class Training>
void steps(Training& t, int rank, std::size_t count) {
  for (std::size_t m = 0; m < count; ++m) {
    for (std::size_t i = 0; i < t.gradients().size(); ++i) {
      const auto more = static_cast<float>(problem::unit(1000 * m + i) + rank) * 1e-3F;
      t.gradients()[i] =
          static_cast<std::remove_cvref_t<decltype(t.gradients()[i])>>(static_cast<float>(t.gradients()[i]) + more);
    }
    (void)t.accumulated(1);
  }
}

/// Whether the optimizer of some type keeps, gives and takes masters; `Outside` is the type of the caller's arrays.
template <class Storage, class Outside>
void goes_around(int ranks, std::size_t bucket) {
  CAPTURE(ranks);
  using P = typename Storage::parameter_type;
  using M = typename Storage::master_type;
  const acco::parameter_layout layout = layout_of();
  std::vector<Outside> const initial = exact_values<Outside>(layout.size());
  const scratch folder;
  const std::string file = folder.path() + "/model.safetensors", average = folder.path() + "/average.safetensors";
  std::vector<M> later(layout.size());
  std::uint64_t digest = 0;
  const auto make = [&](acco::threads_backend const& world) {
    return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}},
                           acco::adamw{},
                           Storage{},
                           world,
                           layout,
                           acco::options{.average_decay = 0.9, .bucket_elements = bucket}};
  };
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto t = make(world);
    // Only rank 0's count.
    t.initialize(world.rank() == 0 ? initial : std::vector<Outside>(layout.size(), Outside(7)));
    std::vector<Outside> out(layout.size());
    std::vector<M> own(layout.size());
    t.gather_masters(out);
    t.gather_masters(own);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool frozen = layout.groups()[layout.at_offset(i).group].frozen;
      const M kept = static_cast<M>(initial[i]);
      REQUIRE(t.parameters()[i] == static_cast<P>(kept));
      REQUIRE(own[i] == (frozen ? static_cast<M>(static_cast<P>(kept)) : kept));
      REQUIRE(out[i] == static_cast<Outside>(own[i]));
    }
    steps(t, world.rank(), 9);
    t.gather_masters(own, acco::weights::average);  // with a round in flight
    t.save_model(average, acco::weights::average);
    t.finish();
    std::vector<M> averages(layout.size());
    t.gather_masters(averages, acco::weights::average);
    CHECK(averages == own);  // what is in flight counts
    t.gather_masters(own);
    CHECK(averages != own);
    t.save_model(file);
    std::vector<P> committed(layout.size());
    t.gather_committed(committed);
    for (std::size_t i = 0; i < own.size(); ++i) REQUIRE(committed[i] == static_cast<P>(own[i]));
    const std::uint64_t now = t.world_digest();
    if (world.rank() == 0) {
      later = own;
      digest = now;
    }
  });
  CHECK(digest != 0);
  const acco::model_file model(file), averages(average);
  CHECK(averages.about().find("weights")->second == "average");
  CHECK(model.about().find("step")->second == std::to_string(9 / 2));
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const each = layout[k];
    std::vector<M> values(each.size);
    model.read(each.name, 0, std::span(values));
    CHECK(std::equal(values.begin(), values.end(), later.begin() + static_cast<std::ptrdiff_t>(each.offset)));
  }
  // From the file, with another number of ranks, to the same bits.
  acco::threads_backend::run(ranks % 3 + 1, [&](acco::threads_backend const& world) {
    auto t = make(world);
    CHECK(t.initialize(model).empty());
    std::vector<M> own(layout.size());
    t.gather_masters(own);
    CHECK(own == later);
    t.gather_masters(own, acco::weights::average);  // begins as the masters
    for (std::size_t i = 0; i < own.size(); ++i) REQUIRE(own[i] == later[i]);
    for (std::size_t i = 0; i < own.size(); ++i) REQUIRE(t.parameters()[i] == static_cast<P>(own[i]));
    steps(t, world.rank(), 4);
    t.finish();
  });
}
}  // namespace

TEST_CASE("masters go in and out without losing a bit") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    goes_around<acco::host_storage<acco::bfloat16>, float>(ranks, 0);
    goes_around<acco::host_storage<acco::bfloat16, float>, double>(ranks, 192);
  }
  goes_around<acco::host_storage<float>, double>(3, 0);
  goes_around<acco::host_storage<float, float, double>, double>(2, 256);
  goes_around<acco::host_storage<double>, float>(2, 0);
  goes_around<acco::host_storage<acco::bfloat16>, float>(3, 64);
  // rounds as bfloat16 does, elsewhere
  if constexpr (everything) goes_around<acco::host_storage<acco::half>, float>(3, 64);
}

TEST_CASE("what does not fit is named") {
  const scratch folder;
  const auto words_of = [&](acco::parameter_layout const& has, acco::parameter_layout const& wants) {
    const std::string file = folder.path() + "/m.safetensors";
    std::string said;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto t =
          acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{}, world, has};
      t.initialize(std::vector<float>(has.size(), 1.0F));
      t.save_model(file);
      t.finish();
    });
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto t = acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<acco::bfloat16>{},
                               world, wants};
      try {
        auto const others = t.initialize(acco::model_file(file));
        for (auto const& each : others) {
          if (world.rank() == 0) said += "left: " + each;
        }
        t.finish();
      } catch (acco::checkpoint_error const& e) {
        if (world.rank() == 0) said = e.what();
      }
    });
    return said;
  };
  acco::parameter_layout both, one, other, reshaped;
  both.add("w", {4, 2});
  both.add("b", {3});
  one.add("w", {4, 2});
  other.add("v", {4, 2});
  reshaped.add("w", {2, 4});
  CHECK(words_of(both, one) == "left: b");
  CHECK(words_of(one, other).find("has no tensor 'v', which the layout has") != std::string::npos);
  CHECK(words_of(one, reshaped).find("tensor 'w' has the shape [4, 2], in the layout it has [2, 4]") != std::string::npos);
}

TEST_CASE("a model that cannot be written is told to every rank, and ends nothing") {
  const scratch folder;
  int told = 0;
  std::mutex mutex;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto t =
        acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, 1000};
    t.initialize(std::vector<float>(1000, 1.0F));
    steps(t, world.rank(), 3);
    try {
      t.save_model(folder.path() + "/no/such/folder/model.safetensors");
    } catch (acco::checkpoint_error const& e) {
      const std::lock_guard lock(mutex);
      told += std::string(e.what()).find("/no/such/folder") != std::string::npos ? 1 : 0;
    }
    // none is kept
    CHECK_THROWS_AS(t.save_model(folder.path() + "/m.safetensors", acco::weights::average), acco::usage_error);
    steps(t, world.rank(), 5);
    t.finish();
    CHECK(t.steps() == 4);
  });
  CHECK(told == 3);
  CHECK(std::filesystem::is_empty(folder.path()));
}
