# SPDX-License-Identifier: Apache-2.0
# CPack runs this over what has been installed, before it is packed: Debian wants its own files beside the documentation.
set(doc ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/${CPACK_DEBIAN_PACKAGE_NAME})
file(REMOVE_RECURSE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc)
file(MAKE_DIRECTORY ${doc})
file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set
file(WRITE ${doc}/changelog "${CPACK_DEBIAN_PACKAGE_NAME} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * Version ${CPACK_PACKAGE_VERSION}: CHANGELOG.md of the sources says what is in it.\n\n -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${now}\n")
find_program(gzip gzip REQUIRED)
execute_process(COMMAND ${gzip} -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
file(CHMOD ${doc}/copyright ${doc}/changelog.gz PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(GLOB_RECURSE entries LIST_DIRECTORIES TRUE ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/*)
foreach(entry IN LISTS entries ITEMS ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
  if(IS_DIRECTORY ${entry})
    file(CHMOD ${entry} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
