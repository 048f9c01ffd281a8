// SPDX-License-Identifier: Apache-2.0
// Ranks that were constructed differently are found before the first round; the message shows both sides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/round/first_difference.hpp"
#include "acco/round/ranks_told.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The name of a type in messages.
template <class T>
std::string name_of_type() {
  if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return "bfloat16";
  } else if constexpr (std::is_same_v<T, half>) {
    return "half";
  } else if constexpr (requires { typename T::undecorated; }) {  // a rule: slots of its decoration are part of its state
    std::string name = name_of_type<typename T::undecorated>();
    if (T::slot_count != T::undecorated::slot_count) name.append("+").append(T::decoration());
    return name;
  } else if constexpr (requires { std::string_view(T::name); }) {
    return T::name;
  } else {
    const std::string_view whole = __PRETTY_FUNCTION__;
    const std::size_t begin = whole.find("T = ") + 4;
    return std::string(whole.substr(begin, whole.find_first_of(";]", begin) - begin));
  }
}

/// Lines "what = value" about how a rank was constructed.
class description {
 public:
  void add(std::string_view what, std::string_view value) { lines_.append(what).append(" = ").append(value).append("\n"); }
  template <class Number>
    requires std::is_arithmetic_v<Number>
  void add(std::string_view what, Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      add(what, std::string_view(value ? "yes" : "no"));
    } else {
      add(what, text(value).view());
    }
  }
  /// Adds what an object tells of itself.
  template <class Object>
  void add_all(std::string_view prefix, Object const& object) {
    if constexpr (requires { object.describe([](std::string_view, auto) {}); }) {
      object.describe([&](std::string_view what, auto value) { add(std::string(prefix).append(what), value); });
    }
  }
  /// Adds lines of another description.
  void add_lines(std::string_view lines) { lines_.append(lines); }
  [[nodiscard]] std::string const& lines() const noexcept { return lines_; }

 private:
  std::string lines_;
};

/// Compares every rank's description with rank 0's; on any difference every rank throws `mismatch_error` with both sides of the
/// first one, and which ranks are on which. Collective; blocks.
template <class Queue, class Backend>
void agree(Queue& queue, Backend& backend, std::string const& mine, error_place where) {
  const auto text_of = [&](int root) {
    std::vector<double> length(1, static_cast<double>(mine.size()));
    broadcast_and_wait(queue, backend, std::span<double>(length), root);
    std::vector<char> characters(static_cast<std::size_t>(length[0]));
    if (backend.rank() == root) characters.assign(mine.begin(), mine.end());
    broadcast_and_wait(queue, backend, std::span<char>(characters), root);
    return std::string(characters.begin(), characters.end());
  };
  const auto of_all = [&](double answer) {
    std::vector<double> of_this(static_cast<std::size_t>(backend.size()), 0.0), all(of_this.size(), 0.0);
    of_this[static_cast<std::size_t>(backend.rank())] = answer;
    all_reduce_and_wait(queue, backend, std::span<double const>(of_this), std::span<double>(all));
    return all;
  };
  const std::string first = text_of(0);
  const std::vector<double> differs = of_all(mine == first ? 0 : 1);
  const auto odd = std::find(differs.begin(), differs.end(), 1.0);
  if (odd == differs.end()) return;
  const int other = static_cast<int>(odd - differs.begin());
  const std::string theirs = text_of(other);
  const first_difference found(first, theirs);
  enum side : int { of_first, of_other, of_neither };
  const side here = found.like_second(mine) ? of_other : found.like_first(mine) ? of_first : of_neither;
  const std::vector<double> sides = of_all(static_cast<double>(here));
  const auto on = [&](side which) {
    return ranks_told(sides.size(), [&](std::size_t rank) { return sides[rank] == static_cast<double>(which); });
  };
  const ranks_told neither = on(of_neither);
  throw mismatch_error(where,
                       text("the ranks were constructed differently: ",
                            found.told(on(of_first).that("has", "have"), on(of_other).that("has", "have")),
                            neither.none() ? text("") : text(", and ", neither.that("differs from both", "differ from both"))),
                       text("Give every rank the same parameter layout, types, rule, schedule and options"),
                       here == of_other ? 0 : other);
}

/// The ranks' learning rates, by rank, differ in a round that starts at so many samples: names rank 0's and the one that is
/// farthest from it, and who has them.
[[noreturn]] inline void raise_different_rates(std::span<double const> rates, double samples, error_place where) {
  std::size_t odd = 0;
  const auto distance = [&](std::size_t rank) {
    return rates[rank] < rates[0] ? rates[0] - rates[rank] : rates[rank] - rates[0];
  };
  for (std::size_t rank = 1; rank < rates.size(); ++rank) odd = distance(rank) > distance(odd) ? rank : odd;
  const auto with = [&](double rate) {
    return ranks_told(rates.size(), [&, rate](std::size_t rank) { return rates[rank] == rate; });
  };
  const ranks_told others(rates.size(), [&](std::size_t rank) { return rates[rank] != rates[0] && rates[rank] != rates[odd]; });
  const bool of_odd = where.rank >= 0 && rates[static_cast<std::size_t>(where.rank)] == rates[odd];
  throw mismatch_error(where,
                       text("options::learning_rate returned ", rates[0], " on ", with(rates[0]).words(), ", and ", rates[odd],
                            " on ", with(rates[odd]).words(), others.none() ? text("") : text(", and others on ", others.words()),
                            ", at ", samples, " samples"),
                       text("It must be a function of the samples alone, the same on every rank"),
                       of_odd ? 0 : static_cast<int>(odd));
}

}  // namespace ACCO_SIMD_NAMESPACE
