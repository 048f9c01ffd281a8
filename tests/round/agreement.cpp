// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <acco/function_view.hpp>
#include <acco/layout/parameter_layout.hpp>
#include <acco/round/agreement.hpp>

#include "conformance/backend.hpp"

namespace {

std::string difference(std::string const& a, std::string const& b) {
  return std::string(acco::first_difference(a, b).told(acco::text("A has"), acco::text("B has")).view());
}
std::string told(acco::parameter_layout const& layout, bool counted) {
  acco::description d;
  d.add("rule", "adamw");
  if (counted) d.add("parameters", layout.size());
  d.add("rule.beta1", 0.9);
  d.add_all(counted ? "layout: " : "game: ", layout);
  d.add("options.x", 3);
  return d.lines();
}
std::string of_ranks(std::size_t ranks, acco::function_view<bool(std::size_t)> of) {
  return std::string(acco::ranks_told(ranks, of).that("has", "have").view());
}
/// What each rank is told; rank r adds what lines[r] says.
template <class World = worlds::threads>
std::vector<std::string> disagree(std::vector<std::string> const& lines, std::vector<int>& peers) {
  std::vector<std::string> heard(lines.size());
  peers.assign(lines.size(), -7);
  try {
    World::run(static_cast<int>(lines.size()), [&](auto backend) {
      auto queue = worlds::queue_of<World>(backend);
      const auto rank = static_cast<std::size_t>(backend.rank());
      try {
        acco::agree(queue, backend, lines[rank], {.rank = backend.rank()});
      } catch (acco::mismatch_error const& e) {
        heard[rank] = e.what();
        peers[rank] = e.peer();
        throw;
      }
    });
  } catch (acco::mismatch_error const&) {  // heard
  }
  return heard;
}

}  // namespace

TEST_CASE("the first difference is told in the words of both sides") {
  CHECK(difference("a = 1\nb = 2\n", "a = 1\nb = 3\n") == "A has 'b = 2', B has 'b = 3'");
  CHECK(difference("a = 1\n", "a = 1\nb = 3\n") == "A has '', B has 'b = 3'");
  CHECK(difference("a = 1\n", "a = 1\n") == "no difference");
  CHECK(difference("parameters = 1\n", "parameters = 2\n") == "A has 'parameters = 1', B has 'parameters = 2'");
}
TEST_CASE("a tensor that differs is told by its number, name, sizes and group, in layouts and games, also behind a count") {
  using layout = acco::parameter_layout;
  const auto base = [] { return std::move(layout().add("a", {7}).add("b", {2, 3})); };
  struct difference_of {
    layout a, b;
    char const *first, *second;
  };
  layout grouped = base();
  const std::size_t one = grouped.add_group({});
  layout other_group = grouped;
  grouped.add("c", {4});
  other_group.add("c", {4}, one);
  const difference_of all[] = {
      {base().add("c", {4, 5}), base().add("c", {5, 4}), "tensor 2, 'c' of 4 x 5 in group 0",
       "tensor 2, 'c' of 5 x 4 in group 0"},
      {base().add("c", {4, 5}), base().add("c", {20}), "tensor 2, 'c' of 4 x 5 in group 0", "tensor 2, 'c' of 20 in group 0"},
      {base().add("c", {1}), base().add("c", std::initializer_list<std::size_t>{}), "tensor 2, 'c' of 1 in group 0",
       "tensor 2, 'c' in group 0"},
      {base().add("c", {0, 4}), base().add("c", {4, 0}), "tensor 2, 'c' of 0 x 4 in group 0",
       "tensor 2, 'c' of 4 x 0 in group 0"},
      {base().add("c", {4}), base().add("d", {4}).add("e", {5}), "tensor 2, 'c' of 4 in group 0",
       "tensor 2, 'd' of 4 in group 0"},
      {base(), base().add("d", {5}), "no tensor 2", "tensor 2, 'd' of 5 in group 0"},
      {base().add("a long one\n\nof two lines", {4}), base(), "tensor 2, 'a long one' of 4 in group 0", "no tensor 2"},
      {grouped, other_group, "tensor 2, 'c' of 4 in group 0", "tensor 2, 'c' of 4 in group 1"},
  };
  for (difference_of const& each : all) {
    CAPTURE(each.first);
    const std::string of_game = "A has " + std::string(each.first) + ", B has " + each.second;
    CHECK(difference(told(each.a, false), told(each.b, false)) == of_game);
    const auto counted = [](layout const& l, char const* words) {
      return "'parameters = " + std::to_string(l.size()) + "' (" + words + ")";
    };
    CHECK(difference(told(each.a, true), told(each.b, true)) ==
          (each.a.size() == each.b.size() ? of_game
                                          : "A has " + counted(each.a, each.first) + ", B has " + counted(each.b, each.second)));
  }
}
TEST_CASE("ranks are told in words, the first few of them") {
  CHECK(of_ranks(5, [](std::size_t rank) { return rank == 3; }) == "rank 3 has");
  CHECK(of_ranks(5, [](std::size_t rank) { return rank % 4 == 0; }) == "ranks 0 and 4 have");
  CHECK(of_ranks(4, [](std::size_t) { return true; }) == "ranks 0, 1, 2 and 3 have");
  CHECK(of_ranks(9, [](std::size_t rank) { return rank != 1; }) == "ranks 0, 2, 3, 4 and 4 more have");
}
TEST_CASE_TEMPLATE("every rank is told which ranks have what, and of a rank that has something else", World, worlds::threads,
                   worlds::mock_late) {
  std::vector<int> peers;
  const auto ends = [&](std::vector<std::string> const& lines, std::string const& expected) {
    const std::vector<std::string> heard = disagree<World>(lines, peers);
    for (std::size_t rank = 0; rank < heard.size(); ++rank)
      CHECK(heard[rank] == "acco: rank " + std::to_string(rank) + ": the ranks were constructed differently: " + expected +
                               ". Give every rank the same parameter layout, types, rule, schedule and options.");
  };
  ends({"w = 7\nx = 1\n", "w = 7\nx = 1\n", "w = 9\nx = 1\n"}, "ranks 0 and 1 have 'w = 7', rank 2 has 'w = 9'");
  CHECK(peers == std::vector<int>{2, 2, 0});
  ends({"w = 7\n", "w = 9\n", "w = 9\n", "w = 9\nx = 2\n"},
       "rank 0 has 'w = 7', ranks 1 and 2 have 'w = 9', and rank 3 differs from both");
  CHECK(peers == std::vector<int>{1, 0, 0, 1});
  ends({"a = 1\n", "a = 1\nb = 2\n", "a = 1\n"}, "ranks 0 and 2 have '', rank 1 has 'b = 2'");
  ends({"a = 1\nb = 2\n", "a = 1\n", "a = 1\n"}, "rank 0 has 'b = 2', ranks 1 and 2 have ''");
  // as many parameters as rank 0, and other tensors: like neither
  const auto counted = [](std::initializer_list<std::size_t> sizes) {
    acco::parameter_layout layout;
    for (const std::size_t size : sizes) layout.add("t" + std::to_string(layout.tensor_count()), {size});
    return told(layout, true);
  };
  ends({counted({4, 6}), counted({4, 6, 10}), counted({2, 3, 5}), counted({4, 6})},
       "ranks 0 and 3 have 'parameters = 10' (no tensor 2), rank 1 has 'parameters = 20' (tensor 2, 't2' of 10 in group 0), and "
       "rank 2 differs from both");
  // one size in common, and not the other
  const auto of = [](std::size_t rows, std::size_t columns) {
    return told(acco::parameter_layout().add("w", {rows, columns}), false);
  };
  ends(
      {of(2, 3), of(4, 3), of(2, 5)},
      "rank 0 has tensor 0, 'w' of 2 x 3 in group 0, rank 1 has tensor 0, 'w' of 4 x 3 in group 0, and rank 2 differs from both");
}
TEST_CASE("learning rates that differ: which ranks returned which") {
  const auto said = [](std::vector<double> const& rates, int rank) {
    try {
      acco::raise_different_rates(rates, 640, {.rank = rank});
    } catch (acco::mismatch_error const& e) {
      return std::pair(std::string(e.what()), e.peer());
    }
  };
  CHECK(said({0.1, 0.3, 0.1}, 1)
            .first.find(": options::learning_rate returned 0.1 on ranks 0 and 2, and 0.3 on rank 1, at 640 samples.") !=
        std::string::npos);
  CHECK(said({0.1, 0.3, 0.1}, 1).second == 0);
  CHECK(said({0.1, 0.3, 0.3}, 2).second == 0);
  CHECK(said({0.1, 0.3, 0.1}, 2).second == 1);
  CHECK(said({0.1, 0.2, 0.3, 0.2}, 0).first.find("0.1 on rank 0, and 0.3 on rank 2, and others on ranks 1 and 3, at") !=
        std::string::npos);
}

TEST_CASE_TEMPLATE("agree() passes when all say the same, and throws on every rank when one does not", World, worlds::threads,
                   worlds::mock_late) {
  for (const int odd : {-1, 0, 2}) {
    std::vector<int> thrown(3, 0);
    try {
      World::run(3, [&](auto backend) {
        auto queue = worlds::queue_of<World>(backend);
        acco::description d;
        d.add("width", backend.rank() == odd ? 12 : 7);
        d.add("flag", true);
        try {
          acco::agree(queue, backend, d.lines(), {.rank = backend.rank()});
        } catch (acco::mismatch_error const& e) {
          thrown[static_cast<std::size_t>(backend.rank())] = 1;
          CHECK(std::string(e.what()).find("width = 12") != std::string::npos);
          CHECK(std::string(e.what()).find("width = 7") != std::string::npos);
          CHECK(e.peer() != backend.rank());
          throw;
        }
      });
    } catch (acco::mismatch_error const&) {  // counted per rank
    }
    CHECK(thrown == std::vector<int>(3, odd < 0 ? 0 : 1));
  }
}
