# SPDX-License-Identifier: Apache-2.0
# Optional components: one header and one target each, which link what the header includes. Always defined and always installed; to use acco::NAME,
# a project needs the dependency: find_package(acco COMPONENTS NAME) looks for it itself; with add_subdirectory or FetchContent, find it before acco.
set(ACCO_COMPONENTS mpi gloo)
set(acco_mpi_needs MPI::MPI_CXX)
set(acco_gloo_needs gloo)
set(acco_mpi_find [[
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  set(acco_mpi_missing "MPI (libopenmpi-dev or libmpich-dev)")]])
set(acco_gloo_find [[
  find_package(Gloo QUIET)
  set(acco_gloo_missing "Gloo (libgloo-dev)")]])

foreach(component IN LISTS ACCO_COMPONENTS)
  add_library(acco_${component} INTERFACE)
  add_library(acco::${component} ALIAS acco_${component})
  set_target_properties(acco_${component} PROPERTIES EXPORT_NAME ${component})
  target_sources(acco_${component} INTERFACE FILE_SET HEADERS BASE_DIRS include FILES include/acco/collective/${component}.hpp)
  target_link_libraries(acco_${component} INTERFACE acco $<TARGET_NAME_IF_EXISTS:${acco_${component}_needs}>)
  # For this project's own tests and examples: is the dependency here?
  if(PROJECT_IS_TOP_LEVEL AND (ACCO_BUILD_TESTS OR ACCO_BUILD_EXAMPLES OR ACCO_BUILD_BENCH))
    cmake_language(EVAL CODE "${acco_${component}_find}")
  endif()
  if(TARGET ${acco_${component}_needs})
    set(ACCO_HAS_${component} TRUE)
  else()
    set(ACCO_HAS_${component} FALSE)
  endif()
endforeach()
