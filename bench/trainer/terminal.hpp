// SPDX-License-Identifier: Apache-2.0
// What a terminal can show: colours where a person looks at it, Unicode where the locale has it; and numbers for
// people.
#pragma once

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <langinfo.h>
#include <unistd.h>

namespace toy_gpt {

/// Whether lines may be overwritten: output goes to a terminal.
inline bool is_terminal() { return isatty(STDOUT_FILENO) != 0; }

/// Whether the locale of the environment writes UTF-8.
inline bool writes_unicode() {
  static const bool yes = [] {
    std::setlocale(LC_CTYPE, "");
    return std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  }();
  return yes;
}

/// `text` in an ANSI colour (31 to 36; 1: bold), on a terminal and unless NO_COLOR is set.
inline std::string painted(std::string const& text, int colour) {
  static const bool paints = [] {
    char const* const no = std::getenv("NO_COLOR");
    return is_terminal() && (no == nullptr || *no == '\0');
  }();
  if (!paints || colour == 0) return text;
  return "\033[" + std::to_string(colour) + "m" + text + "\033[0m";
}

inline std::string bytes_for_people(double bytes) {
  char text[32];
  char const* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
  return text;
}

}  // namespace toy_gpt
