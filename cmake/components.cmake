# SPDX-License-Identifier: Apache-2.0
# Optional components: a few headers and one target each, which link what the headers include. Always defined and always installed; to use acco::NAME,
# a project needs the dependency: find_package(acco COMPONENTS NAME) looks for it itself; with add_subdirectory or FetchContent, find it before acco;
# what checkpoint needs, acco finds then, too, in its own directory, unless the project has the targets already.
include(cmake/dependencies.cmake)
set(ACCO_COMPONENTS mpi gloo cuda nccl openssl eigen torch ggml checkpoint)
file(GLOB acco_mpi_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/acco include/acco/mpi.hpp include/acco/network/mpi*.hpp)
set(acco_mpi_needs MPI::MPI_CXX)
file(GLOB acco_gloo_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/acco include/acco/gloo.hpp include/acco/network/gloo*.hpp)
set(acco_gloo_needs gloo)
file(GLOB acco_cuda_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/acco include/acco/cuda.hpp include/acco/cuda/*.hpp)
list(FILTER acco_cuda_headers EXCLUDE REGEX "/nccl")
file(GLOB acco_cuda_more CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/acco include/acco/cuda/*.cuh) # kernels, which only a CUDA compiler takes
set(acco_cuda_needs CUDA::cudart)
set(acco_nccl_headers nccl.hpp cuda/nccl.hpp cuda/nccl_communicator.hpp cuda/nccl_memory.hpp)
set(acco_nccl_more cuda/nccl_mpi.hpp) # needs MPI too
set(acco_nccl_needs NCCL::nccl)
set(acco_nccl_requires cuda)
set(acco_openssl_headers network/shared_secret.hpp) # beside gloo or nccl, for those who give a secret: the others need no OpenSSL
set(acco_openssl_needs OpenSSL::Crypto)
set(acco_eigen_headers attach/eigen.hpp)
set(acco_eigen_needs Eigen3::Eigen)
file(GLOB acco_checkpoint_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/acco include/acco/checkpoint/*.hpp)
list(PREPEND acco_checkpoint_headers checkpoint.hpp)
set(acco_checkpoint_needs acco_json_and_xxhash)
set(acco_torch_headers)
set(acco_torch_more attach/torch.hpp) # takes a quarter of a minute to compile: examples/torch does, and includes it first
set(acco_torch_needs torch)
set(acco_ggml_headers attach/ggml.hpp)
set(acco_ggml_needs ggml::ggml)

foreach(component IN LISTS ACCO_COMPONENTS)
  add_library(acco_${component} INTERFACE)
  add_library(acco::${component} ALIAS acco_${component})
  set_target_properties(acco_${component} PROPERTIES EXPORT_NAME ${component} INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  list(TRANSFORM acco_${component}_headers PREPEND include/acco/)
  target_sources(acco_${component} INTERFACE FILE_SET HEADERS BASE_DIRS include FILES ${acco_${component}_headers})
  if(DEFINED acco_${component}_more) # installed, but not compiled alone by the tests
    list(TRANSFORM acco_${component}_more PREPEND include/acco/)
    target_sources(acco_${component} INTERFACE FILE_SET more TYPE HEADERS BASE_DIRS include FILES ${acco_${component}_more})
  endif()
  target_link_libraries(acco_${component} INTERFACE acco $<TARGET_NAME_IF_EXISTS:${acco_${component}_needs}>)
  if(component STREQUAL "gloo") # the others may come by a compiler's wrapper or flags: whoever links it is told by the name of a target that does not exist
    target_link_libraries(acco_gloo INTERFACE $<$<NOT:$<TARGET_EXISTS:gloo>>:acco::gloo_needs_its_dependency_found_first>)
  elseif(component STREQUAL "checkpoint")
    target_link_libraries(acco_checkpoint INTERFACE $<$<NOT:$<TARGET_EXISTS:acco_json_and_xxhash>>:acco::checkpoint_needs_nlohmann_json_and_xxHash_found_before_acco>)
  endif()
  if(component MATCHES "^(mpi|gloo)$") # messages have checksums where xxHash is
    target_link_libraries(acco_${component} INTERFACE $<TARGET_NAME_IF_EXISTS:xxHash::xxhash>)
    target_compile_definitions(acco_${component} INTERFACE $<$<TARGET_EXISTS:xxHash::xxhash>:ACCO_WITH_XXHASH>)
  endif()
  foreach(other IN LISTS acco_${component}_requires)
    target_link_libraries(acco_${component} INTERFACE acco_${other})
  endforeach()
  # For this project's own tests and examples, for the compiled C interface, and for checkpoints in a project around this one: is the dependency here, and
  # does it work? They do without what does not.
  set(ACCO_HAS_${component} FALSE)
  if(PROJECT_IS_TOP_LEVEL AND (ACCO_BUILD_TESTS OR ACCO_BUILD_EXAMPLES OR ACCO_BUILD_BENCH OR (ACCO_BUILD_C AND component MATCHES "^(mpi|gloo)$"))
     OR NOT PROJECT_IS_TOP_LEVEL AND component STREQUAL "checkpoint")
    acco_find_dependency(${component})
    set(ACCO_HAS_${component} ${acco_${component}_FOUND})
    if(NOT acco_${component}_FOUND)
      message(STATUS "acco::${component} is left out: ${acco_${component}_reason}")
    endif()
  elseif(TARGET ${acco_${component}_needs})
    set(ACCO_HAS_${component} TRUE)
  endif()
endforeach()

# Flags for kernels: C++20, where the consumer's target names no CUDA_STANDARD (CMake before 3.26 cannot); constexpr functions, the rules, on the device.
target_compile_options(acco_cuda INTERFACE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--expt-relaxed-constexpr>
  $<$<AND:$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>,$<NOT:$<BOOL:$<TARGET_PROPERTY:CUDA_STANDARD>>>>:-std=c++20>)
