// SPDX-License-Identifier: Apache-2.0
// Two descriptions of ranks that were constructed differently, and what a message tells of both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "acco/error.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where two descriptions differ first. A tensor is told as a whole: its number, name, sizes and group.
class first_difference {
 public:
  first_difference(std::string_view a, std::string_view b) : a_{a}, b_{b} {
    std::size_t at = 0, tensors = 0;  // both are alike up to here
    while (at < a.size() && at < b.size() && line(a, at) == line(b, at)) {
      tensors += begins_tensor(line(a, at)) ? 1U : 0U;
      at += line(a, at).size() + 1;
    }
    any_ = at < a.size() || at < b.size();
    if (!any_) return;
    for (side* each : {&a_, &b_}) {
      const std::string_view here = line(each->whole, at);
      each->end = std::min(each->whole.size(), at + here.size() + 1);
      each->words.append("'").append(here).append("'");
    }
    const bool counts = line(a, at).starts_with("parameters = ") && line(b, at).starts_with("parameters = ");
    std::size_t in_a = at, in_b = at;
    if (counts) {  // the tensors stand behind: the first that differs
      for (in_a = next_of_tensors(a, at), in_b = next_of_tensors(b, at);
           in_a < a.size() && in_b < b.size() && line(a, in_a) == line(b, in_b);
           in_a = next_of_tensors(a, in_a), in_b = next_of_tensors(b, in_b))
        tensors += begins_tensor(line(a, in_a)) ? 1U : 0U;
    }
    const std::string_view of_a = line(a, in_a), of_b = line(b, in_b);
    if (!of_tensor(of_a) && !of_tensor(of_b)) return;
    const std::size_t number = begins_tensor(of_a) || begins_tensor(of_b) ? tensors : tensors - 1;
    for (side* each : {&a_, &b_}) {
      auto const [told, end] = each->tensor(number);
      each->words = counts ? text(each->words, " (", std::string_view(told), ")") : text(std::string_view(told));
      each->end = std::max(each->end, std::min(end, each->whole.size()));  // they differ in all of it
    }
  }
  /// Whether a third description is like one of them, the first or the second, up to and with what they differ in.
  [[nodiscard]] bool like_first(std::string_view other) const noexcept { return a_.like(other); }
  [[nodiscard]] bool like_second(std::string_view other) const noexcept { return b_.like(other); }
  /// In the words of both, behind "rank 0 has" and "rank 1 has".
  [[nodiscard]] text told(text const& first_has, text const& second_has) const noexcept {
    return any_ ? text(first_has, " ", a_.words, ", ", second_has, " ", b_.words) : text("no difference");
  }

 private:
  [[nodiscard]] static std::string_view line(std::string_view lines, std::size_t at) noexcept {
    return at < lines.size() ? lines.substr(at, lines.find('\n', at) - at) : std::string_view();
  }
  /// Of a layout, or a game's.
  [[nodiscard]] static bool tells(std::string_view line, std::string_view what) noexcept {
    for (const std::string_view of : {"layout: ", "galore over ", "game: "}) {
      if (line.starts_with(of) && line.substr(of.size()).starts_with(what)) return true;
    }
    return false;
  }
  [[nodiscard]] static bool begins_tensor(std::string_view line) noexcept { return tells(line, "tensor = "); }
  [[nodiscard]] static bool of_tensor(std::string_view line) noexcept {
    return begins_tensor(line) || tells(line, "extent = ") || tells(line, "group = ");
  }
  [[nodiscard]] static std::size_t next_of_tensors(std::string_view lines, std::size_t at) noexcept {
    do {
      at += line(lines, at).size() + 1;
    } while (at < lines.size() && !of_tensor(line(lines, at)));
    return at;
  }

  struct side {
    std::string_view whole;
    text words = text();
    std::size_t end = 0;  // of the line that differs

    [[nodiscard]] bool like(std::string_view other) const noexcept {
      return end == whole.size() ? other == whole : other.starts_with(whole.substr(0, end));
    }
    /// "tensor 2, 'w' of 3 x 4 in group 0", and where its lines end; "no tensor 2", and where those of all end, where there are
    /// fewer.
    [[nodiscard]] std::pair<std::string, std::size_t> tensor(std::size_t number) const {
      std::string told;
      std::size_t extents = 0, end_of_all = 0;
      for (std::size_t at = 0, begun = 0; at < whole.size(); at += line(whole, at).size() + 1) {
        const std::string_view here = line(whole, at);
        begun += begins_tensor(here) ? 1U : 0U;
        if (of_tensor(here)) end_of_all = at + here.size() + 1;
        if (begun != number + 1 || !of_tensor(here)) continue;
        const std::string_view value = here.substr(here.find(" = ") + 3);
        if (begins_tensor(here)) told.append(text("tensor ", number, ", '", value, "'").view());
        if (tells(here, "extent = ")) told.append(extents++ == 0 ? " of " : " x ").append(value);
        if (tells(here, "group = ")) return {told.append(" in group ").append(value), at + here.size() + 1};
      }
      return {text("no tensor ", number).c_str(), end_of_all};
    }
  };

  side a_, b_;
  bool any_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE
