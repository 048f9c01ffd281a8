// SPDX-License-Identifier: Apache-2.0
// Numbers of manifest.json that keep every bit.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Every bit of a number, for people too: 0x1.8p+3, whatever the locale is.
[[nodiscard]] inline std::string exactly(double number) {
  if (std::isnan(number)) return std::signbit(number) ? "-nan" : "nan";  // std::to_chars has more kinds of it
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, number, std::chars_format::hex).ptr;
  const std::string_view digits(text, static_cast<std::size_t>(end - text));
  if (!std::isfinite(number)) return std::string(digits);
  const std::size_t sign = digits.front() == '-' ? 1 : 0;
  return std::string(digits.substr(0, sign)) + "0x" + std::string(digits.substr(sign));
}
/// Whether the text is digits like 1.8p+3. By hand: libc++ before 20 has std::from_chars for whole numbers only.
[[nodiscard]] inline bool read_hexadecimal(std::string_view text, double& number) noexcept {
  const auto whole = [](std::string_view digits, auto& value, int base) {
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    return failed == std::errc() && end == digits.data() + digits.size();
  };
  const std::size_t p = text.find('p');
  if (p == 0 || p > 20) return false;
  std::uint64_t digits = 0;
  int power = 0, behind_point = 0;
  bool point = false;
  for (char const& each : text.substr(0, p)) {
    unsigned digit = 0;
    if (each == '.' && !point && &each != text.data()) {
      point = true;
    } else if (whole({&each, 1}, digit, 16) && digits >> 49 == 0) {
      digits = 16 * digits + digit;
      behind_point += point ? 4 : 0;
    } else {
      return false;
    }
  }
  text.remove_prefix(p + 1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  if (!whole(text, power, 10) || power < -1074 || power > 1023) return false;
  number = std::ldexp(static_cast<double>(digits), power - behind_point);
  return std::isfinite(number);
}
/// Whether it was a number so written.
[[nodiscard]] inline bool read_exactly(std::string_view text, double& number) noexcept {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text == "inf") {
    number = std::numeric_limits<double>::infinity();
  } else if (text == "nan") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else if (!text.starts_with("0x") || !read_hexadecimal(text.substr(2), number)) {
    return false;
  }
  if (negative) number = -number;
  return true;
}

}  // namespace ACCO_NAMESPACE::checkpoints
