# SPDX-License-Identifier: Apache-2.0
# cmake [-DCOMPILER=g++] -P bench/compile_time/run.cmake: what acco costs a user's compiler, in milliseconds of its processor time, best of five: each header over an
# empty file, and the files of users; import.cmake, which it runs last, by clang, those that import the module.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
if(NOT COMPILER)
  set(COMPILER g++)
endif()
set(unit ${root}/build/compile_time.cpp)

include(${CMAKE_CURRENT_LIST_DIR}/milliseconds.cmake)

milliseconds(empty -O0 "")
message("milliseconds over an empty file with ${COMPILER} -std=c++20 -O0; targets: 200 for a core header, 800 for the umbrella")
foreach(room IN ITEMS rule schedule) # the headers of the lists of all rules and all schedules
  file(STRINGS ${root}/include/acco/${room}/all.hpp ${room}s REGEX "^#include \"acco/${room}/")
  list(TRANSFORM ${room}s REPLACE ".*\"acco/(.*)[.]hpp\".*" "\\1")
endforeach()
foreach(header IN ITEMS bfloat16 error layout/partition layout/parameter_layout rule/update_rule ${rules} rule/all schedule/pace schedule/any_pace code/encoding schedule/schedule
                        ${schedules} schedule/all schedule/named schedule/learning_rate layout/distribution
                        collective/redistribution collective/backend number/pack storage/elementwise storage/host_queue storage/host collective/threads
                        any_optimizer optimizer acco make)
  milliseconds(with -O0 "#include <acco/${header}.hpp>\n")
  math(EXPR added "${with} - ${empty}")
  message("${added}\tacco/${header}.hpp")
endforeach()
# Most of the umbrella is the standard library's: the same headers of it without acco.
file(GLOB_RECURSE headers ${root}/include/acco/*.hpp)
list(FILTER headers EXCLUDE REGEX "/(network|cuda)/|/(acco|collective|storage)/(mpi|gloo|nccl|cuda|threads_cuda)\\.hpp$")
set(standard)
foreach(header IN LISTS headers)
  file(STRINGS ${header} lines REGEX "^#include <[a-z_]+>")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "#include <[a-z_]+>" line "${line}")
    list(APPEND standard "${line}")
  endforeach()
endforeach()
list(REMOVE_DUPLICATES standard)
list(JOIN standard "\n" content)
milliseconds(with -O0 "${content}\n")
math(EXPR added "${with} - ${empty}")
message("${added}\tof that, the umbrella's standard headers\n")

# A user's whole file; then the same with one more optimizer that differs in one thing.
set(head "#include <vector>\n#include <acco/acco.hpp>\ntemplate <class P> void train(auto schedule, auto rule, auto world) {
  acco::optimizer training{schedule, rule, acco::host_storage<P>{}, world, 10};
  training.initialize(std::vector<P>(10, P(1.0F)));
  training.accumulated(1);
  training.finish();
}
int main() {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    train<float>(acco::two_phase{}, acco::adamw{}, world);\n")
set(tail "  });\n}\n")
set(more "another schedule|train<float>(acco::delayed{}, acco::adamw{}, world)" "another encoding|train<float>(acco::two_phase{.estimate = acco::block_int4{}}, acco::adamw{}, world)"
         "another rule|train<float>(acco::two_phase{}, acco::sgd{}, world)" "other element types|train<acco::bfloat16>(acco::two_phase{}, acco::adamw{}, world)"
         "another backend|train<float>(acco::two_phase{}, acco::adamw{}, acco::solo_backend{})")
file(WRITE ${unit}.0.cpp "${head}${tail}")
set(k 0)
foreach(one_more IN LISTS more)
  math(EXPR k "${k} + 1")
  string(REGEX REPLACE "^.*[|]" "" code "${one_more}")
  file(WRITE ${unit}.${k}.cpp "${head}    ${code};\n${tail}")
endforeach()
foreach(flags IN ITEMS -O0 -O2)
  set(commands)
  foreach(file RANGE ${k})
    list(APPEND commands "${COMPILER} -std=c++20 ${flags} -I${root}/include -c ${unit}.${file}.cpp -o /dev/null")
  endforeach()
  best_of_five(all ${commands})
  list(POP_FRONT all one)
  message("a user's file with one optimizer, ${flags}\n${one}\tthe whole file")
  foreach(two one_more IN ZIP_LISTS all more)
    math(EXPR added "${two} - ${one}")
    string(REGEX REPLACE "[|].*$" "" what "${one_more}")
    message("${added}\tone more optimizer: ${what}")
  endforeach()
endforeach()
foreach(file RANGE ${k})
  file(REMOVE ${unit}.${file}.cpp)
endforeach()
# The same where acco::compiled is linked, whose flags are none.
foreach(flags IN ITEMS -O0 -O2)
  milliseconds(one "${flags} -DACCO_COMPILED=0" "${head}${tail}")
  message("a user's file with one optimizer over acco::compiled, ${flags}; target of -O2: 2000\n${one}\tthe whole file")
endforeach()
milliseconds(with "-O0 -DACCO_COMPILED=0" "#include <acco/acco.hpp>\n")
math(EXPR added "${with} - ${empty}")
message("${added}\tacco/acco.hpp over acco::compiled; target 700\n")
milliseconds(user -O0 "#include <acco/any_optimizer.hpp>
double step(acco::any_optimizer<float>& training) {
  for (float& g : training.gradients()) g += training.parameters()[0];
  const auto report = training.accumulated(1);
  return report ? report->mean_loss : training.samples();
}\n")
message("a user of any_optimizer, -O0; target 300\n${user}\tthe whole file")
file(REMOVE ${unit})
include(${CMAKE_CURRENT_LIST_DIR}/import.cmake)
