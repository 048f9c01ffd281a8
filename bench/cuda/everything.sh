#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All that a GPU has to say about acco, in one command: bench/cuda/everything.sh [--minutes 9] [--out DIR]. See everything.py --help.
exec python3 "$(dirname "$0")/everything.py" "$@"
