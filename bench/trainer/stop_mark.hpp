// SPDX-License-Identifier: Apache-2.0
// How a rank that was asked to stop tells the others: by a fraction of the loss that it reports. All of them see it in
// the report of the same round, and take it off again.
#pragma once

#include <cmath>

namespace toy_gpt {

/// Losses are whole multiples of a grain, and a mark is less: it comes off exactly, so a run that was stopped and goes
/// on tells the same losses as one that was not.
struct stop_mark {
  static constexpr double grain = 0x1p-14, size = 0x1p-24;  // nats; up to 1000 marks are less than a grain
  static constexpr double largest = 0x1p26;                 // a round's sum beyond which marks are lost in the rounding

  double mean_loss;  ///< without marks
  bool stops;        ///< whether there was one

  [[nodiscard]] static double grains(double loss) { return std::nearbyint(loss / grain) * grain; }
  /// Of a report: losses of this mean, over this weight.
  [[nodiscard]] static stop_mark read(double mean_loss, double weight) {
    const double sum = mean_loss * weight;
    if (!(std::abs(sum) < largest)) return {mean_loss, false};
    const double whole = std::floor((sum + size / 2) / grain) * grain;
    if (sum - whole < size / 2) return {mean_loss, false};
    return {whole / weight, true};
  }
};

}  // namespace toy_gpt
