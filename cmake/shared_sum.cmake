# SPDX-License-Identifier: Apache-2.0
# Writes what a precompiled header was made of, as one sum: -DDEPENDENCIES= its dependency file, -DFLAGS=, -DBEHIND= the one
# in front of it, -DROOT= the repository, -DTO=. ccache reads the sum instead of the header's hundred megabytes, which name
# the folder of the build: so an object is found again in another clone.
file(READ ${DEPENDENCIES} words)
string(REGEX REPLACE "^[^:]*:|\\\\\n" " " words "${words}")
string(REGEX MATCHALL "[^ \n]+" files "${words}")
set(all "${FLAGS}\n")
if(BEHIND)
  file(READ ${BEHIND}.sum sum)
  string(APPEND all "${sum}\n")
  list(FILTER files EXCLUDE REGEX "\\.pch$")
endif()
foreach(file IN LISTS files)
  file(SHA256 ${file} sum)
  string(REPLACE "${ROOT}/" "" name ${file})
  string(APPEND all "${name} ${sum}\n")
endforeach()
string(SHA256 sum "${all}")
file(WRITE ${TO} "${sum}\n")
