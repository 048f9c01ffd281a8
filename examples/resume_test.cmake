# SPDX-License-Identifier: Apache-2.0
# A program that is killed twice and started again prints what it prints when it is left alone, in every digit. cmake -DPROGRAM=<resume> -DWORK=<folder>
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND ${PROGRAM} ${WORK}/whole OUTPUT_VARIABLE whole COMMAND_ERROR_IS_FATAL ANY)
# It stands still while its output is looked at: on a busy machine it would end meanwhile.
file(WRITE ${WORK}/kill.sh "\"$1\" \"$2/run\" > \"$2/out\" &
until ! kill -STOP $! || { grep -q \"step *$3 \" \"$2/out\" && ls \"$2/run\" | grep -q step-; }\ndo kill -CONT $!\nsleep 0.01\ndone 2> /dev/null
kill -9 $!
wait $!
echo $?
cat \"$2/out\"
")
foreach(steps IN ITEMS 200 500)
  execute_process(COMMAND sh ${WORK}/kill.sh ${PROGRAM} ${WORK} ${steps} OUTPUT_VARIABLE killed ERROR_QUIET)
  if(NOT killed MATCHES "^137\n.*step +${steps}  loss")
    message(FATAL_ERROR "it was not killed:\n${killed}")
  endif()
  string(APPEND told "${killed}")
endforeach()
execute_process(COMMAND ${PROGRAM} ${WORK}/run OUTPUT_VARIABLE end COMMAND_ERROR_IS_FATAL ANY)
string(APPEND told "${end}")
string(REGEX MATCHALL "going on behind step [1-9][0-9]*\n" starts "${told}")
list(LENGTH starts count)
string(REGEX MATCHALL "(step +[0-9]+  loss|parameters.0. =) [^\n]+" lines "${told}")
string(REGEX MATCHALL "(step +[0-9]+  loss|parameters.0. =) [^\n]+" expected "${whole}")
list(REMOVE_DUPLICATES lines) # steps that came twice
if(NOT count EQUAL 2 OR NOT lines STREQUAL expected)
  message(FATAL_ERROR "left alone:\n${whole}\nkilled and started again:\n${told}")
endif()
