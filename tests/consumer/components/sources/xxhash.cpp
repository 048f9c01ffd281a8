// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

int XXH3_64bits(char const*, int) { return 1; }
