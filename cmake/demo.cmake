# SPDX-License-Identifier: Apache-2.0
# cmake -P cmake/demo.cmake [-- flags of toy_gpt]: installs what is missing, builds, and trains a GPT with ACCO on the ranks of this machine.
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

demand(REQUIRED ${compiler_package} ninja-build=ninja|make
       OPTIONAL libopenblas-dev=/usr/include/*/openblas*/openblas_config.h|/usr/include/openblas*/openblas_config.h|/usr/include/openblas_config.h|/usr/include/*/openblas_config.h
                libcli11-dev=/usr/include/CLI/CLI.hpp|/usr/local/include/CLI/CLI.hpp
                nlohmann-json3-dev=/usr/include/nlohmann/json.hpp|/usr/local/include/nlohmann/json.hpp
                libxxhash-dev=/usr/include/xxhash.h|/usr/local/include/xxhash.h)

set(build ${acco_builds}/demo)
configure(${build} -S . -DCMAKE_BUILD_TYPE=Release -DACCO_NATIVE=ON -DACCO_BUILD_TESTS=OFF)
if(ONLY STREQUAL "configure")
  return()
endif()
set(flags)
foreach(i RANGE ${CMAKE_ARGC})
  if(DEFINED after AND NOT "${CMAKE_ARGV${i}}" STREQUAL "")
    list(APPEND flags "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(after TRUE)
  elseif(script AND NOT "${CMAKE_ARGV${i}}" STREQUAL "")
    message(FATAL_ERROR "flags of the demo come after --: cmake -P cmake/demo.cmake -- ${CMAKE_ARGV${i}} ...")
  elseif("${CMAKE_ARGV${i}}" MATCHES "demo[.]cmake$")
    set(script TRUE)
  endif()
endforeach()
set(target toy_gpt)
set(programs ${build}/examples/toy_gpt)
run(${CMAKE_COMMAND} --build ${build} --target ${target} --parallel ${cores} ${clean})
# It knows itself what it lacks: toy_gpt_family has many engines more. What it refuses, it refuses again below, for all to read.
execute_process(COMMAND ${programs}/${target} --program ${flags} WORKING_DIRECTORY ${acco_root} OUTPUT_VARIABLE answer ERROR_QUIET)
if(answer STREQUAL "toy_gpt_family\n")
  set(target toy_gpt_family)
  run(${CMAKE_COMMAND} --build ${build} --target ${target} --parallel ${cores})
endif()
if(NOT "${flags}" MATCHES "--(schedule|rule|compare|estimate|commit|batch|micro-batches)")
  list(PREPEND flags --estimate int4 --batch 4 --micro-batches 3:1) # a lower loss than the program's own default, at no less speed: docs/performance.md
endif()
find_program(gnuplot gnuplot NO_CACHE)
foreach(file IN ITEMS log.jsonl trace.json plot.svg) # for the reader to open, unless the flags name others
  cmake_path(GET file STEM kind)
  if(NOT "${flags}" MATCHES "--${kind}" AND (gnuplot OR NOT kind STREQUAL "plot"))
    list(APPEND flags --${kind} ${build}/${file})
  endif()
endforeach()
message(STATUS "")
# CMake would stand between the program and the terminal, and go first at Ctrl-C: the program writes to the terminal itself,
# where CMake's output is one. A file would be opened a second time, and what is written by one would cover what is written by the other.
set(program ${programs}/${target} ${flags})
list(JOIN program " " line)
message(STATUS "$ ${line}")
execute_process(COMMAND sh -c [[for n in 1 2; do [ -c /proc/$PPID/fd/$n ] && (: >> /proc/$PPID/fd/$n) 2> /dev/null || exec "$@"; done; exec "$@" >> /proc/$PPID/fd/1 2>> /proc/$PPID/fd/2]] - ${program}
                WORKING_DIRECTORY ${acco_root} RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "failed with ${code}: ${line}")
endif()
