# SPDX-License-Identifier: Apache-2.0
# Before tests, examples and benchmarks are configured: does the compiler know what the headers use? One sentence instead of pages of template errors.
set(compiler "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
if(NOT ACCO_COMPILER_SUFFICES STREQUAL compiler)
  try_compile(suffices SOURCE_FROM_CONTENT probe.cpp "#include \"${PROJECT_SOURCE_DIR}/include/acco/version.hpp\"\nint main() {}\n" # it knows which compilers do
              CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF NO_CACHE)
  if(NOT suffices)
    message(FATAL_ERROR "acco needs a C++20 compiler: g++ 12, clang 17, or newer. This one, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} "
                        "(${CMAKE_CXX_COMPILER}), is too old. The variable CXX chooses another, CXX=g++-12 for example; apt-get install g++ brings one.")
  endif()
  set(ACCO_COMPILER_SUFFICES "${compiler}" CACHE INTERNAL "The compiler that passed cmake/compiler.cmake")
endif()
