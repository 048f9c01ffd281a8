// SPDX-License-Identifier: Apache-2.0
// Every promised sentence of the library's static assertions.
#include <acco/acco.hpp>

using layout_of_one = acco::host_storage<float>;

struct no_slots {
  struct constants {};
  constants prepare(acco::update_step const&, acco::update_group const&) const { return {}; }
};
struct no_prepare {
  static constexpr std::size_t slot_count = 0;
};
struct no_apply {
  static constexpr std::size_t slot_count = 0;
  struct constants {};
  constants prepare(acco::update_step const&, acco::update_group const&) const { return {}; }
};
struct no_plan {
  acco::fixed_pace pace;
};
struct no_pace {
  acco::round_plan plan(std::size_t) const { return {}; }
};
struct never_repeats {
  acco::fixed_pace pace;
  constexpr acco::round_plan plan(std::size_t round) const {
    return {.parameters = round < 30 ? acco::update::predict : acco::update::commit};
  }
};
struct never_commits {
  acco::fixed_pace pace;
  constexpr acco::round_plan plan(std::size_t) const { return {.parameters = acco::update::predict}; }
};
struct of_32_numbers : acco::block_int8<> {
  static constexpr std::size_t block_size = 32;
};
struct shows_nothing {
  acco::fixed_pace pace;
  constexpr acco::round_plan plan(std::size_t) const { return {.parameters = acco::update::commit_and_show}; }
};
struct forgets_its_estimate {
  acco::own_slice estimate;
  acco::fixed_pace pace;
  constexpr acco::round_plan plan(std::size_t round) const {
    return round % 2 == 0 ? acco::round_plan{.parameters = acco::update::predict}
                          : acco::round_plan{.gradients = acco::carried::kept_and_fresh};
  }
};
struct decorated_twice {
  acco::fixed_pace pace;
  acco::extrapolation predictor;
  acco::delay_compensation compensation;
  constexpr acco::round_plan plan(std::size_t) const { return {.parameters = acco::update::commit_and_show}; }
};
struct final_rule final : acco::sgd {};
struct nothing {};
struct odd_block {
  static constexpr char const* name = "odd";
  static constexpr std::size_t block_size = 100, block_bytes = 100;
  static void encode(float const*, std::byte*) {}
  static void decode(std::byte const*, float*) {}
};

struct only_rank {
  int rank() const { return 0; }
  int size() const { return 1; }
};
struct no_gather : only_rank {
  template <class T>
  void all_reduce(acco::host_queue&, acco::partial<T const>, acco::replicated<T>) {}
  template <class G, class S>
  void reduce_scatter(acco::host_queue&, acco::partial<G const>, acco::sharded<S>) {}
  template <class T>
  void broadcast(acco::host_queue&, acco::replicated<T>, int) {}
};
struct no_scatter : only_rank {
  template <class T>
  void all_reduce(acco::host_queue&, acco::partial<T const>, acco::replicated<T>) {}
};

struct no_broadcast : only_rank {
  template <class T>
  void all_reduce(acco::host_queue&, acco::partial<T const>, acco::replicated<T>) {}
  template <class G, class S>
  void reduce_scatter(acco::host_queue&, acco::partial<G const>, acco::sharded<S>) {}
  template <class T>
  void all_gather(acco::host_queue&, acco::sharded<T const>, acco::replicated<T>) {}
};
struct complete : no_gather {
  template <class T>
  void all_gather(acco::host_queue&, acco::sharded<T const>, acco::replicated<T>) {}
};
struct trait_without_member : complete {
  static constexpr acco::backend_traits traits{.passes = true};
};
struct member_without_trait : complete {
  void abort(std::string_view) const {}
};

template <class Schedule = acco::synchronous<>, class Rule = acco::sgd, class Storage = layout_of_one,
          class Backend = acco::solo_backend>
using training = acco::optimizer<Schedule, Rule, Storage, Backend>;

void use() {
  training<> fine{{}, {}, {}, {}, 1};
#if defined(RULE_WITHOUT_SLOT_COUNT)  // expect: the update rule lacks `static constexpr std::size_t slot_count`
  {
    training<acco::synchronous<>, no_slots> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(RULE_WITHOUT_PREPARE)  // expect: the update rule lacks `prepare(update_step, update_group) const` returning trivially
  {
    // copyable constants
    training<acco::synchronous<>, no_prepare> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(RULE_WITHOUT_APPLY)  // expect: the update rule lacks `static void apply(
  {
    training<acco::synchronous<>, no_apply> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SCHEDULE_WITHOUT_PLAN)  // expect: the schedule lacks `round_plan plan(std::size_t round) const`
  {
    training<no_plan> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SCHEDULE_WITHOUT_PACE)  // expect: the schedule lacks a data member `pace`
  {
    training<no_pace> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SCHEDULE_WITHOUT_PERIOD)  // expect: its rounds do not repeat
  {
    training<never_repeats> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SCHEDULE_THAT_NEVER_COMMITS)  // expect: no round of its period commits
  {
    training<never_commits> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(TRAIT_WITHOUT_MEMBER)  // expect: the backend's traits declare `passes`, and it lacks `all_to_all(
  {
    training<acco::synchronous<>, acco::sgd, layout_of_one, trait_without_member> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(MEMBER_WITHOUT_TRAIT)  // expect: and its traits do not declare `tells_departures`
  {
    training<acco::synchronous<>, acco::sgd, layout_of_one, member_without_trait> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BACKEND_WITHOUT_RANK)  // expect: the backend lacks `rank() const` and `size() const` returning int
  {
    training<acco::synchronous<>, acco::sgd, layout_of_one, nothing> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BACKEND_WITHOUT_ALL_REDUCE)  // expect: the backend lacks `all_reduce(queue, partial<double const>,
  {
    // replicated<double>)`
    training<acco::synchronous<>, acco::sgd, layout_of_one, only_rank> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BACKEND_WITHOUT_REDUCE_SCATTER)  // expect: the backend lacks `reduce_scatter(queue, partial<Gradient const>,
  {
    // sharded<Sum>)`
    training<acco::synchronous<>, acco::sgd, layout_of_one, no_scatter> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BACKEND_WITHOUT_ALL_GATHER)  // expect: the backend lacks `all_gather(queue, sharded<Parameter const>,
  {
    // replicated<Parameter>)`
    training<acco::synchronous<>, acco::sgd, layout_of_one, no_gather> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BACKEND_WITHOUT_BROADCAST)  // expect: the backend lacks `broadcast(queue, replicated<T>, int root)`
  {
    training<acco::synchronous<>, acco::sgd, layout_of_one, no_broadcast> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(ENCODED_GRADIENTS_WITHOUT_ALL_TO_ALL)  // expect: gradients are to travel encoded: the backend lacks `all_to_all
  {
    training<acco::synchronous<acco::block_int8<>>, acco::sgd, layout_of_one, no_gather> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(ENCODED_PARAMETERS_WITHOUT_GATHER)  // expect: codes are to be gathered: the backend lacks `all_gather
  {
    using schedule = acco::synchronous<acco::coded<acco::full, acco::block_int8<>>>;
    training<schedule, acco::sgd, layout_of_one, no_gather> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(ALL_UPDATE_BY_FULL_GRADIENTS)  // expect: parameters that are updated_by_all need gradients in a code
  {
    [[maybe_unused]] acco::coded<acco::full, acco::updated_by_all> wrong;
  }
#endif
#if defined(AUTO_PACE_WITHOUT_PARTS)  // expect: auto_pace splits the steps of schedules with two rounds: use it with two_phase
  {
    training<acco::delayed<acco::auto_pace>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SCHEDULE_THAT_SHOWS_NOTHING)  // expect: the schedule lacks a data member `predictor`
  {
    training<shows_nothing> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(PREDICTOR_WITHOUT_SHOW)  // expect: delayed's predictor lacks `slot_count`, `prepare(update_step) const` or `static
  {
    // Real show(
    [[maybe_unused]] acco::delayed wrong{.predictor = nothing{}};
  }
#endif
#if defined(COMPENSATION_WITHOUT_CORRECT)  // expect: delayed's compensation lacks `slot_count`, `prepare(update_step) const` or
  {
    // `static Real correct(
    [[maybe_unused]] acco::delayed wrong{.compensation = nothing{}};
  }
#endif
#if defined(COMPENSATION_OF_PREDICTIONS)  // expect: a compensation corrects gradients of committed parameters
  {
    [[maybe_unused]] acco::delayed wrong{.predictor = acco::extrapolation{}, .compensation = acco::delay_compensation{}};
  }
#endif
#if defined(ESTIMATE_THAT_IS_NOT_KEPT)  // expect: takes its own rank's gradients (own_slice, own_corrected) and does not keep
  {
    // them
    training<forgets_its_estimate> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(TWO_DECORATIONS)  // expect: give the schedule one of the two
  {
    training<decorated_twice> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(PREDICTOR_OF_A_FINAL_RULE)  // expect: the rule must not be final
  {
    training<acco::delayed<acco::fixed_pace, acco::full, acco::extrapolation>, final_rule> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(FEEDBACK_OF_AN_ESTIMATE)  // expect: has a feedback, which would send what was lost once more: give the feedback to
  {
    // the commit
    training<acco::two_phase<acco::fixed_pace, acco::with_error_feedback<acco::block_int4<>>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STATES_IN_THE_PLACE_OF_SUMS)  // expect: has a feedback whose receivers sum states in their place (ef21)
  {
    training<acco::two_phase<acco::fixed_pace, acco::full, acco::with_feedback<acco::block_int4<>, acco::ef21>>> wrong{
        {}, {}, {}, {}, 1};
  }
#endif
#if defined(STATES_IN_ANOTHER_STORE)  // expect: keeps them in the masters' type: give it no other store
  {
    using states = acco::with_feedback<acco::block_int4<>, acco::ef21, acco::bfloat16>;
    states wrong;
  }
#endif
#if defined(SCALES_OF_SEVERAL_BLOCKS)  // expect: int8_blocks keeps 64 numbers with one scale: give it a code whose blocks have
  {
    acco::with_error_feedback<of_32_numbers, acco::int8_blocks> wrong;
  }
#endif
#if defined(BIASED_COMMIT)  // expect: a commit's gradients travel in a code that is biased, and what it loses adds up: give it
  {
    training<acco::synchronous<acco::coded<acco::majority_vote>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(LOOSE_PARAMETERS)  // expect: travel in a code that may fall behind
  {
    training<acco::synchronous<acco::coded<acco::full, acco::majority_vote>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(SIGNS_WITH_ERROR_FEEDBACK)  // expect: so what it loses is not the difference to what arrives: give it
  {
    acco::with_error_feedback<acco::majority_vote> wrong;
  }
#endif
#if defined(TURNED_SUMS_OF_CODES)  // expect: codes that are added before they are decoded are not turned
  {
    acco::rotated<acco::block_dct_top<16>> wrong;
  }
#endif
#if defined(PRODUCTS_WITHOUT_FEEDBACK)  // expect: a commit's gradients travel in a code that is biased
  {
    training<acco::synchronous<acco::power_sgd>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(PLANNED_FEEDBACK)  // expect: acco: planned chooses among codes themselves
  {
    acco::planned<acco::block_int8<>, acco::with_error_feedback<acco::block_gauss2>> wrong;
  }
#endif
#if defined(PLANNED_SIGNS)  // expect: acco: a code of planned says nothing of sizes
  {
    acco::planned<acco::block_int8<>, acco::majority_vote> wrong;
  }
#endif
#if defined(GROUPS_OF_ONE_LEVEL)  // expect: acco: gradients are to travel in a code between_groups
  {
    training<acco::synchronous<acco::between_groups<acco::block_int8<>>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(TILES_OF_GROUPS)  // expect: acco: between_groups takes an encoding of blocks of neighbours
  {
    acco::between_groups<acco::block_dct2_top<32>> wrong;
  }
#endif
#if defined(STATES_OF_PRODUCTS)  // expect: a feedback whose receivers sum states (ef21) is for encodings of blocks
  {
    training<acco::synchronous<acco::with_feedback<acco::power_sgd, acco::ef21>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(COMMIT_OF_OWN_GRADIENTS)  // expect: own_slice and own_corrected are for estimates
  {
    training<acco::synchronous<acco::own_slice>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(COMMIT_CORRECTED_BY_OWN_GRADIENTS)  // expect: own_slice and own_corrected are for estimates
  {
    training<acco::synchronous<acco::own_corrected>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(CORRECTED_ESTIMATES_OF_A_FINAL_RULE)  // expect: the rule must not be final
  {
    training<acco::two_phase<acco::fixed_pace, acco::own_corrected>, final_rule> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(GAME_IN_SIGNS)  // expect: this code says nothing of sizes, and differences to a reference point must vanish
  {
    training<acco::masha<acco::without_feedback<acco::loosely<acco::majority_vote>>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(GAME_IN_HALF)  // expect: a reference point needs a storage whose gradients and sums have the masters' type
  {
    acco::optimizer wrong{acco::masha{}, acco::sgd{}, acco::host_storage<float, acco::half>{}, acco::solo_backend{},
                          std::size_t{1}};
  }
#endif
#if defined(GAME_OF_MATRICES)  // expect: a schedule with a reference point takes rules of elements
  {
    training<acco::masha<>, acco::muon> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(BLOCK_THAT_DOES_NOT_DIVIDE)  // expect: the size of an encoding's block divides 4096
  {
    (void)acco::encoded_size<odd_block>(1);
    training<acco::synchronous<odd_block>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STORAGE_OF_INTEGERS)  // expect: host_storage's Parameter must be float, double, acco::bfloat16 or acco::half
  {
    acco::host_storage<int> wrong;
  }
#endif
#if defined(STORAGE_WITH_NARROW_MASTER)  // expect: host_storage's Master must be float or double: a 16-bit master loses small
  {
    // updates
    acco::host_storage<float, float, acco::bfloat16> wrong;
  }
#endif
#if defined(PARTIAL_GRADIENT_TO_RULE)  // expect: a partial gradient cannot feed a rule: reduce_scatter it first, that makes it
  {
    // sharded
    float gradient[1] = {};
    const acco::region_update decided;
    const acco::parameter_layout one(1);
    acco::state_arrays<layout_of_one> arrays(acco::partition(1, 1), 0);
    extern acco::rule_in_use<layout_of_one>& rule;
    acco::sharded_state<layout_of_one> state(arrays, rule, one, acco::update_regions(one, acco::norm_detail::total),
                                             acco::partition(1, 1), 0, false);
    state.begin(acco::partial<float const>(gradient), &decided);
  }
#endif
#if defined(TASK_THAT_OWNS)  // expect: a task captures pointers, views and numbers only
  {
    acco::host_queue queue;
    queue.enqueue([owned = std::vector<int>(1)] {});
  }
#endif
#if defined(MICRO_BATCH_THAT_RETURNS_A_LOSS)  // expect: acco: a micro-batch of step() returns acco::micro_batch_sums{.weight =
  {
    // samples
    acco::any_optimizer<float> handle;
    handle.step([](auto, auto) { return 0.5F; });
  }
#endif
#if defined(MICRO_BATCH_THAT_RETURNS_NOTHING)  // expect: acco: a micro-batch of step() returns acco::micro_batch_sums{.weight =
  {
    // samples
    acco::any_optimizer<float> handle;
    handle.step([] {});
  }
#endif
#if defined(MICRO_BATCH_OF_POINTERS)  // expect: acco: step() calls micro_batch(std::span<Parameter const> parameters,
  {
    // std::span<Gradient>
    acco::any_optimizer<float> handle;
    handle.step([](float const*, float*) { return 1; });
  }
#endif
#if defined(DISTRIBUTIONS_DO_NOT_CONVERT)  // expect: conver
  {
    float data[1] = {};
    acco::sharded<float> wrong = acco::partial<float>(data);
  }
#endif
}
