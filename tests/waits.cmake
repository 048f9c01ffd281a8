# SPDX-License-Identifier: Apache-2.0
# Every place where the library can wait, and what ends each wait: the list and the headers must say the same, so that nobody adds a wait without saying
# when it ends. cmake -DINCLUDE=<include> -DLIST=<waits.txt> -DTESTS=<tests> -P waits.cmake; with -DDRAW=ON it prints what it finds.
cmake_minimum_required(VERSION 3.25)
# Calls that can block: of the standard library, the system, MPI, CUDA, NCCL and Gloo. What calls these, or a queue that does, waits no longer than they.
set(calls # NAME=REGULAR EXPRESSION
    "wait=\\.wait\\(lock" "wait_until=\\.wait_until\\(lock" "wait_for=\\.wait_for\\(lock" "join=(thread|watchdog_|thread_)\\.join\\(\\)" "joining_thread=(std::jthread|<joining_thread>)" "sleep_for=sleep_for\\(" "sleep_until=sleep_until\\(" "yield=yield\\(\\)" "nanosleep=nanosleep\\(" "future=std::(shared_)?future" "atomic_wait=\\.wait\\([a-z_]*,? *std::memory_order"
    "driver.wait=driver_\\.wait\\(" "poll=(= |\\(void\\))poll\\(" "select=::select\\(" "epoll_wait=epoll_wait\\(" "getaddrinfo=getaddrinfo\\(" "flock=flock\\(" "connect=[( ]connect\\("
    "accept=accept4?\\(" "recv=::recv\\(" "send=::send\\("
    "MPI_Init=MPI_Init(_thread)?\\(" "MPI_Finalize=MPI_Finalize\\(" "MPI_Abort=MPI_Abort\\(" "MPI_Comm_dup=MPI_Comm_[a-z]*dup\\(" "MPI_Comm_split=MPI_Comm_split\\("
    "MPI_Comm_create=MPI_Comm_create[a-z_]*\\(" "MPI_Comm_free=MPI_Comm_free\\(" "MPI_Wait=MPI_Wait[a-z]*\\(" "MPI_Probe=MPI_Probe\\(" "MPI_Recv=MPI_Recv\\(" "MPI_Send=MPI_Send\\("
    "MPI_Barrier=MPI_Barrier\\(" "MPI_Bcast=MPI_Bcast\\(" "MPI_Allreduce=MPI_Allreduce\\("
    "cudaSynchronize=cuda[A-Za-z]*Synchronize\\(" "cudaFree=cudaFree\\(" "cudaMemcpy=cudaMemcpy\\(" "cudaMalloc=cudaMalloc\\("
    "ncclCommInitRank=ncclCommInitRank[A-Za-z]*\\(" "ncclCommSplit=ncclCommSplit\\(" "ncclCommFinalize=ncclCommFinalize\\(" "ncclCommDestroy=ncclCommDestroy\\("
    "ncclCommAbort=ncclCommAbort\\(" "ncclCommRegister=ncclCommRegister\\(" "ncclCommWindow=ncclCommWindow[A-Za-z]*\\(" "ncclMemAlloc=ncclMemAlloc\\(" "ncclMemFree=ncclMemFree\\("
    "waitRecv=waitRecv\\(" "waitSend=waitSend\\(" "connectFullMesh=connectFullMesh\\(")

get_filename_component(INCLUDE ${INCLUDE} ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE ${INCLUDE}/acco ${INCLUDE}/acco/*.hpp ${INCLUDE}/acco/*.cuh)
list(SORT headers)
set(found)
foreach(header IN LISTS headers)
  file(READ ${INCLUDE}/acco/${header} text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")       # comments
  string(REGEX REPLACE "\"([^\"\n\\\\]|\\\\.)*\"" "" text "${text}") # words of errors
  foreach(call IN LISTS calls)
    string(REGEX MATCH "^([^=]+)=(.*)$" _ "${call}")
    set(name ${CMAKE_MATCH_1})
    string(REGEX MATCHALL "${CMAKE_MATCH_2}" places "${text}")
    list(LENGTH places count)
    if(count)
      list(APPEND found "${header} ${name} ${count}")
    endif()
  endforeach()
endforeach()
if(DRAW)
  foreach(each IN LISTS found)
    message("${each}")
  endforeach()
  return()
endif()

# A line of the list: header | call | how often | what ends it | a test of that, FILE: WORDS OF ITS NAME, or nothing.
file(STRINGS ${LIST} lines REGEX "^[^#]")
set(listed)
foreach(line IN LISTS lines)
  string(REGEX MATCH "^ *([^ |]+) *\\| *([^ |]+) *\\| *([0-9]+) *\\| *([^|]+[^| ]) *\\| *(.*)$" ok "${line}")
  if(NOT ok)
    message(SEND_ERROR "${LIST}: this line has not the five columns: ${line}")
    continue()
  endif()
  list(APPEND listed "${CMAKE_MATCH_1} ${CMAKE_MATCH_2} ${CMAKE_MATCH_3}")
  if(CMAKE_MATCH_5)
    string(REGEX MATCH "^([^:]+): *(.+[^ ]) *$" _ "${CMAKE_MATCH_5}")
    if(NOT EXISTS ${TESTS}/${CMAKE_MATCH_1})
      message(SEND_ERROR "${LIST} names a test in ${CMAKE_MATCH_1}, which is not there: ${line}")
      continue()
    endif()
    file(READ ${TESTS}/${CMAKE_MATCH_1} test)
    string(FIND "${test}" "${CMAKE_MATCH_2}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "${CMAKE_MATCH_1} has no test '${CMAKE_MATCH_2}', by which ${LIST} proves: ${line}")
    endif()
  endif()
endforeach()
foreach(each IN LISTS found)
  if(NOT each IN_LIST listed)
    message(SEND_ERROR "acco/${each}: ${LIST} has no line for this many waits of this kind. Say what ends them")
  endif()
endforeach()
foreach(each IN LISTS listed)
  if(NOT each IN_LIST found)
    message(SEND_ERROR "${LIST} lists 'acco/${each}', and the headers have no such waits, or another number of them")
  endif()
endforeach()
