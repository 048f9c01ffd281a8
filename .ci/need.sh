# SPDX-License-Identifier: Apache-2.0
# For .ci/run and .ci/deep, which say in `cannot` what follows from a program that is missing.
need() { # PACKAGE PROGRAM ...: installs what is missing (Debian and Ubuntu, as root)
  local missing=()
  while [ $# -gt 0 ]; do
    command -v "$2" > /dev/null || missing+=("$1")
    shift 2
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  { [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; } || cannot "missing: ${missing[*]}; sudo apt-get install --no-install-recommends ${missing[*]}"
  apt-get update -qq || true # what it cannot reach may not be needed
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" || cannot "cannot be installed: ${missing[*]}"
}
