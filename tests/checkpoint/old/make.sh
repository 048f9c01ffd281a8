#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the checkpoints of a commit of this library, and what their trainings come to, into a folder of its name beside this file:
#   tests/checkpoint/old/make.sh ff0f135
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
commit=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/acco"
git -C "$root" archive "$commit" include | tar -x -C "$work/acco"
"${CXX:-g++}" -std=c++20 -O1 -DNDEBUG -DOLD_LIBRARY -pthread -I "$work/acco/include" -I "$root/tests" "$here/write.cpp" -o "$work/write" -lxxhash
rm -rf "${here:?}/$commit"
mkdir "$here/$commit"
"$work/write" "$here/$commit"
find "$here/$commit" -empty -delete
find "$here/$commit" -type f -printf "%s\n" | awk "{ sum += \$1 } END { print sum, \"bytes\" }"
