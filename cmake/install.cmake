# SPDX-License-Identifier: Apache-2.0
# Installation: headers, exported target, package configuration, pkg-config file. Everything but acco::c and acco::compiled is architecture-independent.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATAROOTDIR}/cmake/acco)
install(TARGETS acco EXPORT acco_targets FILE_SET HEADERS)
install(EXPORT acco_targets NAMESPACE acco:: DESTINATION ${package_dir})
file(RELATIVE_PATH acco_package_to_libraries /${package_dir} /${CMAKE_INSTALL_LIBDIR})
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

# acco::c is compiled: where nobody has built it before, the rest is installed, and the package says what is missing. A component of its own,
# so that a package for all architectures can leave it out (cmake/package.cmake).
if(ACCO_BUILD_C)
  install(TARGETS acco_c EXPORT acco_c_targets FILE_SET HEADERS COMPONENT acco_c ARCHIVE COMPONENT acco_c OPTIONAL LIBRARY COMPONENT acco_c NAMELINK_COMPONENT acco_c OPTIONAL)
  install(EXPORT acco_c_targets NAMESPACE acco:: DESTINATION ${package_dir} COMPONENT acco_c)
  file(RELATIVE_PATH acco_c_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  if(acco_c_kind STREQUAL "STATIC_LIBRARY")
    set(acco_c_libs "-lacco_c ${acco_c_files} ${acco_c_runtime} -pthread")
  else()
    set(acco_c_libs "-lacco_c")
  endif()
  configure_file(cmake/acco-c.pc.in ${PROJECT_BINARY_DIR}/c/acco-c.pc.configured @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/c/acco-c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT acco_c OPTIONAL) # made with the library
endif()

if(ACCO_BUILD_COMPILED)
  install(TARGETS acco_compiled EXPORT acco_compiled_targets)
  install(EXPORT acco_compiled_targets NAMESPACE acco:: DESTINATION ${package_dir})
endif()

install(FILES cmake/dependencies.cmake cmake/FindNCCL.cmake cmake/FindxxHash.cmake DESTINATION ${package_dir})
configure_file(cmake/acco.pc.in ${PROJECT_BINARY_DIR}/acco.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/acco.pc DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/pkgconfig)
install(FILES modules/acco.cppm DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/acco) # compiled where it is imported
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/acco)
