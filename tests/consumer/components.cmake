# SPDX-License-Identifier: Apache-2.0
# What find_package(acco COMPONENTS ...) says and does where a dependency is absent, broken or there.
set(here ${CMAKE_CURRENT_LIST_DIR}/components)
file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(configure ${CMAKE_COMMAND} -S ${here} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/installed)
execute_process(COMMAND ${configure} -B ${WORK}/all RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(NOT code EQUAL 0 OR NOT out MATCHES "all components answered")
  message(FATAL_ERROR "${out}")
endif()
foreach(component IN ITEMS mpi gloo cuda nccl openssl eigen torch ggml checkpoint)
  if(NOT out MATCHES "-- component '${component}' of acco is left out: no ")
    message(FATAL_ERROR "no line says that the optional component ${component} is left out:\n${out}")
  endif()
endforeach()

# Required: the configuration ends with that sentence, and with no other error.
foreach(component IN ITEMS mpi gloo cuda nccl openssl eigen torch ggml checkpoint)
  execute_process(COMMAND ${configure} -B ${WORK}/${component} -DREQUIRED=${component} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  string(REGEX REPLACE "[ \n]+" " " out "${out}")
  string(REGEX MATCHALL "CMake Error" errors "${out}")
  list(LENGTH errors count)
  if(code EQUAL 0 OR NOT count EQUAL 1 OR NOT out MATCHES "component '${component}' of acco: no [A-Za-z0-9 ,']+ was found; [a-z]")
    message(FATAL_ERROR "a required component that is missing: ended with ${code}, ${count} errors\n${out}")
  endif()
endforeach()

# With the sources, checkpoint looks for what it needs itself: where that is not here, whoever links the component is told; who builds it is believed.
foreach(case IN ITEMS unused absent built)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${here}/sources -B ${WORK}/sources_${case} -DCASE=${case} -DACCO_SOURCE=${SOURCE} -DCMAKE_CXX_COMPILER=${COMPILER}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(case STREQUAL "built" AND code EQUAL 0)
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/sources_${case} --target main RESULT_VARIABLE code OUTPUT_VARIABLE more ERROR_VARIABLE more)
    string(APPEND out "${more}")
  endif()
  if(case STREQUAL "absent" AND NOT out MATCHES "acco::checkpoint_needs_nlohmann_json_and_xxHash_found_before_acco" OR NOT case STREQUAL "absent" AND NOT code EQUAL 0
     OR NOT case STREQUAL "built" AND NOT out MATCHES "-- acco::checkpoint is left out: no nlohmann's JSON and xxHash was found; apt-get install nlohmann-json3-dev libxxhash-dev"
     OR case STREQUAL "built" AND out MATCHES "left out")
    message(FATAL_ERROR "acco's sources, ${case}: ended with ${code}\n${out}")
  endif()
endforeach()
