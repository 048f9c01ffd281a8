// SPDX-License-Identifier: Apache-2.0
// Which files a state becomes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

inline constexpr std::string_view frozen_name = "frozen.safetensors";

/// What every tensor file says of itself.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> about_of(std::string const& run, std::uint64_t step) {
  return {{"format", manifest::format}, {"run", run}, {"step", std::to_string(step)}};
}
/// The file of an array of the trainable elements.
[[nodiscard]] inline tensor_file file_for(std::string const& array, element_type type, parameter_layout const& layout,
                                          std::string const& run, std::uint64_t step) {
  tensor_file file{array + tensors_end, tensors_of(layout, kept_as::state, type), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
}
/// Which array of the state `to` is array `array` of `from`, which another compiler may have named otherwise;
/// `to.owned()`: none.
[[nodiscard]] inline std::size_t counterpart(state_shape const& from, std::size_t array, state_shape const& to) {
  kept_array const& wanted = from.kept[array];
  const auto is_state = [](kept_array const& each) { return each.use == array_use::state; };
  auto before = std::count_if(from.kept.begin(), from.kept.begin() + static_cast<std::ptrdiff_t>(array), is_state);
  for (std::size_t k = 0; k < to.owned(); ++k) {
    kept_array const& each = to.kept[k];
    if (each.use != wanted.use) continue;
    if (is_state(each) ? before-- == 0 : each.name == wanted.name && each.extent == wanted.extent) return k;
  }
  return to.owned();
}
/// The arrays of `from` that `to` has not.
[[nodiscard]] inline std::vector<std::string> dropped(state_shape const& from, state_shape const& to) {
  std::vector<std::string> names;
  for (std::size_t array = 0; array < from.owned(); ++array) {
    if (counterpart(from, array, to) == to.owned()) names.push_back(from.kept[array].name);
  }
  return names;
}
/// Of what is frozen; without data where nothing is.
[[nodiscard]] inline tensor_file file_for_frozen(state_shape const& shape, parameter_layout const& layout, std::string const& run,
                                                 std::uint64_t step) {
  tensor_file file{std::string(frozen_name), tensors_of(layout, kept_as::frozen, shape.parameter), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
}
/// Likewise of what is a rank's own.
[[nodiscard]] inline tensor_file file_for_own(std::size_t rank, std::size_t ranks, state_shape const& shape,
                                              parameter_layout const& layout, std::string const& run, std::uint64_t step) {
  tensor_file file{name_of_rank("frozen", rank, ranks) + tensors_end, tensors_of(layout, kept_as::own, shape.parameter), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
}

[[nodiscard]] inline std::vector<std::string> lines_of(std::vector<char> const& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) c == '\n' ? lines.emplace_back() : lines.back() += c;
  if (lines.back().empty()) lines.pop_back();
  return lines;
}
/// A line with names of types as every compiler and version writes them: some write this library's inline namespace,
/// `v0_1::`, too.
[[nodiscard]] inline std::string without_version(std::string line) {
  constexpr std::string_view before = "acco::v";
  for (std::size_t at = line.find(before); at != std::string::npos; at = line.find(before, at + 1)) {
    const std::size_t begin = at + before.size() - 1, end = line.find_first_not_of("0123456789_", begin + 1);
    if (end != std::string::npos && end != begin + 1 && line.compare(end, 2, "::") == 0) line.erase(begin, end + 2 - begin);
  }
  return line;
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
