# SPDX-License-Identifier: Apache-2.0
# cmake -P cmake/test.cmake: installs what is missing, builds, and passes all tests. PRESET chooses another way to build them
# (cmake -DPRESET=tsan -P cmake/test.cmake); the default is `test`, an optimised build without machine-specific instructions.
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

if(NOT PRESET)
  set(PRESET test)
endif()
if(PRESET MATCHES "clang|san") # name their compiler
  set(compiler_package clang-19=clang++-19)
  if(PRESET MATCHES "san") # the libraries of the sanitizers, which clang-19 does not bring
    list(APPEND compiler_package libclang-rt-19-dev=/usr/lib/llvm-19/lib/clang/*/lib/*/libclang_rt.tsan*)
  endif()
  set(chosen_compiler)
endif()
demand(REQUIRED ${compiler_package} ninja-build=ninja|make
                doctest-dev=/usr/include/doctest/doctest.h|/usr/local/include/doctest/doctest.h
                libcli11-dev=/usr/include/CLI/CLI.hpp|/usr/local/include/CLI/CLI.hpp
                nlohmann-json3-dev=/usr/include/nlohmann/json.hpp|/usr/local/include/nlohmann/json.hpp
       OPTIONAL libopenblas-dev=/usr/include/*/openblas*/openblas_config.h|/usr/include/openblas*/openblas_config.h|/usr/include/openblas_config.h|/usr/include/*/openblas_config.h
                gnuplot-nox=gnuplot pkg-config=pkg-config
                libgloo-dev=/usr/include/gloo/context.h|/usr/local/include/gloo/context.h
                libeigen3-dev=/usr/include/eigen3/Eigen/Core|/usr/local/include/eigen3/Eigen/Core
                libxxhash-dev=/usr/include/xxhash.h|/usr/local/include/xxhash.h
                libssl-dev=/usr/include/openssl/hmac.h|/usr/local/include/openssl/hmac.h
                libopenmpi-dev=/usr/lib/*/openmpi/include/mpi.h openmpi-bin=mpirun.openmpi libmpich-dev=/usr/include/*/mpich/mpi.h mpich=mpiexec.mpich
                iproute2=ip|/usr/sbin/ip|/sbin/ip python3=python3)

set(build ${acco_builds}/${PRESET})
configure(${build} --preset ${PRESET})
if(ONLY STREQUAL "configure")
  return()
endif()
run(${CMAKE_COMMAND} --build ${build} --parallel ${cores} ${clean})
include(${CMAKE_CURRENT_LIST_DIR}/slowest.cmake)
slowest_objects(${build})
get_filename_component(bin ${CMAKE_COMMAND} DIRECTORY)
math(EXPR jobs "${cores} + 2") # some tests wait most of the time
set(times --output-junit ${build}/tests.xml)
if(acco_builds STREQUAL "${acco_root}/build")
  run(${bin}/ctest --preset ${PRESET} --parallel ${jobs} ${times})
else()
  run(${bin}/ctest --test-dir ${build} --output-on-failure --no-tests=error --parallel ${jobs} ${times})
endif()
slowest_tests(${build})
