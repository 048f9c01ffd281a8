# SPDX-License-Identifier: Apache-2.0
# A C program over MPI that failed on one rank ends the other, which would have slept for a minute: by what the launcher returns, not by its words.
#   cmake "-DCOMMAND=mpiexec;-n;2;PROGRAM;fail" -P abort.cmake
cmake_minimum_required(VERSION 3.24)
string(TIMESTAMP begin %s)
execute_process(COMMAND ${COMMAND} TIMEOUT 110 RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
string(TIMESTAMP end %s)
math(EXPR seconds "${end} - ${begin}")
if(NOT said MATCHES "[0-9]+ checks, 0 failed" OR said MATCHES "[1-9][0-9]* failed")
  message(FATAL_ERROR "the part before the failure went wrong (${result}):\n${said}")
endif()
if(NOT result MATCHES "^[1-9][0-9]*$")
  message(FATAL_ERROR "the launcher returned ${result} after a rank had failed:\n${said}")
endif()
if(seconds GREATER_EQUAL 55)
  message(FATAL_ERROR "the job ended after ${seconds} s: the other rank was not ended by the failure")
endif()
message(STATUS "returned ${result} after ${seconds} s")
