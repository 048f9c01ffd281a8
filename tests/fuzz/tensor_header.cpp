// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file. What is taken is JSON that nlohmann's own tree agrees with, of tensors without
// holes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <acco/checkpoint/model_file.hpp>

#include "fuzz/memory.hpp"

namespace {
void demand(bool holds) {
  if (!holds) __builtin_trap();
}
/// A file in memory with these bytes.
std::string const& file_with(std::string const& bytes) {
  static int const file = ::memfd_create("fuzzed", 0);
  static std::string const path = "/proc/self/fd/" + std::to_string(file);
  demand(::ftruncate(file, 0) == 0);
  demand(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return path;
}
void compare(acco::model_file const& model, std::string const& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto tree = nlohmann::json::parse(bytes.begin() + 8, bytes.begin() + 8 + static_cast<std::ptrdiff_t>(length));
  demand(tree.size() == model.tensors().size() + (tree.contains("__metadata__") ? 1 : 0));
  demand(model.about().size() == (tree.contains("__metadata__") ? tree["__metadata__"].size() : 0));
  for (auto const& [key, value] : model.about()) demand(tree["__metadata__"].at(key) == value);
  std::uint64_t at = 8 + length;
  for (acco::model_tensor const& each : model.tensors()) {
    auto const& entry = tree.at(each.name);
    demand(entry.size() == 3 && entry["dtype"] == each.dtype && entry["shape"] == each.shape);
    demand(each.begin == at &&
           entry["data_offsets"] == std::vector<std::uint64_t>{at - 8 - length, at - 8 - length + each.bytes});
    demand(model.find(each.name) == &each);
    at += each.bytes;
    if (each.dtype == "F32" || each.dtype == "F64" || each.dtype == "F16" || each.dtype == "BF16") {
      std::vector<float> values(each.elements);
      model.read(each.name, 0, std::span(values));
    }
  }
  demand(at == bytes.size());
}
}  // namespace

/// The first byte: whether the rest is a file, or 2 bytes with the size of the data and a header.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 3) return -1;
  std::string bytes(reinterpret_cast<char const*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    const std::size_t elements = static_cast<std::size_t>(data[1]) | static_cast<std::size_t>(data[2]) << 8U;
    const std::uint64_t length = size - 3;
    std::string header = bytes.substr(2);
    bytes.assign(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += header;
    bytes.resize(bytes.size() + elements);
  }
  std::string const& path = file_with(bytes);
  std::unique_ptr<acco::model_file> model;
  memory::within(bytes.size(), 24, [&] {
    try {
      model = std::make_unique<acco::model_file>(path);
    } catch (acco::checkpoint_error const&) {
    }
  });
  if (model != nullptr) compare(*model, bytes);
  return 0;
}
