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
if(ACCO_NATIVE)
  target_compile_options(acco_development INTERFACE -march=native)
endif()
if(ACCO_SANITIZE)
  target_compile_options(acco_development INTERFACE -fsanitize=${ACCO_SANITIZE} -fno-omit-frame-pointer)
  target_compile_definitions(acco_development INTERFACE ACCO_SANITIZED) # tests leave out what is too large then
  target_link_options(acco_development INTERFACE -fsanitize=${ACCO_SANITIZE})
  set(symbols)
  if(ACCO_SANITIZE MATCHES thread) # compilers tell it in different ways
    target_compile_definitions(acco_development INTERFACE ACCO_SANITIZED_THREADS)
  endif()
  if(ACCO_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Its library for programs without one of its own has operators new that tests could not replace; and it asks another program for the names of functions,
    # which are what is suppressed.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libclang_rt.tsan-${CMAKE_SYSTEM_PROCESSOR}.so OUTPUT_VARIABLE shared OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(folder "${shared}" DIRECTORY)
    target_link_options(acco_development INTERFACE -shared-libsan -Wl,-rpath,${folder})
    find_program(ACCO_ADDR2LINE addr2line REQUIRED)
    set(symbols :external_symbolizer_path=${ACCO_ADDR2LINE})
  endif()
  set(ACCO_SANITIZER_OPTIONS TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/network/tsan.supp${symbols}
                             LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/network/lsan.supp) # the environment of tests over Gloo
  if(ACCO_SANITIZE MATCHES undefined)
    # A null pointer that is read is found by the processor, and polymorphic types are few: a tenth of the time to compile.
    target_compile_options(acco_development INTERFACE -fno-sanitize=null,vptr -fno-sanitize-recover=undefined)
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
