// SPDX-License-Identifier: Apache-2.0
// What has nothing to do with a storage's types.
#define ACCO_COMPILES_ONCE
#include <acco/acco.hpp>
