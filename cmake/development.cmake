# SPDX-License-Identifier: Apache-2.0
# What tests, examples and benchmarks share: warnings, sanitizers, and the flags of this machine. Never part of acco::acco.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo, MinSizeRel" FORCE)
endif()

set(ACCO_SANITIZE "" CACHE STRING "Sanitizers for tests and examples, e.g. address,undefined or thread")
option(ACCO_WERROR "Make warnings errors" ${PROJECT_IS_TOP_LEVEL})

add_library(acco_development INTERFACE)
target_link_libraries(acco_development INTERFACE acco::acco)
target_compile_options(acco_development INTERFACE -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${ACCO_WERROR}>:-Werror>)
if(ACCO_TEST_ALL)
  target_compile_definitions(acco_development INTERFACE ACCO_TEST_ALL) # more types of what is alike
endif()
if(ACCO_NATIVE)
  target_compile_options(acco_development INTERFACE -march=native)
endif()
if(ACCO_SANITIZE)
  target_compile_options(acco_development INTERFACE -fsanitize=${ACCO_SANITIZE} -fno-omit-frame-pointer)
  target_compile_definitions(acco_development INTERFACE ACCO_SANITIZED) # tests leave out what is too large then
  target_link_options(acco_development INTERFACE -fsanitize=${ACCO_SANITIZE})
  if(ACCO_SANITIZE MATCHES thread) # some tests have a habit that is a race
    target_compile_definitions(acco_development INTERFACE ACCO_THREAD_SANITIZER)
  endif()
  find_program(ACCO_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer)
  mark_as_advanced(ACCO_SYMBOLIZER)
  set(symbolizer)
  if(ACCO_SYMBOLIZER) # clang's runtime knows no functions without it, and so nothing of suppressions
    set(symbolizer ":external_symbolizer_path=${ACCO_SYMBOLIZER}")
  endif()
  set(ACCO_SANITIZER_OPTIONS TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/network/tsan.supp${symbolizer}
                             LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/network/lsan.supp) # the environment of tests over Gloo
  if(ACCO_SANITIZE MATCHES undefined)
    target_compile_options(acco_development INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# CUDA programs, where nvcc is found and compiles C++20 with the host compiler that it takes; one architecture, and PTX for newer ones.
set(nvcc)
if(ACCO_HAS_cuda AND NOT ACCO_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  include(CheckLanguage)
  check_language(CUDA)
  set(nvcc ${CMAKE_CUDA_COMPILER})
  if(nvcc AND NOT ACCO_NVCC_SUFFICES STREQUAL nvcc)
    set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/acco_nvcc)
    file(WRITE ${probe}.cu "#include <concepts>\n#include <span>\n__global__ void kernel(std::integral auto) {}\nint main() { kernel<<<1, 1>>>(1); }\n")
    execute_process(COMMAND ${nvcc} -std=c++20 ${probe}.cu -o ${probe} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(code EQUAL 0)
      set(ACCO_NVCC_SUFFICES ${nvcc} CACHE INTERNAL "The CUDA compiler that has compiled C++20")
    else()
      string(REGEX MATCH "[^\n]*(error|fatal|unsupported)[^\n]*" line "${output}")
      message(STATUS "CUDA programs are left out: ${nvcc} does not compile C++20 (${line})")
      set(nvcc)
    endif()
  endif()
endif()
if(nvcc)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
  endif()
  enable_language(CUDA)
else()
  set(CMAKE_CUDA_COMPILER "") # hides one that an earlier configuration remembers
endif()
