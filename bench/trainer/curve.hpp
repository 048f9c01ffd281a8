// SPDX-License-Identifier: Apache-2.0
// Curves drawn in the terminal: Braille patterns, which have eight dots a character, or ASCII, where two have to do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "terminal.hpp"

namespace toy_gpt {

struct curve {
  std::vector<std::pair<double, double>> line, marks;  // (x, y)
  std::string mark;                                    // one character, drawn at each of `marks`
  int colour = 0;
};
/// A horizontal line, and what it stands for.
struct level {
  double y;
  std::string name;
};

/// The plane between (0, low) and (right, high), in characters.
class canvas {
 public:
  canvas(std::size_t columns, std::size_t rows, double right, double low, double high)
      : columns_(columns), rows_(rows), right_(right), low_(low), high_(high), cells_(columns * rows) {}

  void draw(curve const& each) {
    for (std::size_t k = 0; k + 1 < each.line.size(); ++k) segment(each.line[k], each.line[k + 1], each.colour);
    for (auto const& [x, y] : each.marks) {
      if (!inside(y)) continue;
      cell& at = cells_[row_of(y) * columns_ + column_of(x)];
      at.shown = each.mark;
      at.colour = each.colour;
    }
  }
  void draw(level const& each) {
    if (!inside(each.y)) return;
    const std::size_t row = row_of(each.y) * columns_;
    const std::string name = " " + each.name + "   ";
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::size_t from = columns_ - std::min(columns_, name.size());
      cell& at = cells_[row + c];
      if (c >= from) {
        at.shown = name.substr(c - from, 1);
      } else {
        at.on_level = c % 2 == 0;
      }
    }
  }
  [[nodiscard]] std::string row(std::size_t r) const {
    std::string text, stretch;  // of one colour
    int colour = 0;
    for (std::size_t c = 0; c < columns_; ++c) {
      cell const& at = cells_[r * columns_ + c];
      if (at.colour != colour) text += painted(std::exchange(stretch, ""), std::exchange(colour, at.colour));
      if (!at.shown.empty()) {
        stretch += at.shown;
      } else if (at.dots != 0) {
        stretch += pattern(at.dots);
      } else {
        stretch += !at.on_level ? " " : writes_unicode() ? "\u2508" : "-";
      }
    }
    return text + painted(stretch, colour);
  }
  [[nodiscard]] std::size_t row_of(double y) const {
    const double share = (high_ - y) / (high_ - low_);
    return static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(rows_ - 1)));
  }

 private:
  struct cell {
    unsigned dots = 0;  // bit y * across + x
    int colour = 0;
    bool on_level = false;
    std::string shown;  // instead of the dots
  };
  const unsigned across_ = writes_unicode() ? 2 : 1, down_ = writes_unicode() ? 4 : 2;

  [[nodiscard]] bool inside(double y) const { return y >= low_ && y <= high_; }
  [[nodiscard]] std::size_t column_of(double x) const {
    return static_cast<std::size_t>(std::lround(std::clamp(x / right_, 0.0, 1.0) * static_cast<double>(columns_ - 1)));
  }
  void segment(std::pair<double, double> from, std::pair<double, double> to, int colour) {
    const double width = static_cast<double>(columns_ * across_), height = static_cast<double>(rows_ * down_);
    const auto place = [&](std::pair<double, double> p) {
      return std::pair{p.first / right_ * (width - 1), (high_ - p.second) / (high_ - low_) * (height - 1)};
    };
    const auto [x0, y0] = place(from);
    const auto [x1, y1] = place(to);
    const int steps = static_cast<int>(std::ceil(std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1.0})));
    for (int k = 0; k <= steps; ++k) {
      const double x = std::round(x0 + (x1 - x0) * k / steps), y = std::round(y0 + (y1 - y0) * k / steps);
      if (!(x >= 0 && x < width && y >= 0 && y < height)) continue;
      const auto column = static_cast<std::size_t>(x), line = static_cast<std::size_t>(y);
      cell& at = cells_[line / down_ * columns_ + column / across_];
      at.dots |= 1U << (line % down_ * across_ + column % across_);
      at.colour = colour;
    }
  }
  /// The character with these dots.
  [[nodiscard]] static std::string pattern(unsigned dots) {
    if (!writes_unicode()) return dots == 1 ? "'" : dots == 2 ? "." : ":";
    // Braille counts its dots down the columns, the last row apart
    constexpr unsigned places[] = {0, 3, 1, 4, 2, 5, 6, 7};
    unsigned braille = 0;
    for (unsigned k = 0; k < 8; ++k) braille |= (dots >> k & 1U) << places[k];
    const char bytes[] = {'\xe2', static_cast<char>(0xa0U | braille >> 6U), static_cast<char>(0x80U | (braille & 63U))};
    return {bytes, sizeof bytes};
  }

  std::size_t columns_, rows_;
  double right_, low_, high_;
  std::vector<cell> cells_;
};

/// 80 columns: numbers on the left, the plane of 70 by 12 characters, numbers and `what` below.
inline void draw_curves(std::vector<curve> const& curves, std::vector<level> const& levels, double right, double low, double high,
                        std::string const& what) {
  constexpr std::size_t columns = 70, rows = 12;
  const double margin = 0.02 * (high - low) + 1e-6;
  low -= margin;
  high += margin;
  canvas plane(columns, rows, right > 0 ? right : 1, low, high);
  for (level const& each : levels) plane.draw(each);
  for (curve const& each : curves) plane.draw(each);
  const bool unicode = writes_unicode();
  for (std::size_t r = 0; r < rows; ++r) {
    const double y = high - (high - low) * static_cast<double>(r) / (rows - 1);
    char number[16] = "";
    if (r % 4 == 0 || r == rows - 1) std::snprintf(number, sizeof number, "%.2f", y);
    std::printf("%7s %s%s\n", number, !unicode ? "|" : *number != '\0' ? "\u2524" : "\u2502", plane.row(r).c_str());
  }
  std::string axis = unicode ? "\u2514" : "+";
  for (std::size_t c = 0; c < columns; ++c) axis += unicode ? "\u2500" : "-";
  char last[32];
  std::snprintf(last, sizeof last, "%.*f", right < 10 ? 1 : 0, right);
  std::size_t used = 1 + std::char_traits<char>::length(last);
  for (const char c : what) used += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;  // characters, not bytes
  const std::size_t gap = columns > used ? columns - used : 2;
  std::printf("        %s\n         0%s%s%s%s\n", axis.c_str(), std::string(gap / 2, ' ').c_str(), what.c_str(),
              std::string(gap - gap / 2, ' ').c_str(), last);
}

}  // namespace toy_gpt
