// SPDX-License-Identifier: Apache-2.0
// Ranks that were constructed differently are found before the first round; the message shows both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/stage/decision.hpp"

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
    // a rule: slots of its decoration are part of its state
  } else if constexpr (requires { typename T::undecorated; }) {
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
  [[nodiscard]] std::string const& lines() const noexcept { return lines_; }

 private:
  std::string lines_;
};

/// The first line in which two descriptions differ, in the words of both.
inline text first_difference(std::string_view a, std::string_view b, int rank_a, int rank_b) {
  const auto line = [](std::string_view& rest) {
    const std::size_t end = rest.find('\n');
    const std::string_view first = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return first;
  };
  while (!a.empty() || !b.empty()) {
    const std::string_view from_a = line(a);
    const std::string_view from_b = line(b);
    if (from_a != from_b) return text("rank ", rank_a, " has '", from_a, "', rank ", rank_b, " has '", from_b, "'");
  }
  return text("no difference");
}

/// Compares every rank's description with rank 0's; on any difference every rank throws `mismatch_error` with both
/// sides of the first one. Collective; blocks.
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
  const std::string first = text_of(0);
  std::vector<double> differs(static_cast<std::size_t>(backend.size()), 0.0);
  std::vector<double> all(differs.size(), 0.0);
  differs[static_cast<std::size_t>(backend.rank())] = mine == first ? 0 : 1;
  all_reduce_and_wait(queue, backend, std::span<double const>(differs), std::span<double>(all));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == 0) continue;
    const int odd = static_cast<int>(rank);
    const std::string theirs = text_of(odd);
    throw mismatch_error(where, text("the ranks were constructed differently: ", first_difference(first, theirs, 0, odd)),
                         text("Give every rank the same parameter layout, types, rule, schedule and options"),
                         backend.rank() == odd ? 0 : odd);
  }
}

/// The ranks' learning rates, by rank, differ in a round that starts at so many samples: names rank 0 and the one that
/// is farthest from it.
[[noreturn]] inline void raise_different_rates(std::span<double const> rates, double samples, error_place where) {
  std::size_t odd = 0;
  const auto distance = [&](std::size_t rank) {
    return rates[rank] < rates[0] ? rates[0] - rates[rank] : rates[rank] - rates[0];
  };
  for (std::size_t rank = 1; rank < rates.size(); ++rank) odd = distance(rank) > distance(odd) ? rank : odd;
  throw mismatch_error(where,
                       text("options::learning_rate returned ", rates[0], " on rank 0 and ", rates[odd], " on rank ", odd,
                            ", at ", samples, " samples"),
                       text("It must be a function of the samples alone, the same on every rank"),
                       where.rank == static_cast<int>(odd) ? 0 : static_cast<int>(odd));
}

/// Some ranks are in a round, and others sum numbers outside of one, or for something else: each calls what the others
/// do not.
[[noreturn]] inline void raise_different_sums(double all, int ranks, error_place where) {
  constexpr char const* advice =
      "Every rank makes these calls at the same report: none of them while another rank is in finish, or behind it";
  const int in_round = sum_kind::in_round(all);
  if (in_round == 0)
    throw mismatch_error(where, text("some ranks call sum_over_ranks, and others what sums numbers itself (world_digest)"),
                         text(advice));
  throw mismatch_error(where,
                       text(in_round, " of ", ranks, " ranks are in a round (finish, accumulated), and ", ranks - in_round,
                            " sum numbers outside of it (sum_over_ranks, world_digest)"),
                       text(advice));
}

}  // namespace ACCO_SIMD_NAMESPACE
