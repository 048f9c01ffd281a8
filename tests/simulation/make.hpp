// SPDX-License-Identifier: Apache-2.0
// An optimizer as it was drawn: the only file that compiles engines.
#pragma once

#include <memory_resource>

#include <acco/any_optimizer.hpp>
#include <acco/collective/mock/backend.hpp>
#include <acco/schedule/learning_rate_function.hpp>

#include "simulation/setting.hpp"

namespace simulation {

acco::any_optimizer<double> make(training_setting const& t, acco::mock_backend const& world, std::pmr::memory_resource& memory,
                                 acco::learning_rate_function learning_rate, bool skips);

}  // namespace simulation
