/* SPDX-License-Identifier: BSD-3-Clause
 * oom_test.c — every public call with each of its allocations failing in turn: it ends as
 * it should, or in FA3_OUT_OF_MEMORY with a message and outputs untouched; afterwards everything
 * works. A C program that opens libfa3.so at run time, so that nothing of C++ is here before it.
 *
 *     fa3_oom_test LIBFA3.so [scenario]
 */
#include <dlfcn.h>
#include <fa3/fa3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failing_malloc.h"

/* ---- Sites that cannot fail ------------------------------------------------------------------ */

/* Of other libraries, by a frame as oom_site() has it: the process would end or wait forever, and
 * nothing in fa3 can prevent it. */
static const struct {
  const char* frame;
  const char* why;
} kSpared[] = {
#ifndef FA3_HAS_TLS_DESCRIPTORS
    {"ld-linux-x86-64.so.2:__tls_get_addr",
     "thread-local variables of libstdc++, had at the first exception of a thread where the "
     "compiler has no way to ask for them earlier (src/core/static_tls.cpp)"},
#endif
    {"libtbbmalloc.so.2:",
     "glibc 2.36 follows a pointer that stands for no memory, where dlopen is called by the\n"
     "constructor of a library that is being opened, and its error cannot be kept"},
    {"libtbb.so.12:_ZN3tbb6detail2r122cache_aligned_allocateEm",
     "oneTBB without its own allocator, which asks the system for pages: arenas, threads, tasks "
     "and queues are made where nothing may be thrown"},
    {"libtbb.so.12:_ZN3tbb6detail2r115allocate_memoryEm", "the same: tasks that are not aligned"},
};

static int is_spared(const char* site) {
  for (size_t i = 0; i < sizeof kSpared / sizeof *kSpared; ++i) {
    if (strstr(site, kSpared[i].frame) != NULL) return 1;
  }
  return 0;
}

/* ---- The library ----------------------------------------------------------------------------- */

// It would move the backslashes.
// clang-format off
#define FUNCTIONS(X)                                                                             \
  X(fa3_status_name) X(fa3_last_error) X(fa3_context_create) X(fa3_context_destroy)              \
  X(fa3_plan_forward) X(fa3_plan_backward) X(fa3_plan_destroy) X(fa3_plan_run)                   \
  X(fa3_plan_workspace_bytes) X(fa3_forward) X(fa3_backward) X(fa3_quantize) X(fa3_supported)    \
  X(fa3_explain) X(fa3_get_device_info) X(fa3_jit_list) X(fa3_jit_warm) X(fa3_jit_warm_kernels)  \
  X(fa3_jit_clear) X(fa3_selftest) X(fa3_build_info) X(fa3_environment) X(fa3_fields)
// clang-format on
#define DECLARE(function) static __typeof__(&function) p_##function;
FUNCTIONS(DECLARE)

static void* open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
#define FIND(function) *(void**)&p_##function = dlsym(library, #function);
  FUNCTIONS(FIND)
  return library;
}

/* ---- A problem ------------------------------------------------------------------------------- */

enum { BATCH = 2, HEADS_Q = 4, HEADS_KV = 2, LEN_Q = 70, LEN_KV = 90, DIM = 16 };
enum {
  Q_SIZE = BATCH * LEN_Q * HEADS_Q * DIM,
  KV_SIZE = BATCH * LEN_KV * HEADS_KV * DIM,
  LSE_SIZE = BATCH * HEADS_Q * LEN_Q
};
struct outputs {
  float o[Q_SIZE], lse[LSE_SIZE], dq[Q_SIZE], dk[KV_SIZE], dv[KV_SIZE];
  float scale[LSE_SIZE], mean[BATCH * HEADS_Q * DIM];
  int8_t codes[Q_SIZE];
};
static float q[Q_SIZE], k[KV_SIZE], v[KV_SIZE], dout[Q_SIZE], o_in[Q_SIZE], lse_in[LSE_SIZE];
static struct outputs got, want, untouched;
static fa3_forward_args forward_args;
static fa3_backward_args backward_args;
static fa3_quantize_args quantize_args;
static char workspace[8 << 20];

static fa3_tensor tensor(float* data, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  fa3_tensor t = {.data = data, .dtype = FA3_F32, .rank = rank, .shape = {a, b, c, d}};
  t.stride[rank - 1] = 1;
  for (int i = rank - 2; i >= 0; --i) t.stride[i] = t.stride[i + 1] * t.shape[i + 1];
  return t;
}

static void ramp(float* to, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    to[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
  }
}

static void make_problem(void) {
  ramp(q, Q_SIZE, 1);
  ramp(k, KV_SIZE, 2);
  ramp(v, KV_SIZE, 3);
  ramp(dout, Q_SIZE, 4);
  memset(&untouched, 0xA5, sizeof untouched);
  fa3_forward_args f = {.struct_size = sizeof f, .mask = FA3_MASK_CAUSAL};
  f.q = tensor(q, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  f.k = tensor(k, 4, BATCH, LEN_KV, HEADS_KV, DIM);
  f.v = tensor(v, 4, BATCH, LEN_KV, HEADS_KV, DIM);
  f.o = tensor(got.o, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  f.lse = tensor(got.lse, 3, BATCH, HEADS_Q, LEN_Q, 0);
  forward_args = f;
  fa3_backward_args b = {.struct_size = sizeof b, .mask = FA3_MASK_CAUSAL};
  b.q = f.q;
  b.k = f.k;
  b.v = f.v;
  b.o = tensor(o_in, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  b.lse = tensor(lse_in, 3, BATCH, HEADS_Q, LEN_Q, 0);
  b.dout = tensor(dout, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  b.dq = tensor(got.dq, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  b.dk = tensor(got.dk, 4, BATCH, LEN_KV, HEADS_KV, DIM);
  b.dv = tensor(got.dv, 4, BATCH, LEN_KV, HEADS_KV, DIM);
  backward_args = b;
  fa3_quantize_args c = {.struct_size = sizeof c, .block = {1, 0}, .hadamard = DIM};
  c.x = f.q;
  c.codes = tensor((float*)(void*)got.codes, 4, BATCH, LEN_Q, HEADS_Q, DIM);
  c.codes.dtype = FA3_I8;
  c.scale = tensor(got.scale, 3, BATCH, HEADS_Q, LEN_Q, 0);
  c.offset = tensor(got.mean, 3, BATCH, HEADS_Q, DIM, 0);
  quantize_args = c;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static char cache_folder[] = "/tmp/fa3-oom-XXXXXX";
static fa3_parallel_for_fn pool; /* NULL = oneTBB */
static fa3_context* context;     /* of the scenarios that are warm */
static fa3_plan* plan;

static void serial_pool(void* user, int64_t count, void (*body)(void*, int64_t), void* state) {
  (void)user;
  for (int64_t i = 0; i < count; ++i) body(state, i);
}

static fa3_context_options options(void) {
  fa3_context_options o = {.struct_size = sizeof o, .num_threads = 3, .parallel_for = pool};
  o.cache_dir = cache_folder;
  return o;
}

static fa3_status call_create(void) {
  const fa3_context_options o = options();
  fa3_context* made = (fa3_context*)&got;
  const fa3_status status = p_fa3_context_create(&o, &made);
  if (status != FA3_OK && made != NULL) return FA3_INTERNAL;
  p_fa3_context_destroy(made);
  return status;
}
static fa3_status call_session(void) {
  const fa3_context_options o = options();
  fa3_context* made = NULL;
  fa3_status status = p_fa3_context_create(&o, &made);
  if (status == FA3_OK) status = p_fa3_forward(made, &forward_args, NULL);
  p_fa3_context_destroy(made);
  return status;
}
static fa3_status call_plan(void) {
  fa3_plan* made = NULL;
  const fa3_status status = p_fa3_plan_forward(context, &forward_args, &made);
  p_fa3_plan_destroy(made);
  return status;
}
static fa3_status call_plan_backward(void) {
  fa3_plan* made = NULL;
  const fa3_status status = p_fa3_plan_backward(context, &backward_args, &made);
  p_fa3_plan_destroy(made);
  return status;
}
static fa3_status call_run(void) {
  return p_fa3_plan_run(plan, &forward_args, workspace, sizeof workspace, NULL);
}
static fa3_status call_run_of_other(void) {
  fa3_forward_args other = forward_args;
  other.mask = FA3_MASK_FULL;
  return p_fa3_plan_run(plan, &other, workspace, sizeof workspace, NULL);
}
static fa3_status call_forward(void) { return p_fa3_forward(context, &forward_args, NULL); }
static fa3_status call_backward(void) { return p_fa3_backward(context, &backward_args, NULL); }
static fa3_status call_quantize(void) { return p_fa3_quantize(context, &quantize_args, NULL); }
static fa3_status call_refused(void) {
  fa3_forward_args bad = forward_args;
  bad.k.shape[1] = 7;
  return p_fa3_forward(context, &bad, NULL);
}
static fa3_status call_supported(void) {
  const char* reason = NULL;
  const fa3_status status = p_fa3_supported(context, FA3_OP_FORWARD, &forward_args, &reason);
  return reason != NULL && *reason != '\0' ? status : FA3_INTERNAL;
}
static fa3_status call_explain(void) {
  static char text[1 << 16];
  return p_fa3_explain(context, FA3_OP_BACKWARD, &backward_args, text, sizeof text, NULL);
}
static fa3_status call_device_info(void) {
  fa3_device_info info = {.struct_size = sizeof info};
  return p_fa3_get_device_info(context, &info);
}
static fa3_status call_fields(void) {
  fa3_field field = {.struct_size = sizeof field};
  return p_fa3_fields(FA3_OP_FORWARD, 0, &field);
}
static fa3_status call_texts(void) {
  const char* const environment = p_fa3_environment();
  const char* const build = p_fa3_build_info();
  return environment[0] == '[' && build[0] == '{' ? FA3_OK : FA3_INTERNAL;
}
static fa3_status call_jit_list(void) {
  const char* report = NULL;
  return p_fa3_jit_list(context, &report);
}
static fa3_status call_jit_warm(void) {
  return p_fa3_jit_warm(context, "[\"fwd/d128\", {\"header\": 1}]", NULL);
}
static fa3_status call_jit_warm_kernels(void) {
  const char* const names[] = {"fwd/d128", "samples", "fwd/d1"};
  return p_fa3_jit_warm_kernels(context, names, 3, NULL);
}
static fa3_status call_jit_clear(void) { return p_fa3_jit_clear(context); }
static fa3_status call_selftest(void) {
  const fa3_selftest_args args = {.struct_size = sizeof args, .filter = "mbarrier", .list = 1};
  const char* report = NULL;
  return p_fa3_selftest(context, &args, &report);
}

enum written { NOTHING, FORWARD, BACKWARD, QUANTIZE };
struct call {
  const char* name;
  fa3_status (*make)(void);
  fa3_status want;
  enum written written;
};
static const struct call kSession = {"create, forward, destroy", call_session, FA3_OK, FORWARD};
static const struct call kCalls[] = {
    {"fa3_context_create", call_create, FA3_OK, NOTHING},
    {"fa3_plan_forward", call_plan, FA3_OK, NOTHING},
    {"fa3_plan_backward", call_plan_backward, FA3_OK, NOTHING},
    {"fa3_plan_run", call_run, FA3_OK, FORWARD},
    {"fa3_plan_run of other arguments", call_run_of_other, FA3_INVALID_ARGUMENT, NOTHING},
    {"fa3_forward", call_forward, FA3_OK, FORWARD},
    {"fa3_forward refused", call_refused, FA3_INVALID_ARGUMENT, NOTHING},
    {"fa3_backward", call_backward, FA3_OK, BACKWARD},
    {"fa3_quantize", call_quantize, FA3_OK, QUANTIZE},
    {"fa3_supported", call_supported, FA3_OK, NOTHING},
    {"fa3_explain", call_explain, FA3_OK, NOTHING},
    {"fa3_get_device_info", call_device_info, FA3_OK, NOTHING},
    {"fa3_fields", call_fields, FA3_OK, NOTHING},
    {"fa3_environment, fa3_build_info", call_texts, FA3_OK, NOTHING},
    {"fa3_jit_list", call_jit_list, FA3_OK, NOTHING},
    {"fa3_jit_warm refused", call_jit_warm, FA3_INVALID_ARGUMENT, NOTHING},
    {"fa3_jit_warm_kernels refused", call_jit_warm_kernels, FA3_INVALID_ARGUMENT, NOTHING},
    {"fa3_jit_clear", call_jit_clear, FA3_OK, NOTHING},
    {"fa3_selftest", call_selftest, FA3_OK, NOTHING},
};
enum { CALLS = sizeof kCalls / sizeof *kCalls };

/* ---- One call with one failure --------------------------------------------------------------- */

/* How far a child process is, for its parent. */
static struct place {
  int call;
  enum oom_mode mode;
  long n, most, spared;
  char complaint[512];
} * place;

static int complain(const struct call* call, const char* what, fa3_status status) {
  snprintf(place->complaint, sizeof place->complaint, "%s, allocation %ld %s: %s, status %s: %s",
           call->name, place->n, place->mode == OOM_ONE ? "fails" : "and all after it fail", what,
           p_fa3_status_name(status), p_fa3_last_error());
  return 0;
}

/* Outputs are correct when written, else untouched. */
static int outputs_right(enum written written) {
  const struct outputs* const f = written == FORWARD ? &want : &untouched;
  const struct outputs* const b = written == BACKWARD ? &want : &untouched;
  const struct outputs* const c = written == QUANTIZE ? &want : &untouched;
  return memcmp(got.o, f->o, sizeof got.o) == 0 && memcmp(got.lse, f->lse, sizeof got.lse) == 0 &&
         memcmp(got.dq, b->dq, sizeof got.dq) == 0 && memcmp(got.dk, b->dk, sizeof got.dk) == 0 &&
         memcmp(got.dv, b->dv, sizeof got.dv) == 0 &&
         memcmp(got.scale, c->scale, sizeof got.scale) == 0 &&
         memcmp(got.mean, c->mean, sizeof got.mean) == 0 &&
         memcmp(got.codes, c->codes, sizeof got.codes) == 0;
}

/* n = 0: nothing fails. 0 when something is wrong, else 1, or 2 when no allocation was the n-th. */
static int try_call(const struct call* call, long n) {
  got = untouched;
  place->n = n;
  alarm(60);
  if (n > 0) oom_arm(n, place->mode);
  const fa3_status status = call->make();
  const enum oom_outcome outcome = n > 0 ? oom_disarm() : OOM_NOT_REACHED;
  alarm(0);
  if (outcome == OOM_FAILED && status == FA3_OUT_OF_MEMORY) {
    if (strstr(p_fa3_last_error(), "memory") == NULL)
      return complain(call, "no such message", status);
    if (!outputs_right(NOTHING)) return complain(call, "outputs are half written", status);
  } else {
    if (status != call->want) return complain(call, "another status", status);
    if (!outputs_right(call->written)) return complain(call, "outputs are wrong", status);
  }
  place->spared += outcome == OOM_SPARED;
  return outcome == OOM_NOT_REACHED ? 2 : 1;
}

/* A call with its n-th allocation failing, then without. */
static int try_and_repeat(const struct call* call, long n) {
  const int result = try_call(call, n);
  if (result == 0 || try_call(call, 0) == 0) return 0;
  place->n = n;
  return result;
}

/* ---- Scenarios ------------------------------------------------------------------------------- */

static const char* library;

static void* cold_session(void* result) {
  *(int*)result = try_and_repeat(&kSession, place->n);
  return NULL;
}

/* The first use of the library in a process; `threads`: by a thread that was started after it was
 * opened. Ends with 0 when no allocation was the n-th. */
static int cold(int threads) {
  open_library(library);
  int result = 0;
  if (threads) {
    pthread_t thread;
    pthread_create(&thread, NULL, cold_session, &result);
    pthread_join(thread, NULL);
  } else {
    cold_session(&result);
  }
  return result;
}

/* Up to this allocation each one fails in turn, and then ever fewer: some calls have thousands, of
 * few kinds. */
static const long kDense = 50;

/* Every call, one after another, from where `place` says, in a context that has run before. */
static int warm(int unused) {
  (void)unused;
  open_library(library);
  const fa3_context_options o = options();
  if (p_fa3_context_create(&o, &context) != FA3_OK) return 0;
  if (p_fa3_plan_forward(context, &forward_args, &plan) != FA3_OK) return 0;
  for (int i = 0; i < 3; ++i) call_run();
  for (; place->call < CALLS; ++place->call, place->mode = OOM_ONE, place->n = 1) {
    for (; place->mode <= OOM_ALL_FROM; ++place->mode, place->n = 1) {
      int result = 1;
      for (long n = place->n; result == 1; n += 1 + n / kDense) {
        if ((result = try_and_repeat(&kCalls[place->call], n)) == 0) return 0;
        if (n > place->most) place->most = n;
      }
    }
  }
  return 2;
}

/* Runs a scenario in a child: its result; −1 when it ended by a signal. */
static int in_child(int (*scenario)(int), int argument) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) _exit(scenario(argument));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int report_wrong(const char* scenario, const char* call, int result) {
  if (result == 0) {
    fprintf(stderr, "%s: %s\nthe allocation:\n%s\n", scenario, place->complaint, oom_site());
  } else {
    fprintf(stderr, "%s: %s, allocation %ld, mode %d: the process ended or hung\n%s\n", scenario,
            call, place->n, (int)place->mode, oom_site());
  }
  return 1;
}

static int run_cold(const char* scenario, int threads) {
  long spared = 0, most = 0;
  for (int mode = OOM_ONE; mode <= OOM_ALL_FROM; ++mode) {
    int result = 1;
    for (long n = 1; result != 2; ++n) {
      memset(place, 0, sizeof *place);
      place->mode = mode;
      place->n = n;
      if ((result = in_child(cold, threads)) <= 0) {
        return report_wrong(scenario, kSession.name, result);
      }
      spared += place->spared;
      if (n > most) most = n;
    }
  }
  printf("%s: up to %ld allocations, %ld times one was spared\n", scenario, most, spared);
  return 0;
}

static int run_warm(const char* scenario) {
  memset(place, 0, sizeof *place);
  place->n = 1;
  const int result = in_child(warm, 0);
  if (result != 2) return report_wrong(scenario, kCalls[place->call].name, result);
  printf("%s: up to %ld allocations in a call, %ld times one was spared\n", scenario, place->most,
         place->spared);
  return 0;
}

static int expected_results(int unused) {
  (void)unused;
  open_library(library);
  pool = serial_pool;
  const fa3_context_options o = options();
  if (p_fa3_context_create(&o, &context) != FA3_OK) return 1;
  got = untouched;
  if (call_forward() != FA3_OK) return 1;
  memcpy(o_in, got.o, sizeof o_in);
  memcpy(lse_in, got.lse, sizeof lse_in);
  return call_backward() == FA3_OK && call_quantize() == FA3_OK ? 0 : 1;
}

static void* shared(size_t bytes) {
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* The expected results, from a child: this process itself never opens the library. */
static int find_expected(void);

int main(int argc, char** argv) {
  if (argc < 2 || mkdtemp(cache_folder) == NULL) return 2;
  library = argv[1];
  const char* const only = argc > 2 ? argv[2] : "";
  oom_prepare(is_spared);
  place = shared(sizeof *place);
  make_problem();
  if (find_expected() != 0) return 2;
  int wrong = 0;
  for (int own = 0; own < 2; ++own) {
    pool = own ? serial_pool : NULL;
    for (int hide = 0; hide < (own ? 1 : 2); ++hide) {
      oom_hide_library(hide ? "tbbmalloc" : NULL);
      const char* const with = own    ? "the host's pool"
                               : hide ? "oneTBB without tbbmalloc"
                                      : "oneTBB";
      char name[3][80];
      snprintf(name[0], sizeof *name, "first use, %s", with);
      snprintf(name[1], sizeof *name, "first use, new thread, %s", with);
      snprintf(name[2], sizeof *name, "warm, %s", with);
      if (strstr(name[0], only) != NULL) wrong |= run_cold(name[0], 0);
      if (strstr(name[1], only) != NULL) wrong |= run_cold(name[1], 1);
      if (strstr(name[2], only) != NULL) wrong |= run_warm(name[2]);
    }
  }
  rmdir(cache_folder);
  return wrong;
}

static int find_expected(void) {
  struct results {
    struct outputs outputs;
    float o[Q_SIZE], lse[LSE_SIZE];
  }* const results = shared(sizeof *results);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    const int status = expected_results(0);
    results->outputs = got;
    memcpy(results->o, o_in, sizeof o_in);
    memcpy(results->lse, lse_in, sizeof lse_in);
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  want = results->outputs;
  memcpy(o_in, results->o, sizeof o_in);
  memcpy(lse_in, results->lse, sizeof lse_in);
  return status;
}
