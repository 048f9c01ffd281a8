// SPDX-License-Identifier: Apache-2.0
// A test program in C: checks that count and print, from any thread.
#ifndef ACCO_TESTS_C_CHECK_H
#define ACCO_TESTS_C_CHECK_H

#include <acco.h>
#include <stdio.h>
#include <string.h>

static int checks = 0, failures = 0;

static int check_that(int holds, char const* what, char const* file, int line) {
  __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
  if (!holds) {
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: %s does not hold; the last error is: %s\n", file, line, what, acco_last_error());
  }
  return holds;
}
static int check_status(acco_status found, acco_status wanted, char const* words, char const* what, char const* file, int line) {
  const int holds = found == wanted && (words == NULL || strstr(acco_last_error(), words) != NULL);
  __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
  if (!holds) {
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: %s returned %s (%d), not %s with '%s'; the last error is: %s\n", file, line, what,
            acco_status_name(found), found, acco_status_name(wanted), words == NULL ? "" : words, acco_last_error());
  }
  return holds;
}
#define CHECK(condition) check_that((condition) != 0, #condition, __FILE__, __LINE__)
#define OK(call) check_status((call), ACCO_OK, NULL, #call, __FILE__, __LINE__)
/// The call fails with that status, and acco_last_error() has these words.
#define FAILS(call, status, words) check_status((call), (status), (words), #call, __FILE__, __LINE__)
#define REFUSED(call, words) FAILS(call, ACCO_ERROR_USAGE, words)

static inline int checks_done(void) {
  printf("%d checks, %d failed\n", checks, failures);
  return failures != 0 || checks == 0;
}

#endif
