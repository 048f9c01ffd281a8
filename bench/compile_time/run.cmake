# SPDX-License-Identifier: Apache-2.0
# cmake [-DCOMPILER=g++] -P bench/compile_time/run.cmake: seconds of processor time that each header adds to an empty file, best of five.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
if(NOT COMPILER)
  set(COMPILER g++)
endif()
set(unit ${root}/build/compile_time.cpp)

function(measure result)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include <\\1>\n")
  list(JOIN ARGN "" content)
  file(WRITE ${unit} "${content}")
  set(best 999999)
  foreach(i RANGE 4)
    execute_process(COMMAND bash -c "TIMEFORMAT='%3U %3S'; time ${COMPILER} -std=c++20 -O0 -I${root}/include -c ${unit} -o /dev/null" ERROR_VARIABLE times
                    COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "([0-9]+)[.]([0-9]+) ([0-9]+)[.]([0-9]+)" _ "${times}")
    math(EXPR now "${CMAKE_MATCH_1}000 + 1${CMAKE_MATCH_2} - 1000 + ${CMAKE_MATCH_3}000 + 1${CMAKE_MATCH_4} - 1000")
    if(now LESS best)
      set(best ${now})
    endif()
  endforeach()
  set(${result} ${best} PARENT_SCOPE)
endfunction()

measure(empty)
message("milliseconds over an empty file with ${COMPILER} -std=c++20 -O0; limits: 200 for a core header, 900 for the umbrella")
foreach(header IN ITEMS bfloat16 error layout/partition layout/parameter_layout rule/update_rule rule/adamw rule/sgd rule/lion schedule/pace schedule/auto_pace encoding/encoding schedule/schedule
                        schedule/synchronous schedule/delayed schedule/two_phase schedule/weight_prediction schedule/learning_rate collective/distribution
                        collective/redistribution collective/backend storage/pack storage/elementwise storage/host_queue storage/host collective/threads
                        optimizer acco)
  measure(with acco/${header}.hpp)
  math(EXPR added "${with} - ${empty}")
  message("${added}\tacco/${header}.hpp")
endforeach()
file(REMOVE ${unit})
