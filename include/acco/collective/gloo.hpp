// SPDX-License-Identifier: Apache-2.0
// Where acco/gloo.hpp was until version 0.1; will go.
#pragma once

#include "acco/gloo.hpp"  // IWYU pragma: export
