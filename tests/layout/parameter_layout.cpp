// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/layout/parameter_layout.hpp>
#include <acco/layout/trainable_runs.hpp>

namespace {
acco::parameter_layout sample() {
  acco::parameter_layout layout;
  const auto no_decay = layout.add_group({.weight_decay = 0.0});
  const auto still = layout.add_group({.frozen = true});
  layout.add("w", {4, 3})
      .add("more", {5})
      .add("bias", {4}, no_decay)
      .add("ice", {2, 2}, still)
      .add("tail", {6})
      .add("empty", {0, 3});
  return layout;
}
}  // namespace

TEST_CASE("tensors lie in the order of add, without gaps") {
  const auto layout = sample();
  CHECK(layout.size() == 31);
  CHECK(layout.trainable_size() == 27);
  CHECK(layout.tensor_count() == 6);
  CHECK(layout["bias"].offset == 17);
  CHECK(layout["bias"].size == 4);
  CHECK(layout["w"].shape.size() == 2);
  CHECK(layout[3].name == "ice");
  CHECK(layout.at_offset(16).name == "more");
  CHECK(layout.at_offset(17).name == "bias");
  CHECK(layout.at_offset(30).name == "tail");
}

TEST_CASE("trainable runs are numbered without gaps; only frozen tensors end one") {
  const auto runs = acco::trainable_runs(sample());
  REQUIRE(runs.size() == 2);
  CHECK((runs[0].first == 0 && runs[0].offset == 0 && runs[0].count == 21));
  CHECK((runs[1].first == 21 && runs[1].offset == 25 && runs[1].count == 6));
}

TEST_CASE("a stretch of trainable elements is found wherever it begins, in any number of runs") {
  acco::parameter_layout layout;
  const auto frozen = layout.add_group({.frozen = true});
  for (std::size_t k = 0; k < 50; ++k) layout.add("t" + std::to_string(k), {1 + k % 4}, k % 2 == 0 ? 0 : frozen);
  const auto runs = acco::trainable_runs(layout);
  REQUIRE(runs.size() == 25);
  std::vector<int> whole(layout.size());
  std::vector<int> trainable;  // where each lies
  for (trainable.clear(); auto const& run : runs) {
    for (std::size_t i = 0; i < run.count; ++i) trainable.push_back(static_cast<int>(run.offset + i));
  }
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int>(i);
  const acco::trainable_view<int> view{whole.data(), runs.data(), runs.size()};
  std::size_t wrong = 0;
  for (std::size_t first = 0; first <= trainable.size(); ++first) {
    for (std::size_t count = 0; first + count <= trainable.size(); count += 7) {
      std::size_t seen = 0;
      view.for_stretches(first, count, [&](int const* at, std::size_t offset, std::size_t length) {
        wrong += offset == seen ? 0U : 1U;
        for (std::size_t i = 0; i < length; ++i) wrong += at[i] == trainable[first + offset + i] ? 0U : 1U;
        seen += length;
      });
      wrong += seen == count ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("names need not outlive the call, shapes neither") {
  acco::parameter_layout layout;
  for (int l = 0; l < 20; ++l) layout.add(std::string("layer.").append(std::to_string(l)), std::vector<std::size_t>{2, 3});
  CHECK(layout["layer.13"].offset == 78);
}

TEST_CASE("a tensor's view stays valid when more tensors are added") {
  acco::parameter_layout layout;
  layout.add("weight", {256, 64});
  const auto weight = layout["weight"];
  char const* const name = weight.name.data();
  for (int l = 0; l < 1000; ++l) layout.add(std::string("t").append(std::to_string(l)), {4});
  CHECK(layout["weight"].name.data() == name);
  CHECK(weight.name == "weight");  // freed memory, under the address sanitizer, if it had moved
  CHECK(weight.shape[1] == 64);
}

TEST_CASE("a count alone makes one tensor") {
  const acco::parameter_layout layout(77);
  CHECK(layout.size() == 77);
  CHECK(acco::trainable_runs(layout).size() == 1);
}

TEST_CASE("each of very many tensors is found by its name, and no name is taken twice") {
  constexpr std::size_t count = 50000;
  acco::parameter_layout layout;
  const auto name = [](std::size_t k) { return "layer." + std::to_string(k / 100) + ".expert." + std::to_string(k % 100); };
  for (std::size_t k = 0; k < count; ++k) layout.add(name(k), {1 + k % 3});
  std::size_t wrong = 0;
  for (std::size_t k = 0; k < count; ++k) wrong += layout.index_of(name(k)) == k ? 0U : 1U;
  CHECK(wrong == 0);
  CHECK_THROWS_AS(layout.add(name(777), {1}), acco::usage_error);
  CHECK_THROWS_AS((void)layout.index_of("layer.500.expert.0"), acco::usage_error);
}

TEST_CASE("mistakes are refused by name") {
  acco::parameter_layout layout;
  layout.add("a", {2});
  CHECK_THROWS_WITH_AS(layout.add("a", {2}), doctest::Contains("'a' is used twice"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("", {2}), doctest::Contains("empty"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("b", {2}, 1), doctest::Contains("group 1 but there are 1"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("b", {std::size_t{1} << 40U, std::size_t{1} << 40U}), doctest::Contains("address space"),
                       acco::usage_error);
  for (const std::size_t huge :
       {~std::size_t{0}, static_cast<std::size_t>(-5), (std::size_t{1} << 62U) + 5, acco::parameter_layout::most_elements + 1}) {
    CHECK_THROWS_WITH_AS(acco::parameter_layout{huge},
                         doctest::Contains("'parameters' makes the layout larger than the address space"), acco::usage_error);
  }
  CHECK_THROWS_WITH_AS(layout.add("b", {acco::parameter_layout::most_elements - 1}), doctest::Contains("address space"),
                       acco::usage_error);  // with the two that are there
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH_AS(layout.add_group({.learning_rate_scale = bad}),
                         doctest::Contains(acco::text("update_group::learning_rate_scale is ", bad).c_str()), acco::usage_error);
    CHECK_THROWS_WITH_AS(layout.add_group({.weight_decay = bad}),
                         doctest::Contains(acco::text("update_group::weight_decay is ", bad).c_str()), acco::usage_error);
  }
  CHECK_THROWS_WITH_AS((void)layout["nobody"], doctest::Contains("'nobody'"), acco::usage_error);
  const std::string long_name(acco::parameter_layout::longest_name + 1, 'x');
  const std::vector<std::size_t> deep(acco::parameter_layout::most_dimensions + 1, 1);
  CHECK_THROWS_WITH_AS(layout.add(long_name, {2}), doctest::Contains("At most 8 dimensions and 128 characters"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("deep", deep), doctest::Contains("'deep' has 9 dimensions"), acco::usage_error);
  layout.add(std::string_view(long_name).substr(1), std::span<std::size_t const>(deep).subspan(1));
  CHECK(layout.size() == 3);
}

TEST_CASE("no_decay_for_vectors: biases and norms, added before or after; what a group says of decay stays") {
  acco::parameter_layout layout;
  const auto fast = layout.add_group({.learning_rate_scale = 3});
  const auto strong = layout.add_group({.weight_decay = 0.5});
  const auto ice = layout.add_group({.frozen = true});
  layout.add("matrix", {3, 4}).add("bias", {4}).add("fast bias", {4}, fast).add("ruled", {2}, strong).add("still", {2}, ice);
  layout.no_decay_for_vectors();
  layout.add("norm", {4})
      .add("scalar", std::span<std::size_t const>())
      .add("fast norm", {4}, fast)
      .add("fast matrix", {2, 2}, fast);
  const auto group = [&](char const* name) { return layout.groups()[layout[name].group]; };
  for (char const* name : {"bias", "norm", "scalar", "fast bias", "fast norm"}) {
    CAPTURE(std::string(name));
    CHECK(group(name).weight_decay == 0.0);
  }
  CHECK(group("fast bias").learning_rate_scale == 3);
  CHECK(layout["fast bias"].group == layout["fast norm"].group);
  CHECK(layout["bias"].group == layout["norm"].group);
  for (char const* name : {"matrix", "fast matrix", "still"}) CHECK(!group(name).weight_decay);
  CHECK(layout["fast matrix"].group == fast);
  CHECK(group("still").frozen);
  CHECK(group("ruled").weight_decay == 0.5);
  CHECK(layout.groups().size() == 6);
  layout.no_decay_for_vectors();  // again: nothing changes
  CHECK(layout.groups().size() == 6);
  CHECK_THROWS_WITH_AS(acco::parameter_layout(7).no_decay_for_vectors(), doctest::Contains("was made from a count"),
                       acco::usage_error);
}

TEST_CASE("per_rank is of frozen tensors; stretches that are common") {
  acco::parameter_layout layout;
  CHECK_THROWS_WITH_AS(layout.add_group({.per_rank = true}),
                       doctest::Contains("update_group::per_rank is set, and frozen is not"), acco::usage_error);
  const auto own = layout.add_group({.frozen = true, .per_rank = true});
  layout.add("first", {2}, own).add("a", {3}).add("b", {4}).add("mean", {5}, own).add("var", {6}, own).add("c", {7});
  std::vector<std::size_t> found;
  layout.for_common([&](std::size_t begin, std::size_t count) { found.insert(found.end(), {begin, count}); });
  CHECK(found == std::vector<std::size_t>{2, 7, 20, 7});
}
