// SPDX-License-Identifier: Apache-2.0
// Device memory for the kernels' measurements: sets of arrays, as many as no cache can hold; and the copy beside them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "measure.hpp"

namespace bench {

/// One stretch of device memory from which sets of arrays are cut, without time for allocations in between.
class arena {
 public:
  explicit arena(std::size_t bytes) : memory_(acco::default_cuda_memory(), nullptr, bytes) { settle(nullptr); }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return memory_.as<std::byte>() + offset; }

  /// Cuts it into sets of so many bytes: together they are several times larger than the cache between the
  /// multiprocessors and memory. 0: not even one fits.
  [[nodiscard]] std::size_t sets_of(std::size_t set_bytes) const {
    static const auto cache = static_cast<std::size_t>(std::max(attribute(cudaDevAttrL2CacheSize), 1));
    const std::size_t wanted = std::clamp<std::size_t>((4 * cache + set_bytes - 1) / set_bytes, 1, 64);
    return std::min(wanted, bytes() / set_bytes);
  }

 private:
  acco::cuda_buffer memory_;
};

/// Hands out arrays of a set, one after another.
class cutter {
 public:
  explicit cutter(std::byte* from) : next_(from) {}
  /// `shift`: elements between a boundary of 256 bytes and the first.
  template <class T>
  T* take(std::size_t count, std::size_t shift = 0) {
    T* const array = reinterpret_cast<T*>(next_) + shift;
    next_ += bytes_of<T>(count, shift);
    return array;
  }
  template <class T>
  static std::size_t bytes_of(std::size_t count, std::size_t shift = 0) {
    return ((count + shift) * sizeof(T) + 255) / 256 * 256;
  }

 private:
  std::byte* next_;
};

/// GB/s, read and written, of a device-to-device copy that moves as many bytes; measured once for each number.
class copy_speed {
 public:
  copy_speed(acco::cuda_queue& queue, arena const& memory) : queue_(&queue), memory_(&memory) {}
  double operator()(std::size_t moved) {
    const std::size_t half = moved / 2 / 256 * 256;
    if (half == 0) return 0;
    if (auto const known = known_.find(half); known != known_.end()) return known->second;
    const std::size_t sets = memory_->sets_of(2 * half);
    if (sets == 0) return 0;
    const timing time = time_launches(*queue_, [&](std::size_t k) {
      std::byte* const from = memory_->at(k % sets * 2 * half);
      queue_->issue([from, half](cudaStream_t stream) {
        check_cuda(cudaMemcpyAsync(from + half, from, half, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
      });
    });
    return known_[half] = static_cast<double>(2 * half) / time.median * 1e-9;
  }

 private:
  acco::cuda_queue* queue_;
  arena const* memory_;
  std::map<std::size_t, double> known_;
};

/// Everything that a measurement needs, and when to stop.
class bench_of_kernels {
 public:
  bench_of_kernels(arguments const& words, std::size_t bytes_an_element)
      : sizes_(chosen(words)),
        memory_(room(bytes_an_element)),
        copy_(queue_, memory_),
        until_(acco::steady_seconds() + words.number("--seconds", 1e9)) {
    once_only = words.has("--once");
  }

  acco::cuda_queue& queue() { return queue_; }
  arena& memory() { return memory_; }
  [[nodiscard]] std::vector<std::size_t> const& sizes() const { return sizes_; }

  /// Measures works that move so many bytes a launch, `enqueue(set)`, and prints the figure. False: no room, or no
  /// time.
  template <class Prepare, class Enqueue>
  bool measure(figure row, std::size_t set_bytes, std::size_t moved, Prepare&& prepare, Enqueue&& enqueue) {
    if (acco::steady_seconds() > until_) {
      ++left_out_;
      return false;
    }
    const std::size_t sets = memory_.sets_of(set_bytes);
    if (sets == 0) {
      row.with("left_out", "no memory for it").print();
      return false;
    }
    const double copy = once_only ? 0 : copy_(moved);  // first: what it writes is no number
    for (std::size_t k = 0; k < sets; ++k) prepare(memory_.at(k * set_bytes));
    queue_.wait();
    settle(nullptr);
    const timing time = time_launches(queue_, [&](std::size_t k) { enqueue(memory_.at(k % sets * set_bytes)); });
    const double speed = static_cast<double>(moved) / time.median * 1e-9;
    row.with("us", 1e6 * time.median).with("us_least", 1e6 * time.least).with("us_most", 1e6 * time.most).with("gb_per_s", speed);
    row.with("copy_gb_per_s", copy).with("of_copy", copy > 0 ? speed / copy : 0.0).with("sets", sets).print();
    return true;
  }
  void tell_what_is_left() const {
    if (left_out_ != 0) figure("left_out").with("measurements", left_out_).with("why", "no time").print();
  }

 private:
  /// Powers of two, the telling ones first.
  static std::vector<std::size_t> chosen(arguments const& words) {
    std::vector<std::size_t> sizes;
    std::istringstream in(words.text("--sizes", stand_in ? "12" : "28 24 20 30"));
    for (unsigned exponent = 0; in >> exponent;) sizes.push_back(std::size_t{1} << exponent);
    return sizes;
  }
  [[nodiscard]] std::size_t room(std::size_t bytes_an_element) const {
    const std::size_t largest = *std::max_element(sizes_.begin(), sizes_.end());
    const std::size_t wanted =
        std::max<std::size_t>(bytes_an_element * largest, stand_in ? 1U << 20U : std::size_t{1} << 30U) + (1U << 20U);
    return std::min(wanted, free_bytes() / 10 * 8);
  }

  std::vector<std::size_t> sizes_;
  acco::cuda_queue queue_{nullptr};
  arena memory_;
  copy_speed copy_;
  double until_;
  std::size_t left_out_ = 0;
};

}  // namespace bench
