# SPDX-License-Identifier: Apache-2.0
# cmake -P bench/compile_time/import.cmake: what `import acco` costs, in milliseconds of processor time, best of five: the module once, and a user's file by import
# and by #include; over acco::compiled, too.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
include(${CMAKE_CURRENT_LIST_DIR}/milliseconds.cmake)
find_program(COMPILER_OF_MODULES NAMES clang++-19 NO_CACHE)
if(NOT COMPILER_OF_MODULES)
  message("skipped: clang++-19, which compiles modules, is not installed")
  return()
endif()
set(COMPILER ${COMPILER_OF_MODULES})
set(unit ${root}/build/imports.cpp)
set(module ${root}/build/acco.pcm)
file(MAKE_DIRECTORY ${root}/build)
set(user "int main() {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.estimate = acco::block_int4{}}, acco::adamw{}, acco::host_storage<float>{}, world, 10};
    training.initialize(std::vector<float>(10, 1.0F));
    training.accumulated(1);
    training.finish();
  });
}\n")
foreach(flags IN ITEMS "-O0" "-O0 -DACCO_COMPILED=0")
  best_of_five(once "${COMPILER} -std=c++20 ${flags} -I${root}/include --precompile ${root}/modules/acco.cppm -o ${module}")
  milliseconds(import "${flags} -fmodule-file=acco=${module}" "#include <vector>\nimport acco;\n")
  milliseconds(by_import "${flags} -fmodule-file=acco=${module}" "#include <vector>\nimport acco;\n${user}")
  milliseconds(by_include "${flags}" "#include <vector>\n#include <acco/acco.hpp>\n${user}")
  message("clang++-19 -std=c++20 ${flags}\n${once}\tthe module, once\n${import}\tan import, and nothing else\n${by_import}\ta user's file with one optimizer, by import
${by_include}\tthe same, by #include")
endforeach()
file(REMOVE ${unit} ${module})
