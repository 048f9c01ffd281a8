# SPDX-License-Identifier: Apache-2.0
# Before tests, examples and benchmarks are configured: does the compiler know what the headers use? One sentence instead of pages of template errors.
set(compiler "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
if(NOT ACCO_COMPILER_SUFFICES STREQUAL compiler)
  try_compile(suffices SOURCE_FROM_CONTENT probe.cpp [[
#include <concepts>
#include <span>
template <class T> concept number = std::integral<T> || std::floating_point<T>;
template <number T> struct pair { T first, second; };  // an aggregate whose argument the compiler deduces
int sum(std::span<const int> values) { int all = 0; for (auto value : values) all += value; return all; }
int main() { const pair both{.first = 1, .second = -1}; const int values[] = {both.first, both.second}; return sum(values); }
]] CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF NO_CACHE)
  if(NOT suffices)
    message(FATAL_ERROR "acco needs a C++20 compiler: g++ 12, clang 17, or newer. This one, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} "
                        "(${CMAKE_CXX_COMPILER}), is too old. The variable CXX chooses another, CXX=g++-12 for example; apt-get install g++ brings one.")
  endif()
  set(ACCO_COMPILER_SUFFICES "${compiler}" CACHE INTERNAL "The compiler that passed cmake/compiler.cmake")
endif()
