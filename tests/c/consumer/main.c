// SPDX-License-Identifier: Apache-2.0
// A stranger's program in C: two ranks train, and one line says so.
#include <acco.h>
#include <stdio.h>

static acco_status gradient(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  (void)user;
  for (int i = 0; i < 100; ++i) gradients[i] += parameters[i];
  sums->weight = 1;
  return ACCO_OK;
}

static acco_status train(acco_world* world, void* user) {
  acco_layout* layout = NULL;
  acco_rule rule;
  acco_schedule schedule;
  acco_optimizer* training = NULL;
  float parameters[100] = {1}, gradients[100] = {0};
  double samples = 0;
  int rank = 0;
  (void)user;
  acco_status status = acco_world_rank(world, &rank);
  if (status == ACCO_OK) status = acco_layout_create_flat(100, &layout);
  if (status == ACCO_OK) status = acco_rule_from_name("lion", &rule);
  if (status == ACCO_OK) status = acco_schedule_from_name("delayed", &schedule);
  if (status == ACCO_OK) status = acco_optimizer_create(world, layout, &rule, &schedule, NULL, &training);
  if (status == ACCO_OK) status = acco_adopt(training, parameters, gradients, 100);
  for (int step = 0; status == ACCO_OK && step < 4; ++step) status = acco_step(training, gradient, NULL, NULL);
  if (status == ACCO_OK) status = acco_finish(training, ACCO_DROP_UNFINISHED);
  if (status == ACCO_OK) status = acco_samples(training, &samples);
  if (status == ACCO_OK && rank == 0) printf("committed %.0f samples on 2 ranks\n", samples);
  acco_optimizer_destroy(training);
  acco_layout_destroy(layout);
  return status;
}

int main(void) {
  acco_status status = acco_check_version();
  if (status == ACCO_OK) status = acco_run_threads(2, train, NULL);
  if (status != ACCO_OK) fprintf(stderr, "%s\n", acco_last_error());
  return status;
}
