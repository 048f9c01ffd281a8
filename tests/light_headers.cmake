# SPDX-License-Identifier: Apache-2.0
# The headers of rules, schedules, layouts and distributions must include no heavy standard header, however indirectly.
set(light number/real number/finite number/demand rule/update_rule rule/adamw rule/sgd rule/lion rule/signum layout/partition layout/update_group layout/parameter_layout schedule/pace schedule/auto_pace encoding/encoding schedule/schedule
          schedule/synchronous schedule/delayed schedule/two_phase schedule/weight_prediction schedule/learning_rate layout/distribution
          collective/redistribution collective/backend bfloat16 error version any_optimizer round/training_engine game/game_layout observe/round_report observe/memory_table)
set(heavy thread mutex condition_variable chrono iostream ostream istream sstream fstream string memory functional algorithm future regex filesystem format
          ranges map unordered_map experimental/simd memory_resource atomic random)
foreach(header IN LISTS light)
  execute_process(COMMAND ${COMPILER} -std=c++20 -M -I${INCLUDE} ${INCLUDE}/acco/${header}.hpp OUTPUT_VARIABLE files COMMAND_ERROR_IS_FATAL ANY)
  foreach(name IN LISTS heavy)
    if(files MATCHES "/c\\+\\+/([0-9.]+|v1)/${name}[ \n]")
      message(SEND_ERROR "acco/${header}.hpp includes <${name}>")
    endif()
  endforeach()
  if(files MATCHES "/immintrin\\.h[ \n]") # the compiler's own, elsewhere
    message(SEND_ERROR "acco/${header}.hpp includes <immintrin.h>")
  endif()
  if(files MATCHES "acco/storage/host|acco/collective/(threads|mock/)|acco/optimizer")
    message(SEND_ERROR "acco/${header}.hpp includes a heavy header of acco: ${CMAKE_MATCH_0}")
  endif()
endforeach()
