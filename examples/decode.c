/* SPDX-License-Identifier: BSD-3-Clause
 * decode.c — attention of an inference engine in C11: the keys and values of several sequences in a
 * pool of pages, all prompts in one call, then a token of each sequence a step, by one plan. On a
 * Hopper GPU if there is one (CUDA_VISIBLE_DEVICES= hides it), else on the CPU.
 *
 * Build, once fa3 is installed:  cc -std=c11 decode.c $(pkg-config --cflags --libs fa3) -ldl -lm
 * or with CMake:                 CMakeLists.txt beside this file
 * Exit status: 0 each token's output is that of attention without a cache, 1 it is not or a call
 * failed.
 */
#include <fa3/fa3.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"

/* The model: 8 query heads, 2 KV heads, each of which serves 4 query heads. */
enum { kHeadsQ = 8, kHeadsKv = 2, kHeadDim = 64 };
enum { kRowQ = kHeadsQ * kHeadDim, kRowKv = kHeadsKv * kHeadDim }; /* elements of a token */

/* The cache: a sequence has at most kMaxPages pages, and all of them together kPages. */
enum { kPages = 20, kPageSize = 16, kMaxPages = 8, kMaxTokens = kMaxPages * kPageSize };

/* The load: prompts of these lengths, then kSteps tokens for each. */
enum { kSequences = 3, kSteps = 40, kPromptTokens = 5 + 37 + 70, kLongestPrompt = 70 };
static const int kPrompts[kSequences] = {5, 37, 70};
enum { kAllTokens = kPromptTokens + kSequences * kSteps };

/* An engine would hand errors on; this program stops at the first one. */
static void stop(const char* why) {
  fprintf(stderr, "decode: %s\n", why);
  exit(1);
}
static void check(fa3_status status) { /* the message names the call and the argument */
  if (status != FA3_OK) stop(fa3_last_error());
}
static void check_cuda(CUresult result, const char* call) {
  const char* name = "unknown error";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorName(result, &name);
  fprintf(stderr, "decode: %s: %s\n", call, name);
  exit(1);
}

/* ---- BF16 and the model ---------------------------------------------------------------------- */

typedef uint16_t Bf16; /* the upper half of a float */

static float to_float(Bf16 value) {
  const uint32_t bits = (uint32_t)value << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* Stands for the model: queries, keys or values of a token, in [−1, 1), the same in every run. */
typedef enum Part { kQuery = 1, kKey = 2, kValue = 3 } Part;
static void project(Part part, int sequence, int token, Bf16* row, int count) {
  uint32_t seed = ((uint32_t)part * 64u + (uint32_t)sequence) * 8192u + (uint32_t)token;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = (float)(seed >> 8) / 8388608.0f - 1.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    row[i] = (Bf16)(bits >> 16);
  }
}

/* ---- The device: a GPU or the CPU, and its memory -------------------------------------------- */

typedef struct Device {
  fa3_context* fa3;
  CUstream stream;  /* NULL on the CPU */
  void* blocks[24]; /* memory, given back at the end */
  int block_count;
} Device;

static void* allocate(Device* device, size_t bytes) {
  void* data = NULL;
  if (device->block_count == 24) stop("more blocks than the program has");
  if (device->stream == NULL) {
    data = malloc(bytes > 0 ? bytes : 1);
  } else {
    CUdeviceptr address = 0;
    check_cuda(cuMemAlloc(&address, bytes > 0 ? bytes : 1), "cuMemAlloc");
    data = (void*)(uintptr_t)address;
  }
  if (data == NULL) stop("out of memory");
  device->blocks[device->block_count++] = data;
  return data;
}

/* Copies from and to the host, each of them waited for. An engine's own kernels write queries, keys
 * and values where they are needed. */
static void upload(const Device* device, void* to, const void* from, size_t bytes) {
  if (device->stream == NULL) {
    memcpy(to, from, bytes);
    return;
  }
  check_cuda(cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, bytes, device->stream),
             "cuMemcpyHtoDAsync");
  check_cuda(cuStreamSynchronize(device->stream), "cuStreamSynchronize");
}
static void download(const Device* device, void* to, const void* from, size_t bytes) {
  if (device->stream == NULL) {
    memcpy(to, from, bytes);
    return;
  }
  check_cuda(cuMemcpyDtoHAsync(to, (CUdeviceptr)(uintptr_t)from, bytes, device->stream),
             "cuMemcpyDtoHAsync");
  check_cuda(cuStreamSynchronize(device->stream), "cuStreamSynchronize");
}

static Device open_device(void) {
  Device device = {0};
  CUcontext context = NULL;
  fa3_device_info info = {0};
  fa3_context_options gpu = {0};
  gpu.struct_size = sizeof gpu;
  gpu.device_type = FA3_DEVICE_CUDA; /* the first one, as device_id is 0 */
  const fa3_status status = fa3_context_create(&gpu, &device.fa3);
  if (status == FA3_UNSUPPORTED) {
    check(fa3_context_create(NULL, &device.fa3)); /* the defaults: the CPU, all cores */
  } else {
    check(status);
    const char* const missing = open_driver();
    if (missing != NULL) stop(missing);
    check_cuda(cuInit(0), "cuInit");
    check_cuda(cuDevicePrimaryCtxRetain(&context, gpu.device_id), "cuDevicePrimaryCtxRetain");
    check_cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check_cuda(cuStreamCreate(&device.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  info.struct_size = sizeof info;
  check(fa3_get_device_info(device.fa3, &info));
  printf("fa3 %s on %s\n", fa3_version(), info.name);
  return device;
}

static void close_device(Device* device) {
  fa3_context_destroy(device->fa3);
  while (device->block_count > 0) {
    void* const data = device->blocks[--device->block_count];
    if (device->stream == NULL)
      free(data);
    else
      check_cuda(cuMemFree((CUdeviceptr)(uintptr_t)data), "cuMemFree");
  }
  if (device->stream == NULL) return;
  check_cuda(cuStreamDestroy(device->stream), "cuStreamDestroy");
  check_cuda(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
}

/* ---- The cache ------------------------------------------------------------------------------- */

typedef struct Cache {
  Bf16 *k, *v;             /* on the device: (pages, page_size, heads_kv, head_dim) */
  int32_t *table, *counts; /* on the device: copies of pages and lengths below */
  int32_t pages[kSequences][kMaxPages];
  int32_t lengths[kSequences];
  int32_t unused[kPages]; /* pages of no sequence */
  int unused_count;
} Cache;

static Cache make_cache(Device* device) {
  Cache cache = {0};
  const size_t bytes = (size_t)kPages * kPageSize * kRowKv * sizeof(Bf16);
  Bf16* const nan = malloc(bytes);
  if (nan == NULL) stop("out of memory");
  memset(nan, 0xff, bytes); /* rows behind a length are never read: they may hold anything */
  cache.k = allocate(device, bytes);
  cache.v = allocate(device, bytes);
  upload(device, cache.k, nan, bytes);
  upload(device, cache.v, nan, bytes);
  free(nan);
  cache.table = allocate(device, sizeof cache.pages);
  cache.counts = allocate(device, sizeof cache.lengths);
  memset(cache.pages, 0xff, sizeof cache.pages); /* −1: nor are entries of the table */
  while (cache.unused_count < kPages) {          /* in no order, as after hours of serving */
    cache.unused[cache.unused_count] = cache.unused_count * 7 % kPages;
    ++cache.unused_count;
  }
  return cache;
}

/* Puts K and V of a sequence's next token behind its last one, in a new page if that is full. */
static void append(const Device* device, Cache* cache, int sequence) {
  Bf16 row[kRowKv];
  const int token = cache->lengths[sequence], column = token / kPageSize;
  if (token % kPageSize == 0) {
    if (column == kMaxPages || cache->unused_count == 0) stop("the cache has no page left");
    cache->pages[sequence][column] = cache->unused[--cache->unused_count];
  }
  const size_t page = (size_t)cache->pages[sequence][column];
  const size_t at = (page * kPageSize + (size_t)(token % kPageSize)) * kRowKv;
  project(kKey, sequence, token, row, kRowKv);
  upload(device, cache->k + at, row, sizeof row);
  project(kValue, sequence, token, row, kRowKv);
  upload(device, cache->v + at, row, sizeof row);
  cache->lengths[sequence] = token + 1;
}

/* The kernels look at table and lengths when they run: an upload, and no new plan. */
static void publish(const Device* device, const Cache* cache) {
  upload(device, cache->table, cache->pages, sizeof cache->pages);
  upload(device, cache->counts, cache->lengths, sizeof cache->lengths);
}

/* Attention on the cache, without queries and output. */
static fa3_forward_args cache_args(const Cache* cache) {
  const int64_t pool[4] = {kPages, kPageSize, kHeadsKv, kHeadDim};
  const int64_t table[2] = {kSequences, kMaxPages};
  fa3_forward_args args = {0};
  args.struct_size = sizeof args;
  args.k = fa3_dense(cache->k, FA3_BF16, 4, pool);
  args.v = fa3_dense(cache->v, FA3_BF16, 4, pool);
  args.page_table = fa3_dense(cache->table, FA3_I32, 2, table);
  args.seqused_kv = fa3_dense(cache->counts, FA3_I32, 1, table);
  args.max_seqlen_kv = kMaxTokens;
  args.mask = FA3_MASK_CAUSAL; /* a sequence's last query sees its last key */
  return args;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* A plan is for shapes and bounds, not for lengths: it serves all steps. So does a graph in which a
 * run is captured, as in gpu.cpp. */
typedef struct Call {
  fa3_forward_args args;
  fa3_plan* plan;
  void* workspace;
  size_t workspace_bytes;
} Call;

static Call plan_call(Device* device, const fa3_forward_args* args) {
  Call call = {*args, NULL, NULL, 0};
  check(fa3_plan_forward(device->fa3, args, &call.plan));
  call.workspace_bytes = fa3_plan_workspace_bytes(call.plan);
  call.workspace = allocate(device, call.workspace_bytes);
  return call;
}

/* Attends and fetches O, (tokens, heads_q, head_dim). */
static void run_call(const Device* device, const Call* call, Bf16* o, int tokens) {
  check(fa3_plan_run(call->plan, &call->args, call->workspace, call->workspace_bytes,
                     device->stream));
  download(device, o, call->args.o.data, (size_t)tokens * kRowQ * sizeof *o);
}

/* Queries and outputs of sequence 0, then of 1, …: the rows where each begins, and the end. */
static void cuts_of(const int32_t* lengths, int32_t* cuts) {
  cuts[0] = 0;
  for (int s = 0; s < kSequences; ++s) cuts[s + 1] = cuts[s] + lengths[s];
}

/* All prompts in one call: packed queries, cut by cu_seqlens_q; their keys are in the cache. */
static void prefill(Device* device, Cache* cache, Bf16* outputs, const int32_t* first) {
  static Bf16 rows[kPromptTokens * kRowQ];
  int32_t cuts[kSequences + 1];
  const int64_t shape[3] = {kPromptTokens, kHeadsQ, kHeadDim}, cut_shape[1] = {kSequences + 1};
  for (int s = 0; s < kSequences; ++s)
    for (int t = 0; t < kPrompts[s]; ++t) append(device, cache, s);
  publish(device, cache);
  cuts_of(cache->lengths, cuts);
  for (int s = 0; s < kSequences; ++s)
    for (int t = 0; t < kPrompts[s]; ++t)
      project(kQuery, s, t, rows + (size_t)(cuts[s] + t) * kRowQ, kRowQ);

  fa3_forward_args args = cache_args(cache);
  args.q = fa3_dense(allocate(device, sizeof rows), FA3_BF16, 3, shape);
  args.o = fa3_dense(allocate(device, sizeof rows), FA3_BF16, 3, shape);
  args.cu_seqlens_q = fa3_dense(allocate(device, sizeof cuts), FA3_I32, 1, cut_shape);
  args.max_seqlen_q = kLongestPrompt;
  upload(device, args.q.data, rows, sizeof rows);
  upload(device, args.cu_seqlens_q.data, cuts, sizeof cuts);
  Call call = plan_call(device, &args);
  run_call(device, &call, rows, kPromptTokens);
  for (int s = 0; s < kSequences; ++s)
    memcpy(outputs + (size_t)first[s] * kRowQ, rows + (size_t)cuts[s] * kRowQ,
           (size_t)kPrompts[s] * kRowQ * sizeof *rows);
  fa3_plan_destroy(call.plan);
}

/* The token loop: one query of each sequence a step. */
static void decode(Device* device, Cache* cache, Bf16* outputs, const int32_t* first) {
  Bf16 rows[kSequences * kRowQ];
  const int64_t shape[4] = {kSequences, 1, kHeadsQ, kHeadDim};
  fa3_forward_args args = cache_args(cache);
  args.q = fa3_dense(allocate(device, sizeof rows), FA3_BF16, 4, shape);
  args.o = fa3_dense(allocate(device, sizeof rows), FA3_BF16, 4, shape);
  Call call = plan_call(device, &args);
  for (int step = 0; step < kSteps; ++step) {
    for (int s = 0; s < kSequences; ++s) {
      project(kQuery, s, cache->lengths[s], rows + s * kRowQ, kRowQ);
      append(device, cache, s);
    }
    publish(device, cache);
    upload(device, args.q.data, rows, sizeof rows);
    run_call(device, &call, rows, kSequences);
    for (int s = 0; s < kSequences; ++s)
      memcpy(outputs + (size_t)(first[s] + cache->lengths[s] - 1) * kRowQ, rows + s * kRowQ,
             kRowQ * sizeof *rows);
  }
  fa3_plan_destroy(call.plan);
}

/* ---- The check ------------------------------------------------------------------------------- */

/* A tensor of all tokens, packed. */
static fa3_tensor all_tokens(Device* device, Part part, int heads, const int32_t* first) {
  const size_t row = (size_t)heads * kHeadDim, bytes = kAllTokens * row * sizeof(Bf16);
  const int64_t shape[3] = {kAllTokens, heads, kHeadDim};
  Bf16* const rows = malloc(bytes);
  void* const data = allocate(device, bytes);
  if (rows == NULL) stop("out of memory");
  for (int s = 0; s < kSequences; ++s)
    for (int t = 0; t < first[s + 1] - first[s]; ++t)
      project(part, s, t, rows + (size_t)(first[s] + t) * row, (int)row);
  upload(device, data, rows, bytes);
  free(rows);
  return fa3_dense(data, FA3_BF16, 3, shape);
}

/* The same attention in one forward of all tokens, without a cache. */
static void attend_dense(Device* device, Bf16* outputs, const int32_t* first) {
  const int64_t cut_shape[1] = {kSequences + 1};
  const size_t cuts_bytes = (kSequences + 1) * sizeof *first;
  fa3_forward_args args = {0};
  args.struct_size = sizeof args;
  args.q = all_tokens(device, kQuery, kHeadsQ, first);
  args.k = all_tokens(device, kKey, kHeadsKv, first);
  args.v = all_tokens(device, kValue, kHeadsKv, first);
  args.o = args.q;
  args.o.data = allocate(device, (size_t)kAllTokens * kRowQ * sizeof *outputs);
  args.cu_seqlens_q = fa3_dense(allocate(device, cuts_bytes), FA3_I32, 1, cut_shape);
  args.cu_seqlens_kv = args.cu_seqlens_q;
  args.max_seqlen_q = args.max_seqlen_kv = kMaxTokens;
  args.mask = FA3_MASK_CAUSAL;
  upload(device, args.cu_seqlens_q.data, first, cuts_bytes);
  Call call = plan_call(device, &args);
  run_call(device, &call, outputs, kAllTokens);
  fa3_plan_destroy(call.plan);
}

/* How far apart a token's outputs are, relative to their size. NaN anywhere makes it NaN. */
static double distance(const Bf16* got, const Bf16* want) {
  double difference = 0, size = 0;
  for (int i = 0; i < kRowQ; ++i) {
    const double a = (double)to_float(got[i]), b = (double)to_float(want[i]);
    difference += (a - b) * (a - b);
    size += b * b;
  }
  return sqrt(difference / size);
}

static int is_right(const Bf16* got, const Bf16* want, const int32_t* first) {
  const double tolerance = 1e-2; /* BF16 carries 8 bits */
  int right = 1;
  for (int s = 0; s < kSequences; ++s) {
    double largest = 0;
    for (int t = first[s]; t < first[s + 1]; ++t) {
      const double error = distance(got + (size_t)t * kRowQ, want + (size_t)t * kRowQ);
      if (error > largest || isnan(error)) largest = error;
      right = right && error <= tolerance;
    }
    const size_t last = (size_t)(first[s + 1] - 1) * kRowQ;
    printf("sequence %d, prompt of %2d, then %d tokens: off by %.1e at most, %.1e in the last\n", s,
           kPrompts[s], kSteps, largest, distance(got + last, want + last));
  }
  printf("%s of a full forward without a cache, tolerance %.0e\n",
         right ? "these are the outputs" : "WRONG: these are not the outputs", tolerance);
  return right;
}

int main(void) {
  static Bf16 outputs[kAllTokens * kRowQ], expected[kAllTokens * kRowQ];
  int32_t lengths[kSequences], first[kSequences + 1]; /* where a sequence's outputs begin */
  for (int s = 0; s < kSequences; ++s) lengths[s] = kPrompts[s] + kSteps;
  cuts_of(lengths, first);

  Device device = open_device();
  Cache cache = make_cache(&device);
  prefill(&device, &cache, outputs, first);
  decode(&device, &cache, outputs, first);
  printf("%d of %d pages are in use\n", kPages - cache.unused_count, kPages);
  attend_dense(&device, expected, first);
  close_device(&device);
  return is_right(outputs, expected, first) ? 0 : 1;
}
