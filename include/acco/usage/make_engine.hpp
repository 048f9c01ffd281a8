// SPDX-License-Identifier: Apache-2.0
// The one way to an engine that any schedule, rule and backend share: declared here for whoever makes an optimizer,
// defined in usage/engines.hpp, which acco::compiled has compiled.
#pragma once

#include "acco/collective/backend_in_use.hpp"
#include "acco/handed.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Storage>
class round_engine;

template <class Storage>
struct engines_over {
  /// A new one; `checked`: one that checks habits, where its arrays are in host memory (usage/checked_engine.hpp).
  [[nodiscard]] static training_engine<typename Storage::parameter_type, typename Storage::gradient_type>* make(
      bool checked, handed<schedule_in_use<Storage>> schedule, handed<rule_in_use<Storage>> rule, Storage storage,
      handed<backend_in_use<Storage>> backend, parameter_layout layout, options chosen);
};

/// Whether acco::compiled has one over this storage (compiled.hpp).
template <class Storage>
inline constexpr bool is_compiled = false;

}  // namespace ACCO_SIMD_NAMESPACE
