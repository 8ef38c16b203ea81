/* SPDX-License-Identifier: BSD-3-Clause
 * failing_malloc.c — the functions in place of glibc's: a program's own come before those of its
 * libraries, and the loader uses them too. */
#define _GNU_SOURCE
#include "failing_malloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { FRAMES = 64, LINE_BYTES = 200, SITE_BYTES = FRAMES * LINE_BYTES };

static atomic_long left; /* allocations up to the one that fails; ≤ 0: it has come */
static atomic_int armed; /* 0 = nothing fails */
static enum oom_mode mode;
static _Thread_local int busy __attribute__((tls_model("initial-exec")));
static atomic_long failures;
static char* site;
static const char* hidden;
static int (*spares)(const char* site);
static void* (*next_dlopen)(const char*, int);

static void describe_site(char* to) {
  void* frames[FRAMES];
  const int count = backtrace(frames, FRAMES);
  size_t used = 0;
  to[0] = '\0';
  for (int i = 1; i < count; ++i) {
    Dl_info info = {0};
    dladdr(frames[i], &info);
    const char* library = info.dli_fname == NULL ? "?" : info.dli_fname;
    const char* slash = strrchr(library, '/');
    used += (size_t)snprintf(to + used, LINE_BYTES, "%.50s:%.140s\n",
                             slash == NULL ? library : slash + 1,
                             info.dli_sname == NULL ? "?" : info.dli_sname);
  }
}

static int fails_now(void) {
  if (!armed || busy) return 0;
  const long place = atomic_fetch_sub(&left, 1);
  if (place > 1 || (place < 1 && mode == OOM_ONE)) return 0;
  busy = 1;              /* what describes the site may allocate */
  char here[SITE_BYTES]; /* each its own: several threads may fail at once */
  describe_site(here);
  if (place == 1) memcpy(site, here, sizeof here);
  const int spared = spares(here);
  busy = 0;
  if (spared) return 0;
  ++failures;
  errno = ENOMEM;
  return 1;
}

void oom_prepare(int (*spared)(const char* site)) {
  spares = spared;
  site = mmap(NULL, SITE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  void* frame[1];
  backtrace(frame, 1); /* opens the library that unwinds */
  *(void**)&next_dlopen = dlsym(RTLD_NEXT, "dlopen");
}

void oom_arm(long n, enum oom_mode how) {
  mode = how;
  site[0] = '\0';
  left = n;
  failures = 0;
  armed = 1;
}

enum oom_outcome oom_disarm(void) {
  armed = 0;
  return left <= 0 ? (failures > 0 ? OOM_FAILED : OOM_SPARED) : OOM_NOT_REACHED;
}

const char* oom_site(void) { return site; }
void oom_hide_library(const char* part) { hidden = part; }

#include "../kit/interposed_malloc.h"

void* dlopen(const char* name, int flags) {
  if (hidden != NULL && name != NULL && strstr(name, hidden) != NULL) return NULL;
  return next_dlopen(name, flags);
}
