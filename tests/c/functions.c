// SPDX-License-Identifier: Apache-2.0
// Every function of acco.h, called well and badly, from C.
#include <acco.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

// ---------------------------------------------------------------------------------------------------- a model: a parabola

enum { parameter_count = 300 };
static const float target = 3.0F;

/// Gradients of 0.5 (p - target)^2, ADDED.
static acco_status parabola(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  int* calls = user;
  if (calls != NULL) ++*calls;
  for (int i = 0; i < parameter_count; ++i) {
    const float error = parameters[i] - target;
    gradients[i] += error;
    sums->loss_sum += 0.5 * (double)(error * error);
  }
  sums->weight = 1;
  return ACCO_OK;
}

static acco_status make_flat(acco_world* world, acco_rule const* rule, acco_schedule const* schedule, acco_options const* options,
                             acco_optimizer** training) {
  acco_layout* layout = NULL;
  acco_status status = acco_layout_create_flat(parameter_count, &layout);
  if (status == ACCO_OK) status = acco_optimizer_create(world, layout, rule, schedule, options, training);
  acco_layout_destroy(layout);  // optimizers hold copies
  return status;
}
static acco_status make_adamw(acco_world* world, char const* name, acco_options const* options, acco_optimizer** training) {
  acco_rule rule;
  acco_schedule schedule;
  OK(acco_rule_init(&rule, ACCO_ADAMW));
  rule.learning_rate = 0.05;
  OK(acco_schedule_from_name(name, &schedule));
  schedule.first = 1;
  schedule.second = 0;
  return make_flat(world, &rule, &schedule, options, training);
}

// ------------------------------------------------------------------------------------------------------ versions, errors

static void versions_and_errors(void) {
  CHECK(acco_c_version() == ACCO_C_VERSION);
  OK(acco_check_version());
  REFUSED(acco_check_version_of(ACCO_C_VERSION + 1), "is linked with acco::c of version 0.1.0");
  REFUSED(acco_check_version_of(200), "version 0.2.0");
  REFUSED(acco_check_version_of(0), "version 0.0.0");
  CHECK(strcmp(acco_status_name(ACCO_OK), "ok") == 0 && strcmp(acco_status_name(ACCO_ERROR_USAGE), "usage") == 0);
  CHECK(strcmp(acco_status_name(ACCO_ERROR_OTHER), "other") == 0 &&
        strcmp(acco_status_name(ACCO_STATUS_OF_CALLER), "caller") == 0);
  CHECK(strcmp(acco_status_name(-7), "caller") == 0);
  CHECK(acco_last_error_peer() == -1 && acco_last_error_rank() == -1 && acco_last_error_round() == -1);
  CHECK(acco_has(ACCO_THREADS) == 1 && acco_has(17) == 0 && acco_has(-1) == 0);
}

// ---------------------------------------------------------------------------------------------------------------- structs

/// What a newer header would have.
typedef struct {
  acco_rule known;
  double newer;
} larger_rule;

static void structs(void) {
  acco_rule rule;
  memset(&rule, 0x5a, sizeof rule);
  OK(acco_rule_init(&rule, ACCO_ADAMW));
  CHECK(rule.struct_size == sizeof rule && rule.kind == ACCO_ADAMW && rule.learning_rate == 1e-3 && rule.beta1 == 0.9);
  CHECK(rule.beta2 == 0.999 && rule.epsilon == 1e-8 && rule.weight_decay == 0.01);
  OK(acco_rule_from_name("sgd", &rule));
  CHECK(rule.kind == ACCO_SGD && rule.learning_rate == 1e-2 && rule.momentum == 0 && rule.nesterov == 0);
  OK(acco_rule_from_name("lion", &rule));
  CHECK(rule.kind == ACCO_LION && rule.learning_rate == 1e-4 && rule.beta2 == 0.99);
  OK(acco_rule_from_name("adamw", &rule));
  CHECK(rule.kind == ACCO_ADAMW);
  REFUSED(acco_rule_init(&rule, 99), "ACCO_ADAMW, ACCO_SGD, ACCO_LION");
  REFUSED(acco_rule_init(&rule, -1), "acco_rule.kind is -1");
  REFUSED(acco_rule_init(NULL, ACCO_ADAMW), "acco_rule is NULL");
  REFUSED(acco_rule_from_name("adagrad", &rule), "The rules are adamw, sgd, lion");
  REFUSED(acco_rule_from_name(NULL, &rule), "name is NULL");
  REFUSED(acco_rule_from_name("sgd", NULL), "acco_rule is NULL");
  REFUSED(acco_init_rule(&rule, 3, ACCO_ADAMW), "struct_size is 3");

  // Numbers that were negative, structs that nobody has initialised.
  acco_world* alone = NULL;
  acco_optimizer* none = NULL;
  acco_schedule wrong;
  OK(acco_world_solo(&alone));
  OK(acco_rule_init(&rule, ACCO_SGD));
  OK(acco_schedule_init(&wrong, ACCO_TWO_PHASE));
  wrong.pace = ACCO_AUTO_PACE;
  wrong.first = 0x80000001U;
  REFUSED(make_flat(alone, &rule, &wrong, NULL, &none), "a negative number becomes a huge one");
  OK(acco_schedule_init(&wrong, ACCO_SYNCHRONOUS));
  wrong.first = (unsigned)-1;
  REFUSED(make_flat(alone, &rule, &wrong, NULL, &none), "a negative number becomes a huge one");
  wrong.first = 1;
  memset(&rule, 0xaa, sizeof rule);
  REFUSED(make_flat(alone, &rule, &wrong, NULL, &none), "acco_rule was not initialised");
  acco_options rated;
  acco_learning_rate unknown;
  OK(acco_rule_init(&rule, ACCO_SGD));
  OK(acco_options_init(&rated));
  memset(&unknown, 0xaa, sizeof unknown);
  rated.learning_rate = &unknown;
  REFUSED(make_flat(alone, &rule, &wrong, &rated, &none), "acco_options.learning_rate was not initialised");
  CHECK(none == NULL);
  acco_world_destroy(alone);

  acco_schedule schedule;
  OK(acco_schedule_init(&schedule, ACCO_TWO_PHASE));
  CHECK(schedule.kind == ACCO_TWO_PHASE && schedule.pace == ACCO_FIXED_PACE && schedule.first == 3 && schedule.second == 1);
  CHECK(schedule.at_most == 64 && schedule.estimate == ACCO_FULL && schedule.commit == ACCO_FULL);
  OK(acco_schedule_from_name("two_phase+coded", &schedule));
  CHECK(schedule.estimate == ACCO_INT4 && schedule.commit == ACCO_CODED && schedule.first == 3 && schedule.second == 1);
  OK(acco_schedule_init(&schedule, ACCO_DELAYED));
  CHECK(schedule.first == 1 && schedule.second == 0);
  REFUSED(acco_schedule_init(&schedule, 9), "ACCO_WEIGHT_PREDICTION");
  REFUSED(acco_schedule_init(NULL, 0), "is NULL");
  REFUSED(acco_schedule_from_name(NULL, &schedule), "is NULL");
  REFUSED(acco_schedule_from_name("synchronous", NULL), "is NULL");
  REFUSED(acco_schedule_from_name("two_faced", &schedule), "no schedule is called 'two_faced'");
  for (size_t i = 0; acco_schedule_name(i) != NULL; ++i) CHECK(strstr(acco_last_error(), acco_schedule_name(i)) != NULL);
  CHECK(acco_schedule_name((size_t)-1) == NULL);

  acco_options options;
  OK(acco_options_init(&options));
  CHECK(options.clip_norm == 0 && options.deadline == 600 && options.skip_limit == 100 && options.empty_limit == 100);
  CHECK(options.learning_rate == NULL && options.stable_addresses == 0 && options.skip_non_finite == 0);
  CHECK(options.bucket_elements == 0);
  REFUSED(acco_options_init(NULL), "is NULL");
  acco_learning_rate rate;
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_COSINE));
  CHECK(rate.final_factor == 0.1 && rate.step == 1 && rate.stretch == 1 && rate.factor == 1 && rate.tokens_per_sample == 1);
  REFUSED(acco_learning_rate_init(&rate, 6), "ACCO_CONSTANT");
  REFUSED(acco_learning_rate_init(NULL, 0), "is NULL");
  acco_group group;
  OK(acco_group_init(&group));
  CHECK(group.learning_rate_scale == 1 && group.weight_decay == ACCO_OF_RULE && group.frozen == 0);
  REFUSED(acco_group_init(NULL), "is NULL");
  REFUSED(acco_report_init(NULL), "is NULL");
  REFUSED(acco_totals_init(NULL), "is NULL");
  REFUSED(acco_memory_init(NULL), "is NULL");
  REFUSED(acco_tensor_init(NULL), "is NULL");
  acco_mpi_options mpi;
  acco_gloo_options gloo;
  OK(acco_mpi_options_init(&mpi));
  OK(acco_gloo_options_init(&gloo));
  CHECK(mpi.deadline == 600 && mpi.progress == ACCO_MPI_HELPER_THREAD && gloo.deadline == 600 && gloo.run == NULL);
  REFUSED(acco_mpi_options_init(NULL), "is NULL");
  REFUSED(acco_gloo_options_init(NULL), "is NULL");

  // A program of a newer header: what this library does not know may be there, and must be 0.
  acco_world* world = NULL;
  acco_optimizer* training = NULL;
  OK(acco_world_solo(&world));
  OK(acco_schedule_from_name("synchronous", &schedule));
  larger_rule larger;
  OK(acco_init_rule(&larger.known, sizeof larger, ACCO_ADAMW));
  CHECK(larger.known.struct_size == sizeof larger && larger.newer == 0);
  OK(make_flat(world, &larger.known, &schedule, NULL, &training));
  acco_optimizer_destroy(training);
  larger.newer = 1;
  REFUSED(make_flat(world, &larger.known, &schedule, NULL, &training), "does not know");
  // One of an older header: what it does not know has its default.
  const size_t older = offsetof(acco_rule, epsilon);
  unsigned char bytes[sizeof(acco_rule) + 8];
  memset(bytes, 0x5a, sizeof bytes);
  acco_rule* small = (acco_rule*)malloc(sizeof(acco_rule));
  memset(small, 0x5a, sizeof *small);
  OK(acco_init_rule(small, older, ACCO_ADAMW));
  CHECK(memcmp((unsigned char*)small + older, bytes, sizeof *small - older) == 0);
  small->learning_rate = 0.5;
  OK(make_flat(world, small, &schedule, NULL, &training));
  acco_optimizer_destroy(training);
  // One that was never initialised.
  memset(small, 0, sizeof *small);
  REFUSED(make_flat(world, small, &schedule, NULL, &training), "Call acco_rule_init before anything else");
  memset(small, 0x5a, sizeof *small);
  small->kind = ACCO_SGD;
  REFUSED(make_flat(world, small, &schedule, NULL, &training), "was not initialised");
  free(small);
  acco_world_destroy(world);
}

// ----------------------------------------------------------------------------------------------------------------- layout

static void layouts(void) {
  acco_layout* layout = NULL;
  OK(acco_layout_create(&layout));
  acco_group group;
  OK(acco_group_init(&group));
  group.frozen = 1;
  size_t frozen = 0, number = 0;
  OK(acco_layout_add_group(layout, &group, &frozen));
  CHECK(frozen == 1);
  const size_t matrix[] = {4, 5}, vector[] = {5};
  OK(acco_layout_add(layout, "weight", matrix, 2, 0));
  OK(acco_layout_add(layout, "bias", vector, 1, 0));
  OK(acco_layout_add(layout, "table", matrix, 2, frozen));
  OK(acco_layout_add(layout, "scale", NULL, 0, 0));
  size_t size = 0, trainable = 0, tensors = 0;
  OK(acco_layout_size(layout, &size));
  OK(acco_layout_trainable_size(layout, &trainable));
  OK(acco_layout_tensor_count(layout, &tensors));
  CHECK(size == 46 && trainable == 26 && tensors == 4);
  acco_tensor tensor;
  OK(acco_tensor_init(&tensor));
  OK(acco_layout_tensor(layout, 1, &tensor));
  CHECK(strcmp(tensor.name, "bias") == 0 && tensor.dimensions == 1 && tensor.shape[0] == 5 && tensor.offset == 20);
  CHECK(tensor.size == 5 && tensor.group == 0 && tensor.struct_size == sizeof tensor);
  OK(acco_layout_no_decay_for_vectors(layout));
  OK(acco_layout_find(layout, "bias", &tensor));
  CHECK(tensor.group == 2);
  OK(acco_layout_find(layout, "table", &tensor));
  CHECK(tensor.group == frozen && tensor.offset == 25 && tensor.shape[1] == 5);

  REFUSED(acco_layout_create(NULL), "is NULL");
  REFUSED(acco_layout_create_flat(4, NULL), "is NULL");
  REFUSED(acco_layout_add(NULL, "a", vector, 1, 0), "layout is NULL");
  REFUSED(acco_layout_add(layout, NULL, vector, 1, 0), "name is NULL");
  REFUSED(acco_layout_add(layout, "a", NULL, 1, 0), "shape is NULL");
  REFUSED(acco_layout_add(layout, "b", vector, 1, 7), "names group 7");
  REFUSED(acco_layout_add(layout, "bias", vector, 1, 0), "used twice");
  const size_t negative[] = {(size_t)-1};
  REFUSED(acco_layout_add(layout, "c", negative, 1, 0), "address space");
  REFUSED(acco_layout_add(layout, "c", vector, (size_t)-1, 0), "a negative number becomes a huge one");
  REFUSED(acco_layout_add(layout, "c", vector, 1000000000, 0), "has 1000000000 dimensions");
  OK(acco_layout_tensor_count(layout, &tensors));
  CHECK(tensors == 4);
  OK(acco_layout_add(layout, "a", vector, 1, 0));
  OK(acco_layout_tensor(layout, 4, &tensor));  // names and tensors stay together
  CHECK(strcmp(tensor.name, "a") == 0);
  REFUSED(acco_layout_tensor(layout, 5, &tensor), "the layout has 5");
  REFUSED(acco_layout_tensor(layout, 0, NULL), "is NULL");
  REFUSED(acco_layout_tensor(NULL, 0, &tensor), "is NULL");
  REFUSED(acco_layout_find(layout, "none", &tensor), "no tensor is called 'none'");
  REFUSED(acco_layout_find(layout, NULL, &tensor), "is NULL");
  REFUSED(acco_layout_find(layout, "bias", NULL), "is NULL");
  tensor.struct_size = 0;
  REFUSED(acco_layout_find(layout, "bias", &tensor), "acco_tensor_init");
  REFUSED(acco_layout_add_group(layout, NULL, &number), "is NULL");
  REFUSED(acco_layout_add_group(layout, &group, NULL), "is NULL");
  REFUSED(acco_layout_add_group(NULL, &group, &number), "is NULL");
  group.weight_decay = -0.5;
  REFUSED(acco_layout_add_group(layout, &group, &number), "weight_decay");
  REFUSED(acco_layout_size(NULL, &size), "is NULL");
  REFUSED(acco_layout_size(layout, NULL), "is NULL");
  REFUSED(acco_layout_trainable_size(NULL, &size), "is NULL");
  REFUSED(acco_layout_trainable_size(layout, NULL), "is NULL");
  REFUSED(acco_layout_tensor_count(NULL, &size), "is NULL");
  REFUSED(acco_layout_tensor_count(layout, NULL), "is NULL");
  REFUSED(acco_layout_no_decay_for_vectors(NULL), "is NULL");
  acco_layout_destroy(layout);
  acco_layout_destroy(NULL);
  OK(acco_layout_create_flat(7, &layout));
  REFUSED(acco_layout_no_decay_for_vectors(layout), "knows no shapes");
  acco_layout_destroy(layout);
}

// -------------------------------------------------------------------------------------------- an optimizer, from its start

static acco_status nothing(acco_world* world, void* user) {
  (void)world;
  (void)user;
  return ACCO_OK;
}

static void optimizers(void) {
  acco_world* world = NULL;
  OK(acco_world_solo(&world));
  int rank = -1, size = -1;
  OK(acco_world_rank(world, &rank));
  OK(acco_world_size(world, &size));
  CHECK(rank == 0 && size == 1);
  REFUSED(acco_world_rank(NULL, &rank), "is NULL");
  REFUSED(acco_world_rank(world, NULL), "is NULL");
  REFUSED(acco_world_size(NULL, &size), "is NULL");
  REFUSED(acco_world_size(world, NULL), "is NULL");
  REFUSED(acco_world_solo(NULL), "is NULL");
  acco_world* part = NULL;
  REFUSED(acco_world_split(world, -1, 0, 5, &part), "color -1");
  REFUSED(acco_world_split(world, 0, 0, 0, &part), "deadline");
  REFUSED(acco_world_split(world, 0, 0, 5, NULL), "is NULL");
  REFUSED(acco_world_split(NULL, 0, 0, 5, &part), "is NULL");
  CHECK(part == NULL);
  REFUSED(acco_run_threads(0, nothing, NULL), "0 ranks");
  REFUSED(acco_run_threads(2, NULL, NULL), "is NULL");
  OK(acco_run_threads(2, nothing, NULL));

  acco_layout* layout = NULL;
  acco_layout* empty = NULL;
  acco_rule rule, wrong_rule;
  acco_schedule schedule, wrong;
  acco_options options;
  acco_optimizer* training = NULL;
  OK(acco_layout_create(&empty));
  OK(acco_layout_create(&layout));
  const size_t shape[] = {10, 20}, rest[] = {100};
  OK(acco_layout_add(layout, "first", shape, 2, 0));
  OK(acco_layout_add(layout, "second", rest, 1, 0));
  OK(acco_rule_init(&rule, ACCO_ADAMW));
  rule.learning_rate = 0.05;
  rule.weight_decay = 0;
  OK(acco_schedule_init(&schedule, ACCO_SYNCHRONOUS));
  OK(acco_options_init(&options));
  REFUSED(acco_optimizer_create(NULL, layout, &rule, &schedule, NULL, &training), "world is NULL");
  REFUSED(acco_optimizer_create(world, NULL, &rule, &schedule, NULL, &training), "layout is NULL");
  REFUSED(acco_optimizer_create(world, layout, NULL, &schedule, NULL, &training), "acco_rule is NULL");
  REFUSED(acco_optimizer_create(world, layout, &rule, NULL, NULL, &training), "acco_schedule is NULL");
  REFUSED(acco_optimizer_create(world, layout, &rule, &schedule, NULL, NULL), "optimizer is NULL");
  REFUSED(acco_optimizer_create(world, empty, &rule, &schedule, NULL, &training), "none of them is trainable");
  acco_layout_destroy(empty);
#define WRONG_RULE(member, value, words)           \
  (wrong_rule = rule, wrong_rule.member = (value), \
   REFUSED(acco_optimizer_create(world, layout, &wrong_rule, &schedule, NULL, &training), words))
  WRONG_RULE(learning_rate, -1, "learning_rate");
  WRONG_RULE(beta1, 1, "beta1");
  WRONG_RULE(beta2, -0.1, "beta2");
  WRONG_RULE(epsilon, 0, "epsilon");
  WRONG_RULE(weight_decay, (double)INFINITY, "weight_decay");
  WRONG_RULE(kind, 5, "acco_rule.kind is 5");
#define WRONG_SCHEDULE(kind_, member, value, words)               \
  (OK(acco_schedule_init(&wrong, kind_)), wrong.member = (value), \
   REFUSED(acco_optimizer_create(world, layout, &rule, &wrong, NULL, &training), words))
  WRONG_SCHEDULE(ACCO_TWO_PHASE, kind, 4, "acco_schedule.kind is 4");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, pace, 3, "acco_schedule.pace is 3");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, estimate, ACCO_INT8_INT4, "acco_schedule.estimate is 4");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, commit, ACCO_INT4, "acco_schedule.commit is 3");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, estimate, ACCO_CODED, "acco_schedule.estimate is 5");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, commit, -1, "acco_schedule.commit is -1");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, first, 0, "micro-batches a round");
  WRONG_SCHEDULE(ACCO_TWO_PHASE, struct_size, 0, "acco_schedule_init");
  WRONG_SCHEDULE(ACCO_DELAYED, estimate, ACCO_INT4, "has no estimates");
  WRONG_SCHEDULE(ACCO_DELAYED, pace, ACCO_AUTO_PACE, "steps of one part");
  WRONG_SCHEDULE(ACCO_SYNCHRONOUS, pace, ACCO_ELASTIC_PACE, "takes ACCO_FIXED_PACE only");
  OK(acco_schedule_init(&wrong, ACCO_DELAYED));
  wrong.pace = ACCO_ELASTIC_PACE;
  wrong.at_most = 0;
  REFUSED(acco_optimizer_create(world, layout, &rule, &wrong, NULL, &training), "1 to 0 micro-batches");
  acco_options bad;
#define WRONG_OPTIONS(member, value, words) \
  (bad = options, bad.member = (value), REFUSED(acco_optimizer_create(world, layout, &rule, &schedule, &bad, &training), words))
  WRONG_OPTIONS(clip_norm, -1, "clip_norm");
  WRONG_OPTIONS(deadline, 0, "deadline");
  WRONG_OPTIONS(struct_size, 1, "acco_options_init");
  acco_learning_rate rate;
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_COSINE));
  WRONG_OPTIONS(learning_rate, &rate, "warmup_cosine::total");
  rate.unit = 3;
  WRONG_OPTIONS(learning_rate, &rate, "ACCO_IN_STEPS");
  OK(acco_learning_rate_init(&rate, ACCO_LEARNING_RATE_FUNCTION));
  WRONG_OPTIONS(learning_rate, &rate, "acco_learning_rate.function is NULL");
  CHECK(training == NULL);

  // Before its start.
  options.clip_norm = 10;
  OK(acco_optimizer_create(world, layout, &rule, &schedule, &options, &training));
  acco_world_destroy(world);  // optimizers keep what they need
  acco_world_destroy(NULL);
  acco_layout_destroy(layout);
  float const* parameters = NULL;
  float* gradients = NULL;
  float start[parameter_count], room[parameter_count];
  for (int i = 0; i < parameter_count; ++i) start[i] = (float)i / (float)parameter_count;
  size_t count = 0;
  double number = 0;
  uint64_t digest = 0, steps = 99;
  REFUSED(acco_parameters(training, &parameters, &count), "before initialize");
  REFUSED(acco_gradients(training, &gradients, &count), "before initialize");
  REFUSED(acco_tensor_of(training, "first", NULL, NULL, NULL), "before initialize");
  REFUSED(acco_accumulated(training, 1, 0, NULL, NULL), "before initialize");
  REFUSED(acco_step(training, parabola, NULL, NULL), "before initialize");
  REFUSED(acco_finish(training, ACCO_DROP_UNFINISHED), "before initialize");
  REFUSED(acco_set_parameters(training, start, parameter_count), "before initialize");
  REFUSED(acco_gather_committed(training, room, parameter_count), "before initialize");
  REFUSED(acco_sum_over_ranks(training, &number, 1), "before initialize");
  REFUSED(acco_poll(training), "before initialize");
  REFUSED(acco_state_digest(training, &digest), "before initialize");
  OK(acco_samples(training, &number));
  OK(acco_steps(training, &steps));
  CHECK(number == 0 && steps == 0);
  acco_memory memory;
  OK(acco_memory_init(&memory));
  OK(acco_memory_of(training, &memory));
  CHECK(memory.parameters >= parameter_count * sizeof(float) && memory.slots >= 2 * memory.masters && memory.masters > 0);
  CHECK(memory.total == memory.parameters + memory.gradients + memory.in_flight + memory.masters + memory.slots + memory.reduced +
                            memory.encoded + memory.messages);
  REFUSED(acco_initialize(training, start, 3), "initialize got 3 parameters");
  REFUSED(acco_initialize(training, NULL, parameter_count), "initial is NULL");
  REFUSED(acco_initialize(NULL, start, parameter_count), "optimizer is NULL");
  REFUSED(acco_adopt(training, NULL, room, parameter_count), "parameters is NULL");
  REFUSED(acco_adopt(training, start, NULL, parameter_count), "gradients is NULL");
  REFUSED(acco_adopt(training, start, room, 3), "adopt got 3");
  REFUSED(acco_adopt(NULL, start, room, parameter_count), "is NULL");

  // Under way.
  OK(acco_initialize(training, start, parameter_count));
  REFUSED(acco_initialize(training, start, parameter_count), "called twice");
  REFUSED(acco_adopt(training, start, room, parameter_count), "after initialize");
  OK(acco_parameters(training, &parameters, &count));
  CHECK(count == parameter_count && memcmp(parameters, start, sizeof start) == 0);
  OK(acco_gradients(training, &gradients, NULL));
  CHECK(gradients[0] == 0 && gradients[parameter_count - 1] == 0);
  float const* second = NULL;
  float* second_gradients = NULL;
  OK(acco_tensor_of(training, "second", &second, &second_gradients, &count));
  CHECK(second == parameters + 200 && second_gradients == gradients + 200 && count == 100);
  OK(acco_tensor_of(training, "first", NULL, NULL, NULL));
  REFUSED(acco_tensor_of(training, "third", NULL, NULL, NULL), "no tensor is called 'third'");
  REFUSED(acco_tensor_of(training, NULL, NULL, NULL, NULL), "is NULL");
  REFUSED(acco_tensor_of(NULL, "first", NULL, NULL, NULL), "is NULL");
  REFUSED(acco_parameters(NULL, &parameters, &count), "is NULL");
  REFUSED(acco_parameters(training, NULL, &count), "is NULL");
  REFUSED(acco_gradients(NULL, &gradients, &count), "is NULL");
  REFUSED(acco_gradients(training, NULL, &count), "is NULL");
  int ended = -1;
  acco_report report;
  memset(&report, 0, sizeof report);
  REFUSED(acco_accumulated(training, 1, 0, &report, &ended), "acco_report_init");
  REFUSED(acco_step(training, parabola, NULL, &report), "acco_report_init");
  OK(acco_report_init(&report));
  REFUSED(acco_accumulated(training, -1, 0, &report, &ended), "a weight of -1");
  REFUSED(acco_accumulated(training, (double)NAN, 0, &report, &ended), "a weight of");
  REFUSED(acco_accumulated(NULL, 1, 0, &report, &ended), "is NULL");
  CHECK(ended == -1 && report.step == 0);
  gradients[0] += 4;
  OK(acco_accumulated(training, 2, 6, &report, &ended));
  CHECK(ended == 1 && report.struct_size == sizeof report && report.step == 1 && report.round == 0 && report.samples == 2);
  CHECK(report.weight == 2 && report.mean_loss == 3 && report.step_loss == 3 && report.step_weight == 2 && report.committed == 1);
  CHECK(fabs(report.gradient_norm - 2) < 1e-6 && report.clip_scale == 1 && report.learning_rate_scale == 1 &&
        report.skipped == 0);
  CHECK(report.update == ACCO_COMMIT && report.second_part == 0 && report.micro_batches == 1 && report.first == 1);
  CHECK(report.compute_seconds >= 0 && report.communication_seconds > 0 && report.exposed_seconds > 0 &&
        report.hidden_fraction >= 0);
  CHECK(report.communicating_end > report.communicating_begin && report.computing_end >= report.computing_begin);
  CHECK(report.progress != NULL && report.bytes_sent == 0);
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(fabsf(parameters[0] - -0.05F) < 1e-5F && parameters[1] == start[1]);
  OK(acco_gradients(training, &gradients, NULL));
  gradients[1] += 100;  // ten times what is allowed
  OK(acco_accumulated(training, 1, 0, &report, NULL));
  CHECK(fabs(report.clip_scale - 0.1) < 1e-6 && fabs(report.gradient_norm - 100) < 1e-4);
  int calls = 0;
  OK(acco_step(training, parabola, &calls, &report));
  CHECK(calls == 1 && report.step == 3);
  REFUSED(acco_step(training, NULL, NULL, &report), "micro_batch is NULL");
  REFUSED(acco_step(NULL, parabola, NULL, &report), "is NULL");
  OK(acco_step(training, parabola, NULL, NULL));
  OK(acco_poll(training));
  REFUSED(acco_poll(NULL), "is NULL");
  OK(acco_steps(training, &steps));
  OK(acco_samples(training, &number));
  CHECK(steps == 4 && number == 5);
  REFUSED(acco_steps(NULL, &steps), "is NULL");
  REFUSED(acco_steps(training, NULL), "is NULL");
  REFUSED(acco_samples(NULL, &number), "is NULL");
  REFUSED(acco_samples(training, NULL), "is NULL");
  uint64_t other = 0;
  OK(acco_state_digest(training, &digest));
  OK(acco_state_digest(training, &other));
  CHECK(digest == other);
  REFUSED(acco_state_digest(NULL, &digest), "is NULL");
  REFUSED(acco_state_digest(training, NULL), "is NULL");
  double numbers[] = {1, 2};
  OK(acco_sum_over_ranks(training, numbers, 2));
  CHECK(numbers[0] == 1 && numbers[1] == 2);
  REFUSED(acco_sum_over_ranks(training, NULL, 2), "is NULL");
  REFUSED(acco_sum_over_ranks(training, numbers, (size_t)-1), "a negative number becomes a huge one");
  REFUSED(acco_sum_over_ranks(NULL, numbers, 2), "is NULL");
  OK(acco_gather_committed(training, room, parameter_count));
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(memcmp(room, parameters, sizeof room) == 0);
  REFUSED(acco_gather_committed(training, room, 2), "room for 2");
  REFUSED(acco_gather_committed(training, NULL, parameter_count), "is NULL");
  REFUSED(acco_gather_committed(NULL, room, parameter_count), "is NULL");
  REFUSED(acco_finish(training, 2), "ACCO_COMMIT_UNFINISHED");
  REFUSED(acco_finish(NULL, 0), "is NULL");
  OK(acco_finish(training, ACCO_DROP_UNFINISHED));
  OK(acco_set_parameters(training, start, parameter_count));
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(memcmp(parameters, start, sizeof start) == 0);
  OK(acco_state_digest(training, &other));
  CHECK(digest != other);
  REFUSED(acco_set_parameters(training, start, 2), "set_parameters got 2");
  REFUSED(acco_set_parameters(training, NULL, parameter_count), "is NULL");
  REFUSED(acco_set_parameters(NULL, start, parameter_count), "is NULL");
  acco_totals totals;
  OK(acco_totals_init(&totals));
  OK(acco_totals_of(training, &totals));
  CHECK(totals.rounds == 4 && totals.micro_batches == 4 && totals.skipped == 0 && totals.dropped == 0 &&
        totals.compute_seconds > 0);
  REFUSED(acco_totals_of(NULL, &totals), "is NULL");
  REFUSED(acco_totals_of(training, NULL), "is NULL");
  totals.struct_size = 1;
  REFUSED(acco_totals_of(training, &totals), "acco_totals_init");
  REFUSED(acco_memory_of(NULL, &memory), "is NULL");
  REFUSED(acco_memory_of(training, NULL), "is NULL");
  acco_optimizer_destroy(training);
  acco_optimizer_destroy(NULL);
}

// ------------------------------------------------------------------------------------------- what the numbers do, on a rank

static acco_optimizer* alone(char const* schedule_name, acco_options const* options) {
  acco_world* world = NULL;
  acco_optimizer* training = NULL;
  float zeros[parameter_count] = {0};
  OK(acco_world_solo(&world));
  OK(make_adamw(world, schedule_name, options, &training));
  acco_world_destroy(world);
  OK(acco_initialize(training, zeros, parameter_count));
  return training;
}

static double half_of(acco_position const* at, void* user) {
  double* last = user;
  *last = at->samples;
  return at->steps == 3 ? (double)NAN : 0.5;
}

/// The factors of the first three steps, of so many samples each.
static void factors(acco_learning_rate const* rate, double samples, double first, double second, double third) {
  acco_options options;
  acco_report report;
  OK(acco_options_init(&options));
  OK(acco_report_init(&report));
  options.learning_rate = rate;
  acco_optimizer* training = alone("synchronous", &options);
  const double wanted[] = {first, second, third};
  for (int i = 0; i < 3; ++i) {
    OK(acco_accumulated(training, samples, 0, &report, NULL));
    if (!CHECK(fabs(report.learning_rate_scale - wanted[i]) < 1e-12))
      fprintf(stderr, "step %d: %.17g, not %.17g\n", i, report.learning_rate_scale, wanted[i]);
  }
  acco_optimizer_destroy(training);
}

static void learning_rates(void) {
  acco_learning_rate rate;
  OK(acco_learning_rate_init(&rate, ACCO_CONSTANT));
  rate.factor = 0.25;
  factors(&rate, 1, 0.25, 0.25, 0.25);
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_LINEAR));
  rate.unit = ACCO_IN_STEPS;
  rate.warmup = 1;
  rate.total = 3;
  factors(&rate, 7, 0.5, 1, 0.5);
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_COSINE));
  rate.total = 2;
  factors(&rate, 1, 1, 0.55, 0.1);
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_STABLE_DECAY));
  rate.total = 4;
  rate.decay = 4;
  factors(&rate, 1, 1, 0.75, 0.5);
  rate.root_cooldown = 1;
  factors(&rate, 1, 1, 0.5, 1 - sqrt(0.5));
  OK(acco_learning_rate_init(&rate, ACCO_WARMUP_COSINE_RESTARTS));
  rate.unit = ACCO_IN_TOKENS;
  rate.tokens_per_sample = 10;
  rate.period = 20;
  factors(&rate, 1, 1, 0.5, 1);

  double last = -1;
  OK(acco_learning_rate_init(&rate, ACCO_LEARNING_RATE_FUNCTION));
  rate.function = half_of;
  rate.user = &last;
  factors(&rate, 1, 0.5, 0.5, 0.5);
  CHECK(last == 2);
  acco_options options;
  OK(acco_options_init(&options));
  options.learning_rate = &rate;
  acco_optimizer* training = alone("synchronous", &options);
  for (int i = 0; i < 3; ++i) OK(acco_step(training, parabola, NULL, NULL));
  REFUSED(acco_step(training, parabola, NULL, NULL), "learning_rate returned");  // which ends the training
  REFUSED(acco_step(training, parabola, NULL, NULL), "learning_rate returned");
  acco_optimizer_destroy(training);
}

/// A third of the calls fails.
static acco_status sometimes(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  int* calls = user;
  if (++*calls == 2) return 1234;
  return parabola(parameters, gradients, sums, NULL);
}
static acco_status calls_itself(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  (void)parameters;
  (void)gradients;
  (void)sums;
  return acco_layout_size(NULL, user);  // a call that fails: its status and words go through
}

static acco_status refuses(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  (void)parameters;
  (void)gradients;
  (void)sums;
  (void)user;
  return ACCO_ERROR_USAGE;
}

static void callbacks(void) {
  acco_optimizer* training = alone("synchronous", NULL);
  int calls = 0;
  OK(acco_step(training, sometimes, &calls, NULL));
  FAILS(acco_step(training, sometimes, &calls, NULL), 1234, "acco_step was given returned 1234");
  OK(acco_step(training, sometimes, &calls, NULL));
  uint64_t steps = 0;
  OK(acco_steps(training, &steps));
  CHECK(steps == 2 && calls == 3);
  size_t size = 0;
  REFUSED(acco_step(training, calls_itself, &size, NULL), "acco_layout_size: layout is NULL");
  REFUSED(acco_step(training, refuses, NULL, NULL),
          "acco_step was given returned 1");  // a status without a call that failed: no older words
  acco_optimizer_destroy(training);
}

static acco_status infinite(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  (void)user;
  parabola(parameters, gradients, sums, NULL);
  gradients[7] = INFINITY;
  return ACCO_OK;
}

static void options_do_something(void) {
  acco_options options;
  acco_report report;
  acco_totals totals;
  OK(acco_options_init(&options));
  OK(acco_report_init(&report));
  OK(acco_totals_init(&totals));
  options.skip_non_finite = 1;
  options.skip_limit = 1;
  acco_optimizer* training = alone("synchronous", &options);
  OK(acco_step(training, infinite, NULL, &report));
  CHECK(report.skipped == 1);
  OK(acco_totals_of(training, &totals));
  CHECK(totals.skipped == 1);
  FAILS(acco_step(training, infinite, NULL, &report), ACCO_ERROR_NON_FINITE, "2 updates in a row");
  acco_optimizer_destroy(training);

  options.skip_non_finite = 0;
  options.empty_limit = 2;
  options.bucket_elements = 64;
  options.stable_addresses = 1;
  training = alone("two_phase", &options);
  float const* before = NULL;
  float const* after = NULL;
  OK(acco_parameters(training, &before, NULL));
  for (int i = 0; i < 6; ++i) {
    OK(acco_accumulated(training, 1, 0, NULL, NULL));
    OK(acco_parameters(training, &after, NULL));
    CHECK(before == after);
  }
  acco_status status = ACCO_OK;
  for (int i = 0; i < 12 && status == ACCO_OK; ++i) status = acco_accumulated(training, 0, 0, NULL, NULL);
  FAILS(status, ACCO_ERROR_USAGE, "weigh");
  acco_optimizer_destroy(training);

  // A step of which half is there is dropped, or committed.
  for (int how = ACCO_DROP_UNFINISHED; how <= ACCO_COMMIT_UNFINISHED; ++how) {
    training = alone("two_phase", NULL);
    int ended = 0;
    float* gradients = NULL;
    OK(acco_gradients(training, &gradients, NULL));
    gradients[0] = 1;
    OK(acco_accumulated(training, 1, 0, NULL, &ended));
    CHECK(ended == 0);
    OK(acco_finish(training, how));
    uint64_t steps = 9;
    OK(acco_steps(training, &steps));
    OK(acco_totals_of(training, &totals));
    CHECK(steps == (how == ACCO_COMMIT_UNFINISHED ? 1 : 0) && totals.dropped == (how == ACCO_COMMIT_UNFINISHED ? 0 : 1));
    acco_optimizer_destroy(training);
  }
}

static void rules_and_groups(void) {
  acco_world* world = NULL;
  acco_layout* layout = NULL;
  acco_schedule schedule;
  OK(acco_world_solo(&world));
  OK(acco_schedule_init(&schedule, ACCO_SYNCHRONOUS));
  // One element in each group: the rule's own, twice its rate, another decay, frozen.
  acco_group group;
  size_t faster = 0, decaying = 0, frozen = 0;
  const size_t one[] = {1};
  OK(acco_layout_create(&layout));
  OK(acco_group_init(&group));
  group.learning_rate_scale = 2;
  OK(acco_layout_add_group(layout, &group, &faster));
  OK(acco_group_init(&group));
  group.weight_decay = 0.5;
  OK(acco_layout_add_group(layout, &group, &decaying));
  OK(acco_group_init(&group));
  group.frozen = 1;
  OK(acco_layout_add_group(layout, &group, &frozen));
  OK(acco_layout_add(layout, "own", one, 1, 0));
  OK(acco_layout_add(layout, "faster", one, 1, faster));
  OK(acco_layout_add(layout, "decaying", one, 1, decaying));
  OK(acco_layout_add(layout, "frozen", one, 1, frozen));
  for (int kind = ACCO_ADAMW; kind <= ACCO_LION; ++kind) {
    acco_rule rule;
    acco_optimizer* training = NULL;
    OK(acco_rule_init(&rule, kind));
    rule.learning_rate = 0.125;
    rule.weight_decay = 0;
    float parameters[] = {1, 1, 1, 1}, gradients[4] = {0};
    OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
    OK(acco_adopt(training, parameters, gradients, 4));
    for (int i = 0; i < 4; ++i) gradients[i] += 1;
    OK(acco_accumulated(training, 1, 0, NULL, NULL));
    CHECK(fabsf(parameters[0] - 0.875F) < 1e-6F);  // of all rules, for a first gradient of 1
    CHECK(fabsf(parameters[1] - 0.75F) < 1e-6F);
    CHECK(fabsf(parameters[2] - 0.8125F) < 1e-6F);
    CHECK(parameters[3] == 1);
    gradients[0] += 3;  // by which each rule, and no other, comes to a number of its own
    OK(acco_accumulated(training, 1, 0, NULL, NULL));
    const float then[] = {0.76028F, 0.5F, 0.75F};
    CHECK(fabsf(parameters[0] - then[kind]) < 1e-4F);
    CHECK(parameters[3] == 1);
    acco_optimizer_destroy(training);
    CHECK(fabsf(parameters[0] - then[kind]) < 1e-4F);  // they stay the trainer's
  }
  // Two gradients of 1 show what is left of the first one.
  acco_rule rule;
  float parameters[] = {0, 0, 0, 0}, gradients[4] = {0};
  for (int nesterov = 0; nesterov < 2; ++nesterov) {
    acco_optimizer* training = NULL;
    OK(acco_rule_init(&rule, ACCO_SGD));
    rule.learning_rate = 1;
    rule.momentum = 0.5;
    rule.nesterov = nesterov;
    parameters[0] = 0;
    OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
    OK(acco_adopt(training, parameters, gradients, 4));
    for (int step = 0; step < 2; ++step) {
      gradients[0] += 1;
      OK(acco_accumulated(training, 1, 0, NULL, NULL));
    }
    CHECK(fabsf(parameters[0] - (nesterov ? -3.25F : -2.5F)) < 1e-6F);
    acco_optimizer_destroy(training);
  }
  // of a gradient of 0, decay with momentum goes on in one of them only
  for (int classic = 0; classic < 2; ++classic) {
    acco_optimizer* training = NULL;
    OK(acco_rule_init(&rule, ACCO_SGD));
    rule.learning_rate = 0.5;
    rule.weight_decay = 1;
    rule.momentum = 0.5;
    rule.classic_decay = classic;
    parameters[0] = 1;
    OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
    OK(acco_adopt(training, parameters, gradients, 4));
    for (int step = 0; step < 2; ++step) OK(acco_accumulated(training, 1, 0, NULL, NULL));
    CHECK(fabsf(parameters[0] - (classic ? 0.0F : 0.25F)) < 1e-6F);
    acco_optimizer_destroy(training);
  }
  // What a rule does not have is refused of a group, and betas of a group count.
  acco_optimizer* training = NULL;
  OK(acco_group_init(&group));
  group.beta1 = 0;
  group.epsilon = 0.25;
  OK(acco_layout_add_group(layout, &group, &faster));
  OK(acco_rule_init(&rule, ACCO_SGD));
  REFUSED(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training), "beta");
  OK(acco_rule_init(&rule, ACCO_ADAMW));
  OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
  acco_optimizer_destroy(training);
  acco_layout_destroy(layout);
  acco_world_destroy(world);
}

// ---------------------------------------------------------------------------------------------------- ranks beside another

static int rank_of(acco_world* world) {
  int rank = -1;
  OK(acco_world_rank(world, &rank));
  return rank;
}

/// Finds the parabola's minimum, whatever the schedule; ranks end alike.
static acco_status finds(acco_world* world, void* user) {
  acco_optimizer* training = NULL;
  acco_rule rule;
  float zeros[parameter_count] = {0}, all[parameter_count];
  acco_status status = acco_rule_init(&rule, ACCO_ADAMW);
  rule.learning_rate = 0.05;
  rule.weight_decay = 0;
  if (status == ACCO_OK) status = make_flat(world, &rule, user, NULL, &training);
  if (status == ACCO_OK) status = acco_initialize(training, zeros, parameter_count);
  for (int step = 0; status == ACCO_OK && step < 150; ++step) status = acco_step(training, parabola, NULL, NULL);
  if (status == ACCO_OK) status = acco_gather_committed(training, all, parameter_count);
  if (status == ACCO_OK) status = acco_finish(training, ACCO_DROP_UNFINISHED);
  if (status == ACCO_OK) {
    float const* parameters = NULL;
    OK(acco_parameters(training, &parameters, NULL));
    for (int i = 0; i < parameter_count; i += 37) CHECK(fabsf(parameters[i] - target) < 0.2F);
    double sums[] = {(double)parameters[5], 1};
    OK(acco_sum_over_ranks(training, sums, 2));
    CHECK(sums[1] == 2 && fabs(sums[0] - 2 * (double)parameters[5]) < 1e-6);
    acco_totals totals;
    OK(acco_totals_init(&totals));
    OK(acco_totals_of(training, &totals));
    CHECK(totals.bytes_sent > 0);
  }
  acco_optimizer_destroy(training);
  return status;
}

/// A step of two_phase has the gradients of both its parts, of both ranks: here 1 and 3, and their means.
static acco_status commits_both_parts(acco_world* world, void* user) {
  acco_schedule const* schedule = user;
  acco_optimizer* training = NULL;
  acco_rule rule;
  float zeros[parameter_count] = {0}, all[parameter_count];
  OK(acco_rule_init(&rule, ACCO_SGD));
  rule.learning_rate = 1;
  OK(make_flat(world, &rule, schedule, NULL, &training));
  OK(acco_initialize(training, zeros, parameter_count));
  for (int part = 0; part < 2; ++part) {
    float* gradients = NULL;
    OK(acco_gradients(training, &gradients, NULL));
    for (int i = 0; i < parameter_count; ++i) gradients[i] += (float)(1 + 2 * part);
    OK(acco_accumulated(training, 1, 0, NULL, NULL));
  }
  OK(acco_finish(training, ACCO_DROP_UNFINISHED));
  OK(acco_gather_committed(training, all, parameter_count));
  CHECK(fabsf(all[0] + 2) < 0.02F && fabsf(all[parameter_count - 1] + 2) < 0.02F);
  acco_optimizer_destroy(training);
  return ACCO_OK;
}

/// Parameters that travel in full are more bytes than differences in four bits.
static acco_status exact_every_commit(acco_world* world, void* user) {
  (void)user;
  uint64_t bytes[2] = {0, 0};
  for (int exact = 0; exact < 2; ++exact) {
    acco_schedule schedule;
    acco_optimizer* training = NULL;
    acco_rule rule;
    acco_totals totals;
    float zeros[parameter_count] = {0};
    OK(acco_rule_init(&rule, ACCO_ADAMW));
    OK(acco_schedule_from_name("delayed+coded", &schedule));
    schedule.commit_exact_every = (unsigned)exact;
    OK(make_flat(world, &rule, &schedule, NULL, &training));
    OK(acco_initialize(training, zeros, parameter_count));
    for (int step = 0; step < 10; ++step) OK(acco_step(training, parabola, NULL, NULL));
    OK(acco_finish(training, ACCO_DROP_UNFINISHED));
    OK(acco_totals_init(&totals));
    OK(acco_totals_of(training, &totals));
    bytes[exact] = totals.bytes_sent;
    acco_optimizer_destroy(training);
  }
  CHECK(bytes[1] > bytes[0]);
  return ACCO_OK;
}

static acco_status splits(acco_world* world, void* user) {
  (void)user;
  acco_world* part = NULL;
  OK(acco_world_split(world, rank_of(world) % 2, -rank_of(world), 60, &part));
  int size = 0;
  OK(acco_world_size(part, &size));
  CHECK(size == 2 && rank_of(part) == (rank_of(world) < 2 ? 1 : 0));  // the key turned them round
  acco_optimizer* training = NULL;
  float start[parameter_count];
  for (int i = 0; i < parameter_count; ++i) start[i] = (float)rank_of(world);
  OK(make_adamw(part, "delayed", NULL, &training));
  acco_world_destroy(part);
  OK(acco_initialize(training, start, parameter_count));
  float const* parameters = NULL;
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(parameters[0] == (float)(rank_of(world) % 2 + 2));  // of rank 0 there
  OK(acco_finish(training, ACCO_DROP_UNFINISHED));
  acco_optimizer_destroy(training);
  acco_world_destroy(world);  // borrowed: left alone
  CHECK(rank_of(world) >= 0);
  return ACCO_OK;
}

static acco_status differs(acco_world* world, void* user) {
  (void)user;
  acco_options options;
  acco_optimizer* training = NULL;
  float zeros[parameter_count] = {0};
  OK(acco_options_init(&options));
  options.clip_norm = rank_of(world) == 1 ? 2 : 1;
  OK(make_adamw(world, "two_phase", &options, &training));
  const acco_status status = acco_initialize(training, zeros, parameter_count);
  FAILS(status, ACCO_ERROR_MISMATCH, "rank 0 has 'options.clip_norm = 1', rank 1 has 'options.clip_norm = 2'");
  CHECK(acco_last_error_rank() == rank_of(world) && acco_last_error_peer() == 1 - rank_of(world));
  FAILS(acco_initialize(training, zeros, parameter_count), ACCO_ERROR_MISMATCH, "constructed differently");
  acco_optimizer_destroy(training);
  return status;
}

static acco_status not_finite(acco_world* world, void* user) {
  (void)user;
  acco_optimizer* training = NULL;
  acco_layout* layout = NULL;
  acco_rule rule;
  acco_schedule schedule;
  const size_t half[] = {parameter_count / 2};
  OK(acco_layout_create(&layout));
  OK(acco_layout_add(layout, "healthy", half, 1, 0));
  OK(acco_layout_add(layout, "ill", half, 1, 0));
  OK(acco_rule_init(&rule, ACCO_ADAMW));
  OK(acco_schedule_from_name("synchronous", &schedule));
  OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
  acco_layout_destroy(layout);
  float zeros[parameter_count] = {0}, kept[parameter_count];
  OK(acco_initialize(training, zeros, parameter_count));
  OK(acco_step(training, parabola, NULL, NULL));
  float* gradients = NULL;
  OK(acco_gradients(training, &gradients, NULL));
  if (rank_of(world) == 1) gradients[parameter_count / 2 + 3] = NAN;
  const acco_status status = acco_accumulated(training, 1, 0, NULL, NULL);
  FAILS(status, ACCO_ERROR_NON_FINITE, "'ill'");
  CHECK(acco_last_error_peer() == 1 && acco_last_error_rank() == rank_of(world) && acco_last_error_round() == 1);
  OK(acco_gather_committed(training, kept, parameter_count));  // all ranks have it alike
  CHECK(kept[0] != 0);
  FAILS(acco_step(training, parabola, NULL, NULL), ACCO_ERROR_NON_FINITE, "'ill'");
  acco_optimizer_destroy(training);
  return status;
}

/// Rank 1 gives up with a number of its own, or stays away.
struct trouble {
  int stays_away;
  acco_status seen[2];
  acco_optimizer* left_behind;
};
static acco_status gives_up(acco_world* world, void* user) {
  struct trouble* trouble = user;
  acco_options options;
  acco_optimizer* training = NULL;
  float zeros[parameter_count] = {0};
  OK(acco_options_init(&options));
  options.deadline = trouble->stays_away ? 0.3 : 60;
  OK(make_adamw(world, "two_phase", &options, &training));
  acco_status status = acco_initialize(training, zeros, parameter_count);
  for (int step = 0; status == ACCO_OK && step < 1000; ++step) {
    if (rank_of(world) == 1 && step == 3) {
      if (!trouble->stays_away) {  // leaves its optimizer behind, as a program that fails may
        trouble->left_behind = training;
        return trouble->seen[1] = 4321;
      }
      double number = 0;
      status = acco_sum_over_ranks(training, &number, 1);  // which rank 0 does not come to
      continue;
    }
    status = acco_step(training, parabola, NULL, NULL);
  }
  trouble->seen[rank_of(world)] = status;
  if (!trouble->stays_away) {
    CHECK(acco_last_error_peer() == 1 && strstr(acco_last_error(), "returned 4321") != NULL);
  } else {
    CHECK(status == ACCO_ERROR_DEADLINE || status == ACCO_ERROR_PEER || status == ACCO_ERROR_MISMATCH);
  }
  acco_optimizer_destroy(training);
  return status;
}

/// Rank 1 fails first, and is the last to say so: the cause is still its own.
static acco_status is_slow_to_say(acco_world* world, void* user) {
  (void)user;
  acco_optimizer* training = NULL;
  float zeros[parameter_count] = {0};
  OK(make_adamw(world, "two_phase", NULL, &training));
  OK(acco_initialize(training, zeros, parameter_count));
  if (rank_of(world) == 1) {
    acco_world* part = NULL;
    acco_optimizer_destroy(training);                                                   // without acco_finish
    FAILS(acco_world_split(world, 0, 0, 60, &part), ACCO_ERROR_PEER, "rank 0 failed");  // waits for the end of rank 0
    return 4321;
  }
  acco_status status = ACCO_OK;
  while (status == ACCO_OK) status = acco_step(training, parabola, NULL, NULL);
  FAILS(status, ACCO_ERROR_PEER, "destroyed its optimizer without finish()");
  acco_optimizer_destroy(training);
  return status;
}

static acco_status never_comes(acco_world* world, void* user) {
  (void)user;
  acco_options options;
  acco_optimizer* training = NULL;
  float zeros[parameter_count] = {0};
  OK(acco_options_init(&options));
  options.deadline = 0.2;
  OK(make_adamw(world, "two_phase", &options, &training));
  acco_status status = ACCO_OK;
  if (rank_of(world) == 0) {
    status = acco_initialize(training, zeros, parameter_count);
    FAILS(status, ACCO_ERROR_DEADLINE, "rank 1 did not come");
    CHECK(acco_last_error_peer() == 1);
  } else {
    acco_world* part = NULL;
    (void)acco_world_split(world, 0, 0, 0.5, &part);  // waits for half a second, for nobody
    acco_world_destroy(part);
  }
  acco_optimizer_destroy(training);
  return status;
}

static void ranks(void) {
  for (size_t i = 0; acco_schedule_name(i) != NULL; ++i) {
    acco_schedule schedule;
    OK(acco_schedule_from_name(acco_schedule_name(i), &schedule));
    schedule.first = 1;
    schedule.second = 0;
    if (!OK(acco_run_threads(2, finds, &schedule))) fprintf(stderr, "under %s\n", acco_schedule_name(i));
  }
  acco_schedule schedule;
  for (int commit = ACCO_FULL; commit <= ACCO_CODED; ++commit) {
    if (commit == ACCO_INT4) continue;
    OK(acco_schedule_init(&schedule, ACCO_TWO_PHASE));
    schedule.first = 1;
    schedule.second = 0;
    schedule.pace = commit == ACCO_INT8 ? ACCO_ELASTIC_PACE : ACCO_AUTO_PACE;
    schedule.commit = commit;
    schedule.commit_exact_every = 10;
    schedule.estimate = commit == ACCO_BFLOAT16 ? ACCO_BFLOAT16 : ACCO_FULL;
    OK(acco_run_threads(2, finds, &schedule));
  }
  for (int estimate = ACCO_FULL; estimate <= ACCO_INT4; ++estimate) {
    OK(acco_schedule_init(&schedule, ACCO_TWO_PHASE));
    schedule.first = 1;
    schedule.second = 0;
    schedule.estimate = estimate;
    OK(acco_run_threads(2, commits_both_parts, &schedule));
  }
  OK(acco_run_threads(2, exact_every_commit, NULL));
  OK(acco_run_threads(4, splits, NULL));
  FAILS(acco_run_threads(2, differs, NULL), ACCO_ERROR_MISMATCH, "clip_norm");
  FAILS(acco_run_threads(2, not_finite, NULL), ACCO_ERROR_NON_FINITE, "'ill'");
  CHECK(acco_last_error_peer() == 1);
  struct trouble trouble = {0, {0, 0}, NULL};
  FAILS(acco_run_threads(2, gives_up, &trouble), 4321, "rank 1: the function that acco_run_threads was given returned 4321");
  CHECK(acco_last_error_rank() == 1);
  CHECK(trouble.seen[0] == ACCO_ERROR_PEER && trouble.seen[1] == 4321);
  acco_optimizer_destroy(trouble.left_behind);  // in another thread, after its world
  trouble.stays_away = 1;
  const acco_status status = acco_run_threads(2, gives_up, &trouble);
  CHECK(status != ACCO_OK && trouble.seen[0] != ACCO_OK && trouble.seen[1] != ACCO_OK);
  FAILS(acco_run_threads(2, is_slow_to_say, NULL), 4321, "rank 1: the function that acco_run_threads was given returned 4321");
  FAILS(acco_run_threads(2, never_comes, NULL), ACCO_ERROR_DEADLINE, "rank 1 did not come");
}

// --------------------------------------------------------------------------------------------------------------- processes

static void processes(void) {
  acco_world* world = NULL;
  acco_gloo_options gloo;
  acco_mpi_options mpi;
  OK(acco_gloo_options_init(&gloo));
  OK(acco_mpi_options_init(&mpi));
  REFUSED(acco_world_gloo(NULL, NULL), "is NULL");
  REFUSED(acco_world_mpi(NULL, NULL), "is NULL");
  REFUSED(acco_world_mpi_of(0, NULL, NULL), "is NULL");
  gloo.struct_size = 0;
  REFUSED(acco_world_gloo(&gloo, &world), "acco_gloo_options_init");
  mpi.progress = 3;
  REFUSED(acco_world_mpi(&mpi, &world), "acco_mpi_options.progress is 3");
  mpi.progress = 0;
  mpi.deadline = -1;
  REFUSED(acco_world_mpi(&mpi, &world), "deadline");
  if (acco_has(ACCO_GLOO)) {
    REFUSED(acco_world_gloo(NULL, &world), "environment variable");
  } else {
    REFUSED(acco_world_gloo(NULL, &world), "compiled without Gloo");
  }
  if (acco_has(ACCO_MPI)) {
    REFUSED(acco_world_mpi(NULL, &world), "before MPI was initialized");
    REFUSED(acco_world_mpi_of(0, NULL, &world), "before MPI was initialized");
    OK(acco_mpi_finalize(ACCO_OK));  // of nothing
  } else {
    REFUSED(acco_world_mpi(NULL, &world), "compiled without MPI");
    REFUSED(acco_world_mpi_of(0, NULL, &world), "compiled without MPI");
    REFUSED(acco_mpi_initialize(), "compiled without MPI");
    REFUSED(acco_mpi_finalize(ACCO_OK), "compiled without MPI");
  }
  CHECK(world == NULL);
}

// ------------------------------------------------------------------------------- tensors apart, averages, norms, habits

typedef struct apart {
  float weight[6], weight_gradient[6], bias[3], bias_gradient[3], still[2];
  int passed_null;
} apart;
static acco_status adds(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  apart* model = user;
  model->passed_null = parameters == NULL && gradients == NULL;
  for (int i = 0; i < 6; ++i) model->weight_gradient[i] += model->weight[i] - target;
  for (int i = 0; i < 3; ++i) model->bias_gradient[i] += 2 * (model->bias[i] - target);
  sums->weight = 1;
  return ACCO_OK;
}
static acco_status writes(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  (void)user;
  for (int i = 0; i < parameter_count; ++i) gradients[i] += 0.01F * parameters[i] + 1;
  for (int i = 0; i < parameter_count; ++i) ((float*)(uintptr_t)parameters)[i] = 0.25F;
  sums->weight = 1;
  return ACCO_OK;
}

static void apart_averages_norms_habits(void) {
  acco_world* world = NULL;
  acco_layout* layout = NULL;
  acco_optimizer* training = NULL;
  acco_rule rule;
  acco_schedule schedule;
  acco_options options;
  acco_group group;
  size_t frozen = 0, clipped = 0, count = 0;
  const size_t six[] = {2, 3}, three[] = {3}, two[] = {2};
  OK(acco_world_solo(&world));
  OK(acco_layout_create(&layout));
  OK(acco_group_init(&group));
  CHECK(group.clip_norm == ACCO_OF_RULE && group.leave_without_gradient == 0);
  group.frozen = 1;
  OK(acco_layout_add_group(layout, &group, &frozen));
  OK(acco_group_init(&group));
  group.clip_norm = 0.5;
  group.leave_without_gradient = 1;
  OK(acco_layout_add_group(layout, &group, &clipped));
  group.clip_norm = -2;
  REFUSED(acco_layout_add_group(layout, &group, &clipped), "update_group::clip_norm is -2");
  OK(acco_layout_add(layout, "weight", six, 2, 0));
  OK(acco_layout_add(layout, "bias", three, 1, clipped));
  OK(acco_layout_add(layout, "still", two, 1, frozen));
  OK(acco_rule_init(&rule, ACCO_SGD));
  rule.learning_rate = 1;
  OK(acco_schedule_init(&schedule, ACCO_SYNCHRONOUS));
  OK(acco_options_init(&options));
  options.average_decay = 0.5;
  options.check_habits = ACCO_CHECK_OFF;  // checks keep copies of the adopted arrays
  options.norms = ACCO_NORMS_OF_TENSORS;
  OK(acco_optimizer_create(world, layout, &rule, &schedule, &options, &training));
  apart model = {{0}, {0}, {0}, {0}, {7, 8}, 0};
  const acco_tensor_memory memory[] = {
      {model.weight, model.weight_gradient}, {model.bias, model.bias_gradient}, {model.still, NULL}};
  REFUSED(acco_adopt_tensors(training, memory, 2), "adopt got 2 tensors, the layout has 3");
  REFUSED(acco_adopt_tensors(training, NULL, 3), "acco_adopt_tensors: tensors is NULL");
  OK(acco_adopt_tensors(training, memory, 3));
  float const* whole = NULL;
  REFUSED(acco_parameters(training, &whole, NULL), "the tensors were adopted one by one");
  acco_report report;
  OK(acco_report_init(&report));
  OK(acco_step(training, adds, &model, &report));
  CHECK(model.passed_null);
  // Weights go to the target at once; the bias has a gradient of -6 each, norm 6 sqrt(3), and is clipped to 0.5.
  CHECK(fabsf(model.weight[4] - target) < 1e-6F);
  CHECK(fabs((double)model.bias[1] - 0.5 / sqrt(3.0)) < 1e-6);
  double const* norms = NULL;
  OK(acco_norms(training, &norms, &count));
  CHECK(count == 3 && fabs(norms[0] - 3 * sqrt(6.0)) < 1e-5 && fabs(norms[1] - 6 * sqrt(3.0)) < 1e-5 && norms[2] == 0);
  float average[11];
  OK(acco_gather_average(training, average, 11));
  CHECK(fabsf(average[0] - target / 2) < 1e-6F && average[9] == 7 && average[10] == 8);
  REFUSED(acco_gather_average(training, average, 10), "gather_average got room for 10 parameters");
  acco_memory bytes;
  OK(acco_memory_init(&bytes));
  OK(acco_memory_of(training, &bytes));
  CHECK(bytes.averages != 0 && bytes.parameters == 0);
  OK(acco_finish(training, ACCO_DROP_UNFINISHED));
  acco_optimizer_destroy(training);

  options.norms = 3;
  REFUSED(acco_optimizer_create(world, layout, &rule, &schedule, &options, &training), "acco_options.norms");
  options.norms = ACCO_NORMS_TOTAL;
  options.check_habits = 3;
  REFUSED(acco_optimizer_create(world, layout, &rule, &schedule, &options, &training), "acco_options.check_habits");
  acco_layout_destroy(layout);

  for (int check = ACCO_CHECK_ON; check <= ACCO_CHECK_OFF; ++check) {
    OK(acco_options_init(&options));
    options.check_habits = check;
    training = NULL;
    OK(make_adamw(world, "two_phase+int4", &options, &training));
    float start[parameter_count] = {0};
    OK(acco_initialize(training, start, parameter_count));
    acco_status status = ACCO_OK;
    for (int step = 0; step < 200 && status == ACCO_OK; ++step) status = acco_step(training, writes, NULL, NULL);
    if (check == ACCO_CHECK_ON) {
      REFUSED(status, "the parameters were written to since they came into use");
    } else {
      OK(status);
      REFUSED(acco_gather_average(training, start, parameter_count), "no average of the weights is kept");
    }
    acco_optimizer_destroy(training);
  }
  acco_world_destroy(world);
}

int main(void) {
  CHECK(strcmp(acco_last_error(), "") == 0);
  versions_and_errors();
  structs();
  layouts();
  optimizers();
  learning_rates();
  callbacks();
  options_do_something();
  rules_and_groups();
  apart_averages_norms_habits();
  ranks();
  processes();
  return checks_done();
}
