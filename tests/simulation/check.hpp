// SPDX-License-Identifier: Apache-2.0
// Compares what the ranks have seen with what they must have seen.
#pragma once

#include <map>
#include <string>

#include "simulation/run.hpp"

namespace simulation {

/// How often something was checked, by its name.
using tally = std::map<std::string, std::size_t>;

/// The first difference; empty: none.
std::string check(setting const& drawn, outcome const& found, tally& counts);
/// The same training with other delays must end with the same bits.
std::string compare(outcome const& one, outcome const& other);

}  // namespace simulation
