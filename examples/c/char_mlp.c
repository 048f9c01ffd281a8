// SPDX-License-Identifier: Apache-2.0
// A trainer in plain C99 in the manner of llm.c: a character-level network whose parameters and gradients lie in one
// array each, with tensors at fixed offsets, and a forward and a backward pass written out. acco takes over what comes
// after the backward pass. The same program trains on threads, and on processes over MPI or Gloo; --own-adamw trains
// without acco, by a plain loop over the union of all ranks' batches, so that the two can be compared.
//
//   char_mlp --schedule two_phase+int4                     # two ranks, as threads
//   mpirun -n 2 char_mlp --world mpi                       # two processes
//   RANK=... WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 char_mlp --world gloo
#include <acco.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------------------------------------------------------- text

typedef struct {
  unsigned char* characters;  // each as its number in the vocabulary
  size_t size, training;      // the last part is for validation
  int vocabulary;
  unsigned char byte_of[256];
} text;

static int load(text* t, char const* const* files, int count) {
  memset(t, 0, sizeof *t);
  for (int i = 0; i < count; ++i) {
    FILE* file = fopen(files[i], "rb");
    if (file == NULL) {
      fprintf(stderr, "char_mlp: %s cannot be read\n", files[i]);
      return 0;
    }
    unsigned char room[4096];
    for (size_t n; (n = fread(room, 1, sizeof room, file)) > 0;) {
      unsigned char* larger = realloc(t->characters, t->size + n);
      if (larger == NULL) {
        fclose(file);
        return 0;
      }
      t->characters = larger;
      memcpy(larger + t->size, room, n);
      t->size += n;
    }
    fclose(file);
  }
  int number_of[256];
  for (int i = 0; i < 256; ++i) number_of[i] = -1;
  for (size_t i = 0; i < t->size; ++i) {
    const unsigned char byte = t->characters[i];
    if (number_of[byte] < 0) {
      number_of[byte] = t->vocabulary;
      t->byte_of[t->vocabulary++] = byte;
    }
    t->characters[i] = (unsigned char)number_of[byte];
  }
  t->training = t->size - t->size / 10;
  if (t->size >= 1000) return 1;
  fprintf(stderr, "char_mlp: %zu characters are too few\n", t->size);
  return 0;
}

/// The same random numbers on every rank and machine: of what is counted, not of what was drawn before.
static uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// ------------------------------------------------------------------------------------------------------------------ model

enum { context = 8, width = 16, input = context * width, hidden = 64, most_characters = 256 };

/// The tensors, inside a flat array.
typedef struct {
  float* wte;  // (vocabulary, width)
  float* w1;   // (input, hidden)
  float* b1;   // (hidden)
  float* w2;   // (hidden, vocabulary)
  float* b2;   // (vocabulary)
} tensors;
enum { tensor_count = 5 };
static char const* const names[tensor_count] = {"wte", "w1", "b1", "w2", "b2"};

static void shape_of(int tensor, int vocabulary, size_t shape[2], size_t* dimensions) {
  const size_t v = (size_t)vocabulary;
  const size_t shapes[tensor_count][2] = {{v, width}, {input, hidden}, {hidden, 0}, {hidden, v}, {v, 0}};
  shape[0] = shapes[tensor][0];
  shape[1] = shapes[tensor][1];
  *dimensions = shape[1] == 0 ? 1 : 2;
}
/// Points at the tensors of an array, and returns its size.
static size_t point(tensors* at, float* memory, int vocabulary) {
  float** const all[tensor_count] = {&at->wte, &at->w1, &at->b1, &at->w2, &at->b2};
  size_t offset = 0;
  for (int i = 0; i < tensor_count; ++i) {
    size_t shape[2], dimensions;
    shape_of(i, vocabulary, shape, &dimensions);
    *all[i] = memory == NULL ? NULL : memory + offset;
    offset += dimensions == 2 ? shape[0] * shape[1] : shape[0];
  }
  return offset;
}

typedef struct {
  text const* data;
  tensors parameters, gradients;
  float* parameters_memory;
  float* gradients_memory;
  float* hidden_gradients;  // (batch, hidden): of activations; backward adds to them, too
  size_t count, batch;
} model;

static int make(model* m, text const* data, int batch, uint64_t seed) {
  m->data = data;
  m->batch = (size_t)batch;
  m->count = point(&m->parameters, NULL, data->vocabulary);
  m->parameters_memory = malloc(m->count * sizeof(float));
  m->gradients_memory = calloc(m->count, sizeof(float));
  m->hidden_gradients = malloc(m->batch * hidden * sizeof(float));
  if (m->parameters_memory == NULL || m->gradients_memory == NULL || m->hidden_gradients == NULL) return 0;
  point(&m->parameters, m->parameters_memory, data->vocabulary);
  point(&m->gradients, m->gradients_memory, data->vocabulary);
  for (size_t i = 0; i < m->count; ++i) {
    const float uniform = (float)(hash(seed ^ (i << 20)) >> 40) / 8388608.0F - 1;  // -1 to 1
    m->parameters_memory[i] = 0.1F * uniform;
  }
  memset(m->parameters.b1, 0, hidden * sizeof(float));
  memset(m->parameters.b2, 0, (size_t)data->vocabulary * sizeof(float));
  return 1;
}
static void drop(model* m) {
  free(m->parameters_memory);
  free(m->gradients_memory);
  free(m->hidden_gradients);
}
/// Before each backward pass.
static void zero_hidden_gradients(model* m) { memset(m->hidden_gradients, 0, m->batch * hidden * sizeof(float)); }
/// Before each step.
static void zero_grad(model* m) { memset(m->gradients_memory, 0, m->count * sizeof(float)); }

/// The probabilities of the character behind `before`, and the activations that lead to them.
static void forward(tensors const* p, int vocabulary, unsigned char const* before, float* h, float* probabilities) {
  memcpy(h, p->b1, hidden * sizeof *h);
  for (int c = 0; c < context; ++c) {
    float const* const x = p->wte + before[c] * width;
    for (int i = 0; i < width; ++i) {
      float const* const row = p->w1 + (c * width + i) * hidden;
      for (int j = 0; j < hidden; ++j) h[j] += x[i] * row[j];
    }
  }
  memcpy(probabilities, p->b2, (size_t)vocabulary * sizeof *probabilities);
  for (int j = 0; j < hidden; ++j) {
    h[j] = tanhf(h[j]);
    float const* const row = p->w2 + j * vocabulary;
    for (int v = 0; v < vocabulary; ++v) probabilities[v] += h[j] * row[v];
  }
  float largest = probabilities[0], sum = 0;
  for (int v = 1; v < vocabulary; ++v) largest = probabilities[v] > largest ? probabilities[v] : largest;
  for (int v = 0; v < vocabulary; ++v) sum += probabilities[v] = expf(probabilities[v] - largest);
  for (int v = 0; v < vocabulary; ++v) probabilities[v] /= sum;
}

/// ADDS the gradient of one sample's loss, given what forward has left; to the activations', dh, too.
static void backward(tensors const* p, tensors const* g, int vocabulary, unsigned char const* before, unsigned char wanted,
                     float const* h, float* dh, float* probabilities) {
  float* const dlogits = probabilities;
  dlogits[wanted] -= 1;
  for (int j = 0; j < hidden; ++j) {
    float const* const row = p->w2 + j * vocabulary;
    float* const drow = g->w2 + j * vocabulary;
    float sum = 0;
    for (int v = 0; v < vocabulary; ++v) {
      drow[v] += h[j] * dlogits[v];
      sum += row[v] * dlogits[v];
    }
    dh[j] += sum * (1 - h[j] * h[j]);
    g->b1[j] += dh[j];
  }
  for (int v = 0; v < vocabulary; ++v) g->b2[v] += dlogits[v];
  for (int c = 0; c < context; ++c) {
    float const* const x = p->wte + before[c] * width;
    float* const dx = g->wte + before[c] * width;
    for (int i = 0; i < width; ++i) {
      float const* const row = p->w1 + (c * width + i) * hidden;
      float* const drow = g->w1 + (c * width + i) * hidden;
      float sum = 0;
      for (int j = 0; j < hidden; ++j) {
        drow[j] += x[i] * dh[j];
        sum += row[j] * dh[j];
      }
      dx[i] += sum;
    }
  }
}

/// ADDS the gradient SUM of a rank's micro-batch of that number, and returns the sum of its samples' losses.
static double add_gradients(model* m, int rank, uint64_t number, uint64_t seed) {
  float h[hidden], probabilities[most_characters];
  double loss = 0;
  zero_hidden_gradients(m);
  for (size_t sample = 0; sample < m->batch; ++sample) {
    const uint64_t draw = hash(hash(hash(seed + (uint64_t)rank) + number) + sample);
    unsigned char const* const before = m->data->characters + draw % (m->data->training - context);
    const unsigned char wanted = before[context];
    forward(&m->parameters, m->data->vocabulary, before, h, probabilities);
    loss -= log((double)probabilities[wanted] + 1e-30);
    backward(&m->parameters, &m->gradients, m->data->vocabulary, before, wanted, h, m->hidden_gradients + sample * hidden,
             probabilities);
  }
  return loss;
}

/// Mean loss of text that was not trained on.
static double validation_loss(model const* m) {
  float h[hidden], probabilities[most_characters];
  double loss = 0;
  const size_t from = m->data->training, room = m->data->size - from - context, count = room < 2000 ? room : 2000;
  for (size_t i = 0; i < count; ++i) {
    unsigned char const* const before = m->data->characters + from + i * room / count;
    forward(&m->parameters, m->data->vocabulary, before, h, probabilities);
    loss -= log((double)probabilities[before[context]] + 1e-30);
  }
  return loss / (double)count;
}

static void print_sample(model const* m, uint64_t seed) {
  float h[hidden], probabilities[most_characters];
  unsigned char window[context];
  memcpy(window, m->data->characters, context);
  printf("it writes:\n");
  for (uint64_t n = 0; n < 240; ++n) {
    forward(&m->parameters, m->data->vocabulary, window, h, probabilities);
    float chosen = (float)(hash(seed + n) >> 40) / 16777216.0F;
    int next = 0;
    while (next + 1 < m->data->vocabulary && (chosen -= probabilities[next]) > 0) ++next;
    memmove(window, window + 1, context - 1);
    window[context - 1] = (unsigned char)next;
    const unsigned char byte = m->data->byte_of[next];
    putchar(byte == '\n' || (byte >= ' ' && byte < 127) ? byte : '?');
  }
  putchar('\n');
}

// ---------------------------------------------------------------------------------------------------------------- training

typedef struct {
  char const* world;
  char const* schedule;
  char const* save;
  char const* compare;
  double tolerance, learning_rate, beta1, beta2, weight_decay;
  int ranks, steps, batch, micro_batches, own_adamw, quiet;
  uint64_t seed;
  text data;
  int succeeded;
} settings;

static int write_or_compare(settings const* s, model const* m) {
  if (s->save != NULL) {
    FILE* file = fopen(s->save, "wb");
    if (file == NULL || fwrite(m->parameters_memory, sizeof(float), m->count, file) != m->count || fclose(file) != 0) {
      fprintf(stderr, "char_mlp: %s cannot be written\n", s->save);
      return 0;
    }
  }
  if (s->compare == NULL) return 1;
  FILE* file = fopen(s->compare, "rb");
  float* other = malloc(m->count * sizeof(float));
  const size_t found = file == NULL || other == NULL ? 0 : fread(other, sizeof(float), m->count, file);
  if (file != NULL) fclose(file);
  double largest = 0;
  for (size_t i = 0; i < found; ++i) {
    const double difference = fabs((double)m->parameters_memory[i] - (double)other[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  free(other);
  const int alike = found == m->count && largest <= s->tolerance;
  printf("largest difference from %s: %.3g in %zu of %zu parameters, %s %g\n", s->compare, largest, found, m->count,
         alike ? "within" : "beyond", s->tolerance);
  return alike;
}
static int conclude(settings const* s, model const* m) {
  printf("validation loss %.4f\n", validation_loss(m));
  if (!s->quiet) print_sample(m, s->seed);
  return write_or_compare(s, m);
}
static void tell(settings const* s, unsigned long long step, double loss) {
  if (step % 50 == 0 || step == (unsigned long long)s->steps) printf("step %4llu  loss %.4f\n", step, loss);
}

/// Without acco: AdamW written out, on the union of all ranks' batches.
static int train_alone(settings const* s) {
  model m;
  float* first = NULL;
  float* second = NULL;
  int good = make(&m, &s->data, s->batch, s->seed);
  if (good) first = calloc(m.count, sizeof(float));
  if (good) second = calloc(m.count, sizeof(float));
  good = good && first != NULL && second != NULL;
  uint64_t number = 0;
  for (int step = 1; good && step <= s->steps; ++step) {
    double loss = 0;
    zero_grad(&m);
    for (int n = 0; n < s->micro_batches; ++n, ++number) {
      for (int rank = 0; rank < s->ranks; ++rank) loss += add_gradients(&m, rank, number, s->seed);
    }
    const double samples = (double)s->ranks * s->micro_batches * s->batch;
    const double correction1 = 1 - pow(s->beta1, step), correction2 = 1 - pow(s->beta2, step);
    for (size_t i = 0; i < m.count; ++i) {
      const size_t b1 = (size_t)(m.parameters.b1 - m.parameters_memory), b2 = (size_t)(m.parameters.b2 - m.parameters_memory);
      const int vector = (i >= b1 && i < b1 + hidden) || i >= b2;  // which are not decayed
      const double gradient = (double)m.gradients_memory[i] / samples;
      first[i] = (float)(s->beta1 * (double)first[i] + (1 - s->beta1) * gradient);
      second[i] = (float)(s->beta2 * (double)second[i] + (1 - s->beta2) * gradient * gradient);
      const double decayed = (double)m.parameters_memory[i] * (1 - (vector ? 0 : s->learning_rate * s->weight_decay));
      m.parameters_memory[i] =
          (float)(decayed - s->learning_rate * (double)first[i] / correction1 / (sqrt((double)second[i] / correction2) + 1e-8));
    }
    tell(s, (unsigned long long)step, loss / samples);
  }
  good = good && conclude(s, &m);
  free(first);
  free(second);
  drop(&m);
  return good;
}

/// What acco calls for every micro-batch.
typedef struct {
  settings const* chosen;
  model* net;
  int rank;
  uint64_t number;
} rank_state;

static acco_status micro_batch(float const* parameters, float* gradients, acco_micro_batch* sums, void* user) {
  rank_state* mine = user;
  (void)parameters;  // adopted: they are the model's own arrays
  (void)gradients;
  sums->loss_sum = add_gradients(mine->net, mine->rank, mine->number++, mine->chosen->seed);
  sums->weight = mine->chosen->batch;
  return ACCO_OK;
}

static acco_status make_optimizer(settings const* s, acco_world* world, acco_optimizer** training) {
  acco_layout* layout = NULL;
  acco_rule rule;
  acco_schedule schedule;
  acco_status status = acco_layout_create(&layout);
  for (int i = 0; i < tensor_count && status == ACCO_OK; ++i) {
    size_t shape[2], dimensions;
    shape_of(i, s->data.vocabulary, shape, &dimensions);
    status = acco_layout_add(layout, names[i], shape, dimensions, 0);
  }
  if (status == ACCO_OK) status = acco_layout_no_decay_for_vectors(layout);
  if (status == ACCO_OK) status = acco_rule_init(&rule, ACCO_ADAMW);
  if (status == ACCO_OK) status = acco_schedule_from_name(s->schedule, &schedule);
  if (status == ACCO_OK) {
    rule.learning_rate = s->learning_rate;
    rule.beta1 = s->beta1;
    rule.beta2 = s->beta2;
    rule.weight_decay = s->weight_decay;
    const unsigned each = (unsigned)s->micro_batches;
    // Both parts of two_phase are one step: three quarters and one.
    schedule.second = schedule.kind != ACCO_TWO_PHASE || each < 2 ? 0 : each < 4 ? 1 : each / 4;
    schedule.first = each - schedule.second;
    status = acco_optimizer_create(world, layout, &rule, &schedule, NULL, training);
  }
  acco_layout_destroy(layout);
  return status;
}

/// One rank.
static acco_status train(acco_world* world, void* user) {
  settings* s = user;
  model m;
  acco_optimizer* training = NULL;
  rank_state mine = {s, &m, 0, 0};
  acco_report report;
  acco_status status = make(&m, &s->data, s->batch, s->seed) ? ACCO_OK : ACCO_ERROR_MEMORY;
  if (status == ACCO_OK) status = acco_world_rank(world, &mine.rank);
  if (status == ACCO_OK) status = make_optimizer(s, world, &training);
  if (status == ACCO_OK) status = acco_adopt(training, m.parameters_memory, m.gradients_memory, m.count);
  if (status == ACCO_OK) status = acco_report_init(&report);
  for (int step = 0; status == ACCO_OK && step < s->steps; ++step) {
    zero_grad(&m);  // what most loops have: harmless here, and not needed
    status = acco_step(training, micro_batch, &mine, &report);
    if (status == ACCO_OK && mine.rank == 0) tell(s, (unsigned long long)report.step, report.step_loss);
  }
  if (status == ACCO_OK) status = acco_finish(training, ACCO_DROP_UNFINISHED);
  if (status == ACCO_OK && mine.rank == 0) s->succeeded = conclude(s, &m);
  acco_optimizer_destroy(training);  // before the arrays that it works in
  drop(&m);
  return status;
}

/// All ranks of this process.
static acco_status train_in(settings* s) {
  acco_world* world = NULL;
  acco_status status = ACCO_OK;
  if (strcmp(s->world, "threads") == 0) return acco_run_threads(s->ranks, train, s);
  if (strcmp(s->world, "solo") == 0) status = acco_world_solo(&world);
  if (strcmp(s->world, "gloo") == 0) status = acco_world_gloo(NULL, &world);
  if (strcmp(s->world, "mpi") == 0) {
    status = acco_mpi_initialize();
    if (status == ACCO_OK) status = acco_world_mpi(NULL, &world);
  }
  int rank = 0;
  if (status == ACCO_OK) status = acco_world_rank(world, &rank);
  if (status == ACCO_OK) status = train(world, s);
  acco_world_destroy(world);
  if (status == ACCO_OK && rank != 0) s->succeeded = 1;
  return status;
}

// ------------------------------------------------------------------------------------------------------------------- flags

static int usage(void) {
  fprintf(stderr,
          "char_mlp [--data FILE]... [--world threads|solo|gloo|mpi] [--ranks N] [--schedule NAME] [--steps N] [--batch N]\n"
          "         [--micro-batches N] [--learning-rate X] [--beta1 X] [--beta2 X] [--weight-decay X] [--seed N] [--own-adamw]\n"
          "         [--save FILE] [--compare FILE --tolerance X] [--quiet] [--list-schedules]\n");
  return 2;
}

int main(int count, char** words) {
  enum { most_files = 64 };
  static settings s;
  char const* files[most_files];
  int file_count = 0;
  s.world = "threads";
  s.schedule = "two_phase";
  s.ranks = 2;
  s.steps = 2000;
  s.batch = 16;
  s.micro_batches = 4;
  s.learning_rate = 1e-2;
  s.beta1 = 0.9;
  s.beta2 = 0.99;
  s.weight_decay = 0.1;
  s.seed = 1;
  for (int i = 1; i < count; ++i) {
    char const* const flag = words[i];
    if (strcmp(flag, "--own-adamw") == 0) {
      s.own_adamw = 1;
    } else if (strcmp(flag, "--quiet") == 0) {
      s.quiet = 1;
    } else if (strcmp(flag, "--list-schedules") == 0) {
      for (size_t n = 0; acco_schedule_name(n) != NULL; ++n) puts(acco_schedule_name(n));
      return 0;
    } else {
      if (i + 1 == count) return usage();
      char const* const value = words[++i];
      struct {
        char const* flag;
        char const** word;
        int* whole;
        double* real;
      } const flags[] = {{"--world", &s.world, NULL, NULL},
                         {"--schedule", &s.schedule, NULL, NULL},
                         {"--save", &s.save, NULL, NULL},
                         {"--compare", &s.compare, NULL, NULL},
                         {"--ranks", NULL, &s.ranks, NULL},
                         {"--steps", NULL, &s.steps, NULL},
                         {"--batch", NULL, &s.batch, NULL},
                         {"--micro-batches", NULL, &s.micro_batches, NULL},
                         {"--tolerance", NULL, NULL, &s.tolerance},
                         {"--learning-rate", NULL, NULL, &s.learning_rate},
                         {"--beta1", NULL, NULL, &s.beta1},
                         {"--beta2", NULL, NULL, &s.beta2},
                         {"--weight-decay", NULL, NULL, &s.weight_decay}};
      const size_t known = sizeof flags / sizeof flags[0];
      size_t n = 0;
      while (n < known && strcmp(flag, flags[n].flag) != 0) ++n;
      if (n < known && flags[n].word != NULL) {
        *flags[n].word = value;
      } else if (n < known && flags[n].whole != NULL) {
        *flags[n].whole = atoi(value);
      } else if (n < known) {
        *flags[n].real = atof(value);
      } else if (strcmp(flag, "--seed") == 0) {
        s.seed = strtoull(value, NULL, 10);
      } else if (strcmp(flag, "--data") == 0 && file_count < most_files) {
        files[file_count++] = value;
      } else {
        return usage();
      }
    }
  }
  const int known_world = strcmp(s.world, "threads") == 0 || strcmp(s.world, "solo") == 0 || strcmp(s.world, "gloo") == 0 ||
                          strcmp(s.world, "mpi") == 0;
  if (!known_world || s.ranks < 1 || s.steps < 1 || s.batch < 1 || s.micro_batches < 2) return usage();
#ifdef ACCO_REPOSITORY
  if (file_count == 0) {
    static char const* const pages[] = {"/README.md",           "/docs/attach.md",      "/docs/algorithm.md",
                                        "/docs/errors.md",      "/docs/extending.md",   "/docs/network.md",
                                        "/docs/performance.md", "/docs/architecture.md"};
    static char paths[sizeof pages / sizeof pages[0]][1024];
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; ++i) {
      snprintf(paths[i], sizeof paths[i], "%s%s", ACCO_REPOSITORY, pages[i]);
      files[file_count++] = paths[i];
    }
  }
#endif
  if (file_count == 0) return usage();
  acco_status status = acco_check_version();
  if (status == ACCO_OK && load(&s.data, files, file_count)) {
    if (s.own_adamw) {
      s.succeeded = train_alone(&s);
    } else {
      status = train_in(&s);
    }
  }
  if (status != ACCO_OK) {
    s.succeeded = 0;
    fprintf(stderr, "%s\n", acco_last_error());
  }
  free(s.data.characters);
  if (strcmp(s.world, "mpi") == 0 && !s.own_adamw) acco_mpi_finalize(status);
  return s.succeeded ? 0 : 1;
}
