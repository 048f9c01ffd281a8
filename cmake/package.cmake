# SPDX-License-Identifier: Apache-2.0
# cpack -G DEB, in any build folder: libacco-dev, the headers for all architectures. Nothing is built for it, and acco::c, which is compiled, stays out.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME acco)
set(CPACK_PACKAGE_VENDOR "the acco authors")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};acco;Unspecified;/")
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/finish.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME libacco-dev)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The acco authors <acco@example.org>" CACHE STRING "Who answers for the package")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++ (>= 4:12) | clang-17 | clang-19, cmake (>= 3.25)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libgloo-dev, libopenmpi-dev | libmpich-dev, libssl-dev, libeigen3-dev, nlohmann-json3-dev, libxxhash-dev, libtorch-dev, pkg-config")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sharded optimizers whose communication is hidden (C++ headers)")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "acco gives any C++ trainer a sharded optimizer (ZeRO-1) whose communication is
hidden behind the computation of the next gradients: ACCO, synchronous ZeRO-1,
the delayed update and weight prediction, over threads, MPI, Gloo and NCCL.
.
The headers need C++20 and the standard library. Components for Gloo, MPI,
OpenSSL, CUDA, NCCL, LibTorch, Eigen, ggml and checkpoints (nlohmann's JSON,
xxHash) use these where they are installed.")
include(CPack)
