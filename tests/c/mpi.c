// SPDX-License-Identifier: Apache-2.0
// Worlds over MPI, of communicators given as C and Fortran programs give them; and how such a program ends: `mpi`, or
// `mpi fail`.
#define _POSIX_C_SOURCE 200809L  // sleep

#include <acco.h>
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { count = 1000 };

static acco_status gradient(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  acco_optimizer* training = user;
  for (int i = 0; i < count; ++i) gradients[i] += parameters[i] - 3;
  sums->weight = 1;
  return acco_poll(training);
}

/// Trains over a world with rank 0's value `begin`; the weights end alike and near 3.
static void train(acco_world* world, float begin, char const* progress) {
  acco_layout* layout = NULL;
  acco_optimizer* training = NULL;
  acco_rule rule;
  acco_schedule schedule;
  acco_report report;
  float values[count];
  int rank = -1, size = 0;
  OK(acco_world_rank(world, &rank));
  OK(acco_world_size(world, &size));
  for (int i = 0; i < count; ++i) values[i] = begin + (float)rank;
  OK(acco_layout_create_flat(count, &layout));
  OK(acco_rule_from_name("adamw", &rule));
  rule.learning_rate = 0.1;
  rule.weight_decay = 0;
  OK(acco_schedule_from_name("two_phase+int4", &schedule));
  OK(acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training));
  acco_layout_destroy(layout);
  OK(acco_initialize(training, values, count));
  float const* parameters = NULL;
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(parameters[7] == begin);
  OK(acco_report_init(&report));
  for (int step = 0; step < 60; ++step) OK(acco_step(training, gradient, training, &report));
  CHECK(report.samples == 240 * size && strcmp(report.progress, progress) == 0);
  OK(acco_finish(training, ACCO_DROP_UNFINISHED));
  OK(acco_parameters(training, &parameters, NULL));
  CHECK(parameters[7] > 2.7F && parameters[7] < 3.3F);
  acco_optimizer_destroy(training);
}

int main(int words, char** word) {
  OK(acco_mpi_initialize());
  OK(acco_mpi_initialize());  // again: nothing
  acco_world* world = NULL;
  acco_world* part = NULL;
  acco_mpi_options options;
  OK(acco_mpi_options_init(&options));
  options.deadline = 60;
  OK(acco_world_mpi(&options, &world));
  train(world, 0, "MPI: helper thread");
  OK(acco_world_split(world, 0, 0, 60, &part));
  acco_world_destroy(world);
  train(part, 1, "MPI: helper thread");
  acco_world_destroy(part);
  int rank = -1, new_rank = -1;
  MPI_Comm reversed;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  options.progress = ACCO_MPI_POLL;
  OK(acco_world_mpi_of((int)MPI_Comm_c2f(reversed), &options, &world));
  OK(acco_world_rank(world, &new_rank));
  CHECK(new_rank == 1 - rank);
  train(world, 2, "MPI: polled by the trainer");
  acco_world_destroy(world);
  MPI_Comm_free(&reversed);
  REFUSED(acco_world_mpi_of((int)MPI_Comm_c2f(MPI_COMM_NULL), NULL, &world), "MPI_COMM_NULL");
  const int done = checks_done();
  const int fail = words > 1 && strcmp(word[1], "fail") == 0;
  if (fail && rank == 0) sleep(60);  // computes, until the job is ended
  acco_mpi_finalize(done != 0 || fail ? ACCO_ERROR_OTHER : ACCO_OK);
  REFUSED(acco_mpi_initialize(), "MPI has been finalized");
  REFUSED(acco_world_mpi(NULL, &world), "after MPI had been finalized");
  REFUSED(acco_world_mpi_of(0, NULL, &world), "MPI");
  return checks_done();
}
