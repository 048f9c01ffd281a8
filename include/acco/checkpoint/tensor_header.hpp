// SPDX-License-Identifier: Apache-2.0
// The header of any safetensors file, from anybody, read strictly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/checkpoint/json.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// What the header of any safetensors file says.
struct tensor_header {
  /// A type of elements, and how many bits one takes.
  struct type {
    std::string_view name;
    unsigned bits;
  };
  static constexpr type types[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
                                   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8},
                                   {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},        {"BF16", 16},
                                   {"I32", 32},    {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
                                   {"I64", 64},    {"U64", 64}};
  struct tensor {
    std::string name;
    type const* of = nullptr;
    std::vector<std::uint64_t> shape;
    std::uint64_t elements = 0, begin = 0, end = 0;  ///< bytes of the data
  };
  std::vector<tensor> tensors;  ///< as they lie in the data
  std::map<std::string, std::string, std::less<>> about;

  /// Throws std::runtime_error where `text` (what follows the length) is no header of a file with so many bytes of
  /// data: what the reference reader refuses, and what readers take differently (json.hpp; keys of an entry that nobody
  /// knows; bytes other than spaces behind the object).
  [[nodiscard]] static tensor_header read(std::string_view text, std::uint64_t data);
};

/// Its reader.
class header_reader final : public json_reader {
 public:
  header_reader() : json_reader(3, numbers::wholes) {}
  [[nodiscard]] tensor_header take_header() { return std::move(header_); }

 private:
  static constexpr std::string_view about_key = "__metadata__";
  enum part : unsigned { dtype = 1, shape = 2, offsets = 4, all = 7 };

  [[nodiscard]] bool about() const { return key_at(1) == about_key; }
  void opened() override {
    if (depth() == 1) return;
    if (depth() == 2) {
      if (in_array()) refuse_outer("an array, not an object");
      if (!about()) header_.tensors.push_back({key_at(1), nullptr, {}, 0, 0, 0});
      has_ = 0;
      return;
    }
    if (about()) refuse_outer("no text");
    if (!in_array() || (key_at(2) != "shape" && key_at(2) != "data_offsets")) refuse_outer("not what an entry has there");
    has_ |= key_at(2) == "shape" ? shape : offsets;
  }
  void closed() override {
    if (depth() == 3 && key_at(2) == "data_offsets" && offsets_ != 2) refuse_outer("not two offsets");
    if (depth() == 3) offsets_ = 0;
    if (depth() == 2 && !about() && has_ != all)
      throw std::runtime_error("tensor " + in_quotes(key_at(1)) + " has no " +
                               ((has_ & dtype) == 0   ? "dtype"
                                : (has_ & shape) == 0 ? "shape"
                                                      : "data_offsets"));
  }
  void number(std::uint64_t value) override {
    if (depth() != 3) refuse("a number, and should be none");
    tensor_header::tensor& now = header_.tensors.back();
    if (key_at(2) == "shape") {
      now.shape.push_back(value);
    } else {
      if (offsets_ == 2) refuse("a third offset");
      (offsets_++ == 0 ? now.begin : now.end) = value;
    }
  }
  void word(std::string& value) override {
    if (depth() == 2 && about()) {
      header_.about.emplace(key_at(2), value);
    } else if (depth() == 2 && key_at(2) == "dtype") {
      has_ |= dtype;
      for (tensor_header::type const& each : tensor_header::types) {
        if (each.name == value) header_.tensors.back().of = &each;
      }
      if (header_.tensors.back().of == nullptr) refuse(in_quotes(value) + ", which is no type");
    } else {
      refuse("a text, and should be none");
    }
  }
  void other(char const* what) override { refuse(std::string(what) + ", and should be none"); }
  /// What was just opened is not what belongs there.
  [[noreturn]] void refuse_outer(char const* what) const {
    throw std::runtime_error(in_quotes(key_at(1)) + (depth() == 3 ? "." + in_quotes(key_at(2)) : "") + " is " + what);
  }

  tensor_header header_;
  unsigned has_ = 0, offsets_ = 0;  // parts of the entry under way; offsets read so far
};

inline tensor_header tensor_header::read(std::string_view text, std::uint64_t data) {
  const std::size_t end = text.find_last_not_of(' ');
  if (end == std::string_view::npos || text[end] != '}') throw std::runtime_error("it does not end with '}' and spaces");
  header_reader reader;
  reader.json_reader::read(text.substr(0, end + 1));
  tensor_header found = reader.take_header();
  std::sort(found.tensors.begin(), found.tensors.end(),
            [](tensor const& a, tensor const& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t at = 0;
  for (tensor& each : found.tensors) {
    const auto refuse = [&](std::string const& what) { throw std::runtime_error("tensor " + in_quotes(each.name) + " " + what); };
    const std::string range = "bytes " + std::to_string(each.begin) + " to " + std::to_string(each.end) + " of the data";
    if (each.begin != at)
      refuse("has " + range + ", and the one before it ends at " + std::to_string(at) +
             (each.begin < at ? ": they overlap" : ": a hole"));
    each.elements = 1;
    for (const std::uint64_t extent : each.shape) {
      if (extent != 0 && each.elements > most / extent) refuse("has a shape of more than 2^64 elements");
      each.elements *= extent;
    }
    if (each.elements > most / each.of->bits) refuse("has a shape of more than 2^64 bits");
    const std::uint64_t bits = each.elements * each.of->bits;
    if (bits % 8 != 0) refuse("does not fill whole bytes");
    if (each.end < each.begin || each.end - each.begin != bits / 8)
      refuse("has " + range + ", and its shape and type ask for " + std::to_string(bits / 8) + " bytes");
    at = each.end;
  }
  if (at != data) {
    throw std::runtime_error("its tensors end at byte " + std::to_string(at) + " of the data, and the file has " +
                             std::to_string(data) + " bytes of data");
  }
  return found;
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
