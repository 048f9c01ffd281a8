// SPDX-License-Identifier: Apache-2.0
// The numbers of a state as a manifest has them, and values of a manifest that say where they stand when they are
// refused.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "acco/checkpoint/exact_text.hpp"
#include "acco/checkpoint/json.hpp"
#include "acco/checkpoint/named_counts.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

namespace json_details {
using json = nlohmann::ordered_json;  // as it is written
using tree = nlohmann::json;

/// Numbers of a manifest that are larger are none: what is added to them stays a number.
inline constexpr std::uint64_t largest = std::uint64_t{1} << 62U;

/// A value in a manifest, and where it stands: what the JSON library says of it is said behind that.
class field {
  template <class Call>
  static decltype(auto) library(std::string const& where, Call&& call) {
    try {
      return call();
    } catch (tree::exception const& e) {
      throw std::runtime_error(where + ": " + e.what());
    }
  }

 public:
  field(tree const& value, std::string where) : value_(&value), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string const& what) const { throw std::runtime_error(where_ + " " + what); }
  [[nodiscard]] field operator[](std::string const& key) const {
    const std::string name = "\"" + key + "\"", where = where_.empty() ? name : where_ + "." + name;
    return {library(where, [&]() -> tree const& { return value_->at(key); }), where};
  }
  [[nodiscard]] bool has(std::string const& key) const { return value_->contains(key); }
  [[nodiscard]] bool is_list() const noexcept { return value_->is_array(); }
  /// Calls visit(field) for each value of an array.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (!value_->is_array()) refuse("is no array");
    for (std::size_t k = 0; k < value_->size(); ++k) visit(field((*value_)[k], where_ + "[" + std::to_string(k) + "]"));
  }
  [[nodiscard]] std::size_t size() const noexcept { return value_->size(); }
  template <class T>
  [[nodiscard]] T get() const {
    return library(where_, [&] { return value_->get<T>(); });
  }
  [[nodiscard]] std::string text() const { return get<std::string>(); }
  [[nodiscard]] bool flag() const { return get<bool>(); }
  /// Of JSON.
  [[nodiscard]] double decimal() const { return get<double>(); }
  [[nodiscard]] std::uint64_t whole(std::uint64_t most = largest) const {
    if (!value_->is_number_unsigned() || get<std::uint64_t>() > most)
      refuse("is no whole number of at most " + std::to_string(most));
    return get<std::uint64_t>();
  }
  [[nodiscard]] double real() const {
    double number = 0;
    if (!read_exactly(text(), number)) refuse("is no number in hexadecimal digits");
    return number;
  }
  [[nodiscard]] double finite() const {
    const double number = real();
    if (!std::isfinite(number)) refuse("is not finite");
    return number;
  }
  [[nodiscard]] double positive() const {
    const double number = finite();
    if (!(number > 0)) refuse("is not positive");
    return number;
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t number = 0;
    if (!read_hex(text(), number)) refuse("is no sum");
    return number;
  }
  /// The number of a run or a session.
  [[nodiscard]] std::string id() const {
    std::string digits = text();
    if (digits.empty() || digits.size() > 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse("is no number of a run");
    return digits;
  }
  /// The number of one of some words.
  template <std::size_t n>
  [[nodiscard]] std::size_t one_of(char const* const (&words)[n]) const {
    for (std::size_t k = 0; k < n; ++k) {
      if (text() == words[k]) return k;
    }
    refuse("is " + in_quotes(text()) + ", which is none of its words");
  }
  [[nodiscard]] element_type type() const {
    for (const element_type each :
         {element_type::float32, element_type::float64, element_type::bfloat16, element_type::float16}) {
      if (text() == dtype_of(each)) return each;
    }
    refuse("is " + in_quotes(text()) + ", which is no type of elements");
  }

 private:
  tree const* value_;
  std::string where_;
};

template <class Range>
json all_exactly(Range const& numbers) {
  json list = json::array();
  for (const double each : numbers) list.push_back(exactly(each));
  return list;
}

/// Calls one of the four with (key, number) for each, in both directions: `Numbers` is run_numbers, const where they
/// are written. `any` are those that a diverged training may have made infinite, or none.
template <class Numbers, class Whole, class Real, class Any, class Flag>
void for_numbers(Numbers& n, Whole&& whole, Real&& real, Any&& any, Flag&& flag) {
  whole("round", n.run.round);
  whole("updates before", n.run.steps);
  real("samples before", n.run.samples);
  real("step weight", n.run.step_weight);
  any("step loss sum", n.run.step_loss_sum);
  whole("skipped in a row", n.run.skipped);
  whole("empty in a row", n.run.empty);
  real("estimate seconds", n.run.estimate_seconds);
  real("commit seconds", n.run.commit_seconds);
  whole("rounds", n.rounds);
  whole("rounds skipped", n.rounds_skipped);
  real("weight dropped", n.dropped);
  flag("completed", n.completed);
  any("round squares", n.last.squares);
  real("round weight", n.last.step_weight);
  real("round loss scale", n.last.loss_scale);
  any("round norm", n.last.norm);
  any("round clip", n.last.clip);
  real("round rate", n.last.rate);
  real("round seconds", n.last.seconds);
  flag("round applied", n.last.apply);
  flag("round skipped", n.last.skip);
  flag("round spike", n.last.spike);
  flag("round differences", n.last.differences);
  flag("round digested", n.last.digested);
}

[[nodiscard]] inline json numbers_to_json(run_numbers const& n) {
  json state;
  for_numbers(
      n, [&](char const* key, std::uint64_t number) { state[key] = number; },
      [&](char const* key, double number) { state[key] = exactly(number); },
      [&](char const* key, double number) { state[key] = exactly(number); },
      [&](char const* key, bool number) { state[key] = number; });
  state["pace"] = all_exactly(n.pace);
  state["round digest"] = hex(n.last.digest);
  state["norms"] = all_exactly(std::span(n.norms.values.data(), n.norms.count));
  for_named_sums(n.last.counts,
                 [&counts = state["round counts"]](std::string const& name, double number) { counts[name] = exactly(number); });
  state["round regions"] = all_exactly(n.last.measured);
  if (!n.updates.empty()) state["updates"] = n.updates;
  return state;
}
inline void read_numbers(field const& state, run_numbers& n) {
  for_numbers(
      n, [&](char const* key, std::uint64_t& number) { number = state[key].whole(); },
      [&](char const* key, double& number) { number = state[key].finite(); },
      [&](char const* key, double& number) { number = state[key].real(); },
      [&](char const* key, bool& number) { number = state[key].flag(); });
  (void)state["round loss scale"].positive();
  if (state["pace"].size() != n.pace.size()) state["pace"].refuse("does not have " + std::to_string(n.pace.size()) + " numbers");
  std::size_t k = 0;
  state["pace"].for_each([&](field const& each) { n.pace[k++] = each.real(); });
  n.last.digest = state["round digest"].sum();
  if (state["norms"].size() > recent_norms::most) state["norms"].refuse("has more than there can be");
  state["norms"].for_each([&](field const& each) { n.norms.values[n.norms.count++] = each.finite(); });
  read_counts(state["round counts"], n.last.counts);
  state["round regions"].for_each([&](field const& each) { n.last.measured.push_back(each.real()); });
  if (state.has("updates")) state["updates"].for_each([&](field const& each) { n.updates.push_back(each.whole()); });
}

/// As `for_numbers`.
template <class Numbers, class Whole, class Real, class Flag>
void for_numbers_of_level(Numbers& n, Whole&& whole, Real&& real, Flag&& flag) {
  whole("phase", n.phase);
  whole("updates seen", n.seen);
  whole("steps before", n.steps_before);
  whole("whole steps", n.whole_steps);
  whole("own steps", n.own_steps);
  real("whole samples", n.whole_samples);
  real("own samples", n.own_samples);
  flag("shows", n.shows);
  flag("arrives", n.arrives);
}
template <class Numbers, class Whole, class Real, class Flag>
void for_numbers_of_fragment(Numbers& n, Whole&& whole, Real&& real, Flag&& flag) {
  whole("exchanges", n.exchanges);
  whole("exchanges before", n.exchanges_before);
  whole("bytes_sent", n.run.bytes_sent);
  real("samples", n.samples);
  real("samples sent", n.sent_samples);
  flag("pending", n.pending);
  flag("shows", n.shows);
  flag("arrives", n.arrives);
}
[[nodiscard]] inline json level_to_json(level_numbers const& n) {
  const auto into = [](json& j) {
    return std::tuple([&j](char const* key, std::uint64_t number) { j[key] = number; },
                      [&j](char const* key, double number) { j[key] = exactly(number); },
                      [&j](char const* key, bool number) { j[key] = number; });
  };
  json j;
  j["workers"] = n.workers;
  j["ranks_a_group"] = n.ranks_a_worker;
  std::apply([&](auto const&... each) { for_numbers_of_level(n, each...); }, into(j));
  if (n.own_round != 0) {
    j["own round"] = n.own_round;
    j["seconds a step"] = exactly(n.seconds_a_step);
  }
  j["worker"] = numbers_to_json(n.worker);
  j["fragments"] = json::array();
  for (fragment_numbers const& each : n.fragments) {
    json of;
    std::apply([&](auto const&... visit) { for_numbers_of_fragment(each, visit...); }, into(of));
    of["state"] = numbers_to_json(each.run);
    j["fragments"].push_back(of);
  }
  return j;
}
inline void read_level(field const& j, level_numbers& n) {
  constexpr std::uint64_t most_ranks = 1U << 30U;
  const auto from = [](field const& in) {
    return std::tuple([&in](char const* key, std::uint64_t& number) { number = in[key].whole(); },
                      [&in](char const* key, double& number) { number = in[key].finite(); },
                      [&in](char const* key, bool& number) { number = in[key].flag(); });
  };
  n.workers = static_cast<int>(j["workers"].whole(most_ranks));
  n.ranks_a_worker = static_cast<int>(j["ranks_a_group"].whole(most_ranks));
  std::apply([&](auto const&... each) { for_numbers_of_level(n, each...); }, from(j));
  if (j.has("own round")) {
    n.own_round = j["own round"].whole(std::numeric_limits<unsigned>::max());
    n.seconds_a_step = j["seconds a step"].finite();
  }
  read_numbers(j["worker"], n.worker);
  j["fragments"].for_each([&](field const& each) {
    fragment_numbers& of = n.fragments.emplace_back();
    std::apply([&](auto const&... visit) { for_numbers_of_fragment(of, visit...); }, from(each));
    read_numbers(each["state"], of.run);
  });
  if (n.fragments.empty()) j["fragments"].refuse("is empty");
}
}  // namespace json_details

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
