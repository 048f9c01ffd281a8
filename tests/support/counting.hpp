// SPDX-License-Identifier: Apache-2.0
// Counting allocators: a memory resource for the storage's buffers, and the program's operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>

namespace counting {

class resource : public std::pmr::memory_resource {
 public:
  std::atomic<std::size_t> now = 0, most = 0, calls = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++calls;
    now += bytes;
    if (now > most) most = now.load();
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    now -= bytes;
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

/// How often any thread of this program has called operator new (support/counting.cpp).
std::size_t news();
/// How many of what they gave have not been deleted.
std::size_t living();

}  // namespace counting
