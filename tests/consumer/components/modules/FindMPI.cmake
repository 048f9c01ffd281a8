# SPDX-License-Identifier: Apache-2.0
set(MPI_CXX_FOUND FALSE)
if(NOT TARGET MPI::MPI_CXX)
  add_library(MPI::MPI_CXX INTERFACE IMPORTED)
endif()
