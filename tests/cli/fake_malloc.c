/* SPDX-License-Identifier: BSD-3-Clause
 * fake_malloc.c — preloaded: the FA3_TEST_FAILS_AT-th allocation of the command's main() fails,
 * with FA3_TEST_FAILS_ON every one after it too. Where it was not reached, says so on stderr. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_long left; /* allocations up to the one that fails */
static atomic_int armed;
static int goes_on;

/* Handlers are the first thing that main() installs. Libraries allocate before it, and nothing
 * could catch a failure there. */
int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  static int (*next)(int, const struct sigaction*, struct sigaction*);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "sigaction");
  const char* at = getenv("FA3_TEST_FAILS_AT");
  if (!armed && at != NULL && signal == SIGINT) {
    left = atol(at);
    goes_on = getenv("FA3_TEST_FAILS_ON") != NULL;
    armed = 1;
  }
  return next(signal, action, old);
}

static int fails_now(void) {
  if (!armed) return 0;
  const long place = atomic_fetch_sub(&left, 1);
  if (place > 1 || (place < 1 && !goes_on)) return 0;
  errno = ENOMEM;
  return 1;
}

__attribute__((destructor)) static void end(void) {
  static const char kLine[] = "not reached\n";
  if (armed && left > 0 && write(STDERR_FILENO, kLine, sizeof kLine - 1) < 0) return;
}

#include "../kit/interposed_malloc.h"
