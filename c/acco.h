// SPDX-License-Identifier: Apache-2.0
// The C interface of acco: a sharded optimizer whose communication is hidden behind the computation of the next
// gradients, for trainers in C99 and in languages that call C. Parameters and gradients are floats in host memory.
// docs/c.md is the guide; docs/errors.md has the messages.
//
//   acco_status train(acco_world* world, void* user) {            // on every rank
//     acco_layout* layout; acco_rule rule; acco_schedule schedule; acco_optimizer* training; acco_report report;
//     acco_layout_create_flat(parameter_count, &layout);
//     acco_rule_init(&rule, ACCO_ADAMW);
//     acco_schedule_from_name("two_phase+int4", &schedule);
//     acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training);
//     acco_adopt(training, parameters, gradients, parameter_count);   // arrays of the trainer's own
//     acco_report_init(&report);
//     while (report.step < steps) acco_step(training, micro_batch, user, &report);
//     ...
//   }
//
// Every function but the destroying and the asking ones (acco_last_error and its kin) returns a status: ACCO_OK, or
// what went wrong, and then acco_last_error() has the words. No exception leaves a function, and none ends the process.
// A NULL where something is needed is ACCO_ERROR_USAGE; what a function was to write is then left as it was. Callbacks
// return: they do not leave by longjmp, pthread_exit or a cancelled thread.
//
// Structs begin with `struct_size`, which their init function writes together with the defaults: call it before
// anything else. A library that is newer than the header a program was compiled with takes the members that program
// does not know as their defaults; an older one refuses members that it does not know unless they are 0.
//
// Threads: one thread at a time uses an optimizer or a layout; different ones may be used at the same time. Every rank
// makes the same calls.
#ifndef ACCO_H
#define ACCO_H

#include <stddef.h>
#include <stdint.h>

#pragma push_macro("slots") /* Qt's: here it is a member */
#undef slots

#if defined(__GNUC__)
#define ACCO_API __attribute__((visibility("default")))
#else
#define ACCO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------------------------- version

#define ACCO_C_VERSION_MAJOR 0
#define ACCO_C_VERSION_MINOR 1
#define ACCO_C_VERSION_PATCH 0
/// The version of this header: 10000 major + 100 minor + patch.
#define ACCO_C_VERSION (10000 * ACCO_C_VERSION_MAJOR + 100 * ACCO_C_VERSION_MINOR + ACCO_C_VERSION_PATCH)

// -------------------------------------------------------------------------------------------------------------- errors

/// ACCO_OK or what went wrong. An int, so that callbacks may return numbers of their own, from ACCO_STATUS_OF_CALLER
/// on.
typedef int acco_status;
enum {
  ACCO_OK = 0,
  ACCO_ERROR_USAGE = 1,       ///< wrong sizes, wrong order, values out of range, NULL: correct the call and go on
  ACCO_ERROR_MISMATCH = 2,    ///< the ranks were constructed differently, or call different things
  ACCO_ERROR_PEER = 3,        ///< another rank failed or left: a consequence; acco_last_error_peer() names it
  ACCO_ERROR_DEADLINE = 4,    ///< a rank did not come within the deadline; acco_last_error_peer() names the first one
  ACCO_ERROR_NON_FINITE = 5,  ///< a gradient was infinite or not a number;
                              ///< acco_last_error_peer() names the rank it came from
  ACCO_ERROR_MEMORY = 6,      ///< no memory
  ACCO_ERROR_DEVICE = 7,      ///< a call to a GPU's runtime failed (none is made by this library yet)
  ACCO_ERROR_OTHER = 8,       ///< anything else; spikes, ranks that differ, and checkpoints among them
  ACCO_STATUS_OF_CALLER = 1000
};

/// What the last call that failed in this thread said: what, on which rank, in which round, what to do. Never NULL; ""
/// if none has failed. Valid until the next call that fails in this thread. A call that succeeds leaves it alone.
ACCO_API char const* acco_last_error(void);
/// The rank to blame for it; -1: none, or not known.
ACCO_API int acco_last_error_peer(void);
/// The rank that reports it, and the round, from 0; -1: not known.
ACCO_API int acco_last_error_rank(void);
ACCO_API int64_t acco_last_error_round(void);
/// "usage", "mismatch" and so on, for logs; "caller" for numbers of callers.
ACCO_API char const* acco_status_name(acco_status status);

/// ACCO_C_VERSION of the library that is linked.
ACCO_API int acco_c_version(void);
/// ACCO_ERROR_USAGE where a program that was compiled with the header of version `header` cannot work with this
/// library: another major version, or, while that is 0, another minor version; or a newer header.
ACCO_API acco_status acco_check_version_of(int header);
static inline acco_status acco_check_version(void) { return acco_check_version_of(ACCO_C_VERSION); }

// -------------------------------------------------------------------------------------------------------------- worlds

/// One rank of some that train together. Optimizers made over a world keep what they need of it: it may be destroyed
/// before them.
typedef struct acco_world acco_world;

/// What acco_run_threads calls on every thread, and acco_step for every micro-batch: ACCO_OK to go on. Anything else
/// ends the caller, which returns that number.
typedef acco_status (*acco_rank_function)(acco_world* world, void* user);

/// Runs function(world, user) on `ranks` threads, each with its own world, and returns when all have ended. One that
/// returns anything but ACCO_OK ends the waits of all others with ACCO_ERROR_PEER; the status and the words of the one
/// that failed first, and was no such consequence, become this call's. A rank's world lives until its function returns;
/// do not destroy it. Errors: ACCO_ERROR_USAGE (`ranks` below 1 or above 65536, `function` NULL), or what a rank
/// returned.
ACCO_API acco_status acco_run_threads(int ranks, acco_rank_function function, void* user);

/// A world of this rank alone.
ACCO_API acco_status acco_world_solo(acco_world** world);

enum { ACCO_THREADS = 0, ACCO_MPI = 1, ACCO_GLOO = 2 };
/// 1 where the library was compiled with that backend, 0 otherwise: then what would make a world of it is
/// ACCO_ERROR_USAGE, and says so.
ACCO_API int acco_has(int backend);

/// Who moves messages over MPI while the trainer computes: a thread of the library's; the trainer, by acco_poll, about
/// every millisecond; nobody.
enum { ACCO_MPI_HELPER_THREAD = 0, ACCO_MPI_POLL = 1, ACCO_MPI_NO_PROGRESS = 2 };
typedef struct acco_mpi_options {
  size_t struct_size;
  double deadline;     ///< seconds to wait for the other ranks when the communicator is duplicated; 600
  int progress;        ///< ACCO_MPI_HELPER_THREAD
  size_t piece_bytes;  ///< of a rank's part that travels as one; 0: chosen
} acco_mpi_options;
ACCO_API acco_status acco_init_mpi_options(acco_mpi_options* options, size_t size);
static inline acco_status acco_mpi_options_init(acco_mpi_options* options) {
  return acco_init_mpi_options(options, sizeof *options);
}

/// MPI_Init_thread with MPI_THREAD_MULTIPLE, for programs that do not call MPI themselves; does nothing where MPI is
/// initialized.
ACCO_API acco_status acco_mpi_initialize(void);
/// The end of such a program, after its optimizers and worlds have been destroyed. With ACCO_OK it calls MPI_Finalize.
/// With anything else it waits half a second, so that the other ranks can say what they saw, and ends the job by
/// MPI_Abort: MPI promises nothing once a rank is lost.
ACCO_API acco_status acco_mpi_finalize(acco_status outcome);
/// The ranks of MPI_COMM_WORLD. Collective; blocks at most options->deadline seconds. `options` may be NULL: the
/// defaults. MPI must be initialized.
ACCO_API acco_status acco_world_mpi(acco_mpi_options const* options, acco_world** world);
/// The same of any communicator, which is duplicated: MPI_Comm_c2f(communicator) in C, its handle in Fortran
/// (`communicator%MPI_VAL` with mpi_f08).
ACCO_API acco_status acco_world_mpi_of(int fortran_communicator, acco_mpi_options const* options, acco_world** world);

/// What gloo_options has in C++ and this has not keeps its default: connections to each other rank are as many as the
/// round trip asks for, and messages carry checksums where the link is long.
typedef struct acco_gloo_options {
  size_t struct_size;
  double deadline;                ///< seconds for all ranks to come together; 600
  size_t piece_bytes;             ///< of a rank's part that travels as one; 0: chosen
  char const* network_interface;  ///< "eth0", or one of this host's addresses; NULL: the one that leads to MASTER_ADDR
  char const* listen;             ///< interface or address at which rank 0 awaits the others; NULL: chosen
  char const* run;                ///< names this run, the same on all its ranks; NULL: the launcher's name
} acco_gloo_options;
ACCO_API acco_status acco_init_gloo_options(acco_gloo_options* options, size_t size);
static inline acco_status acco_gloo_options_init(acco_gloo_options* options) {
  return acco_init_gloo_options(options, sizeof *options);
}
/// Processes that come together by the environment variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
/// (docs/network.md). Collective; blocks at most options->deadline seconds. `options` may be NULL. A shared secret is
/// not offered here: docs/security.md says who may join without one.
ACCO_API acco_status acco_world_gloo(acco_gloo_options const* options, acco_world** world);

/// This rank, from 0, and how many there are.
ACCO_API acco_status acco_world_rank(acco_world const* world, int* rank);
ACCO_API acco_status acco_world_size(acco_world const* world, int* size);
/// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank; errors name its ranks.
/// Every rank calls it; blocks at most `deadline` seconds for any of them.
ACCO_API acco_status acco_world_split(acco_world const* world, int color, int key, double deadline, acco_world** part);
/// NULL is nothing. One that acco_run_threads gave is left alone.
ACCO_API void acco_world_destroy(acco_world* world);

// -------------------------------------------------------------------------------------------------------------- layout

/// The tensors of a model in the order in which they lie, without gaps, in the flat parameter and gradient arrays.
typedef struct acco_layout acco_layout;

/// "The rule's own", for members of acco_group.
#define ACCO_OF_RULE (-1.0)
/// How a group of tensors deviates from the rule.
typedef struct acco_group {
  size_t struct_size;
  double learning_rate_scale;  ///< multiplies the learning rate; 1
  double weight_decay;         ///< these replace the rule's; ACCO_OF_RULE, exactly, is "do not"
  double beta1, beta2;         ///< adamw, lion
  double epsilon;              ///< adamw
  double momentum;             ///< sgd
  double clip_norm;            ///< largest norm of the group's own mean gradient,
                               ///< instead of acco_options' for all; ACCO_OF_RULE: none
  int frozen;                  ///< never updated: no state, no traffic; 0
  int leave_without_gradient;  ///< 1: a tensor whose gradient is zero on every rank is left alone in that step; 0
} acco_group;
ACCO_API acco_status acco_init_group(acco_group* group, size_t size);
static inline acco_status acco_group_init(acco_group* group) { return acco_init_group(group, sizeof *group); }

/// One tensor of a layout. `name` and `shape` are valid while the layout lives.
typedef struct acco_tensor {
  size_t struct_size;
  char const* name;
  size_t const* shape;  ///< `dimensions` extents
  size_t dimensions;
  size_t offset, size;  ///< elements, in the flat arrays
  size_t group;
} acco_tensor;

/// Writes zeros to a struct that the library is to fill, and its size.
ACCO_API acco_status acco_init_output(void* output, size_t size);
static inline acco_status acco_tensor_init(acco_tensor* tensor) { return acco_init_output(tensor, sizeof *tensor); }

/// An empty layout; group 0, which takes everything from the rule, exists.
ACCO_API acco_status acco_layout_create(acco_layout** layout);
/// One tensor, "parameters", of `parameter_count` elements and without a shape.
ACCO_API acco_status acco_layout_create_flat(size_t parameter_count, acco_layout** layout);
/// Registers a group; *number is what acco_layout_add takes.
ACCO_API acco_status acco_layout_add_group(acco_layout* layout, acco_group const* group, size_t* number);
/// Appends a tensor of shape[0] x ... x shape[dimensions - 1] elements (0 dimensions: one element, and `shape` may be
/// NULL). Names, at most 128 bytes, are used once; at most 8 dimensions.
ACCO_API acco_status acco_layout_add(acco_layout* layout, char const* name, size_t const* shape, size_t dimensions, size_t group);
/// Tensors of fewer than two dimensions, added before or after, are not decayed, unless their group has a weight_decay
/// of its own. Not for a layout made from a count.
ACCO_API acco_status acco_layout_no_decay_for_vectors(acco_layout* layout);
/// Elements of all tensors; of those that are not frozen; tensors.
ACCO_API acco_status acco_layout_size(acco_layout const* layout, size_t* elements);
ACCO_API acco_status acco_layout_trainable_size(acco_layout const* layout, size_t* elements);
ACCO_API acco_status acco_layout_tensor_count(acco_layout const* layout, size_t* tensors);
/// The tensor of that number, from 0, or name.
ACCO_API acco_status acco_layout_tensor(acco_layout const* layout, size_t number, acco_tensor* tensor);
ACCO_API acco_status acco_layout_find(acco_layout const* layout, char const* name, acco_tensor* tensor);
/// NULL is nothing. Optimizers hold copies.
ACCO_API void acco_layout_destroy(acco_layout* layout);

// ---------------------------------------------------------------------------------------------------------------- rule

enum { ACCO_ADAMW = 0, ACCO_SGD = 1, ACCO_LION = 2 };
/// An update rule. Members that its kind does not have are not read.
typedef struct acco_rule {
  size_t struct_size;
  int kind;              ///< what acco_rule_init was given
  double learning_rate;  ///< adamw 1e-3, sgd 1e-2, lion 1e-4
  double beta1;          ///< adamw, lion: 0.9
  double beta2;          ///< adamw 0.999, lion 0.99
  double epsilon;        ///< adamw: 1e-8
  double momentum;       ///< sgd: 0
  double weight_decay;   ///< adamw 0.01, sgd and lion 0
  int nesterov;          ///< sgd: 0
  int classic_decay;     ///< sgd: 1 adds weight_decay * parameter to the gradient;
                         ///< 0, decoupled, shrinks the parameter beside the step
} acco_rule;
ACCO_API acco_status acco_init_rule(acco_rule* rule, size_t size, int kind);
ACCO_API acco_status acco_init_rule_from_name(acco_rule* rule, size_t size, char const* name);
/// The defaults of a kind.
static inline acco_status acco_rule_init(acco_rule* rule, int kind) { return acco_init_rule(rule, sizeof *rule, kind); }
/// The defaults of "adamw", "sgd" or "lion".
static inline acco_status acco_rule_from_name(char const* name, acco_rule* rule) {
  return acco_init_rule_from_name(rule, sizeof *rule, name);
}

// ------------------------------------------------------------------------------------------------------------ schedule

enum { ACCO_SYNCHRONOUS = 0, ACCO_DELAYED = 1, ACCO_WEIGHT_PREDICTION = 2, ACCO_TWO_PHASE = 3 };
enum {
  ACCO_FIXED_PACE = 0,    ///< `first` micro-batches in the first part of a step,
                          ///< `second` in the second (0: as many); reproducible
  ACCO_ELASTIC_PACE = 1,  ///< at least `first`, on until the round before has
                          ///< ended, at most `at_most`; not under synchronous
  ACCO_AUTO_PACE = 2      ///< two_phase: `first` + `second` (0: as many)
                          ///< micro-batches a step, split by what is measured
};
/// How rounds travel: gradients to the owners of the slices, parameters back, as differences where they are encoded.
enum {
  ACCO_FULL = 0,       ///< as floats
  ACCO_BFLOAT16 = 1,   ///< both in bfloat16
  ACCO_INT8 = 2,       ///< both in blocks of 256 eight-bit integers
  ACCO_INT4 = 3,       ///< the same of four bits; estimates only
  ACCO_INT8_INT4 = 4,  ///< gradients in eight bits, parameters as differences in four; commits only
  ACCO_CODED = 5       ///< "+coded": gradients in four bits, parameters as differences in three; commits only
};
typedef struct acco_schedule {
  size_t struct_size;
  int kind;                     ///< ACCO_SYNCHRONOUS
  int pace;                     ///< ACCO_FIXED_PACE
  unsigned first, second;       ///< micro-batches on each rank: 1, 0; two_phase: 3, 1
  unsigned at_most;             ///< of elastic_pace: 64
  int estimate;                 ///< two_phase: how estimates travel; ACCO_FULL
  int commit;                   ///< how commits travel; ACCO_FULL
  unsigned commit_exact_every;  ///< every so many commits parameters travel in full; 0: never
} acco_schedule;
ACCO_API acco_status acco_init_schedule(acco_schedule* schedule, size_t size, int kind);
ACCO_API acco_status acco_init_schedule_from_name(acco_schedule* schedule, size_t size, char const* name);
/// The defaults of a kind.
static inline acco_status acco_schedule_init(acco_schedule* schedule, int kind) {
  return acco_init_schedule(schedule, sizeof *schedule, kind);
}
/// A schedule by its name, for a flag: acco_schedule_name lists them. The pace is the default: set its members
/// afterwards. An unknown name is ACCO_ERROR_USAGE, and its message lists the known ones.
static inline acco_status acco_schedule_from_name(char const* name, acco_schedule* schedule) {
  return acco_init_schedule_from_name(schedule, sizeof *schedule, name);
}
/// The name with that number, from 0; NULL behind the last one.
ACCO_API char const* acco_schedule_name(size_t number);

// ------------------------------------------------------------------------------------------------------- learning rate

/// Where a training is when it asks for a step's learning rate.
typedef struct acco_position {
  double samples;  ///< weight committed so far, over all ranks
  uint64_t steps;  ///< updates committed so far
} acco_position;
/// A factor, finite and 0 or more, for the rule's learning rate: a function of `at` alone, the same on every rank.
/// Called by acco_initialize and acco_adopt, and when a round starts, under weight_prediction also on a thread of the
/// library's. To fail it returns NaN, which ends the training with ACCO_ERROR_USAGE. It makes no calls to the
/// optimizer.
typedef double (*acco_learning_rate_function)(acco_position const* at, void* user);

enum {
  ACCO_CONSTANT = 0,                ///< factor
  ACCO_WARMUP_COSINE = 1,           ///< warmup, total, final_factor (0.1)
  ACCO_WARMUP_LINEAR = 2,           ///< warmup, total, final_factor (0)
  ACCO_WARMUP_STABLE_DECAY = 3,     ///< warmup, total, decay, final_factor (0), root_cooldown
  ACCO_WARMUP_COSINE_RESTARTS = 4,  ///< warmup, period, stretch, final_factor (0)
  ACCO_LEARNING_RATE_FUNCTION = 5   ///< function, user
};
enum { ACCO_IN_SAMPLES = 0, ACCO_IN_STEPS = 1, ACCO_IN_TOKENS = 2 };
typedef struct acco_learning_rate {
  size_t struct_size;
  int kind;
  int unit;  ///< of all numbers below: samples (the weights that micro-batches have), steps, or tokens; ACCO_IN_SAMPLES
  double tokens_per_sample;  ///< ACCO_IN_TOKENS: 1 where weights are tokens
  double factor;             ///< 1
  double warmup, total;      ///< 0: `total` must be given, the warm-up included
  double final_factor;
  double step;        ///< what one step adds in that unit, which the warm-up counts ahead; 1 is right in steps
  double decay;       ///< length of the last part; 0: none
  int root_cooldown;  ///< 1 - sqrt instead of a straight line
  double period, stretch;
  acco_learning_rate_function function;
  void* user;
} acco_learning_rate;
ACCO_API acco_status acco_init_learning_rate(acco_learning_rate* rate, size_t size, int kind);
static inline acco_status acco_learning_rate_init(acco_learning_rate* rate, int kind) {
  return acco_init_learning_rate(rate, sizeof *rate, kind);
}

// ------------------------------------------------------------------------------------------------------------- options

enum { ACCO_NORMS_TOTAL = 0, ACCO_NORMS_OF_GROUPS = 1, ACCO_NORMS_OF_TENSORS = 2 };
/// Whether habits of trainers that break a training silently are errors (docs/attach.md has the list): gradients that
/// are cleared or stay zero, parameters that are written to, arrays of before a report. By the build: where acco::c was
/// compiled without NDEBUG.
enum { ACCO_CHECK_BY_BUILD = 0, ACCO_CHECK_ON = 1, ACCO_CHECK_OFF = 2 };
typedef struct acco_options {
  size_t struct_size;
  double clip_norm;                         ///< largest global norm of the mean gradient; 0: no clipping
  acco_learning_rate const* learning_rate;  ///< NULL: constant; copied
  int stable_addresses;                     ///< the arrays never move; costs a copy of both a round; 0
  double deadline;                          ///< seconds that any rank waits for another; 600
  int skip_non_finite;                      ///< 1: an update with a gradient that is not
                                            ///< finite is left out; 0: it is an error
  size_t skip_limit;                        ///< updates in a row that may be skipped before an error after all; 100
  size_t empty_limit;                       ///< steps in a row, of all ranks, that may
                                            ///< weigh nothing before an error; 100
  size_t bucket_elements;                   ///< trainable elements that travel as one collective; 0: chosen
  double average_decay;                     ///< 0.999, say: keeps a moving average of the committed
                                            ///< weights, for acco_gather_average; 0: none
  int norms;                                ///< whose norms acco_norms tells: ACCO_NORMS_TOTAL, nobody's
  int check_habits;                         ///< ACCO_CHECK_BY_BUILD
  int in_place;                             ///< 1: gradients that an estimate leaves for the commit
                                            ///< stay in the array of gradients, which saves another
                                            ///< one, and must not be cleared before the commit; 0
} acco_options;
ACCO_API acco_status acco_init_options(acco_options* options, size_t size);
static inline acco_status acco_options_init(acco_options* options) { return acco_init_options(options, sizeof *options); }

// ------------------------------------------------------------------------------------------------------------- reports

/// What the update of a round does: the predicted parameters only show where gradients are taken.
enum { ACCO_COMMIT = 0, ACCO_PREDICT = 1, ACCO_COMMIT_AND_PREDICT = 2 };
/// A round that has ended on this rank. Seconds are of the steady clock. Everything but times, micro_batches,
/// bytes_sent and progress is the same on every rank.
typedef struct acco_report {
  size_t struct_size;
  uint64_t round;                ///< from 0
  int update;                    ///< ACCO_COMMIT, ACCO_PREDICT or ACCO_COMMIT_AND_PREDICT
  int second_part;               ///< 1: it carried the second part of a step
  int committed;                 ///< 1: the parameters are committed ones now: evaluate and save only then
  int skipped;                   ///< 1: the update was left out because a gradient was not finite
  uint64_t step;                 ///< updates committed so far
  double samples;                ///< weight committed so far, over all ranks
  double weight, mean_loss;      ///< what this round carried, over all ranks
  double step_weight;            ///< of all rounds of this step so far: where one commits, of the whole step
  double step_loss;              ///< and their mean loss: the one to print
  double gradient_norm;          ///< of the mean gradient that the update used, before clipping
  double clip_scale;             ///< factor that clipping applied to it
  double learning_rate_scale;    ///< the learning rate's factor
  uint64_t micro_batches;        ///< that this rank added to the round's gradients
  unsigned first, second;        ///< micro-batches of the parts of the coming step, at least
  double compute_seconds;        ///< the trainer's own
  double communication_seconds;  ///< from the round's start to its end, waiting for other ranks and the update included
  double exposed_seconds;        ///< of the trainer's thread, lost to the engine
  double hidden_fraction;        ///< 1 - exposed / communication
  uint64_t bytes_sent;           ///< by this rank
  char const* progress;          ///< who moved messages meanwhile, in words; "" where nobody has to
  double computing_begin, computing_end;
  double communicating_begin, communicating_end;
} acco_report;
static inline acco_status acco_report_init(acco_report* report) { return acco_init_output(report, sizeof *report); }

/// Sums over this rank's rounds.
typedef struct acco_totals {
  size_t struct_size;
  uint64_t rounds, micro_batches, skipped;
  double dropped;  ///< weight, over all ranks, that acco_finish left out
  double compute_seconds, communication_seconds, exposed_seconds, hidden_fraction;
  uint64_t bytes_sent;
} acco_totals;
static inline acco_status acco_totals_init(acco_totals* totals) { return acco_init_output(totals, sizeof *totals); }

/// This rank's buffers in bytes.
typedef struct acco_memory {
  size_t struct_size;
  size_t parameters, gradients, in_flight, masters, slots, reduced, encoded, messages;
  size_t total;      ///< their sum
  size_t gathering;  ///< not in it: what acco_gather_committed takes while it runs
  size_t averages;   ///< in it: acco_options.average_decay
} acco_memory;
static inline acco_status acco_memory_init(acco_memory* memory) { return acco_init_output(memory, sizeof *memory); }

// ----------------------------------------------------------------------------------------------------------- optimizer

/// A sharded optimizer on one rank. After an error of a call that communicates the training has ended: later calls
/// return the same error, the parameters hold what they held, and after one that all ranks have alike
/// (ACCO_ERROR_NON_FINITE, ACCO_ERROR_MISMATCH) acco_gather_committed still tasks.
typedef struct acco_optimizer acco_optimizer;

/// What a micro-batch brings beside its gradients.
typedef struct acco_micro_batch {
  double weight;    ///< samples (or tokens, or 1) of which the gradients are the sum
  double loss_sum;  ///< sum of their losses
} acco_micro_batch;
/// Reads `parameters`, ADDS the gradient SUM of one micro-batch to `gradients`, and writes *sums (zeros at first).
typedef acco_status (*acco_micro_batch_function)(float const* parameters, float* gradients, acco_micro_batch* sums, void* user);

/// Every rank makes one, with the same arguments, in the same order. Allocates nothing large and does not communicate.
/// `options` may be NULL: the defaults. All arguments are copied. Errors: ACCO_ERROR_USAGE (no trainable element, a
/// value out of range, a combination that does not exist), ACCO_ERROR_MEMORY.
ACCO_API acco_status acco_optimizer_create(acco_world const* world, acco_layout const* layout, acco_rule const* rule,
                                           acco_schedule const* schedule, acco_options const* options,
                                           acco_optimizer** optimizer);
/// NULL is nothing. Call acco_finish first to leave in peace: otherwise whoever waits for this rank gets an error that
/// names it.
ACCO_API void acco_optimizer_destroy(acco_optimizer* optimizer);

/// Compares the ranks' construction, allocates, and gives every rank the values of rank 0; `count` is the layout's size
/// on every rank. Collective; blocks. Errors: ACCO_ERROR_USAGE (size, called twice), ACCO_ERROR_MISMATCH,
/// ACCO_ERROR_DEADLINE, ACCO_ERROR_MEMORY.
ACCO_API acco_status acco_initialize(acco_optimizer* optimizer, float const* initial, size_t count);
/// The same, and works in the trainer's own arrays, `count` elements each, from then on: they are acco_parameters and
/// acco_gradients, and never move. The trainer keeps them until the optimizer is destroyed, reads the one, adds to the
/// other, and clears neither.
ACCO_API acco_status acco_adopt(acco_optimizer* optimizer, float* parameters, float* gradients, size_t count);

/// Where the trainer keeps one tensor: as many floats as its shape has. `gradients` may be NULL for a frozen one.
typedef struct acco_tensor_memory {
  float* parameters;
  float* gradients;
} acco_tensor_memory;
/// acco_adopt where each tensor lies at an address of its own; one entry for each of the layout's `count` tensors, in
/// its order. acco_parameters and acco_gradients are ACCO_ERROR_USAGE then, and acco_step passes NULL for both.
ACCO_API acco_status acco_adopt_tensors(acco_optimizer* optimizer, acco_tensor_memory const* tensors, size_t count);

/// The parameters to compute gradients at, and where gradient sums are to be ADDED: the layout's size. Valid until the
/// next report or acco_finish; for ever with acco_adopt or stable_addresses. `count` may be NULL.
ACCO_API acco_status acco_parameters(acco_optimizer const* optimizer, float const** parameters, size_t* count);
ACCO_API acco_status acco_gradients(acco_optimizer const* optimizer, float** gradients, size_t* count);
/// A tensor's part of both. Each of the last three may be NULL.
ACCO_API acco_status acco_tensor_of(acco_optimizer const* optimizer, char const* name, float const** parameters,
                                    float** gradients, size_t* count);

/// Ends a micro-batch. *has_report is 1 when a round has ended (then the arrays have moved), and *report tells of it;
/// each may be NULL. Blocks only where the pace demands it. Errors: ACCO_ERROR_USAGE (a weight that is negative,
/// infinite or NaN), those of rounds.
ACCO_API acco_status acco_accumulated(acco_optimizer* optimizer, double weight, double loss_sum, acco_report* report,
                                      int* has_report);
/// One step: calls micro_batch until a step is committed; *report, which may be NULL, is of the round that did so. What
/// micro_batch returns, if not ACCO_OK, ends the call and is returned; that micro-batch does not count, what it has
/// added stays, and the training goes on with the next call.
ACCO_API acco_status acco_step(acco_optimizer* optimizer, acco_micro_batch_function micro_batch, void* user, acco_report* report);

enum { ACCO_DROP_UNFINISHED = 0, ACCO_COMMIT_UNFINISHED = 1 };
/// Commits the steps that are complete and shows committed weights on every rank; a step of which no rank has all
/// micro-batches is dropped or committed. The training may go on. Collective; blocks.
ACCO_API acco_status acco_finish(acco_optimizer* optimizer, int unfinished);
/// Replaces the parameters by rank 0's values, between acco_initialize or acco_finish and the next micro-batch, and
/// keeps the rest of the state. Collective; blocks.
ACCO_API acco_status acco_set_parameters(acco_optimizer* optimizer, float const* values, size_t count);
/// Writes the weights committed so far to `out`. Collective; blocks.
ACCO_API acco_status acco_gather_committed(acco_optimizer* optimizer, float* out, size_t count);
/// Writes the moving average of the committed weights to `out`; ACCO_ERROR_USAGE without acco_options.average_decay.
ACCO_API acco_status acco_gather_average(acco_optimizer* optimizer, float* out, size_t count);
/// Norms of the mean gradient of the last round, before clipping, as acco_options.norms says: *count numbers, by group
/// or tensor; valid until the next report.
ACCO_API acco_status acco_norms(acco_optimizer const* optimizer, double const** norms, size_t* count);
/// Replaces the numbers by their sums over all ranks. Collective; blocks until the round in flight is done.
ACCO_API acco_status acco_sum_over_ranks(acco_optimizer* optimizer, double* numbers, size_t count);
/// Moves messages, under ACCO_MPI_POLL; does nothing elsewhere.
ACCO_API acco_status acco_poll(acco_optimizer* optimizer);

/// Weight committed so far, over all ranks; updates committed so far; sums over rounds; bytes, known before
/// acco_initialize.
ACCO_API acco_status acco_samples(acco_optimizer const* optimizer, double* samples);
ACCO_API acco_status acco_steps(acco_optimizer const* optimizer, uint64_t* steps);
ACCO_API acco_status acco_totals_of(acco_optimizer const* optimizer, acco_totals* totals);
ACCO_API acco_status acco_memory_of(acco_optimizer const* optimizer, acco_memory* memory);
/// 64-bit hash of this rank's masters, slots and averages and of the updates committed. Waits for the round in flight.
ACCO_API acco_status acco_state_digest(acco_optimizer* optimizer, uint64_t* digest);

#ifdef __cplusplus
}
#endif

#pragma pop_macro("slots")

#endif
