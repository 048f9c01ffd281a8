// SPDX-License-Identifier: Apache-2.0
// Which program has which backend, and how to get the one that this program lacks.
#pragma once

#include <memory>
#include <string>

#include "runner.hpp"
#include "settings.hpp"

namespace toy_gpt {

/// Names the place that the command line left open, as far as one follows from the other or from the program.
void complete(settings& s);
/// Where toy_gpt_family is, of which the settings of `label` are.
std::string how_to_get_family(std::string const& label);
/// The runner for the place that the settings name; throws where this program is without it.
std::unique_ptr<runner> make_runner(settings const& s, int& count, char**& words);

}  // namespace toy_gpt
