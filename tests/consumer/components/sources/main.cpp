// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json_fwd.hpp>
#include <xxhash.h>

int main() { return XXH3_64bits("", 0) == 0; }
