#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deep.sh SOURCE: .ci/deep in a checkout of its own, over stand-ins for the programs that its parts call.
set -euo pipefail
command -v git > /dev/null || { echo "skipped: git is not installed" && exit; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{clone/.ci,clone/tests/fuzz,bin}
cp "$1"/.ci/{deep,need.sh} "$work/clone/.ci/"
cd "$work/clone"
stand_in() { # FILE, its lines on the standard input
  { echo '#!/usr/bin/env bash' && cat; } > "$1"
  chmod +x "$1"
}
for name in ninja ccache; do stand_in "$work/bin/$name" < /dev/null; done
stand_in "$work/bin/cmake" << 'END_OF_CMAKE'
[[ $* != *PRESET=tsan* ]] || { echo "the decoy fails" && exit 3; }
[[ $* != --build* ]] || [ -z "${SLOW:-}" ] || sleep 60
[[ $* != *PRESET=clang* ]] || exit 77 # which is not how a part says that it is skipped
END_OF_CMAKE
stand_in "$work/bin/ctest" << 'END_OF_CTEST'
while [ $# -gt 0 ]; do
  [ "$1" != --output-junit ] || report=$2
  [ "$1" != -R ] || [[ $2 != *fuzz* ]] || all=notrun
  shift
done
[ "$(dirname "$report")" = "$PWD/build/deep" ] || luck=$(($(find build/deep/stress -name '*.xml' | wc -l) % 2))
state=run
[ "${luck:-0}" = 0 ] || [ -n "${STEADY:-}" ] || state=fail
printf '<testcase name="steady" classname="steady" time="1" status="%s">\n<testcase name="by/luck" classname="x" time="1" status="%s">\n' \
  "${all:-run}" "${all:-$state}" > "$report"
[ -z "${all:-}" ] || printf 'The following tests did not run:\n\t  1 - steady (Skipped)\n'
[ $state = run ] || exit 8
END_OF_CTEST
stand_in .ci/fresh_machine <<< 'echo "skipped: the bare machine (it needs root)"'
git init -q .
commit() { git add . && git -c user.name=a -c user.email=a@b.c commit -q -m "$1"; }
echo build/ > .gitignore
commit first && git tag v1

export PATH=$work/bin:$PATH STRESS_ALONE=4 STRESS_BUSY=2
wrong=0
ends() { # CODE ARGUMENT ...
  local code=0
  .ci/deep "${@:2}" > "$work/out" 2>&1 || code=$?
  [ $code = "$1" ] || { echo "ended with $code, not $1: .ci/deep ${*:2}" && cat "$work/out" && wrong=1; }
}
says() { grep -qE -- "$1" "$work/out" || { echo "not said: $1" && cat "$work/out" && wrong=1; }; }
silent() { ! grep -qE -- "$1" "$work/out" || { echo "said: $1" && cat "$work/out" && wrong=1; }; }

ends 1 tsan asan bare fuzz clang # what fails stops no other, and what cannot run is not passed
says 'the decoy fails'
says '^tsan .* FAILED'
says '^asan .* passed'
says '^bare .* skipped +the bare machine \(it needs root\)$'
says '^fuzz .* skipped +every test of this part skipped itself$'
says '^clang .* FAILED'
says "^1 passed, 2 skipped, 2 FAILED, [0-9]+ s$"
ends 0 asan bare
ends 0 --list
says '^tsan +FAILED +[0-9]+ s +20'
says '^bare +skipped'
says '^asan +passed'
says '^gcc +- '
[ "$(grep -c '^asan' build/deep/results)" = 1 ] || { echo "asan has several results" && wrong=1; }
ends 2 no_such_part
says 'no part: no_such_part'
ends 1 stress # the second and fourth run fail
says '^by/luck +2 of 4 +0 of 0'
says '^by/luck +2 of 4 +1 of 2'
says '^2 tests; 1 of them failed at least once; skipped: none$'

echo > tests/fuzz/words.txt && commit second
touch CITATION.cff
ends 1 --changed # the last tag
says '^fuzz tests/fuzz/words.txt$'
says '^tsan .* FAILED'
silent 'docs|mutants|CITATION'
rm CITATION.cff
ends 0 --changed HEAD
says '^nothing$'
touch some.new_kind # no line knows it: all parts
ends 0 --touched HEAD
says '^docs some.new_kind$'
says '^stress_busy some.new_kind$'
SLOW=1 BUILD_SECONDS=1 ends 0 compile_fail simulation gcc # a part takes no longer than an hour
says '^gcc .* skipped +it has built for 50 minutes; the next call goes on$'
STEADY=1 ends 0 stress_busy # its loops are ended, too
says '^2 tests; 0 of them failed at least once'
exit $wrong
