# SPDX-License-Identifier: Apache-2.0
# What the optional components depend on; used by this project and by the installed package.
#
# acco_find_dependency(COMPONENT) sets acco_COMPONENT_FOUND and, where that is false, acco_COMPONENT_reason: half a sentence for people. find_package alone
# cannot be trusted: half an MPI, or a Gloo without its library, ends the configuration, and FindMPI leaves its target behind without having found MPI. So a CMake
# process of its own finds the dependency first, and compiles and links a three-line program with it; only if that works is the dependency found here. Variables that find
# modules set stay inside this function, but for those in the cache (MPIEXEC_EXECUTABLE); imported targets leave it.
function(acco_find_dependency component)
  list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_FUNCTION_LIST_DIR}") # FindNCCL, FindxxHash
  set(parts) # of the target, where it is not what others call it
  set(cuda [[
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24) # FindCUDAToolkit of CMake 3.25 stops at CUDA 13, which has no nvToolsExt, where it may assume CMake 3.25
    find_package(CUDAToolkit QUIET)
    set(trace ${CUDAToolkit_NVCC_EXECUTABLE})]])
  if(component STREQUAL "mpi")
    set(name MPI)
    set(target MPI::MPI_CXX)
    set(remedy "apt-get install libopenmpi-dev (or libmpich-dev)")
    set(find [[
      set(MPI_CXX_SKIP_MPICXX ON)
      find_package(MPI QUIET COMPONENTS CXX)
      set(found ${MPI_CXX_FOUND})
      set(trace ${MPI_CXX_COMPILER} ${MPIEXEC_EXECUTABLE})]])
    set(program [[
      #include <mpi.h>
      static_assert(MPI_VERSION >= 3, "acco needs MPI 3 or newer");
      int main(int count, char** words) { return MPI_Init(&count, &words) + MPI_Finalize(); }]])
  elseif(component STREQUAL "gloo")
    set(name Gloo)
    set(target gloo)
    set(remedy "apt-get install libgloo-dev")
    set(find [[
      find_package(Gloo QUIET)
      mark_as_advanced(Gloo_DIR)]])
    set(program [[
      #include <gloo/transport/tcp/device.h>
      int main() { return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr()) == nullptr; }]])
  elseif(component STREQUAL "cuda")
    set(name "CUDA toolkit 12 or newer")
    set(target CUDA::cudart)
    set(remedy "install NVIDIA's toolkit; CUDAToolkit_ROOT says where it is")
    set(find "${cuda}
      mark_as_advanced(CUDAToolkit_BIN_DIR CUDAToolkit_CUPTI_INCLUDE_DIR)")
    set(program [[
      #include <cuda_runtime_api.h>
      static_assert(CUDART_VERSION >= 12000, "acco needs CUDA 12 or newer");
      int main() { return static_cast<int>(cudaDeviceReset()); }]])
  elseif(component STREQUAL "nccl")
    set(name NCCL)
    set(target NCCL::nccl)
    set(remedy "apt-get install libnccl-dev, from NVIDIA's packages; NCCL_ROOT says where it is")
    set(find "${cuda}
      find_package(NCCL QUIET)
      mark_as_advanced(NCCL_DIR)
      set(trace)")
    set(program [[
      #include <nccl.h>
      static_assert(NCCL_VERSION_CODE >= 21800, "acco needs NCCL 2.18 or newer");
      int main() { int version = 0; return ncclGetVersion(&version) + version; }]])
  elseif(component STREQUAL "openssl")
    set(name OpenSSL)
    set(target OpenSSL::Crypto)
    set(remedy "apt-get install libssl-dev")
    set(find [[
      find_package(OpenSSL QUIET)
      mark_as_advanced(OpenSSL_DIR)]])
    set(program [[
      #include <openssl/evp.h>
      #include <openssl/hmac.h>
      int main() { return HMAC(EVP_sha256(), "", 0, nullptr, 0, nullptr, nullptr) == nullptr; }]])
  elseif(component STREQUAL "eigen")
    set(name "Eigen 3")
    set(target Eigen3::Eigen)
    set(remedy "apt-get install libeigen3-dev")
    set(find [[
      find_package(Eigen3 QUIET CONFIG)
      mark_as_advanced(Eigen3_DIR)]])
    set(program [[
      #include <Eigen/Core>
      static_assert(EIGEN_VERSION_AT_LEAST(3, 3, 0), "acco needs Eigen 3.3 or newer");
      int main() { return static_cast<int>(Eigen::Vector2f::Zero().sum()); }]])
  elseif(component STREQUAL "checkpoint")
    set(name "nlohmann's JSON and xxHash")
    set(target acco_json_and_xxhash)
    set(remedy "apt-get install nlohmann-json3-dev libxxhash-dev")
    set(parts nlohmann_json::nlohmann_json xxHash::xxhash)
    set(find [[
      if(NOT TARGET nlohmann_json::nlohmann_json)
        find_package(nlohmann_json 3.10 QUIET)
      endif()
      if(NOT TARGET xxHash::xxhash)
        find_package(xxHash QUIET)
      endif()
      mark_as_advanced(nlohmann_json_DIR xxHash_DIR)
      if(TARGET nlohmann_json::nlohmann_json AND TARGET xxHash::xxhash AND NOT TARGET acco_json_and_xxhash)
        add_library(acco_json_and_xxhash INTERFACE IMPORTED)
        target_link_libraries(acco_json_and_xxhash INTERFACE nlohmann_json::nlohmann_json xxHash::xxhash)
      endif()]])
    set(program [[
      #include <nlohmann/json_fwd.hpp>
      #include <xxhash.h>
      static_assert(XXH_VERSION_NUMBER >= 800, "acco needs xxHash 0.8 or newer");
      int main() { return XXH3_64bits("", 0) == 0; }]])
  elseif(component STREQUAL "torch")
    set(name LibTorch)
    set(target torch)
    set(remedy "apt-get install libtorch-dev, or give CMAKE_PREFIX_PATH the folder of a LibTorch, or what python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' prints")
    set(find [[
      set(FPHSA_NAME_MISMATCHED ON) # what its own find modules would be warned of
      set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
      find_package(Torch QUIET)
      mark_as_advanced(Torch_DIR)]])
    set(program [[
      #include <c10/core/Device.h>
      #include <torch/version.h>
      static_assert(TORCH_VERSION_MAJOR > 1 || TORCH_VERSION_MINOR >= 13, "acco needs LibTorch 1.13 or newer");
      #if defined(__clang__)
      static_assert(TORCH_VERSION_MAJOR > 1, "LibTorch 1 does not compile as C++20 with clang");
      #endif
      int main() { return c10::Device("cpu").is_cuda(); }]])
  elseif(component STREQUAL "ggml")
    set(name ggml)
    set(target ggml::ggml)
    set(remedy "git clone https://github.com/ggml-org/ggml, build and install it, and give CMAKE_PREFIX_PATH its folder")
    set(find [[
      set(CMAKE_MESSAGE_LOG_LEVEL WARNING) # it names its backends
      find_package(ggml QUIET CONFIG)
      mark_as_advanced(ggml_DIR GGML_LIBRARY GGML_BASE_LIBRARY GGML_CPU_LIBRARY)]])
    set(program [[
      #include <ggml-opt.h>
      int main() { return ggml_opt_optimizer_name(GGML_OPT_OPTIMIZER_TYPE_SGD) == nullptr; } // of August 2025 and newer]])
  endif()

  set(works TRUE)
  set(reason)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(component STREQUAL "checkpoint" AND TARGET nlohmann_json::nlohmann_json AND TARGET xxHash::xxhash)
    cmake_language(EVAL CODE "${find}") # the caller has both: nothing is looked for
  endif()
  if(TARGET ${target}) # the caller's own: one that the caller builds is believed, because nothing can link with it yet
    acco_all_imported(imported ${target} ${parts})
    if(imported AND CXX IN_LIST languages)
      try_compile(works SOURCE_FROM_CONTENT probe.cpp "${program}\n" LINK_LIBRARIES ${target} CXX_STANDARD 20 OUTPUT_VARIABLE output NO_CACHE)
    endif()
  else()
    if(NOT acco_${component}_works AND CXX IN_LIST languages)
      acco_try_aside(${component} works output)
    endif()
    if(works)
      cmake_language(EVAL CODE "${find}")
    elseif(output MATCHES "acco: nothing there") # aside; but this project may have a provider of dependencies, or a compiler that shows where the dependency is
      cmake_language(EVAL CODE "${find}")
      set(works FALSE)
      if(TARGET ${target} AND (NOT DEFINED found OR found))
        set(works TRUE)
        acco_all_imported(imported ${target} ${parts})
        if(imported)
          try_compile(works SOURCE_FROM_CONTENT probe.cpp "${program}\n" LINK_LIBRARIES ${target} CXX_STANDARD 20 OUTPUT_VARIABLE output NO_CACHE)
        endif()
      endif()
    endif()
    if(NOT TARGET ${target}) # gone since it was tried, or never tried because the project has no C++
      set(works FALSE)
      if("${output}" STREQUAL "")
        set(output "acco: nothing there")
      endif()
    endif()
    set(acco_${component}_works ${works} CACHE INTERNAL "A program compiled and linked with the dependency of acco's component ${component}")
  endif()

  if(NOT works)
    if(output MATCHES "acco: nothing there")
      set(reason "no ${name} was found")
    elseif(output MATCHES "acco: only ([^\n]*)")
      set(reason "no working ${name} was found: ${CMAKE_MATCH_1} is here, but fails, or what it names is not here")
    elseif(output MATCHES "CMake Error (at|in) [^\n]*\n[ \n]*([^\n]+(\n+ +[^\n]+)?)")
      string(REGEX REPLACE "[ \n]+" " " line "${CMAKE_MATCH_2}")
      set(reason "no working ${name} was found: CMake cannot use what is here (${line})")
    else()
      string(REGEX MATCH "[^\n]*(error:|undefined reference|cannot find|error adding symbols)[^\n]*" line "${output}")
      string(STRIP "${line}" line)
      set(reason "no working ${name} was found: a three-line program does not compile and link with it (${line})")
    endif()
    if(CMAKE_CROSSCOMPILING)
      set(remedy "install it for ${CMAKE_SYSTEM_PROCESSOR}, which this build is for, and name that system's folder in CMAKE_FIND_ROOT_PATH")
    endif()
    string(APPEND reason "; ${remedy}")
  endif()
  if(works AND component MATCHES "^(mpi|gloo)$" AND NOT TARGET xxHash::xxhash) # what it does without
    find_package(xxHash 0.8 QUIET)
    mark_as_advanced(xxHash_DIR)
  endif()
  set(acco_${component}_FOUND ${works} PARENT_SCOPE)
  set(acco_${component}_reason "${reason}" PARENT_SCOPE)
endfunction()

# Of acco_find_dependency alone: whether none of these targets is built by the project itself.
function(acco_all_imported result)
  set(all TRUE)
  foreach(target IN LISTS ARGN)
    get_target_property(aliased ${target} ALIASED_TARGET)
    if(aliased)
      set(target ${aliased})
    endif()
    get_target_property(imported ${target} IMPORTED)
    if(NOT imported)
      set(all FALSE)
    endif()
  endforeach()
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# Of acco_find_dependency alone: the same find in a project of its own, with the compiler that is known already, and with the variables that steer find modules.
macro(acco_try_aside component works_in output_in)
  set(aside "${CMAKE_BINARY_DIR}/CMakeFiles/acco_${component}")
  file(REMOVE_RECURSE "${aside}")
  file(MAKE_DIRECTORY "${aside}/build/CMakeFiles")
  file(COPY "${CMAKE_BINARY_DIR}/CMakeFiles/${CMAKE_VERSION}" DESTINATION "${aside}/build/CMakeFiles") # spares the tests of the compiler
  set(lines "cmake_minimum_required(VERSION 3.25)\n")
  get_cmake_property(variables VARIABLES)
  foreach(variable IN LISTS variables)
    if(variable IN_LIST CMAKE_TRY_COMPILE_PLATFORM_VARIABLES
       OR variable MATCHES "^CMAKE_(PREFIX_PATH|INCLUDE_PATH|LIBRARY_PATH|PROGRAM_PATH|TRY_COMPILE_|MODULE_PATH|FIND_|DISABLE_FIND_|IGNORE_|SYSROOT|TOOLCHAIN_FILE|CXX_COMPILER$|CXX_FLAGS|EXE_LINKER_FLAGS|LIBRARY_ARCHITECTURE)|^(MPI|MPIEXEC|CUDAToolkit|NCCL|Gloo|GLOO|OpenSSL|OPENSSL|Eigen3|Torch|Caffe2|ggml|GGML|nlohmann_json|xxHash)_")
      if(NOT "${${variable}}" MATCHES "NOTFOUND$") # only of these: CMake warns of others that are read
        string(APPEND lines "set(${variable} [==[${${variable}}]==])\n")
      endif()
    endif()
  endforeach()
  file(WRITE "${aside}/CMakeLists.txt" "${lines}project(aside LANGUAGES CXX)\n${find}
if(NOT TARGET ${target} OR DEFINED found AND NOT found)
  if(trace)
    list(REMOVE_DUPLICATES trace)
    list(JOIN trace \", \" trace)
    message(FATAL_ERROR \"\\n  acco: only \${trace}\")
  endif()
  message(FATAL_ERROR \"\\n  acco: nothing there\")
endif()
add_executable(probe probe.cpp)
set_target_properties(probe PROPERTIES CXX_STANDARD 20)
target_link_libraries(probe PRIVATE ${target})\n")
  file(WRITE "${aside}/probe.cpp" "${program}\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${aside}" -B "${aside}/build" -G "${CMAKE_GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}"
                  RESULT_VARIABLE code OUTPUT_VARIABLE ${output_in} ERROR_VARIABLE ${output_in})
  if(code EQUAL 0)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${aside}/build" RESULT_VARIABLE code OUTPUT_VARIABLE ${output_in} ERROR_VARIABLE ${output_in})
  endif()
  if(code EQUAL 0)
    set(${works_in} TRUE)
  else()
    set(${works_in} FALSE)
  endif()
endmacro()
