# SPDX-License-Identifier: Apache-2.0
# Compiles trainer.cpp, with DEFINE, without flags and with OTHER_FLAGS, and compares the functions that both bring for the linker to choose from: of the library's
# own, only those of the plain types that pass between files may be among them. Then links both into one program and runs it.
cmake_minimum_required(VERSION 3.25)

file(MAKE_DIRECTORY ${WORK})
separate_arguments(other UNIX_COMMAND "${OTHER_FLAGS}")
foreach(unit IN ITEMS no other)
  set(flags)
  if(unit STREQUAL "other")
    set(flags ${other})
  endif()
  execute_process(COMMAND ${COMPILER} -std=c++20 -O1 ${DEFINE} ${flags} -DFLAGS=with_${unit}_flags -I${INCLUDE} -c ${SOURCES}/trainer.cpp -o ${WORK}/${unit}.o
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${NM} -C ${WORK}/${unit}.o OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REGEX REPLACE "[][]" "|" symbols "${symbols}") # CMake's lists know brackets
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*acco::[^\n]*" ${unit} "${symbols}") # weak: the linker keeps one of a name
  list(TRANSFORM ${unit} REPLACE "^[0-9a-f ]* [WVu] " "")
  list(REMOVE_DUPLICATES ${unit})
endforeach()
list(LENGTH no brought)
if(brought LESS 100)
  message(FATAL_ERROR "only ${brought} weak symbols of the library in ${WORK}/no.o: ${no}")
endif()
set(own "acco::v[0-9_]+::")
set(allowed # types that pass between files; what the standard library makes of them
    "^(typeinfo|typeinfo name|vtable) for "
    "^(decltype.auto. )?${own}(any_optimizer|engine_handle|committed_state|worker_changes|training_engine)<"
    "^(${own}text& |void )?${own}([a-z_]*error|text|parameter_layout|options|partition|warmup_[a-z_]+|in_[a-z]+(<[^>]*>)?|learning_rate_function|constant|adamw|lion|muon|placement|sgd|rules(<.*>)?|update_regions|trace|round_report|round_totals|memory_table|checkpointer|state_source|state_shape|tiling)::"
    "^${own}(require_[a-z_]+|learning_rate::[a-z_]+|trainable_runs|commits|label_of|words_of|name_of_slot.abi:cxx11.|refuse_of_group|check_group_of<.*>)\\("
    "^(guard variable for )?${own}forks\\(" # one count for the process
    "^(void |bool )?${own}trace::"
    "^([^(]* )?std::")
set(shared)
foreach(symbol IN LISTS no)
  if(NOT symbol IN_LIST other)
    continue()
  endif()
  set(may FALSE)
  foreach(pattern IN LISTS allowed)
    if(symbol MATCHES "${pattern}")
      set(may TRUE)
    endif()
  endforeach()
  if(NOT may)
    list(APPEND shared "${symbol}")
  endif()
endforeach()
if(shared)
  list(LENGTH shared count)
  list(JOIN shared "\n  " lines)
  message(SEND_ERROR "${count} functions are shared by files compiled with and without ${OTHER_FLAGS}:\n  ${lines}")
endif()

execute_process(COMMAND ${COMPILER} -std=c++20 -O1 ${DEFINE} -I${INCLUDE} ${SOURCES}/main.cpp ${WORK}/other.o ${WORK}/no.o -pthread -o ${WORK}/program COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/program RESULT_VARIABLE code OUTPUT_VARIABLE printed)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the program of both files ended with ${code}:\n${printed}")
endif()
message(STATUS "${brought} weak symbols of the library, ${printed}")
