// SPDX-License-Identifier: Apache-2.0
// Behind cases.hpp: what tests of checkpoints share (cmake/shared.cmake).
#pragma once

#include <nlohmann/json.hpp>

#include <acco/checkpoint.hpp>
