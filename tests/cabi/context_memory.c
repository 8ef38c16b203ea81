/* SPDX-License-Identifier: BSD-3-Clause
 * context_memory.c — contexts that come and go leave no memory behind: bytes of the C library's
 * allocator over 1000 of them, after some have warmed up what a process has once. A program of its
 * own, since oneTBB must not have an allocator whose bytes nobody can count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fa3/fa3.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { WARM_UP = 200, CONTEXTS = 1000, SKIPPED = 77 };
/* Threads that oneTBB starts late are 0.1 kB a context on 100 cores; an arena 3.6 kB a thread. */
enum { MOST_BYTES_EACH = 512 };

/* In place of the loader's, which the libraries then call, too. */
void* dlopen(const char* name, int flags) {
  void* (*next)(const char*, int);
  *(void**)&next = dlsym(RTLD_NEXT, "dlopen");
  return name != NULL && strstr(name, "tbbmalloc") != NULL ? NULL : next(name, flags);
}

static long long bytes_in_use(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 all = mallinfo2();
  return (long long)(all.uordblks + all.hblkhd);
#else
  return -1;
#endif
}

/* One context and one run on it, which has tasks for all of its threads. */
static int come_and_go(int threads) {
  enum { TOKENS = 64, HEADS = 8, DIM = 8 };
  static float q[TOKENS * HEADS * DIM], o[TOKENS * HEADS * DIM];
  const int64_t shape[] = {1, TOKENS, HEADS, DIM};
  fa3_context_options options = {.struct_size = sizeof options, .num_threads = threads};
  options.device_type = FA3_DEVICE_CPU;
  fa3_forward_args args = {.struct_size = sizeof args};
  args.q = args.k = args.v = fa3_dense(q, FA3_F32, 4, shape);
  args.o = fa3_dense(o, FA3_F32, 4, shape);
  fa3_context* context = NULL;
  fa3_status status = fa3_context_create(&options, &context);
  if (status == FA3_OK) status = fa3_forward(context, &args, NULL);
  if (status != FA3_OK) fprintf(stderr, "%s\n", fa3_last_error());
  fa3_context_destroy(context);
  return status == FA3_OK;
}

int main(void) {
  if (bytes_in_use() < 0) {
    printf("skipped: this C library does not count its bytes\n");
    return SKIPPED;
  }
  long long before = 0;
  for (int i = 0; i < WARM_UP + CONTEXTS; ++i) {
    if (i == WARM_UP) before = bytes_in_use();
    if (!come_and_go(2 + i % 3)) return 1;
  }
  const long long grown = bytes_in_use() - before;
  printf("%d contexts: %lld bytes more than before\n", CONTEXTS, grown);
  if (grown <= (long long)CONTEXTS * MOST_BYTES_EACH) return 0;
  fprintf(stderr, "need at most %d\n", CONTEXTS * MOST_BYTES_EACH);
  return 1;
}
