# SPDX-License-Identifier: Apache-2.0
# Two ranks as processes print what two ranks as threads print: every loss, to the last digit shown. cmake -DPROGRAM=<program> "-DFLAGS=<flags of processes>"
# [-DLAUNCHER=<mpiexec>] -P same_over_processes.cmake; without a launcher by the environment of Gloo, whose MASTER_PORT is this script's own. The last flag is the one that asks for processes.
# [-DPRINTS=<regular expression>] says what is printed at least.
cmake_minimum_required(VERSION 3.25)
if(NOT PRINTS)
  set(PRINTS "loss [1-4]\\.[0-9]+ of unseen batches")
endif()
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")
if(LAUNCHER)
  execute_process(COMMAND ${LAUNCHER} -n 2 ${PROGRAM} ${FLAGS} RESULTS_VARIABLE codes OUTPUT_VARIABLE of_processes ERROR_VARIABLE err)
  set(expected 0)
else()
  set(rank ${CMAKE_COMMAND} -E env WORLD_SIZE=2 MASTER_ADDR=127.0.0.1)
  execute_process(COMMAND ${rank} RANK=1 ${PROGRAM} ${FLAGS} COMMAND ${rank} RANK=0 ${PROGRAM} ${FLAGS}
                  RESULTS_VARIABLE codes OUTPUT_VARIABLE of_processes ERROR_VARIABLE err)
  set(expected "0;0")
endif()
list(POP_BACK FLAGS)
execute_process(COMMAND ${PROGRAM} ${FLAGS} OUTPUT_VARIABLE of_threads COMMAND_ERROR_IS_FATAL ANY)
message("${of_processes}")
if(NOT codes STREQUAL expected OR NOT of_threads MATCHES "${PRINTS}" OR NOT of_processes STREQUAL of_threads)
  message(FATAL_ERROR "processes (${codes}):\n${of_processes}${err}\nthreads:\n${of_threads}")
endif()
