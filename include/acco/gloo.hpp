// SPDX-License-Identifier: Apache-2.0
// Component `gloo`: ranks as processes that find each other by files or by a rendezvous at rank 0.
#pragma once

#include "acco/network/gloo.hpp"  // IWYU pragma: export
