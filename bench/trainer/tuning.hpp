// SPDX-License-Identifier: Apache-2.0
// Trainings at the best of a few rates, and command lines of benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace toy_gpt {

/// What trainings at one rate, one a seed, ended with. An `Outcome` has a `loss`.
template <class Outcome>
struct tuned {
  double rate = 0;
  std::vector<Outcome> of_seeds;

  [[nodiscard]] double mean(double Outcome::* number) const {
    double sum = 0;
    for (Outcome const& each : of_seeds) sum += each.*number;
    return sum / static_cast<double>(of_seeds.size());
  }
  /// The largest loss less the least.
  [[nodiscard]] double spread() const {
    const auto [least, most] =
        std::minmax_element(of_seeds.begin(), of_seeds.end(), [](Outcome const& a, Outcome const& b) { return a.loss < b.loss; });
    return most->loss - least->loss;
  }
};

/// Trains the first seed at every rate, and the other seeds at the rate with the least loss. A loss that is not finite
/// is worse than any other. `train(rate, seed)` returns an `Outcome`.
template <class Train>
auto tune(std::vector<double> const& rates, std::vector<std::uint64_t> const& seeds, Train&& train) {
  tuned<decltype(train(rates[0], seeds[0]))> best;
  for (const double rate : rates) {
    auto now = train(rate, seeds[0]);
    if (!best.of_seeds.empty() && !(now.loss < best.of_seeds[0].loss || !std::isfinite(best.of_seeds[0].loss))) continue;
    best = {rate, {std::move(now)}};
  }
  for (std::size_t k = 1; k < seeds.size(); ++k) best.of_seeds.push_back(train(best.rate, seeds[k]));
  return best;
}

/// Throws where `word` is no number above `above`, or, of -1, none from 0 on; a whole one, where `Number` is.
template <class Number>
Number number_of(std::string const& word, double above = -1) {
  constexpr bool whole = std::is_integral_v<Number>;
  char* end = nullptr;
  const double read = std::strtod(word.c_str(), &end);
  const bool good = !word.empty() && *end == '\0' && std::isfinite(read) && read > above && (above >= 0 || read >= 0) &&
                    (!whole || (read == std::floor(read) && read <= static_cast<double>(std::numeric_limits<Number>::max() / 2)));
  if (good) return static_cast<Number>(read);
  std::ostringstream why;
  why << '\'' << word << "' is no " << (whole ? "whole " : "") << "number";
  (above < 0 ? why << ", 0 or more" : why << " above " << above);
  throw std::invalid_argument(why.str());
}
/// Of a list like 1e-3,3e-3.
template <class Number>
std::vector<Number> numbers_of(std::string const& list, double above = -1) {
  std::vector<Number> found;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) found.push_back(number_of<Number>(word, above));
  if (found.empty()) throw std::invalid_argument("'' is no list of numbers");
  return found;
}

/// `PROGRAM TEXT [--flag VALUE] ...`. What cannot be meant ends the program with its usage, the reason, and 2.
class command_line {
 public:
  /// `values`: all flags, and what counts where they are not given.
  command_line(int count, char** words, char const* usage, std::map<std::string, std::string> values)
      : usage_(usage), values_(std::move(values)) {
    for (int k = 1; k < count; ++k) {
      const std::string word = words[k];
      if (word == "--help" || word == "-h") {
        std::printf("%s\n", usage);
        std::exit(0);
      }
      if (!word.starts_with("--")) {
        if (!text_.empty()) refuse("'" + word + "' is one word too many");
        text_ = word;
        continue;
      }
      auto const found = values_.find(word);
      if (found == values_.end()) refuse("there is no flag " + word);
      if (k + 1 == count || std::string(words[k + 1]).starts_with("--")) refuse(word + " needs a value");
      found->second = words[++k];
    }
    if (text_.empty()) refuse("TEXT is missing");
  }
  [[nodiscard]] std::string const& text() const { return text_; }
  [[nodiscard]] std::string const& operator[](std::string const& flag) const { return values_.at(flag); }
  template <class Number>
  [[nodiscard]] Number number(std::string const& flag, double above = 0) const {
    return tried(flag, [&] { return number_of<Number>(values_.at(flag), above); });
  }
  template <class Number>
  [[nodiscard]] std::vector<Number> numbers(std::string const& flag, double above = 0) const {
    return tried(flag, [&] { return numbers_of<Number>(values_.at(flag), above); });
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    std::fprintf(stderr, "%s\n%s\n", usage_, why.c_str());
    std::exit(2);
  }
  template <class Read>
  auto tried(std::string const& flag, Read&& read) const {
    try {
      return read();
    } catch (std::invalid_argument const& e) {
      refuse(flag + ": " + e.what());
    }
  }
  char const* usage_;
  std::map<std::string, std::string> values_;
  std::string text_;
};

}  // namespace toy_gpt
