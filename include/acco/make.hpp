// SPDX-License-Identifier: Apache-2.0
// From names to types, while the program runs: what a flag or a configuration says becomes an optimizer.
#pragma once

#include <string_view>
#include <utility>

#include "acco/any_optimizer.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/optimizer.hpp"
#include "acco/options.hpp"
#include "acco/rule/all.hpp"        // IWYU pragma: export
#include "acco/schedule/named.hpp"  // IWYU pragma: export
#include "acco/type_list.hpp"       // IWYU pragma: export

#include "acco/hide_macros.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// The optimizer of the schedule of that name at this pace:
///
///   auto training = acco::make("two_phase+int4", acco::fixed_pace{.first = 7, .second = 1}, acco::adamw{.learning_rate = 1e-3},
///                              acco::host_storage<float>{}, world, layout, options);
///
/// All that `Schedules` names is compiled; they share one engine. Throws what `with_schedule`, `at_pace` and
/// `optimizer` throw.
template <class Schedules = named_schedules, class Rule, class Storage, class Backend>
[[nodiscard]] any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type> make(
    std::string_view name, any_pace const& pace, Rule rule, Storage storage, Backend backend, parameter_layout layout,
    options chosen = {}) {
  return with_schedule<Schedules>(
      name, [&](auto schedule) -> any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type> {
        return optimizer{at_pace(schedule, pace), std::move(rule),   std::move(storage),
                         std::move(backend),      std::move(layout), std::move(chosen)};
      });
}

}  // namespace ACCO_ENGINE_NAMESPACE

#include "acco/restore_macros.hpp"
