// SPDX-License-Identifier: Apache-2.0
// Which files a state becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

inline constexpr std::string_view frozen_name = "frozen.safetensors";

inline constexpr char const* tensors_end = ".safetensors";

/// The file of an array of the state; `rule` is the name of the rule.
[[nodiscard]] inline std::string file_of_array(std::size_t array, state_shape const& shape, std::string_view rule) {
  return array_name(array, shape, rule) + tensors_end;
}

/// What every tensor file says of itself.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> about_of(std::string const& run, std::uint64_t step) {
  return {{"format", "acco-checkpoint 1"}, {"run", run}, {"step", std::to_string(step)}};
}
/// The file of one array.
[[nodiscard]] inline tensor_file file_for(std::size_t array, state_shape const& shape, std::string_view rule,
                                          parameter_layout const& layout, std::string const& run, std::uint64_t step) {
  tensor_file file{file_of_array(array, shape, rule), tensors_of(layout, kept_as::state, shape.type(array)), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
}
/// The file of an array of a level.
[[nodiscard]] inline tensor_file file_for(std::string const& array, element_type type, parameter_layout const& layout,
                                          std::string const& run, std::uint64_t step) {
  tensor_file file{array + tensors_end, tensors_of(layout, kept_as::state, type), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
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
  tensor_file file{of_rank("frozen", rank, ranks) + ".safetensors", tensors_of(layout, kept_as::own, shape.parameter), {}};
  file.header = header_of(file.tensors, about_of(run, step));
  return file;
}

/// The value of a line "what = value" among lines.
[[nodiscard]] inline std::string value_of(std::vector<std::string> const& lines, std::string_view what) {
  for (std::string const& line : lines) {
    if (line.size() > what.size() + 3 && line.starts_with(what) && line.compare(what.size(), 3, " = ") == 0)
      return line.substr(what.size() + 3);
  }
  return "";
}
[[nodiscard]] inline std::vector<std::string> lines_of(std::vector<char> const& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) c == '\n' ? lines.emplace_back() : lines.back() += c;
  if (lines.back().empty()) lines.pop_back();
  return lines;
}
/// A line with names of types as every compiler and version writes them: some write this library's inline namespace, `v0_1::`,
/// too.
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
