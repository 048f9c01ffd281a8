// SPDX-License-Identifier: Apache-2.0
// Tensor files: safetensors (https://github.com/huggingface/safetensors), as its reference reader takes them. 8 bytes
// with the length of the header, little-endian; the header, JSON; then the tensors' elements, without holes, to the end
// of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "acco/checkpoint/sums.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// The name of a type of elements in such a file.
[[nodiscard]] constexpr char const* dtype_of(element_type type) noexcept {
  constexpr char const* names[] = {"F32", "F64", "BF16", "F16"};
  return names[static_cast<std::size_t>(type)];
}

struct tensor_entry {
  std::string name;
  element_type type = element_type::float32;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * size_of(type); }
};

/// Which file of a checkpoint has a tensor: one of those of the state, that of what is frozen, or each rank's own of
/// that.
enum class kept_as { state, frozen, own };
[[nodiscard]] inline kept_as how_kept(parameter_layout const& layout, std::size_t tensor) noexcept {
  update_group const& group = layout.groups()[layout[tensor].group];
  return !group.frozen ? kept_as::state : group.per_rank ? kept_as::own : kept_as::frozen;
}

/// The tensors of a layout that are kept so, in its order.
[[nodiscard]] inline std::vector<tensor_entry> tensors_of(parameter_layout const& layout, kept_as how, element_type type) {
  std::vector<tensor_entry> found;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const each = layout[k];
    if (how_kept(layout, k) == how)
      found.push_back({std::string(each.name), type, {each.shape.begin(), each.shape.end()}, each.size});
  }
  return found;
}

/// The first bytes of such a file, up to the data, which begins at a multiple of 4096. `about` is kept with the
/// tensors. Throws nlohmann::json::type_error where a name is no UTF-8.
[[nodiscard]] inline std::string header_of(std::vector<tensor_entry> const& tensors,
                                           std::vector<std::pair<std::string, std::string>> const& about) {
  const auto json = [](std::string_view words) { return nlohmann::json(words).dump(); };
  std::string text = "{\"__metadata__\":{";
  for (auto const& [what, value] : about) {
    if (text.back() != '{') text += ',';
    text += json(what) + ":" + json(value);
  }
  text += "}";
  std::uint64_t at = 0;
  for (tensor_entry const& each : tensors) {
    text += ',';
    text += json(each.name) + ":{\"dtype\":\"" + dtype_of(each.type) + "\",\"shape\":[";
    for (std::size_t k = 0; k < each.shape.size(); ++k) {
      if (k != 0) text += ',';
      text += std::to_string(each.shape[k]);
    }
    const std::uint64_t end = at + each.bytes();
    text += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  text += "}";
  text.resize((8 + text.size() + block_bytes - 1) / block_bytes * block_bytes - 8, ' ');
  std::string bytes;
  for (unsigned k = 0; k < 8; ++k) bytes += static_cast<char>(text.size() >> (8 * k) & 0xffU);
  return bytes + text;
}

/// A tensor file of a checkpoint, before it is written: the same for any number of ranks.
struct tensor_file {
  std::string name;
  std::vector<tensor_entry> tensors;
  std::string header;
  [[nodiscard]] std::uint64_t data() const noexcept {
    std::uint64_t bytes = 0;
    for (tensor_entry const& each : tensors) bytes += each.bytes();
    return bytes;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return header.size() + data(); }
  /// The tensor in which a byte of the data lies.
  [[nodiscard]] std::string_view tensor_at(std::uint64_t byte) const noexcept {
    std::uint64_t end = 0;
    for (tensor_entry const& each : tensors) {
      end += each.bytes();
      if (byte < end) return each.name;
    }
    return "";
  }
};

}  // namespace ACCO_NAMESPACE::checkpoints
