#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All that a GPU has to say about acco, in one command: bench/cuda/everything.sh [--minutes 9] [--out DIR]. See --help.
if ! python3 -c 'import csv, dataclasses, json' 2> /dev/null; then
  echo "$0 needs python3, 3.9 or newer, with its standard library (Debian: apt-get install python3)" >&2
  exit 2
fi
exec python3 "$(dirname "$(readlink -f "$0")")/everything.py" "$@"
