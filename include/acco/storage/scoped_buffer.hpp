// SPDX-License-Identifier: Apache-2.0
// Memory of one scope that tasks of a queue use.
#pragma once

#include <exception>
#include <utility>

#include "acco/storage/storage_traits.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A buffer of a scope that waits for the tasks which use it. Where an exception leaves the scope before, they may
/// still be under way: then a queue whose tasks run elsewhere (on a device) keeps the buffer, and frees it when they
/// have run out.
template <class Queue, class Buffer>
class scoped_buffer {
 public:
  scoped_buffer(Queue& queue, Buffer&& buffer) noexcept : queue_(queue), buffer_(std::move(buffer)) {}
  scoped_buffer(scoped_buffer const&) = delete;
  scoped_buffer& operator=(scoped_buffer const&) = delete;
  ~scoped_buffer() {
    if constexpr (queue_traits_of<Queue>.works_elsewhere) {
      if (std::uncaught_exceptions() > uncaught_) queue_.keep(std::move(buffer_));
    }
  }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return buffer_.template as<T>();
  }

 private:
  Queue& queue_;
  Buffer buffer_;
  int uncaught_ = std::uncaught_exceptions();
};

}  // namespace ACCO_SIMD_NAMESPACE
