// SPDX-License-Identifier: Apache-2.0
// Above 2^31 bytes in little memory: a large buffer is one short stretch of memory, mapped again and again.
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory_resource>
#include <new>
#include <span>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <acco/acco.hpp>

#include "support/thorough.hpp"

namespace {

/// Large buffers repeat after the same number of elements: element i of each has the memory of element i + period.
class repeating final : public std::pmr::memory_resource {
 public:
  repeating(std::size_t elements, std::size_t period) : elements_(elements), period_(period) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes < elements_) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    const std::size_t step = bytes / elements_ * period_;  // bytes, and whole pages
    const std::size_t whole = (bytes + step - 1) / step * step;
    const int file = ::memfd_create("repeats", 0);
    if (file < 0 || ::ftruncate(file, static_cast<::off_t>(step)) != 0) throw std::bad_alloc();
    void* const room = ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) throw std::bad_alloc();
    auto* const begin = static_cast<char*>(room);
    for (std::size_t at = 0; at < whole; at += step) {
      if (::mmap(begin + at, step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) throw std::bad_alloc();
    }
    ::close(file);
    sizes_[room] = whole;
    return room;
  }
  void do_deallocate(void* room, std::size_t bytes, std::size_t alignment) override {
    auto const found = sizes_.find(room);
    if (found == sizes_.end()) return std::pmr::new_delete_resource()->deallocate(room, bytes, alignment);
    ::munmap(room, found->second);
    sizes_.erase(found);
  }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::size_t elements_, period_;
  std::map<void*, std::size_t> sizes_;
};

/// An element is updated once for each of its names, so twice must be once.
struct sets {
  [[maybe_unused]] static constexpr std::size_t slot_count = 0;
  struct constants {};
  static constants prepare(acco::update_step const&, acco::update_group const&) { return {}; }
  template <class Real>
  static void apply(Real& parameter, Real gradient, std::array<Real, 0>&, constants const&) {
    parameter = Real(2) - gradient;
  }
};

}  // namespace

TEST_CASE("above 2^31 bytes, and with ACCO_THOROUGH above 2^32: parameters are trained to the last element") {
#ifdef ACCO_SANITIZED
  MESSAGE("skipped under a sanitizer: too many elements");
#else
  const std::size_t count = (std::size_t{1} << (thorough() ? 29U : 28U)) + 77;
  constexpr std::size_t period = 4096 * 251;  // no power of two: an address that wraps meets another element
  repeating memory(count, period);
  acco::optimizer training{acco::synchronous{}, sets{}, acco::host_storage<double>{.memory = &memory}, acco::solo_backend{},
                           count};
  {
    auto* const start = static_cast<double*>(memory.allocate(count * sizeof(double)));
    for (std::size_t i = 0; i < period; ++i) start[i] = 2;
    training.initialize(std::span<double const>(start, count));
    memory.deallocate(start, count * sizeof(double));
  }
  double named = 0;
  for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
    training.gradients()[i] = 1;
    named += static_cast<double>((count - 1 - i % period) / period + 1);
  }
  auto const report = training.accumulated(1);
  CHECK(report->gradient_norm == doctest::Approx(std::sqrt(named)).epsilon(1e-9));
  for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) CHECK(training.parameters()[i] == 1);
  for (const std::size_t i : {std::size_t{1}, count / 2 - 1, count - 2}) CHECK(training.parameters()[i] == 2);
#endif
}
