// SPDX-License-Identifier: Apache-2.0
// Structs that grow from version to version, in and out: by the size that their first member tells.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <acco/error.hpp>

#include "acco.h"

namespace acco_c {

/// "0.1.0", of a number like ACCO_C_VERSION.
inline acco::text version_text(int version) noexcept {
  return acco::text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

/// Throws where a caller passed NULL.
template <class T>
T& demand(T* pointer, char const* what) {
  if (pointer == nullptr) {
    throw acco::usage_error({}, acco::text(what, " is NULL"), acco::text("acco.h says what each argument is"));
  }
  return *pointer;
}

/// What a caller's struct says of its size; throws where that can be none.
inline std::size_t checked_size(std::size_t told, char const* what, char const* init) {
  if (told < 2 * sizeof(std::size_t) || told > 4096) {
    throw acco::usage_error({}, acco::text(what, " was not initialised: its struct_size is ", told),
                            acco::text("Call ", init, " before anything else"));
  }
  return told;
}

/// The caller's struct, of any version, as this version's: what the caller does not know is as in `usual`.
template <class T>
T read(T const* given, T const& usual, char const* what, char const* init) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t size = checked_size(demand(given, what).struct_size, what, init);
  T result = usual;
  std::memcpy(&result, given, size < sizeof(T) ? size : sizeof(T));
  result.struct_size = sizeof(T);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (reinterpret_cast<unsigned char const*>(given)[i] != 0) {
      throw acco::usage_error(
          {}, acco::text(what, " sets a member that this library, version ", version_text(ACCO_C_VERSION), ", does not know"),
          acco::text("Link the version whose acco.h the program was compiled with: acco_check_version compares them"));
    }
  }
  return result;
}

/// Fills a caller's struct, of any version; `size` is what the caller's header thinks of it.
template <class T>
void write(void* to, std::size_t size, T const& value) noexcept {
  std::memset(to, 0, size);
  std::memcpy(to, &value, size < sizeof(T) ? size : sizeof(T));
  std::memcpy(to, &size, sizeof size);  // the first member
}
/// The same of one that has been initialised.
template <class T>
void write_output(T* to, T const& value, char const* what, char const* init) {
  write(to, checked_size(to->struct_size, what, init), value);
}

}  // namespace acco_c
