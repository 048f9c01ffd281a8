// SPDX-License-Identifier: Apache-2.0
// The trainer's side of acco: three calls attach a training loop to a sharded optimizer whose communication is hidden.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "acco/any_optimizer.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/backend_in_use.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/rule/check.hpp"
#include "acco/schedule/decorated_rule.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/host_queue.hpp"
#include "acco/storage/storage.hpp"
#include "acco/storage/storage_traits.hpp"
#include "acco/usage/make_engine.hpp"
#if ACCO_ENGINES_ARE_COMPILED
#include "acco/compiled.hpp"
#else
#include "acco/usage/engines.hpp"
#endif

namespace ACCO_ENGINE_NAMESPACE {

/// The optimizer's plain type and its engine's; for a storage without element types some others, so that only what is
/// missing is said.
template <class Storage>
struct plain_types {
  using optimizer = any_optimizer<float, float>;
  using engine = training_engine<float, float>;
};
template <has_element_types Storage>
struct plain_types<Storage> {
  using optimizer = any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type>;
  using engine = training_engine<typename Storage::parameter_type, typename Storage::gradient_type>;
};

/// Whether engines that files compiled like this one make are checked (usage/checked_engine.hpp).
[[nodiscard]] constexpr bool checks_habits(habit_checks chosen) noexcept {
#if defined(NDEBUG)
  return chosen == habit_checks::on;
#else
  return chosen != habit_checks::off;
#endif
}

/// Whether the storage has what the rule and the schedule's rounds ask of it, and what its traits declare.
template <class Schedule, class Rule, class Storage, class Backend>
consteval bool check_wires() {
  constexpr bool is_one = by_wires<Schedule>([]<class... Wires>() {
    return (check_storage<Storage, decorated_rule<Schedule, Rule>, typename Wires::gradient_encoding,
                          typename Wires::parameter_encoding>() &&
            ...);
  });
  if constexpr (is_one) return check_storage_traits<Storage, Backend>();
  return false;
}

/// A sharded optimizer on one rank. Every rank constructs one with the same arguments and makes the same calls.
///
///   acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 1e-3}, acco::host_storage<float>{}, world, count};
///   training.initialize(initial);
///   while (training.samples() < budget) {
///     add_gradients(batch, training.parameters(), training.gradients());  // ADD the gradient SUM of the batch
///     if (auto report = training.accumulated(batch_size)) { ... }          // then ask for the spans again
///   }
///   training.finish();
///
/// Its members are those of `any_optimizer`, into which it can be moved, and by which a trainer can take it.
/// Construction neither allocates buffers nor communicates.
template <class Schedule, class Rule, class Storage, class Backend>
class optimizer : public plain_types<Storage>::optimizer {
  using level = level_around<Schedule>;
  using inner_schedule = typename level::inner;  // the schedule itself, where there is no level around it
  static_assert(check_schedule<inner_schedule>());
  static_assert(check_update_rule<Rule>());
  static_assert(bounded_step<Rule> || !commits_loosely<inner_schedule>,
                "acco: numbers travel in a code that may fall behind, and with momentum that diverges: take a finer code, a "
                "rule of bounded steps (adamw, lion, muon), or say acco::loosely<Encoding>");
  static constexpr bool storage_is_one = check_wires<inner_schedule, Rule, Storage, Backend>();
  static_assert(
      !measuring_pace<decltype(inner_schedule::pace)> || requires { inner_schedule::splits_steps; } ||
          requires(decltype(inner_schedule::pace) const& chosen) { chosen.measures(); },  // then the engine asks
      "acco: auto_pace splits the steps of schedules with two rounds: use it with two_phase");
  static_assert(!sends_encoded_gradients<inner_schedule> || traits_of<Backend>.passes,
                "acco: gradients are to travel encoded: the backend lacks `all_to_all(queue, span<std::byte const>, "
                "span<std::byte>)`");
  static_assert(!sums_gradients_of_groups<inner_schedule> || traits_of<Backend>.has_levels,
                "acco: gradients are to travel in a code between_groups, and the backend is of one level: make it by "
                "acco::hierarchical_world(world, ranks_a_group)");
  static consteval bool check_backend() {
    if constexpr (storage_is_one) {
      static_assert(!gathers_codes<inner_schedule> || has_all_gather<Backend, typename Storage::queue, std::byte>,
                    "acco: codes are to be gathered: the backend lacks `all_gather(queue, sharded<std::byte const>, "
                    "replicated<std::byte>)`");
      static_assert(!traits_of<Backend>.driven || std::is_constructible_v<typename Storage::queue, queue_driver> ||
                        storage_traits_of<Storage>.makes_queue,
                    "acco: the backend makes progress in the thread that waits, and the storage's queue cannot be made from its "
                    "`driver()`");
      return check_collective_backend<Backend, typename Storage::queue, typename Storage::gradient_type,
                                      reduced_by<Backend, typename Storage::gradient_type, typename Storage::sum_type>,
                                      typename Storage::parameter_type>();
    }
    return true;
  }
  static_assert(check_backend());
#if ACCO_ENGINES_ARE_COMPILED
  static_assert(
      is_compiled<Storage> || requires { sizeof(round_engine<Storage>); },
      "acco: acco::compiled has no engine over this storage: include acco/usage/engines.hpp in front of "
      "acco/optimizer.hpp or acco/acco.hpp");
#endif

  using base = typename plain_types<Storage>::optimizer;
  static typename plain_types<Storage>::engine* make(Schedule&& schedule, Rule&& rule, Storage&& storage, Backend&& backend,
                                                     parameter_layout&& layout, options&& chosen) {
    if constexpr (storage_is_one) {  // otherwise what is wrong with it has been said
      const bool checked = checks_habits(chosen.check_habits);
      try {
        if constexpr (level::is_one) {
          return level::make(checked, schedule, std::move(rule), std::move(storage), std::move(backend), std::move(layout),
                             std::move(chosen));
        } else {
          using decorated = decorated_rule<Schedule, Rule>;
          auto used = new_rule<decorated, Storage>(rule_under(schedule, std::move(rule)));
          return engines_over<Storage>::make(checked, new_schedule<Schedule, Storage>(std::move(schedule)), std::move(used),
                                             std::move(storage),
                                             new_backend<Backend, Storage, gathers_codes<inner_schedule>>(std::move(backend)),
                                             std::move(layout), std::move(chosen));
        }
      } catch (std::bad_alloc const&) {
        throw memory_error({}, text("there is no memory for the tables of an optimizer of so many parameters"),
                           text("Use more ranks, or fewer parameters; a negative number becomes a huge one"));
      }
    } else {
      return nullptr;
    }
  }

 public:
  /// Throws `usage_error` when the layout has no trainable element, an option is out of range, or the pace ends no
  /// round; `memory_error` when even its tables (16 bytes for each 4096 elements of this rank) find no memory.
  optimizer(Schedule schedule, Rule rule, Storage storage, Backend backend, parameter_layout layout, options chosen = {})
      : base(make(std::move(schedule), std::move(rule), std::move(storage), std::move(backend), std::move(layout),
                  std::move(chosen))) {}
  optimizer(Schedule schedule, Rule rule, Storage storage, Backend backend, std::size_t parameter_count, options chosen = {})
      : optimizer(std::move(schedule), std::move(rule), std::move(storage), std::move(backend), parameter_layout(parameter_count),
                  std::move(chosen)) {}
};

template <class Schedule, class Rule, class Storage, class Backend, class... Rest>
optimizer(Schedule, Rule, Storage, Backend, Rest...) -> optimizer<Schedule, Rule, Storage, Backend>;

}  // namespace ACCO_ENGINE_NAMESPACE
