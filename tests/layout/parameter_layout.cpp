// SPDX-License-Identifier: Apache-2.0
#include <string>

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

TEST_CASE("trainable runs are numbered without gaps; neighbours of one group are joined, frozen tensors left out") {
  const auto runs = acco::trainable_runs(sample());
  REQUIRE(runs.size() == 3);
  CHECK((runs[0].first == 0 && runs[0].offset == 0 && runs[0].count == 17 && runs[0].group == 0));
  CHECK((runs[1].first == 17 && runs[1].offset == 17 && runs[1].count == 4 && runs[1].group == 1));
  CHECK((runs[2].first == 21 && runs[2].offset == 25 && runs[2].count == 6 && runs[2].group == 0));
}

TEST_CASE("names need not outlive the call, shapes neither") {
  acco::parameter_layout layout;
  for (int l = 0; l < 20; ++l) layout.add(std::string("layer.").append(std::to_string(l)), std::vector<std::size_t>{2, 3});
  CHECK(layout["layer.13"].offset == 78);
}

TEST_CASE("a count alone makes one tensor") {
  const acco::parameter_layout layout(77);
  CHECK(layout.size() == 77);
  CHECK(acco::trainable_runs(layout).size() == 1);
}

TEST_CASE("mistakes are refused by name") {
  acco::parameter_layout layout;
  layout.add("a", {2});
  CHECK_THROWS_WITH_AS(layout.add("a", {2}), doctest::Contains("'a' is used twice"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("", {2}), doctest::Contains("empty"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("b", {2}, 1), doctest::Contains("group 1 but there are 1"), acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("b", {std::size_t{1} << 40U, std::size_t{1} << 40U}), doctest::Contains("address space"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add_group({.learning_rate_scale = -1}), doctest::Contains("learning_rate_scale"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)layout["nobody"], doctest::Contains("'nobody'"), acco::usage_error);
  const std::string long_name(acco::parameter_layout::longest_name + 1, 'x');
  const std::vector<std::size_t> deep(acco::parameter_layout::most_dimensions + 1, 1);
  CHECK_THROWS_WITH_AS(layout.add(long_name, {2}), doctest::Contains("At most 8 dimensions and 128 characters"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(layout.add("deep", deep), doctest::Contains("'deep' has 9 dimensions"), acco::usage_error);
  layout.add(std::string_view(long_name).substr(1), std::span<std::size_t const>(deep).subspan(1));
  CHECK(layout.size() == 3);
}
