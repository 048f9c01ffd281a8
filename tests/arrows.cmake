# SPDX-License-Identifier: Apache-2.0
# Includes between the rooms of include/acco run one way: a header includes its own room and rooms on lower floors, nothing else.
# cmake -DINCLUDE=<include> -P arrows.cmake; with -DDRAW=ON it prints the arrows.
cmake_minimum_required(VERSION 3.25)
set(floors # from the ground up; the rooms of one floor do not know each other
    "version.hpp hide_macros.hpp restore_macros.hpp error.hpp clock.hpp forks.hpp function_view.hpp bfloat16.hpp half.hpp opaque.hpp handed.hpp type_list.hpp"
    "number"
    "layout"
    "rule code"
    "schedule advice"
    "options.hpp observe"
    "storage"
    "collective stage"
    "collective/around collective/mock network wire"
    "cuda"
    "round"
    "usage engine_handle.hpp"
    "committed_state.hpp compiled.hpp"
    "worker_changes.hpp"
    "any_optimizer.hpp outer projected"
    "optimizer.hpp attach checkpoint"
    "make.hpp acco.hpp advice.hpp hierarchical.hpp outer.hpp galore.hpp mpi.hpp gloo.hpp cuda.hpp nccl.hpp checkpoint.hpp")

set(height 0)
foreach(floor IN LISTS floors)
  string(REPLACE " " ";" rooms ${floor})
  foreach(room IN LISTS rooms)
    set(floor_of_${room} ${height})
  endforeach()
  math(EXPR height "${height} + 1")
endforeach()
function(room_of header result) # its folder; beside the folders, the header itself
  get_filename_component(folder ${header} DIRECTORY)
  if(folder STREQUAL "")
    set(folder ${header})
  endif()
  if(NOT DEFINED floor_of_${folder})
    message(FATAL_ERROR "acco/${header}: tests/arrows.cmake knows no room '${folder}'. Give it a floor, and docs/architecture.md a line")
  endif()
  set(${result} ${folder} PARENT_SCOPE)
endfunction()

get_filename_component(INCLUDE ${INCLUDE} ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE ${INCLUDE}/acco ${INCLUDE}/acco/*.hpp ${INCLUDE}/acco/*.cuh)
set(arrows)
foreach(header IN LISTS headers)
  room_of(${header} from)
  file(STRINGS ${INCLUDE}/acco/${header} lines REGEX "^ *# *include +[\"<]acco/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^ *# *include +[\"<]acco/([^\">]+)[\">].*" "\\1" target ${line})
    room_of(${target} to)
    if(from STREQUAL to OR (floor_of_${from} EQUAL 0 AND floor_of_${to} EQUAL 0))
      continue()
    endif()
    list(APPEND arrows "${from} -> ${to}")
    if(NOT floor_of_${to} LESS floor_of_${from})
      message(SEND_ERROR "acco/${header} includes acco/${target}: '${to}' is not below '${from}' (tests/arrows.cmake has the floors)")
    endif()
  endforeach()
endforeach()
list(LENGTH headers count)
if(count LESS 60)
  message(FATAL_ERROR "only ${count} headers below ${INCLUDE}/acco")
endif()
list(REMOVE_DUPLICATES arrows)
list(LENGTH arrows count)
if(DRAW)
  list(JOIN arrows "\n" drawn)
  message("${drawn}\n${count} arrows")
endif()
