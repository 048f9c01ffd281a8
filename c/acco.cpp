// SPDX-License-Identifier: Apache-2.0
// The functions of acco.h. Each is one guarded call of the C++ interface.
#include "acco.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <acco/any_optimizer.hpp>
#include <acco/error.hpp>
#include <acco/options.hpp>
#include <acco/rule/all.hpp>
#include <acco/schedule/named.hpp>
#include <acco/version.hpp>

#include "backend.hpp"
#include "library.hpp"
#include "structs.hpp"
#include "types.hpp"

static_assert(ACCO_C_VERSION_MAJOR == ACCO_VERSION_MAJOR && ACCO_C_VERSION_MINOR == ACCO_VERSION_MINOR &&
                  ACCO_C_VERSION_PATCH == ACCO_VERSION_PATCH,
              "acco.h and acco/version.hpp tell different versions");

namespace acco_c {

void failure::say(std::string_view what) noexcept {
  const std::size_t size = what.size() < sizeof words ? what.size() : sizeof words - 1;
  std::memcpy(words, what.data(), size);
  words[size] = '\0';
}

failure& last_failure() noexcept {
  thread_local failure last;
  return last;
}

acco_status record() noexcept {
  failure& last = last_failure();
  const std::uint64_t number = last.number + 1;
  const auto of = [&](acco_status status, acco::error const& e) {
    last.number = number;
    last.status = status;
    last.rank = e.rank();
    last.peer = e.peer();
    last.round = e.round();
    last.say(e.what());
    return status;
  };
  const auto other = [&](acco_status status, std::string_view words) {
    last = failure{};
    last.number = number;
    last.status = status;
    last.say(words);
    return status;
  };
  try {
    throw;
  } catch (acco::usage_error const& e) {
    return of(ACCO_ERROR_USAGE, e);
  } catch (acco::mismatch_error const& e) {
    return of(ACCO_ERROR_MISMATCH, e);
  } catch (acco::peer_error const& e) {
    return of(ACCO_ERROR_PEER, e);
  } catch (acco::deadline_error const& e) {
    return of(ACCO_ERROR_DEADLINE, e);
  } catch (acco::non_finite_error const& e) {
    return of(ACCO_ERROR_NON_FINITE, e);
  } catch (acco::memory_error const& e) {
    return of(ACCO_ERROR_MEMORY, e);
  } catch (acco::device_error const& e) {
    return of(ACCO_ERROR_DEVICE, e);
  } catch (acco::error const& e) {
    return of(ACCO_ERROR_OTHER, e);
  } catch (callback_failed const& e) {
    if (e.has_words) return e.status;
    return other(e.status, acco::text("acco: ", e.callback, " returned ", e.status).view());
  } catch (std::bad_alloc const&) {
    return other(ACCO_ERROR_MEMORY, "acco: there is no memory. Use more ranks, or fewer parameters.");
  } catch (std::exception const& e) {
    return other(ACCO_ERROR_OTHER, e.what());
  } catch (...) {
    return other(ACCO_ERROR_OTHER, "acco: an exception that is no std::exception.");
  }
}

namespace {

template <class Action>
acco_status guarded(Action&& action) noexcept {
  try {
    action();
    return ACCO_OK;
  } catch (...) {
    return record();
  }
}

/// Throws unless `value` is the number of one of the names, from 0: each list stands once, and what it lacks is
/// refused.
template <std::size_t count>
void require_one_of(char const* what, int value, char const* const (&known)[count], std::initializer_list<int> but = {}) {
  const auto is_one = [&](int i) { return std::find(but.begin(), but.end(), i) == but.end(); };
  if (value >= 0 && value < static_cast<int>(count) && is_one(value)) return;
  acco::text all;
  for (int i = 0; i < static_cast<int>(count); ++i) {
    if (is_one(i)) all.append(all.view().empty() ? "" : ", ").append(std::string_view(known[i]));
  }
  throw acco::usage_error({}, acco::text(what, " is ", value), acco::text("It must be one of ", all.view()));
}
/// An array of the caller's; NULL where it is empty is none.
template <class T>
std::span<T> array(T* data, std::size_t count, char const* what) {
  if (count != 0) demand(data, what);
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
    throw acco::usage_error({}, acco::text(what, " has ", count, " elements"),
                            acco::text("No array has as many: a negative number becomes a huge one"));
  }
  return {data, count};
}
/// Throws where memory that a new struct would be written to cannot hold its size.
void require_room(void const* to, std::size_t size, char const* what) {
  demand(static_cast<unsigned char const*>(to), what);
  (void)checked_size(size, what, "the init function of its own type");
}

/// The kind of a struct that has been initialised.
template <class T>
int kind_of(T const* given, char const* what, char const* init) {
  (void)checked_size(demand(given, what).struct_size, what, init);
  return given->kind;
}

/// Writes defaults to a struct, of the size that the caller thinks of.
template <class T, class Usual>
acco_status init(T* to, std::size_t size, char const* what, Usual&& usual) noexcept {
  return guarded([&] {
    require_room(to, size, what);
    write(to, size, usual());
  });
}

// Defaults: those of C++.

/// The name of C's constant: "ACCO_ADAMW" of adamw.
struct constant {
  char text[32] = "ACCO_";
  consteval explicit constant(char const* name) {
    for (std::size_t k = 0; name[k] != '\0'; ++k)
      text[5 + k] = name[k] >= 'a' && name[k] <= 'z' ? static_cast<char>(name[k] - 'a' + 'A') : name[k];
  }
};
template <class Named>
constexpr constant constant_of{Named::name};
/// Those of a list of types, by number.
template <class List>
struct constants;
template <class... Types>
struct constants<acco::type_list<Types...>> {
  static constexpr char const* names[] = {constant_of<Types>.text...};
};

struct rule_kind {
  acco_rule (*usual)();
  decltype(&make<acco::adamw>) make;
};
template <class... Rules>
constexpr auto kinds_of(acco::type_list<Rules...>) {
  return std::array{rule_kind{usual_of<Rules>, make<Rules>}...};
}
constexpr auto rule_kinds = kinds_of(acco::all_rules{});  // by acco_rule.kind

acco_rule usual_rule(int kind) {
  require_one_of("acco_rule.kind", kind, constants<acco::all_rules>::names);
  acco_rule rule = rule_kinds[static_cast<std::size_t>(kind)].usual();
  rule.kind = kind;
  return rule;
}

constexpr char const* pace_constants[] = {"ACCO_FIXED_PACE", "ACCO_ELASTIC_PACE", "ACCO_AUTO_PACE"};
constexpr char const* encoding_constants[] = {"ACCO_FULL", "ACCO_BFLOAT16",  "ACCO_INT8",
                                              "ACCO_INT4", "ACCO_INT8_INT4", "ACCO_CODED"};

acco_schedule usual_schedule(int kind) {
  require_one_of("acco_schedule.kind", kind, constants<acco::all_schedules>::names);
  acco_schedule schedule{};
  schedule.kind = kind;
  const auto pace = kind == ACCO_TWO_PHASE ? acco::usual_split<acco::fixed_pace>() : acco::fixed_pace{};
  schedule.first = pace.first;
  schedule.second = pace.second;
  schedule.at_most = acco::elastic_pace{}.at_most;
  return schedule;
}

struct schedule_numbers {
  char const* name;
  int kind, estimate, commit;
};
template <class Wire>
constexpr int number_of = static_cast<int>(acco::place_of<Wire>(wires{}));
template <class Schedule>
constexpr schedule_numbers numbers_of(char const* name) {
  schedule_numbers numbers{name, static_cast<int>(acco::find_name(acco::all_schedules{}, Schedule::name)), ACCO_FULL,
                           number_of<decltype(Schedule::commit)>};
  if constexpr (requires(Schedule const& s) { s.estimate; }) numbers.estimate = number_of<decltype(Schedule::estimate)>;
  return numbers;
}
template <class... Named>
constexpr auto numbers_of_all(acco::type_list<Named...>) {
  return std::array{numbers_of<acco::type_of<Named>>(Named::name)...};
}
using named_here = acco::without<acco::named_schedules, "two_phase+own">;  // wires have numbers, and that one has none
constexpr auto schedules = numbers_of_all(named_here{});

constexpr char const* learning_rate_constants[] = {"ACCO_CONSTANT",
                                                   "ACCO_WARMUP_COSINE",
                                                   "ACCO_WARMUP_LINEAR",
                                                   "ACCO_WARMUP_STABLE_DECAY",
                                                   "ACCO_WARMUP_COSINE_RESTARTS",
                                                   "ACCO_LEARNING_RATE_FUNCTION"};

acco_learning_rate usual_learning_rate(int kind) {
  require_one_of("acco_learning_rate.kind", kind, learning_rate_constants);
  acco_learning_rate rate{};
  rate.kind = kind;
  rate.tokens_per_sample = 1;
  rate.factor = acco::constant{}.factor;
  rate.step = acco::warmup_cosine{}.step;
  rate.stretch = acco::warmup_cosine_restarts{}.stretch;
  if (kind == ACCO_WARMUP_COSINE) rate.final_factor = acco::warmup_cosine{}.final_factor;
  if (kind == ACCO_WARMUP_LINEAR) rate.final_factor = acco::warmup_linear{}.final_factor;
  if (kind == ACCO_WARMUP_STABLE_DECAY) rate.final_factor = acco::warmup_stable_decay{}.final_factor;
  if (kind == ACCO_WARMUP_COSINE_RESTARTS) rate.final_factor = acco::warmup_cosine_restarts{}.final_factor;
  return rate;
}

acco_group usual_group() {
  acco_group group{};
  group.learning_rate_scale = acco::update_group{}.learning_rate_scale;
  group.weight_decay = group.beta1 = group.beta2 = group.epsilon = group.momentum = group.clip_norm = ACCO_OF_RULE;
  return group;
}

acco_options usual_options() {
  const acco::options usual;
  acco_options options{};
  options.clip_norm = usual.clip_norm;
  options.stable_addresses = usual.stable_addresses ? 1 : 0;
  options.deadline = usual.deadline;
  options.skip_non_finite = usual.on_non_finite == acco::non_finite::skip ? 1 : 0;
  options.skip_limit = usual.skip_limit;
  options.empty_limit = usual.empty_limit;
  options.bucket_elements = usual.bucket_elements;
  options.average_decay = usual.average_decay;
  return options;
}

acco_mpi_options usual_mpi_options() {
  acco_mpi_options options{};
  options.deadline = acco::options{}.deadline;
  return options;
}
acco_gloo_options usual_gloo_options() {
  acco_gloo_options options{};
  options.deadline = acco::options{}.deadline;
  return options;
}

// From the structs of C to those of C++. What their numbers mean is checked there.

/// A learning rate of the caller's.
struct callers_rate {
  acco_learning_rate_function function;
  void* user;
  double operator()(acco::training_position const& at) const {
    const acco_position position{at.samples, at.steps};
    return function(&position, user);
  }
};

acco::learning_rate_function learning_rate_of(acco_learning_rate const* given) {
  const int kind = kind_of(given, "acco_options.learning_rate", "acco_learning_rate_init");
  const acco_learning_rate r = read(given, usual_learning_rate(kind), "acco_options.learning_rate", "acco_learning_rate_init");
  require_one_of("acco_learning_rate.unit", r.unit, {"ACCO_IN_SAMPLES", "ACCO_IN_STEPS", "ACCO_IN_TOKENS"});
  const auto in_unit = [&](auto const& schedule) -> acco::learning_rate_function {
    if (r.unit == ACCO_IN_STEPS) return acco::in_steps{schedule};
    if (r.unit == ACCO_IN_TOKENS) return acco::in_tokens{schedule, r.tokens_per_sample};
    return acco::in_samples{schedule};
  };
  switch (r.kind) {
    case ACCO_WARMUP_COSINE: return in_unit(acco::warmup_cosine{r.warmup, r.total, r.final_factor, r.step});
    case ACCO_WARMUP_LINEAR: return in_unit(acco::warmup_linear{r.warmup, r.total, r.final_factor, r.step});
    case ACCO_WARMUP_STABLE_DECAY:
      return in_unit(acco::warmup_stable_decay{
          r.warmup, r.total, r.decay, r.final_factor,
          r.root_cooldown != 0 ? acco::cooldown::one_minus_square_root : acco::cooldown::linear, r.step});
    case ACCO_WARMUP_COSINE_RESTARTS:
      return in_unit(acco::warmup_cosine_restarts{r.warmup, r.period, r.stretch, r.final_factor, r.step});
    case ACCO_LEARNING_RATE_FUNCTION: demand(r.function, "acco_learning_rate.function"); return callers_rate{r.function, r.user};
    case ACCO_CONSTANT: return in_unit(acco::constant{r.factor});
    default:
      throw acco::usage_error({}, acco::text("acco_learning_rate.kind is ", r.kind), acco::text("This library makes none of it"));
  }
}

acco::options options_of(acco_options const* given) {
  acco::options options;
  if (given == nullptr) return options;
  const acco_options o = read(given, usual_options(), "acco_options", "acco_options_init");
  options.clip_norm = o.clip_norm;
  if (o.learning_rate != nullptr) options.learning_rate = learning_rate_of(o.learning_rate);
  options.stable_addresses = o.stable_addresses != 0;
  options.deadline = o.deadline;
  options.on_non_finite = o.skip_non_finite != 0 ? acco::non_finite::skip : acco::non_finite::raise;
  options.skip_limit = o.skip_limit;
  options.empty_limit = o.empty_limit;
  options.bucket_elements = o.bucket_elements;
  options.average_decay = o.average_decay;
  require_one_of("acco_options.norms", o.norms, {"ACCO_NORMS_TOTAL", "ACCO_NORMS_OF_GROUPS", "ACCO_NORMS_OF_TENSORS"});
  constexpr acco::norm_detail norms[] = {acco::norm_detail::total, acco::norm_detail::groups, acco::norm_detail::tensors};
  options.norms = norms[o.norms];
  require_one_of("acco_options.check_habits", o.check_habits, {"ACCO_CHECK_BY_BUILD", "ACCO_CHECK_ON", "ACCO_CHECK_OFF"});
  constexpr acco::habit_checks checks[] = {acco::habit_checks::in_debug_builds, acco::habit_checks::on, acco::habit_checks::off};
  options.check_habits = checks[o.check_habits];
  options.in_place = o.in_place != 0;
  return options;
}

acco_schedule checked_schedule(acco_schedule const* given) {
  const acco_schedule s = read(given, usual_schedule(ACCO_SYNCHRONOUS), "acco_schedule", "acco_schedule_init");
  (void)usual_schedule(s.kind);
  require_one_of("acco_schedule.pace", s.pace, pace_constants);
  require_one_of("acco_schedule.estimate", s.estimate, encoding_constants, {ACCO_INT8_INT4, ACCO_CODED});
  require_one_of("acco_schedule.commit", s.commit, encoding_constants, {ACCO_INT4});
  if (s.kind != ACCO_TWO_PHASE && s.estimate != ACCO_FULL) {
    throw acco::usage_error({}, acco::text("acco_schedule.estimate is set, and this kind of schedule has no estimates"),
                            acco::text("Leave it at ACCO_FULL, or choose ACCO_TWO_PHASE"));
  }
  if (s.kind != ACCO_TWO_PHASE && s.pace == ACCO_AUTO_PACE) {
    throw acco::usage_error({}, acco::text("ACCO_AUTO_PACE splits steps, and this kind of schedule has steps of one part"),
                            acco::text("Choose ACCO_FIXED_PACE or ACCO_ELASTIC_PACE, or ACCO_TWO_PHASE"));
  }
  if (s.kind == ACCO_SYNCHRONOUS && s.pace != ACCO_FIXED_PACE) {
    throw acco::usage_error({}, acco::text("ACCO_SYNCHRONOUS takes ACCO_FIXED_PACE only"),
                            acco::text("Its computation waits for every round, so a rank has nothing to wait with"));
  }
  constexpr unsigned most = 1U << 24U;
  if (s.first > most || s.second > most || (s.pace == ACCO_ELASTIC_PACE && s.at_most > most)) {
    throw acco::usage_error(
        {}, acco::text("acco_schedule asks for ", s.first, " and ", s.second, " micro-batches a part, at most ", s.at_most),
        acco::text("Ask for ", most, " at most: a negative number becomes a huge one"));
  }
  if (s.pace == ACCO_ELASTIC_PACE && (s.at_most < s.first || s.first == 0)) {
    throw acco::usage_error({}, acco::text("ACCO_ELASTIC_PACE asks for ", s.first, " to ", s.at_most, " micro-batches a round"),
                            acco::text("A round needs at least one micro-batch, and at_most not below first"));
  }
  return s;
}

std::shared_ptr<carrier> const& carrier_of_world(acco_world const* world, char const* what) {
  return demand(world, what).carries;
}
void give(acco_world** to, std::shared_ptr<carrier> made) { *to = new acco_world{std::move(made), false}; }

acco::any_optimizer<float>& training_of(acco_optimizer* optimizer, char const* what) { return demand(optimizer, what).training; }
acco::any_optimizer<float> const& training_of(acco_optimizer const* optimizer, char const* what) {
  return demand(optimizer, what).training;
}

acco_report report_of(acco::round_report const& r) {
  acco_report c{};
  c.round = r.round;
  c.update = r.plan.parameters == acco::update::commit    ? ACCO_COMMIT
             : r.plan.parameters == acco::update::predict ? ACCO_PREDICT
                                                          : ACCO_COMMIT_AND_PREDICT;
  c.second_part = r.plan.part == acco::step_part::second ? 1 : 0;
  c.committed = r.committed ? 1 : 0;
  c.skipped = r.skipped ? 1 : 0;
  c.step = r.step;
  c.samples = r.samples;
  c.weight = r.weight;
  c.mean_loss = r.mean_loss;
  c.step_weight = r.step_weight;
  c.step_loss = r.step_loss;
  c.gradient_norm = r.gradient_norm;
  c.clip_scale = r.clip_scale;
  c.learning_rate_scale = r.learning_rate_scale;
  c.micro_batches = r.micro_batches;
  c.first = r.first;
  c.second = r.second;
  c.compute_seconds = r.compute_seconds;
  c.communication_seconds = r.communication_seconds;
  c.exposed_seconds = r.exposed_seconds;
  c.hidden_fraction = r.hidden_fraction();
  c.bytes_sent = r.bytes_sent;
  c.progress = r.progress;
  c.computing_begin = r.computing.begin;
  c.computing_end = r.computing.end;
  c.communicating_begin = r.communicating.begin;
  c.communicating_end = r.communicating.end;
  return c;
}
void check_report(acco_report const* report) {
  if (report != nullptr) (void)checked_size(report->struct_size, "acco_report", "acco_report_init");
}
void tell(acco_report* report, acco::round_report const& round) {
  if (report != nullptr) write_output(report, report_of(round), "acco_report", "acco_report_init");
}

void tell(acco_tensor* tensor, acco_layout const& layout, std::size_t index) {
  acco::parameter_layout::tensor const found = layout.layout[index];
  acco_tensor c{};
  c.name = layout.names[index].c_str();
  c.shape = found.shape.data();
  c.dimensions = found.shape.size();
  c.offset = found.offset;
  c.size = found.size;
  c.group = found.group;
  write_output(tensor, c, "acco_tensor", "acco_tensor_init");
}

[[maybe_unused]] [[noreturn]] void refuse_missing(char const* name, char const* package) {
  throw acco::usage_error({}, acco::text("this library, acco::c, was compiled without ", name),
                          acco::text("Compile it where CMake finds ", name, " (Debian: ", package, "); acco_has asks for it"));
}

}  // namespace
}  // namespace acco_c

using namespace acco_c;

// ---------------------------------------------------------------------------------------------------- errors, versions

char const* acco_last_error(void) { return last_failure().words; }
int acco_last_error_peer(void) { return last_failure().peer; }
int acco_last_error_rank(void) { return last_failure().rank; }
int64_t acco_last_error_round(void) { return last_failure().round; }
char const* acco_status_name(acco_status status) {
  constexpr char const* names[] = {"ok", "usage", "mismatch", "peer", "deadline", "non-finite", "memory", "device", "other"};
  return status >= ACCO_OK && status <= ACCO_ERROR_OTHER ? names[status] : "caller";
}

int acco_c_version(void) { return ACCO_C_VERSION; }
acco_status acco_check_version_of(int header) {
  return guarded([&] {
    constexpr int series = ACCO_C_VERSION_MAJOR == 0 ? 100 : 10000;
    if (header / series == ACCO_C_VERSION / series && header <= ACCO_C_VERSION) return;
    throw acco::usage_error({},
                            acco::text("this program was compiled with acco.h of version ", version_text(header),
                                       ", and is linked with acco::c of version ", version_text(ACCO_C_VERSION)),
                            acco::text("Compile it again with the header of the library that it is linked with"));
  });
}

// -------------------------------------------------------------------------------------------------------------- worlds

acco_status acco_run_threads(int ranks, acco_rank_function function, void* user) {
  acco_status status = ACCO_OK;
  const acco_status here = guarded([&] {
    demand(function, "acco_run_threads: function");
    status = run_threads(ranks, function, user);
  });
  return here != ACCO_OK ? here : status;
}
acco_status acco_world_solo(acco_world** world) {
  return guarded([&] {
    demand(world, "acco_world_solo: world");
    give(world, make_solo());
  });
}

int acco_has(int backend) {
#ifdef ACCO_C_MPI
  if (backend == ACCO_MPI) return 1;
#endif
#ifdef ACCO_C_GLOO
  if (backend == ACCO_GLOO) return 1;
#endif
  return backend == ACCO_THREADS ? 1 : 0;
}

acco_status acco_init_mpi_options(acco_mpi_options* options, size_t size) {
  return init(options, size, "acco_mpi_options", [&] { return usual_mpi_options(); });
}
acco_status acco_init_gloo_options(acco_gloo_options* options, size_t size) {
  return init(options, size, "acco_gloo_options", [&] { return usual_gloo_options(); });
}

namespace {

[[maybe_unused]] acco_status make_mpi_world(int const* communicator, acco_mpi_options const* options, acco_world** world) {
  return guarded([&] {
    demand(world, "acco_world_mpi: world");
    acco_mpi_options chosen = usual_mpi_options();
    if (options != nullptr) chosen = read(options, chosen, "acco_mpi_options", "acco_mpi_options_init");
    require_one_of("acco_mpi_options.progress", chosen.progress,
                   {"ACCO_MPI_HELPER_THREAD", "ACCO_MPI_POLL", "ACCO_MPI_NO_PROGRESS"});
    acco::require_positive("acco_mpi_options.deadline", chosen.deadline);
#ifdef ACCO_C_MPI
    give(world, make_mpi(communicator, chosen));
#else
    (void)communicator;
    refuse_missing("MPI", "libopenmpi-dev or libmpich-dev");
#endif
  });
}

}  // namespace

acco_status acco_mpi_initialize(void) {
  return guarded([] {
#ifdef ACCO_C_MPI
    initialize_mpi();
#else
    refuse_missing("MPI", "libopenmpi-dev or libmpich-dev");
#endif
  });
}
acco_status acco_mpi_finalize(acco_status outcome) {
  return guarded([&] {
#ifdef ACCO_C_MPI
    finalize_mpi(outcome);
#else
    (void)outcome;
    refuse_missing("MPI", "libopenmpi-dev or libmpich-dev");
#endif
  });
}
acco_status acco_world_mpi(acco_mpi_options const* options, acco_world** world) {
  return make_mpi_world(nullptr, options, world);
}
acco_status acco_world_mpi_of(int fortran_communicator, acco_mpi_options const* options, acco_world** world) {
  return make_mpi_world(&fortran_communicator, options, world);
}

acco_status acco_world_gloo(acco_gloo_options const* options, acco_world** world) {
  return guarded([&] {
    demand(world, "acco_world_gloo: world");
    acco_gloo_options chosen = usual_gloo_options();
    if (options != nullptr) chosen = read(options, chosen, "acco_gloo_options", "acco_gloo_options_init");
    acco::require_positive("acco_gloo_options.deadline", chosen.deadline);
#ifdef ACCO_C_GLOO
    give(world, make_gloo(chosen));
#else
    refuse_missing("Gloo", "libgloo-dev");
#endif
  });
}

acco_status acco_world_rank(acco_world const* world, int* rank) {
  return guarded([&] { demand(rank, "acco_world_rank: rank") = carrier_of_world(world, "acco_world_rank: world")->rank(); });
}
acco_status acco_world_size(acco_world const* world, int* size) {
  return guarded([&] { demand(size, "acco_world_size: size") = carrier_of_world(world, "acco_world_size: world")->size(); });
}
acco_status acco_world_split(acco_world const* world, int color, int key, double deadline, acco_world** part) {
  return guarded([&] {
    demand(part, "acco_world_split: part");
    give(part, carrier_of_world(world, "acco_world_split: world")->split(color, key, deadline));
  });
}
void acco_world_destroy(acco_world* world) {
  if (world != nullptr && !world->borrowed) delete world;
}

// -------------------------------------------------------------------------------------------------------------- layout

acco_status acco_init_group(acco_group* group, size_t size) {
  return init(group, size, "acco_group", [&] { return usual_group(); });
}
acco_status acco_init_output(void* output, size_t size) {
  return guarded([&] {
    require_room(output, size, "acco_init_output: output");
    std::memset(output, 0, size);
    std::memcpy(output, &size, sizeof size);
  });
}
acco_status acco_layout_create(acco_layout** layout) {
  return guarded([&] {
    demand(layout, "acco_layout_create: layout");
    *layout = new acco_layout;
  });
}
acco_status acco_layout_create_flat(size_t parameter_count, acco_layout** layout) {
  return guarded([&] {
    demand(layout, "acco_layout_create_flat: layout");
    *layout = new acco_layout{acco::parameter_layout(parameter_count), {"parameters"}};
  });
}
acco_status acco_layout_add_group(acco_layout* layout, acco_group const* group, size_t* number) {
  return guarded([&] {
    demand(layout, "acco_layout_add_group: layout");
    demand(number, "acco_layout_add_group: number");
    const acco_group g = read(group, usual_group(), "acco_group", "acco_group_init");
    const auto replaced = [](double value) {
      return value == ACCO_OF_RULE ? std::optional<double>() : std::optional<double>(value);
    };
    acco::update_group made;
    made.learning_rate_scale = g.learning_rate_scale;
    made.weight_decay = replaced(g.weight_decay);
    made.frozen = g.frozen != 0;
    made.beta1 = replaced(g.beta1);
    made.beta2 = replaced(g.beta2);
    made.epsilon = replaced(g.epsilon);
    made.momentum = replaced(g.momentum);
    made.clip_norm = replaced(g.clip_norm);
    made.leave_without_gradient = g.leave_without_gradient != 0;
    *number = layout->layout.add_group(made);
  });
}
acco_status acco_layout_add(acco_layout* layout, char const* name, size_t const* shape, size_t dimensions, size_t group) {
  return guarded([&] {
    demand(layout, "acco_layout_add: layout");
    const std::string_view called(&demand(name, "acco_layout_add: name"));
    const auto extents = array(shape, dimensions, "acco_layout_add: shape");
    layout->names.emplace_back(called);  // first: where it finds no memory nothing has changed
    try {
      layout->layout.add(called, extents, group);
    } catch (...) {
      layout->names.pop_back();
      throw;
    }
  });
}
acco_status acco_layout_no_decay_for_vectors(acco_layout* layout) {
  return guarded([&] { demand(layout, "acco_layout_no_decay_for_vectors: layout").layout.no_decay_for_vectors(); });
}
acco_status acco_layout_size(acco_layout const* layout, size_t* elements) {
  return guarded(
      [&] { demand(elements, "acco_layout_size: elements") = demand(layout, "acco_layout_size: layout").layout.size(); });
}
acco_status acco_layout_trainable_size(acco_layout const* layout, size_t* elements) {
  return guarded([&] {
    demand(elements, "acco_layout_trainable_size: elements") =
        demand(layout, "acco_layout_trainable_size: layout").layout.trainable_size();
  });
}
acco_status acco_layout_tensor_count(acco_layout const* layout, size_t* tensors) {
  return guarded([&] {
    demand(tensors, "acco_layout_tensor_count: tensors") =
        demand(layout, "acco_layout_tensor_count: layout").layout.tensor_count();
  });
}
acco_status acco_layout_tensor(acco_layout const* layout, size_t number, acco_tensor* tensor) {
  return guarded([&] {
    demand(tensor, "acco_layout_tensor: tensor");
    const std::size_t count = demand(layout, "acco_layout_tensor: layout").layout.tensor_count();
    if (number >= count) {
      throw acco::usage_error({}, acco::text("tensor ", number, " was asked for, and the layout has ", count),
                              acco::text("They are numbered from 0"));
    }
    tell(tensor, *layout, number);
  });
}
acco_status acco_layout_find(acco_layout const* layout, char const* name, acco_tensor* tensor) {
  return guarded([&] {
    demand(tensor, "acco_layout_find: tensor");
    std::string_view const called =
        demand(layout, "acco_layout_find: layout").layout[std::string_view(&demand(name, "acco_layout_find: name"))].name;
    std::size_t index = 0;
    while (layout->names[index] != called) ++index;
    tell(tensor, *layout, index);
  });
}
void acco_layout_destroy(acco_layout* layout) { delete layout; }

// ------------------------------------------------------------------------------------------------------ what is chosen

acco_status acco_init_rule(acco_rule* rule, size_t size, int kind) {
  return init(rule, size, "acco_rule", [&] { return usual_rule(kind); });
}
acco_status acco_init_rule_from_name(acco_rule* rule, size_t size, char const* name) {
  return guarded([&] {
    require_room(rule, size, "acco_rule");
    const std::string_view wanted(&demand(name, "acco_rule_from_name: name"));
    write(rule, size, usual_rule(static_cast<int>(acco::require_name("rule", acco::all_rules{}, wanted))));
  });
}
acco_status acco_init_schedule(acco_schedule* schedule, size_t size, int kind) {
  return init(schedule, size, "acco_schedule", [&] { return usual_schedule(kind); });
}
acco_status acco_init_schedule_from_name(acco_schedule* schedule, size_t size, char const* name) {
  return guarded([&] {
    require_room(schedule, size, "acco_schedule");
    const std::string_view wanted(&demand(name, "acco_schedule_from_name: name"));
    schedule_numbers const& known = schedules[acco::require_name("schedule", named_here{}, wanted)];
    acco_schedule found = usual_schedule(known.kind);
    found.estimate = known.estimate;
    found.commit = known.commit;
    write(schedule, size, found);
  });
}
char const* acco_schedule_name(size_t number) { return number < schedules.size() ? schedules[number].name : nullptr; }
acco_status acco_init_learning_rate(acco_learning_rate* rate, size_t size, int kind) {
  return init(rate, size, "acco_learning_rate", [&] { return usual_learning_rate(kind); });
}
acco_status acco_init_options(acco_options* options, size_t size) {
  return init(options, size, "acco_options", [&] { return usual_options(); });
}

// ----------------------------------------------------------------------------------------------------------- optimizer

acco_status acco_optimizer_create(acco_world const* world, acco_layout const* layout, acco_rule const* rule,
                                  acco_schedule const* schedule, acco_options const* options, acco_optimizer** optimizer) {
  return guarded([&] {
    auto const& over = carrier_of_world(world, "acco_optimizer_create: world");
    acco::parameter_layout const& tensors = demand(layout, "acco_optimizer_create: layout").layout;
    demand(optimizer, "acco_optimizer_create: optimizer");
    const acco_rule r = read(rule, usual_rule(kind_of(rule, "acco_rule", "acco_rule_init")), "acco_rule", "acco_rule_init");
    const acco_schedule s = checked_schedule(schedule);
    const acco::options chosen = options_of(options);
    *optimizer = new acco_optimizer{rule_kinds[static_cast<std::size_t>(r.kind)].make(r, s, over, tensors, chosen)};
  });
}
void acco_optimizer_destroy(acco_optimizer* optimizer) { delete optimizer; }

acco_status acco_initialize(acco_optimizer* optimizer, float const* initial, size_t count) {
  return guarded([&] {
    training_of(optimizer, "acco_initialize: optimizer").initialize(array(initial, count, "acco_initialize: initial"));
  });
}
acco_status acco_adopt(acco_optimizer* optimizer, float* parameters, float* gradients, size_t count) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_adopt: optimizer");
    training.adopt(array(parameters, count, "acco_adopt: parameters"), array(gradients, count, "acco_adopt: gradients"));
  });
}
acco_status acco_adopt_tensors(acco_optimizer* optimizer, acco_tensor_memory const* tensors, size_t count) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_adopt_tensors: optimizer");
    std::vector<acco::tensor_memory<float>> all;
    for (acco_tensor_memory const& each : array(tensors, count, "acco_adopt_tensors: tensors"))
      all.push_back({each.parameters, each.gradients});
    training.adopt(all);
    optimizer->lies_apart = true;
  });
}
acco_status acco_parameters(acco_optimizer const* optimizer, float const** parameters, size_t* count) {
  return guarded([&] {
    const auto all = training_of(optimizer, "acco_parameters: optimizer").parameters();
    demand(parameters, "acco_parameters: parameters") = all.data();
    if (count != nullptr) *count = all.size();
  });
}
acco_status acco_gradients(acco_optimizer const* optimizer, float** gradients, size_t* count) {
  return guarded([&] {
    const auto all = training_of(optimizer, "acco_gradients: optimizer").gradients();
    demand(gradients, "acco_gradients: gradients") = all.data();
    if (count != nullptr) *count = all.size();
  });
}
acco_status acco_tensor_of(acco_optimizer const* optimizer, char const* name, float const** parameters, float** gradients,
                           size_t* count) {
  return guarded([&] {
    auto const& training = training_of(optimizer, "acco_tensor_of: optimizer");
    const auto found = training.tensor(std::string_view(&demand(name, "acco_tensor_of: name")));
    if (parameters != nullptr) *parameters = found.parameters.data();
    if (gradients != nullptr) *gradients = found.gradients.data();
    if (count != nullptr) *count = found.parameters.size();
  });
}
acco_status acco_accumulated(acco_optimizer* optimizer, double weight, double loss_sum, acco_report* report, int* has_report) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_accumulated: optimizer");
    check_report(report);  // before anything is counted
    const auto round = training.accumulated(weight, loss_sum);
    if (has_report != nullptr) *has_report = round ? 1 : 0;
    if (round) tell(report, *round);
  });
}
acco_status acco_step(acco_optimizer* optimizer, acco_micro_batch_function micro_batch, void* user, acco_report* report) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_step: optimizer");
    demand(micro_batch, "acco_step: micro_batch");
    check_report(report);
    const auto round = training.step([&] {
      acco_micro_batch sums{0, 0};
      const std::uint64_t failures = last_failure().number;
      const bool whole = !optimizer->lies_apart;
      const acco_status status =
          micro_batch(whole ? training.parameters().data() : nullptr, whole ? training.gradients().data() : nullptr, &sums, user);
      if (status != ACCO_OK) throw callback_failed(status, failures, "the micro_batch function that acco_step was given");
      return acco::micro_batch_sums{.weight = sums.weight, .loss_sum = sums.loss_sum};
    });
    tell(report, round);
  });
}
acco_status acco_finish(acco_optimizer* optimizer, int unfinished) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_finish: optimizer");
    require_one_of("acco_finish: unfinished", unfinished, {"ACCO_DROP_UNFINISHED", "ACCO_COMMIT_UNFINISHED"});
    training.finish(unfinished == ACCO_COMMIT_UNFINISHED ? acco::unfinished::commit : acco::unfinished::drop);
  });
}
acco_status acco_set_parameters(acco_optimizer* optimizer, float const* values, size_t count) {
  return guarded([&] {
    training_of(optimizer, "acco_set_parameters: optimizer").set_parameters(array(values, count, "acco_set_parameters: values"));
  });
}
acco_status acco_gather_committed(acco_optimizer* optimizer, float* out, size_t count) {
  return guarded([&] {
    training_of(optimizer, "acco_gather_committed: optimizer").gather_committed(array(out, count, "acco_gather_committed: out"));
  });
}
acco_status acco_gather_average(acco_optimizer* optimizer, float* out, size_t count) {
  return guarded([&] {
    training_of(optimizer, "acco_gather_average: optimizer").gather_average(array(out, count, "acco_gather_average: out"));
  });
}
acco_status acco_norms(acco_optimizer const* optimizer, double const** norms, size_t* count) {
  return guarded([&] {
    auto const all = training_of(optimizer, "acco_norms: optimizer").norms();
    demand(norms, "acco_norms: norms");
    demand(count, "acco_norms: count") = all.size();
    *norms = all.data();
  });
}
acco_status acco_sum_over_ranks(acco_optimizer* optimizer, double* numbers, size_t count) {
  return guarded([&] {
    training_of(optimizer, "acco_sum_over_ranks: optimizer")
        .sum_over_ranks(array(numbers, count, "acco_sum_over_ranks: numbers"));
  });
}
acco_status acco_poll(acco_optimizer* optimizer) {
  return guarded([&] { training_of(optimizer, "acco_poll: optimizer").poll(); });
}
acco_status acco_samples(acco_optimizer const* optimizer, double* samples) {
  return guarded([&] { demand(samples, "acco_samples: samples") = training_of(optimizer, "acco_samples: optimizer").samples(); });
}
acco_status acco_steps(acco_optimizer const* optimizer, uint64_t* steps) {
  return guarded([&] { demand(steps, "acco_steps: steps") = training_of(optimizer, "acco_steps: optimizer").steps(); });
}
acco_status acco_totals_of(acco_optimizer const* optimizer, acco_totals* totals) {
  return guarded([&] {
    auto const& t = training_of(optimizer, "acco_totals_of: optimizer").totals();
    demand(totals, "acco_totals_of: totals");
    acco_totals c{};
    c.rounds = t.rounds;
    c.micro_batches = t.micro_batches;
    c.skipped = t.skipped;
    c.dropped = t.dropped;
    c.compute_seconds = t.compute_seconds;
    c.communication_seconds = t.communication_seconds;
    c.exposed_seconds = t.exposed_seconds;
    c.hidden_fraction = t.hidden_fraction();
    c.bytes_sent = t.bytes_sent;
    write_output(totals, c, "acco_totals", "acco_totals_init");
  });
}
acco_status acco_memory_of(acco_optimizer const* optimizer, acco_memory* memory) {
  return guarded([&] {
    const auto m = training_of(optimizer, "acco_memory_of: optimizer").memory();
    demand(memory, "acco_memory_of: memory");
    acco_memory c{};
    c.parameters = m.parameters;
    c.gradients = m.gradients;
    c.in_flight = m.in_flight;
    c.masters = m.masters;
    c.slots = m.slots;
    c.reduced = m.reduced;
    c.encoded = m.encoded;
    c.messages = m.messages;
    c.total = m.total();
    c.gathering = m.gathering;
    c.averages = m.averages;
    write_output(memory, c, "acco_memory", "acco_memory_init");
  });
}
acco_status acco_state_digest(acco_optimizer* optimizer, uint64_t* digest) {
  return guarded([&] {
    auto& training = training_of(optimizer, "acco_state_digest: optimizer");
    demand(digest, "acco_state_digest: digest");
    *digest = training.state_digest();
  });
}
