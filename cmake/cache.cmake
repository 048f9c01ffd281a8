# SPDX-License-Identifier: Apache-2.0
# ccache, where it is installed, for this project's own builds: an object that has been compiled once is found again, in
# another clone too. A launcher that is set already, even an empty one (-DCMAKE_CXX_COMPILER_LAUNCHER=), is left alone.
if(DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()
find_program(ACCO_CCACHE ccache)
mark_as_advanced(ACCO_CCACHE)
if(ACCO_CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_PCH_EXTSUM=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${ACCO_CCACHE})
  foreach(language IN ITEMS C CXX CUDA)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${launcher})
  endforeach()
endif()
