# SPDX-License-Identifier: Apache-2.0
# The headers of rules, schedules, layouts and distributions must include no heavy standard header, however indirectly.
set(light number/real number/finite number/require rule/update_rule rule/all layout/partition layout/update_group layout/parameter_layout schedule/pace schedule/any_pace code/encoding schedule/schedule
          schedule/all schedule/learning_rate layout/distribution
          collective/redistribution collective/backend bfloat16 error version any_optimizer round/training_engine observe/round_report observe/memory_table)
set(heavy thread mutex condition_variable chrono iostream ostream istream sstream fstream string memory functional algorithm future regex filesystem format
          ranges map unordered_map experimental/simd immintrin.h memory_resource atomic random)
function(look code name) # at all that CODE includes
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${code}" COMMAND ${COMPILER} -std=c++20 -M -I${INCLUDE} -x c++ - OUTPUT_VARIABLE files COMMAND_ERROR_IS_FATAL ANY)
  set(found FALSE)
  foreach(header IN LISTS heavy)
    if(files MATCHES "/c\\+\\+/([0-9.]+|v1)/${header}[ \n]")
      set(found TRUE)
      message(SEND_ERROR "${name} includes <${header}>")
    endif()
  endforeach()
  if(files MATCHES "acco/storage/host|acco/collective/(threads|mock/)|acco/optimizer")
    set(found TRUE)
    message(SEND_ERROR "${name} includes a heavy header of acco: ${CMAKE_MATCH_0}")
  endif()
  if(NOT files MATCHES "acco/version.hpp")
    message(FATAL_ERROR "${name} includes nothing:\n${files}")
  endif()
  set(found ${found} PARENT_SCOPE)
endfunction()
list(TRANSFORM light REPLACE "(.+)" "#include <acco/\\1.hpp>" OUTPUT_VARIABLE all)
list(JOIN all "\n" all)
look("${all}" "one of the light headers")
if(found) # which?
  foreach(header IN LISTS light)
    look("#include <acco/${header}.hpp>" "acco/${header}.hpp")
  endforeach()
endif()
