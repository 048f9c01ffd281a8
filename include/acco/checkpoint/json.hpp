// SPDX-License-Identifier: Apache-2.0
// JSON from model files, which may be anybody's: refused where readers differ in what they make of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "acco/checkpoint/sums.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Words of a file in a message: no more of them than fit, and none that a terminal obeys.
[[nodiscard]] inline std::string in_quotes(std::string_view words) {
  constexpr std::size_t most = 80;
  std::string text = "'";
  for (const char c : words.substr(0, most)) text += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  return text + (words.size() > most ? "...'" : "'");
}

/// Whether a name from a file is one of a file beside it: letters, digits, dots, _ and -, and no dot at its begin.
[[nodiscard]] inline bool plain_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 255 || name.front() == '.') return false;
  for (const char c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!plain) return false;
  }
  return true;
}

/// Meets the values of one JSON object as they come, without a tree; nlohmann's parser calls it. Refuses, by an
/// exception: what is no JSON, keys that stand twice in an object, numbers that are not plain integers of 64 bits
/// (where `wholes`), depth beyond `deepest`, zero bytes, anything before the object. Spaces and line breaks may follow
/// it.
class json_reader {
 public:
  json_reader(json_reader const&) = delete;
  json_reader& operator=(json_reader const&) = delete;
  virtual ~json_reader() = default;

  /// Throws std::runtime_error with what is wrong, and where.
  void read(std::string_view text) {
    if (text.empty() || text.front() != '{') throw std::runtime_error("it does not begin with '{'");
    if (text.find('\0') != std::string_view::npos)
      throw std::runtime_error("it has a zero byte, the " + std::to_string(text.find('\0')) + "th");
    nlohmann::json::sax_parse(text.begin(), text.end(), this);
  }

  // What the parser calls.
  bool null() { return take(), other("null"), true; }
  bool boolean(bool) { return take(), other("a truth value"), true; }
  bool number_integer(std::int64_t) { return take(), fraction("a negative number"), true; }
  bool number_unsigned(std::uint64_t value) { return take(), number(value), true; }
  bool number_float(double, std::string words) {
    for (char& c : words) {  // the parser has put the locale's decimal point there
      if (std::string_view("0123456789+-eE").find(c) == std::string_view::npos) c = '.';
    }
    return take(), fraction(in_quotes(words)), true;
  }
  bool string(std::string& value) { return take(), word(value), true; }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(true); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    frame& here = frames_.back();
    here.key = name;
    if (!here.seen.insert(sum_of(std::as_bytes(std::span(name)))).second)
      throw std::runtime_error(where() + " stands there twice");
    return true;
  }
  bool parse_error(std::size_t position, std::string const&, nlohmann::json::exception const&) {
    throw std::runtime_error("byte " + std::to_string(position) + " of its JSON is not what JSON has there");
  }

 protected:
  enum class numbers { wholes, any };
  json_reader(std::size_t deepest, numbers allowed) : deepest_(deepest), allowed_(allowed) {}

  /// How many objects and arrays are open, the outermost included.
  [[nodiscard]] std::size_t depth() const noexcept { return frames_.size(); }
  [[nodiscard]] bool in_array() const noexcept { return frames_.back().array; }
  /// The key under which the value stands that lies in the level-th of them, from 1; of an array: none.
  [[nodiscard]] std::string const& key_at(std::size_t level) const noexcept { return frames_[level - 1].key; }
  /// The number of the value in its array, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return frames_.back().count - 1; }
  /// The value under way, for messages: 'files'[3].'name'.
  [[nodiscard]] std::string where() const {
    std::string text;
    for (frame const& each : frames_) {
      if (each.array)
        text.append("[").append(std::to_string(each.count == 0 ? 0 : each.count - 1)).append("]");
      else
        text.append(text.empty() ? "" : ".").append(in_quotes(each.key));
    }
    return text;
  }
  [[noreturn]] void refuse(std::string const& what) const { throw std::runtime_error(where() + " is " + what); }

  // What a reader of one kind of file makes of its values. An object or array is counted before it is opened.
  virtual void opened() {}
  virtual void closed() {}
  virtual void number(std::uint64_t) {}
  virtual void word(std::string&) {}
  virtual void other(char const*) {}

 private:
  struct frame {
    bool array;
    std::size_t count = 0;  // of its values so far
    std::string key;
    std::unordered_set<std::uint64_t> seen;  // sums of its keys
  };
  void take() noexcept { ++frames_.back().count; }
  bool open(bool array) {
    if (!frames_.empty()) take();
    if (frames_.size() == deepest_) throw std::runtime_error(where() + " has more levels than such a file has");
    frames_.push_back({array, 0, {}, {}});
    opened();
    return true;
  }
  bool close() {
    closed();
    frames_.pop_back();
    return true;
  }
  void fraction(std::string const& what) {
    if (allowed_ == numbers::wholes) refuse(what + ", not a plain whole number below 2^64");
    other("a number that is not whole");
  }

  std::size_t deepest_;
  numbers allowed_;
  std::vector<frame> frames_;
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
