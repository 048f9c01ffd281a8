// SPDX-License-Identifier: Apache-2.0
// Behind core.hpp: what programs with checkpoints share (cmake/shared.cmake).
#pragma once

#include <nlohmann/json.hpp>

#include <acco/checkpoint.hpp>
