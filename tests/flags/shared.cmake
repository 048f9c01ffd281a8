# SPDX-License-Identifier: Apache-2.0
# A shared object without RTTI and a program with it, both of which hide their symbols: types that pass between them are one type.
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${WORK})
set(compile ${COMPILER} -std=c++20 -O0 -fvisibility=hidden -pthread -I${INCLUDE})
execute_process(COMMAND ${compile} -fno-rtti -fPIC -shared ${SOURCES}/maker.cpp -o ${WORK}/libmaker.so COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${compile} ${SOURCES}/maker_main.cpp -o ${WORK}/program -L${WORK} -lmaker -Wl,-rpath,${WORK} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/program RESULT_VARIABLE code OUTPUT_VARIABLE printed)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the program ended with ${code}:\n${printed}")
endif()

# libstdc++ takes errors of one name for one type; libc++ only if the linker has made them one.
execute_process(COMMAND ${NM} -DC --defined-only ${WORK}/libmaker.so OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${INCLUDE}/acco/error.hpp classes REGEX "^(class|struct) .*error (: |{)")
foreach(line IN LISTS classes)
  if(NOT line MATCHES "^(class|struct) ACCO_VISIBLE ")
    message(SEND_ERROR "acco/error.hpp: '${line}' must be ACCO_VISIBLE (version.hpp says why)")
  endif()
endforeach()
if(NOT symbols MATCHES "typeinfo for acco::[a-z0-9_]+::usage_error\n")
  message(SEND_ERROR "the shared object hides the type of the errors that it throws")
endif()
message(STATUS "${printed}")
