/* SPDX-License-Identifier: BSD-3-Clause
 * earlier_release.c — a program as versions 0.1.0 and 0.2.0 had them: strides written out, structs
 * of those headers' sizes. It prints what each call gives, floats by their bits. Compiled against
 * the header of each with FA3_RELEASE 1 or 2, and against today's; earlier_release_test.py compares
 * them.
 */
#if FA3_RELEASE == 1
#include "fa3_0_1.h"
#elif FA3_RELEASE == 2
#include "fa3_0_2.h"
#else
#include <fa3/fa3.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FA3_RELEASE == 2
_Static_assert(sizeof(fa3_forward_args) == 1944 && sizeof(fa3_backward_args) == 1904,
               "as programs have them");
#elif FA3_RELEASE == 1
_Static_assert(sizeof(fa3_context_options) == 88, "today's has fields after cache_dir");

/* Not in 0.1.0; as their first header had them. */
typedef struct fa3_case_result fa3_case_result;
typedef int (*fa3_case_fn)(void* user, const fa3_case_result* result);
typedef struct fa3_selftest_args {
  size_t struct_size;
  const char* filter;
  uint64_t seed;
  fa3_case_fn on_case;
  void* on_case_user;
  int32_t backend;
  int32_t list;
} fa3_selftest_args;
fa3_status fa3_selftest(fa3_context* context, const fa3_selftest_args* args, const char** report);
fa3_status fa3_jit_list(fa3_context* context, const char** report);
#endif

enum { BATCH = 2, HEADS_Q = 4, HEADS_KV = 2, LEN_Q = 5, LEN_KV = 7, DIM_QK = 8, DIM_V = 6 };
enum {
  Q_SIZE = BATCH * LEN_Q * HEADS_Q * DIM_QK,
  K_SIZE = BATCH * LEN_KV * HEADS_KV * DIM_QK,
  V_SIZE = BATCH * LEN_KV * HEADS_KV * DIM_V,
  O_SIZE = BATCH * LEN_Q * HEADS_Q * DIM_V,
  LSE_SIZE = BATCH * HEADS_Q * LEN_Q
};
static float q[Q_SIZE], k[K_SIZE], v[V_SIZE], o[O_SIZE], lse[LSE_SIZE], dout[O_SIZE];
static float dq[Q_SIZE], dk[K_SIZE], dv[V_SIZE];

static void ramp(float* to, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    to[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
  }
}

/* All bytes 0xFF: a NaN. */
static void blank_outputs(void) {
  memset(o, 0xFF, sizeof o);
  memset(lse, 0xFF, sizeof lse);
  memset(dq, 0xFF, sizeof dq);
  memset(dk, 0xFF, sizeof dk);
  memset(dv, 0xFF, sizeof dv);
}

static void print_bits(const char* name, const float* values, int count) {
  printf("%s", name);
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    memcpy(&bits, values + i, sizeof bits);
    printf(" %08x", (unsigned)bits);
  }
  printf("\n");
}

static void need_ok(fa3_status status, const char* call) {
  if (status == FA3_OK) return;
  printf("%s: %s: %s\n", call, fa3_status_name(status), fa3_last_error());
  exit(1);
}

static fa3_tensor tensor4(float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  fa3_tensor t = {0};
  t.data = data;
  t.dtype = FA3_F32;
  t.rank = 4;
  t.shape[0] = a, t.shape[1] = b, t.shape[2] = c, t.shape[3] = d;
  t.stride[0] = b * c * d, t.stride[1] = c * d, t.stride[2] = d, t.stride[3] = 1;
  return t;
}

static fa3_tensor tensor3(float* data, int64_t a, int64_t b, int64_t c) {
  fa3_tensor t = {0};
  t.data = data;
  t.dtype = FA3_F32;
  t.rank = 3;
  t.shape[0] = a, t.shape[1] = b, t.shape[2] = c;
  t.stride[0] = b * c, t.stride[1] = c, t.stride[2] = 1;
  return t;
}

static fa3_forward_args forward_args(void) {
  fa3_forward_args args = {0};
  args.struct_size = sizeof args;
  args.q = tensor4(q, BATCH, LEN_Q, HEADS_Q, DIM_QK);
  args.k = tensor4(k, BATCH, LEN_KV, HEADS_KV, DIM_QK);
  args.v = tensor4(v, BATCH, LEN_KV, HEADS_KV, DIM_V);
  args.o = tensor4(o, BATCH, LEN_Q, HEADS_Q, DIM_V);
  args.lse = tensor3(lse, BATCH, HEADS_Q, LEN_Q);
  args.mask = FA3_MASK_CAUSAL;
  return args;
}

static fa3_backward_args backward_args(void) {
  fa3_backward_args args = {0};
  args.struct_size = sizeof args;
  args.q = tensor4(q, BATCH, LEN_Q, HEADS_Q, DIM_QK);
  args.k = tensor4(k, BATCH, LEN_KV, HEADS_KV, DIM_QK);
  args.v = tensor4(v, BATCH, LEN_KV, HEADS_KV, DIM_V);
  args.o = tensor4(o, BATCH, LEN_Q, HEADS_Q, DIM_V);
  args.lse = tensor3(lse, BATCH, HEADS_Q, LEN_Q);
  args.dout = tensor4(dout, BATCH, LEN_Q, HEADS_Q, DIM_V);
  args.dq = tensor4(dq, BATCH, LEN_Q, HEADS_Q, DIM_QK);
  args.dk = tensor4(dk, BATCH, LEN_KV, HEADS_KV, DIM_QK);
  args.dv = tensor4(dv, BATCH, LEN_KV, HEADS_KV, DIM_V);
  args.mask = FA3_MASK_CAUSAL;
  return args;
}

static fa3_context* open_context(void) {
  fa3_context* context = NULL;
  fa3_context_options options = {0};
  options.struct_size = sizeof options;
  options.backend = FA3_BACKEND_CPU;
  options.num_threads = 2;
  need_ok(fa3_context_create(&options, &context), "fa3_context_create");
  return context;
}

static void run(fa3_context* context) {
  const fa3_forward_args forward = forward_args();
  const fa3_backward_args backward = backward_args();
  blank_outputs();
  need_ok(fa3_forward(context, &forward, NULL), "fa3_forward");
  print_bits("o", o, O_SIZE);
  print_bits("lse", lse, LSE_SIZE);
  need_ok(fa3_backward(context, &backward, NULL), "fa3_backward");
  print_bits("dq", dq, Q_SIZE);
  print_bits("dk", dk, K_SIZE);
  print_bits("dv", dv, V_SIZE);
}

#if FA3_RELEASE != 1
/* The last fields of 0.2.0's structs. */
static void run_masked(fa3_context* context) {
  static float mask[LEN_Q * LEN_KV], dmask[LEN_Q * LEN_KV];
  fa3_forward_args forward = forward_args();
  fa3_backward_args backward = backward_args();
  ramp(mask, LEN_Q * LEN_KV, 5);
  blank_outputs();
  memset(dmask, 0xFF, sizeof dmask);
  forward.mask = backward.mask = FA3_MASK_FULL;
  forward.attn_mask = backward.attn_mask = tensor4(mask, 1, 1, LEN_Q, LEN_KV);
  backward.dattn_mask = tensor4(dmask, 1, 1, LEN_Q, LEN_KV);
  need_ok(fa3_forward(context, &forward, NULL), "fa3_forward");
  print_bits("masked o", o, O_SIZE);
  need_ok(fa3_backward(context, &backward, NULL), "fa3_backward");
  print_bits("masked dq", dq, Q_SIZE);
  print_bits("masked dattn_mask", dmask, LEN_Q * LEN_KV);
}
#endif

static void plan_and_run(fa3_context* context) {
  const fa3_forward_args args = forward_args();
  fa3_plan* plan = NULL;
  need_ok(fa3_plan_forward(context, &args, &plan), "fa3_plan_forward");
  const size_t bytes = fa3_plan_workspace_bytes(plan);
  void* const workspace = malloc(bytes + 1);
  blank_outputs();
  need_ok(fa3_plan_run(plan, &args, workspace, bytes, NULL), "fa3_plan_run");
  printf("workspace %lu\n", (unsigned long)bytes);
  print_bits("planned o", o, O_SIZE);
  print_bits("planned lse", lse, LSE_SIZE);
  free(workspace);
  fa3_plan_destroy(plan);
}

static void ask(fa3_context* context) {
  static char text[1 << 16];
  const fa3_forward_args forward = forward_args();
  const fa3_backward_args backward = backward_args();
  const char* reason = NULL;
  fa3_device_info info = {0};
  need_ok(fa3_explain(context, FA3_OP_FORWARD, &forward, text, sizeof text, NULL), "fa3_explain");
  printf("explain %s\n", text);
  need_ok(fa3_supported(context, FA3_OP_BACKWARD, &backward, &reason), "fa3_supported");
  printf("supported %s\n", reason);
  info.struct_size = sizeof info;
  need_ok(fa3_get_device_info(context, &info), "fa3_get_device_info");
  printf("device %s, %s, %d threads\n", info.name, info.instruction_set, (int)info.num_threads);
  printf("version %s\n", fa3_version());
}

/* 0.1.0 took these for a dense tensor. */
static void leave_strides_at_zero(fa3_context* context) {
  fa3_forward_args args = forward_args();
  memset(args.k.stride, 0, sizeof args.k.stride);
  blank_outputs();
  const fa3_status status = fa3_forward(context, &args, NULL);
  printf("zero strides: %s: %s\n", fa3_status_name(status), fa3_last_error());
  print_bits("untouched o", o, O_SIZE);
}

static void list(fa3_context* context) {
  const char* report = NULL;
  fa3_selftest_args args = {0};
  args.struct_size = sizeof args;
  args.filter = "^matrix/";
  args.list = 1;
  need_ok(fa3_selftest(context, &args, &report), "fa3_selftest");
  printf("selftest %s\n", report);
  need_ok(fa3_jit_list(context, &report), "fa3_jit_list");
  printf("jit %s\n", report);
}

int main(void) {
  ramp(q, Q_SIZE, 1);
  ramp(k, K_SIZE, 2);
  ramp(v, V_SIZE, 3);
  ramp(dout, O_SIZE, 4);
  fa3_context* const context = open_context();
  run(context);
  plan_and_run(context);
  ask(context);
  leave_strides_at_zero(context);
  list(context);
#if FA3_RELEASE != 1
  run_masked(context);
#endif
  fa3_context_destroy(context);
  return 0;
}
