# SPDX-License-Identifier: Apache-2.0
# What the optional components depend on; used by this project and by the installed package.
#
# acco_find_dependency(COMPONENT) sets acco_COMPONENT_FOUND and, where that is false, acco_COMPONENT_reason: half a sentence for people. What is found is
# believed when a three-line program compiles and links with it, each time anew: a half-installed MPI, a wrapper that fails or a library of another processor
# is left out like one that is not there. It is a function, so that the variables of find modules stay inside; imported targets leave it.
function(acco_find_dependency component)
  set(acco_${component}_FOUND FALSE PARENT_SCOPE)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_FUNCTION_LIST_DIR}") # FindNCCL
  set(broken)
  set(left_behind FALSE)
  if(component STREQUAL "mpi")
    set(name MPI)
    set(target MPI::MPI_CXX)
    set(remedy "apt-get install libopenmpi-dev (or libmpich-dev)")
    set(program [[
      #include <mpi.h>
      static_assert(MPI_VERSION >= 3, "acco needs MPI 3 or newer");
      int main(int count, char** words) { return MPI_Init(&count, &words) + MPI_Finalize(); }]])
    # FindMPI of CMake 3.25 defines the target although it has found nothing; the target is marked, for the next who asks.
    if(TARGET ${target})
      get_target_property(left_behind ${target} acco_left_behind)
    endif()
    if(NOT TARGET ${target})
      set(MPI_CXX_SKIP_MPICXX ON)
      find_package(MPI QUIET COMPONENTS CXX)
      if(MPI_CXX_FOUND)
        set(left_behind FALSE)
      else()
        set(left_behind TRUE)
        if(MPI_CXX_COMPILER)
          set(broken "${MPI_CXX_COMPILER} is here, but fails or names headers or libraries that are not here")
        elseif(MPIEXEC_EXECUTABLE)
          set(broken "${MPIEXEC_EXECUTABLE} is here, but no headers and libraries")
        endif()
      endif()
      if(TARGET ${target})
        set_target_properties(${target} PROPERTIES acco_left_behind ${left_behind})
      endif()
    endif()
  elseif(component STREQUAL "gloo")
    set(name Gloo)
    set(target gloo)
    set(remedy "apt-get install libgloo-dev")
    set(program [[
      #include <gloo/transport/tcp/device.h>
      int main() { return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr()) == nullptr; }]])
    if(NOT TARGET ${target})
      # Where is it? A version that nobody has is asked for, so that nothing is loaded yet: a package whose libraries are gone stops CMake with an error of its
      # own. So a CMake aside loads it first.
      set(place "${Gloo_DIR}")
      find_package(Gloo 99999 QUIET CONFIG)
      set(aside "${CMAKE_BINARY_DIR}/CMakeFiles/acco_gloo")
      foreach(config IN LISTS Gloo_CONSIDERED_CONFIGS)
        file(WRITE "${aside}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(aside LANGUAGES NONE)\ninclude([==[${config}]==])\n")
        execute_process(COMMAND "${CMAKE_COMMAND}" -S "${aside}" -B "${aside}/build" -G "${CMAKE_GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}"
                        RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
        if(code EQUAL 0)
          get_filename_component(place "${config}" DIRECTORY)
          set(broken)
          break()
        endif()
        set(broken "${config} is here, but does not load")
      endforeach()
      set(Gloo_DIR "${place}" CACHE PATH "The directory of GlooConfig.cmake" FORCE)
      set(Gloo_DIR "${place}")
      if(NOT broken)
        find_package(Gloo QUIET CONFIG)
      endif()
      mark_as_advanced(Gloo_DIR)
    endif()
  elseif(component STREQUAL "cuda")
    set(name "CUDA toolkit 12 or newer")
    set(target CUDA::cudart)
    set(remedy "install NVIDIA's toolkit; CUDAToolkit_ROOT says where it is")
    set(program [[
      #include <cuda_runtime_api.h>
      static_assert(CUDART_VERSION >= 12000, "acco needs CUDA 12 or newer");
      int main() { return static_cast<int>(cudaDeviceReset()); }]])
    if(NOT TARGET ${target})
      find_package(CUDAToolkit QUIET)
      mark_as_advanced(CUDAToolkit_BIN_DIR CUDAToolkit_CUPTI_INCLUDE_DIR)
      if(CUDAToolkit_NVCC_EXECUTABLE AND NOT TARGET ${target})
        set(broken "${CUDAToolkit_NVCC_EXECUTABLE} is here, but no headers and libraries")
      endif()
    endif()
  elseif(component STREQUAL "nccl")
    set(name NCCL)
    set(target NCCL::nccl)
    set(remedy "apt-get install libnccl-dev, from NVIDIA's packages; NCCL_ROOT says where it is")
    set(program [[
      #include <nccl.h>
      static_assert(NCCL_VERSION_CODE >= 21400, "acco needs NCCL 2.14 or newer");
      int main() { int version = 0; return ncclGetVersion(&version) + version; }]])
    if(NOT TARGET ${target})
      find_package(CUDAToolkit QUIET)
      find_package(NCCL QUIET)
      mark_as_advanced(CUDAToolkit_BIN_DIR CUDAToolkit_CUPTI_INCLUDE_DIR NCCL_DIR)
    endif()
  endif()

  set(found FALSE)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT TARGET ${target} OR left_behind OR broken)
    set(reason "no ${name} was found")
    if(broken)
      set(reason "no working ${name} was found: ${broken}")
    endif()
  elseif(CXX IN_LIST languages)
    try_compile(found SOURCE_FROM_CONTENT probe.cpp "${program}\n" LINK_LIBRARIES ${target} CXX_STANDARD 20 OUTPUT_VARIABLE output NO_CACHE)
    string(REGEX MATCH "[^\n]*(error|undefined reference|cannot find)[^\n]*" line "${output}")
    string(STRIP "${line}" line)
    set(reason "no working ${name} was found: a three-line program does not compile and link with ${target} (${line})")
  else()
    set(found TRUE) # nothing to try it with
  endif()
  set(acco_${component}_FOUND ${found} PARENT_SCOPE)
  set(acco_${component}_reason "${reason}; ${remedy}" PARENT_SCOPE)
endfunction()
