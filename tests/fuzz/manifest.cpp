// SPDX-License-Identifier: Apache-2.0
// Any bytes as a manifest, with a sum that is right. One that is taken is written as one that is read as the same.
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <acco/checkpoint/manifest.hpp>

#include "fuzz/memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace acco::checkpoints;
  std::string text(reinterpret_cast<char const*>(data), size);
  text += ",\n \"sum\": \"" + hex(sum_of(std::as_bytes(std::span(text)))) + "\"\n}\n";
  manifest found;
  bool taken = false;
  memory::within(text.size(), 80, [&] {  // the JSON library makes a tree of any text
    try {
      found = read_manifest(text);
      taken = true;
    } catch (std::runtime_error const&) {
    }
  });
  if (!taken) return 0;
  const std::string again = write_manifest(found);
  if (write_manifest(read_manifest(again)) != again) __builtin_trap();
  return 0;
}
