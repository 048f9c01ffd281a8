// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <acco/function_view.hpp>

namespace {
int twice(acco::function_view<int(int)> function) { return function(function(1)); }
}  // namespace

TEST_CASE("a view calls the very function it was made of, wherever that is const, changes itself, or is a view's copy") {
  int calls = 0;
  const auto counts = [&calls](int x) { return calls += x; };
  CHECK(twice(counts) == 2);  // 1, then 1 + 1
  CHECK(twice([step = 10](int x) mutable { return x + step++; }) == 22);
  struct grows {
    int by = 3;
    int operator()(int x) { return x * by++; }
  } kept;
  acco::function_view<int(int)> view = kept;
  const acco::function_view<int(int)> copy = view;
  CHECK(twice(copy) == 12);
  CHECK(kept.by == 5);  // the object itself, not a copy
}

TEST_CASE("arguments arrive as they were given, results as they are") {
  std::string text = "a";
  const auto append = [](std::string& to, std::unique_ptr<int> number) -> std::string& { return to += std::to_string(*number); };
  acco::function_view<std::string&(std::string&, std::unique_ptr<int>)> view = append;
  CHECK(&view(text, std::make_unique<int>(7)) == &text);
  CHECK(text == "a7");
  static_assert(std::is_trivially_copyable_v<decltype(view)> && sizeof(view) == 2 * sizeof(void*));
  static_assert(!std::is_constructible_v<acco::function_view<int(int)>, std::string>);
  static_assert(!std::is_constructible_v<acco::function_view<int(int)>, int (*)(int)>);  // objects only
}
