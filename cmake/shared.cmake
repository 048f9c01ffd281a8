# SPDX-License-Identifier: Apache-2.0
# With clang: what test programs share is parsed, instantiated and compiled once for all of them. A precompiled header that
# is made with -fpch-codegen leaves the code of its functions to one object, which is made of the header itself; a file that
# includes it instantiates and emits nothing of it. The programs' text knows nothing of this.
option(ACCO_TEST_SHARE "With clang: parse, instantiate and compile once what the test programs share" OFF)
if(NOT ACCO_TEST_SHARE)
  function(use_shared target name)
  endfunction()
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "acco: ACCO_TEST_SHARE needs clang; this is ${CMAKE_CXX_COMPILER_ID}. Set -DACCO_TEST_SHARE=OFF.")
endif()

# share(NAME [BEHIND OTHER] [INCLUDES FOLDER ...]): tests/support/shared/NAME.hpp, which sees what OTHER has; see use_shared.
function(share name)
  cmake_parse_arguments(its "" "BEHIND" "INCLUDES" ${ARGN})
  set(header ${PROJECT_SOURCE_DIR}/tests/support/shared/${name}.hpp)
  set(made ${PROJECT_BINARY_DIR}/shared/${name})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/shared)
  add_library(acco_shared_${name} OBJECT EXCLUDE_FROM_ALL ${header}) # never built: it has the flags
  set_target_properties(acco_shared_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(acco_shared_${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests ${its_INCLUDES})
  target_link_libraries(acco_shared_${name} PRIVATE acco_development)
  target_compile_definitions(acco_shared_${name} PRIVATE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
  list(APPEND flags -std=gnu++20 "$<TARGET_PROPERTY:acco_shared_${name},COMPILE_OPTIONS>")
  set(includes $<TARGET_PROPERTY:acco_shared_${name},INCLUDE_DIRECTORIES>)
  set(definitions $<TARGET_PROPERTY:acco_shared_${name},COMPILE_DEFINITIONS>)
  set(behind)
  if(its_BEHIND)
    set(behind ${PROJECT_BINARY_DIR}/shared/${its_BEHIND}.pch)
  endif()
  # no time stamps, so that the same text gives the same bytes; the sum stands for them in the compiler cache
  add_custom_command(
    OUTPUT ${made}.pch ${made}.pch.sum DEPENDS ${header} ${behind} DEPFILE ${made}.d
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} "-I$<JOIN:${includes},;-I>" "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
            -fpch-instantiate-templates -fpch-codegen -Xclang -fno-pch-timestamp "$<$<BOOL:${behind}>:-include-pch;${behind}>"
            -Wno-unknown-pragmas -MD -MF ${made}.d -MT ${made}.pch -x c++-header -c ${header} -o ${made}.pch
    COMMAND ${CMAKE_COMMAND} "-DDEPENDENCIES=${made}.d" "-DBEHIND=${behind}" "-DROOT=${PROJECT_SOURCE_DIR}"
            "-DFLAGS=${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${ACCO_SANITIZE}" -DTO=${made}.pch.sum
            -P ${PROJECT_SOURCE_DIR}/cmake/shared_sum.cmake
    COMMENT "Precompiling ${name} for the test programs" VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_command(OUTPUT ${made}.o DEPENDS ${made}.pch COMMAND ${CMAKE_CXX_COMPILER} ${flags} -Wno-unused-command-line-argument -c ${made}.pch -o ${made}.o
                     COMMENT "Compiling what the test programs share of ${name}" VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(acco_shared_${name}_pch DEPENDS ${made}.pch)
  add_custom_target(acco_shared_${name}_code DEPENDS ${made}.o)
  set_property(GLOBAL PROPERTY acco_shared_${name}_behind "${its_BEHIND}")
endfunction()

# use_shared(TARGET NAME): compiles the target's files behind the header, and links its code.
function(use_shared target name)
  set(folder ${PROJECT_BINARY_DIR}/shared)
  target_compile_options(${target} PRIVATE "SHELL:-include-pch ${folder}/${name}.pch" -fpch-instantiate-templates)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "TARGET_OBJECTS|\\.c$")
  set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS ${folder}/${name}.pch)
  add_dependencies(${target} acco_shared_${name}_pch)
  target_link_options(${target} PRIVATE -Wl,--gc-sections) # what no file of this program uses, and what it would need
  while(name)
    target_link_libraries(${target} PRIVATE ${folder}/${name}.o)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${folder}/${name}.o)
    add_dependencies(${target} acco_shared_${name}_code)
    get_property(name GLOBAL PROPERTY acco_shared_${name}_behind)
  endwhile()
endfunction()

share(core)
share(cases BEHIND core)
if(ACCO_HAS_checkpoint)
  share(checkpoint BEHIND cases)
endif()
share(device BEHIND cases INCLUDES ${PROJECT_SOURCE_DIR}/tests/cuda/emulated)
