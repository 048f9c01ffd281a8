# SPDX-License-Identifier: Apache-2.0
# Everything in the rooms that compute is in the namespace that carries the flags; all the rest is not (version.hpp says why). What the symbols of a program
# say of it is flags/apart.cmake's.
cmake_minimum_required(VERSION 3.25)
set(computing "^(number|code|advice|storage|collective|network|cuda|stage|wire|round|usage|outer|projected)/|^(optimizer|make|compiled|schedule/named).hpp$")
set(plain number/finite.hpp number/require.hpp code/encoding.hpp round/training_engine.hpp stage/round_counts.hpp stage/state_copy.hpp stage/level_copy.hpp round/checkpointer.hpp
          outer/local_updates.hpp outer/exchange_settings.hpp outer/outer_rules.hpp projected/galore.hpp)
get_filename_component(INCLUDE ${INCLUDE} ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE ${INCLUDE}/acco ${INCLUDE}/acco/*.hpp ${INCLUDE}/acco/*.cuh)
foreach(header IN LISTS headers)
  file(STRINGS ${INCLUDE}/acco/${header} opened REGEX "^namespace ACCO_")
  set(right ACCO_NAMESPACE)
  if(header MATCHES "${computing}" AND NOT header IN_LIST plain)
    set(right ACCO_SIMD_NAMESPACE)
  endif()
  foreach(line IN LISTS opened)
    if(right STREQUAL "ACCO_SIMD_NAMESPACE" AND line MATCHES "^namespace ACCO_ENGINE_NAMESPACE ") # which lies in it
      continue()
    endif()
    if(NOT line MATCHES "^namespace ${right}[ :]")
      message(SEND_ERROR "acco/${header}: '${line}' must open ${right} (version.hpp says why)")
    endif()
  endforeach()
endforeach()
