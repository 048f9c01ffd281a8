// SPDX-License-Identifier: Apache-2.0
// A small model with made-up samples: sample s has the loss sum_i a(s,i)/2 (p_i - b(s,i))^2 + c/4 p_i^4 , whose
// gradient depends on the parameters, differs between samples, and is cheap. Everything follows from the numbers of
// rank and micro-batch: nothing is random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace problem {

inline double unit(std::uint64_t x) {  // a fraction in [0, 1) that looks random
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return static_cast<double>((x ^ (x >> 31U)) >> 11U) * 0x1p-53;
}

/// Adds the gradient of one sample at `parameters` to `gradients`; returns its loss.
template <class Parameter, class Gradient>
double add_sample(std::uint64_t sample, std::span<Parameter const> parameters, std::span<Gradient> gradients) {
  double loss = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double p = static_cast<double>(parameters[i]);
    const double a = 0.5 + unit(sample * 7919 + i);
    const double b = 2 * unit(sample * 104729 + i * 31 + 5) - 1;
    loss += a / 2 * (p - b) * (p - b) + 0.025 * p * p * p * p;
    gradients[i] = static_cast<Gradient>(static_cast<double>(gradients[i]) + a * (p - b) + 0.1 * p * p * p);
  }
  return loss;
}

inline std::uint64_t sample_id(int rank, std::size_t micro_batch, std::size_t k) {
  return (static_cast<std::uint64_t>(rank) * 4096 + micro_batch) * 16 + k;
}

/// Samples that a rank has in a micro-batch: 0 to 3, unequal on purpose.
inline std::size_t batch_size(int rank, std::size_t micro_batch) {
  return static_cast<std::size_t>(unit(static_cast<std::uint64_t>(rank) * 977 + micro_batch * 13 + 3) * 4);
}

inline std::vector<double> initial(std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2 * unit(i * 17 + 1) - 1;
  return values;
}

template <class T>
std::vector<T> converted(std::vector<double> const& values) {
  std::vector<T> out;
  for (const double v : values) out.push_back(static_cast<T>(v));
  return out;
}

}  // namespace problem
