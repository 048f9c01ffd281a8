# SPDX-License-Identifier: Apache-2.0
# cmake -P cmake/docs.cmake: builds the documentation as a site, build/docs/site/index.html, with the C++ reference. Installs what is missing: Doxygen as a package, Sphinx and its kin
# (docs/site/requirements.txt) into a Python environment of their own, build/docs/python. Every warning is an error, a link that leads nowhere included.
# With -DBROWSE=ON the site is then looked at in a headless browser, if one is installed; -DSHOTS=FOLDER keeps what was seen.
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)
execute_process(COMMAND python3 -c "import ensurepip, venv" RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
set(venv)
if(NOT code EQUAL 0) # Debian keeps it in a package of its own
  set(venv python3-venv=/no/python3/makes/environments)
endif()
demand(REQUIRED doxygen=doxygen python3=python3 ${venv})

set(docs ${acco_builds}/docs)
# environment(FOLDER REQUIREMENTS): a Python environment with what a file of docs/site lists; made once for each version of that file.
function(environment folder requirements)
  file(SHA256 ${acco_root}/docs/site/${requirements} wanted)
  set(made)
  if(EXISTS ${folder}/made)
    file(READ ${folder}/made made)
  endif()
  if(made STREQUAL wanted)
    return()
  endif()
  file(REMOVE_RECURSE ${folder})
  run(python3 -m venv ${folder})
  execute_process(COMMAND ${folder}/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement ${acco_root}/docs/site/${requirements}
                  RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "pip cannot install docs/site/${requirements} now; with a network, and Python 3.10 or newer, run this again.\n${errors}")
  endif()
  file(WRITE ${folder}/made ${wanted})
endfunction()
environment(${docs}/python requirements.txt)

file(READ ${acco_root}/docs/site/Doxyfile settings)
file(WRITE ${docs}/Doxyfile "${settings}OUTPUT_DIRECTORY = \"${docs}\"\nWARN_AS_ERROR = FAIL_ON_WARNINGS\n")
run(doxygen ${docs}/Doxyfile)
run(${docs}/python/bin/python ${acco_root}/docs/site/stage.py ${acco_root} ${docs}/pages ${docs}/xml)
run(${CMAKE_COMMAND} -E env ACCO_ROOT=${acco_root} ACCO_DOXYGEN_XML=${docs}/xml ${docs}/python/bin/sphinx-build --quiet --fail-on-warning --keep-going --write-all --jobs auto
    -c ${acco_root}/docs/site -d ${docs}/doctrees ${docs}/pages ${docs}/site)
message(STATUS "the site: ${docs}/site/index.html")
if(BROWSE) # look at it: docs/site/browse.py
  find_program(browser NAMES chromium chromium-browser google-chrome NO_CACHE)
  if(NOT browser)
    message(STATUS "skipped: looking at the site, because no chromium, chromium-browser or google-chrome is installed")
    return()
  endif()
  environment(${docs}/browse requirements-browse.txt)
  run(${docs}/browse/bin/python ${acco_root}/docs/site/browse.py ${docs}/site ${SHOTS})
endif()
