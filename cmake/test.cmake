# SPDX-License-Identifier: Apache-2.0
# cmake -P cmake/test.cmake: installs what is missing, builds, and passes the tests. PRESET chooses another way to build them
# (cmake -DPRESET=tsan -P cmake/test.cmake; .ci/deep runs all of them). The default is `test`. It takes clang, where it can be
# had and CXX names no other compiler, and compiles once what the tests share: a fifth of the time (cmake/shared.cmake).
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

if(NOT PRESET)
  set(PRESET test)
endif()
if(PRESET MATCHES "clang|san|stl") # name their compiler
  set(compiler_package clang-19=clang++-19)
  if(PRESET MATCHES "san") # the libraries of the sanitizers, which clang-19 does not bring
    list(APPEND compiler_package libclang-rt-19-dev=/usr/lib/llvm-19/lib/clang/*/lib/*/libclang_rt.asan*)
  endif()
  set(chosen_compiler)
endif()
set(quick)
if(PRESET STREQUAL "test" AND NOT chosen_compiler)
  set(quick clang-19=clang++-19 mold=mold)
elseif(PRESET MATCHES "^(asan-ubsan|tsan|debug-stl)$")
  set(quick mold=mold llvm-19=llvm-symbolizer-19) # reports, and suppressions, with names
endif()
set(required)
set(optional)
if(NOT PRESET MATCHES "^(test|sanitized)$") # what trains a model, or is about MPI
  set(required libcli11-dev=/usr/include/CLI/CLI.hpp|/usr/local/include/CLI/CLI.hpp)
  set(optional libopenblas-dev=/usr/include/*/openblas*/openblas_config.h|/usr/include/openblas*/openblas_config.h|/usr/include/openblas_config.h|/usr/include/*/openblas_config.h
               libopenmpi-dev=/usr/lib/*/openmpi/include/mpi.h openmpi-bin=mpirun.openmpi libmpich-dev=/usr/include/*/mpich/mpi.h mpich=mpiexec.mpich
               gnuplot-nox=gnuplot pkg-config=pkg-config iproute2=ip|/usr/sbin/ip|/sbin/ip)
endif()
demand(REQUIRED ${compiler_package} ninja-build=ninja|make ${required}
                doctest-dev=/usr/include/doctest/doctest.h|/usr/local/include/doctest/doctest.h
                nlohmann-json3-dev=/usr/include/nlohmann/json.hpp|/usr/local/include/nlohmann/json.hpp
       OPTIONAL ${quick} ccache=ccache ${optional}
                libgloo-dev=/usr/include/gloo/context.h|/usr/local/include/gloo/context.h
                libeigen3-dev=/usr/include/eigen3/Eigen/Core|/usr/local/include/eigen3/Eigen/Core
                libxxhash-dev=/usr/include/xxhash.h|/usr/local/include/xxhash.h
                libssl-dev=/usr/include/openssl/hmac.h|/usr/local/include/openssl/hmac.h
                python3=python3)

set(build ${acco_builds}/${PRESET})
set(flags)
if(quick)
  find_program(clang clang++-19 NO_CACHE)
  find_program(clang_c clang-19 NO_CACHE)
  find_program(mold mold NO_CACHE)
  if(clang AND PRESET STREQUAL "test")
    set(chosen_compiler ${clang})
    set(flags -DCMAKE_CXX_COMPILER=${clang} -DCMAKE_C_COMPILER=${clang_c} -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DACCO_TEST_SHARE=ON)
  endif()
  if(clang AND mold)
    list(APPEND flags -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold)
  endif()
endif()
configure(${build} --preset ${PRESET} ${flags})
if(ONLY STREQUAL "configure")
  return()
endif()
run(${CMAKE_COMMAND} --build ${build} --parallel ${cores} ${clean})
include(${CMAKE_CURRENT_LIST_DIR}/slowest.cmake)
slowest_objects(${build})
get_filename_component(bin ${CMAKE_COMMAND} DIRECTORY)
math(EXPR jobs "${cores} + 4") # some tests wait most of the time
set(times --output-junit ${build}/tests.xml)
if(acco_builds STREQUAL "${acco_root}/build")
  run(${bin}/ctest --preset ${PRESET} --parallel ${jobs} ${times})
else()
  run(${bin}/ctest --test-dir ${build} --output-on-failure --no-tests=error --parallel ${jobs} ${times})
endif()
slowest_tests(${build})
