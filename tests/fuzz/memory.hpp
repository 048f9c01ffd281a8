// SPDX-License-Identifier: Apache-2.0
// How many bytes a fuzzed call has at once: it must not take much more memory than its input is long. Needs the address
// sanitizer.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <sanitizer/allocator_interface.h>

namespace memory {
inline bool counts = false;
inline std::size_t now = 0, most = 0;

/// call(), which may have at most `factor` times as many bytes at once as the input, and 64 KiB.
template <class Call>
void within(std::size_t input, std::size_t factor, Call&& call) {
  [[maybe_unused]] static int const installed = __sanitizer_install_malloc_and_free_hooks(
      [](void const volatile*, std::size_t bytes) {
        if (counts) now += bytes;
        if (now > most) most = now;
      },
      [](void const volatile* p) {
        if (counts && p != nullptr) now -= __sanitizer_get_allocated_size(const_cast<void const*>(p));
      });
  now = most = 0;
  counts = true;
  call();
  counts = false;
  if (most <= factor * input + 65536) return;
  std::fprintf(stderr, "%zu bytes of memory for an input of %zu\n", most, input);
  std::abort();
}
}  // namespace memory
