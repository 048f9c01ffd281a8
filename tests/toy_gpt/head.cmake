# SPDX-License-Identifier: Apache-2.0
# What the tests of the trainer begin with: WORK is an empty folder, and FEW is not empty where some of all that are alike will do.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
if(FEW STREQUAL "" AND NOT DEFINED ENV{ACCO_THOROUGH})
  set(FEW a_selection)
endif()
set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)

# Runs the trainer with the flags in `small` and these, which it must refuse in these words.
function(refuse sentence)
  execute_process(COMMAND ${TOY_GPT} ${small} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(code EQUAL 0 OR NOT out MATCHES "${sentence}")
    message(FATAL_ERROR "toy_gpt ${ARGN} must be refused with '${sentence}', but answered ${code}:\n${out}")
  endif()
endfunction()
# `lines` are a log's rounds, `last` is its last line, the summary.
macro(read_log log)
  file(STRINGS ${log} lines)
  list(POP_BACK lines last)
endmacro()

# ${end} SIGNAL ROUNDS LOG PROGRAM...: starts a program, and sends it the signal when its log has so many rounds and, for KILL, there is a checkpoint.
# It stands still while that is looked at: on a busy machine it would end meanwhile.
file(WRITE ${WORK}/end.sh "signal=$1 rounds=$2 log=$3
shift 3
\"$@\" &
until ! kill -STOP $! || { [ $(wc -l < $log) -ge $rounds ] && { [ $signal != KILL ] || ls ${WORK}/run | grep -q step-; }; }\ndo kill -CONT $!\nsleep 0.02\ndone 2> /dev/null
kill -$signal $!
kill -CONT $!
wait $!
")
set(end sh ${WORK}/end.sh)
