# SPDX-License-Identifier: Apache-2.0
# Installation: headers, exported target, package configuration, pkg-config file. Everything is architecture-independent.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATAROOTDIR}/cmake/acco)
install(TARGETS acco EXPORT acco_targets FILE_SET HEADERS)
install(EXPORT acco_targets NAMESPACE acco:: DESTINATION ${package_dir})
configure_file(cmake/accoConfig.cmake.in ${PROJECT_BINARY_DIR}/accoConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/accoConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/accoConfig.cmake ${PROJECT_BINARY_DIR}/accoConfigVersion.cmake DESTINATION ${package_dir})

foreach(component IN LISTS ACCO_COMPONENTS)
  set(more)
  if(DEFINED acco_${component}_more)
    set(more FILE_SET more)
  endif()
  install(TARGETS acco_${component} EXPORT acco_${component}_targets FILE_SET HEADERS ${more})
  install(EXPORT acco_${component}_targets NAMESPACE acco:: DESTINATION ${package_dir})
endforeach()

install(FILES cmake/dependencies.cmake cmake/FindNCCL.cmake DESTINATION ${package_dir})
configure_file(cmake/acco.pc.in ${PROJECT_BINARY_DIR}/acco.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/acco.pc DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/acco)
