// SPDX-License-Identifier: Apache-2.0
// All of the engine. Whoever links acco::compiled does not see it, unless he has a storage of his own, and includes
// this himself.
#pragma once

#include <utility>

#include "acco/handed.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/round/engine.hpp"
#include "acco/usage/checked_engine.hpp"
#include "acco/usage/make_engine.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Storage>
training_engine<typename Storage::parameter_type, typename Storage::gradient_type>* engines_over<Storage>::make(
    bool checked, handed<schedule_in_use<Storage>> schedule, handed<rule_in_use<Storage>> rule, Storage storage,
    handed<backend_in_use<Storage>> backend, parameter_layout layout, options chosen) {
  return new_engine<round_engine<Storage>>(checked, storage, received(std::move(schedule)), received(std::move(rule)),
                                           std::move(storage), received(std::move(backend)), std::move(layout),
                                           std::move(chosen));
}

}  // namespace ACCO_SIMD_NAMESPACE
