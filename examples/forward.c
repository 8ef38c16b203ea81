/* SPDX-License-Identifier: BSD-3-Clause
 * forward.c — attention from plain C11: describe the tensors, make a plan, give it memory, run it,
 * check a row.
 *
 * Build, once fa3 is installed:  cc -std=c11 forward.c $(pkg-config --cflags --libs fa3) -lm
 * or with CMake:                 CMakeLists.txt beside this file
 */
#include <fa3/fa3.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Two sentences of 100 tokens; 8 heads ask (queries), 2 heads answer (keys and values): every KV
 * head serves 4 query heads, "grouped-query attention". Each head works on 64 numbers. */
enum { kBatch = 2, kTokens = 100, kHeadsQ = 8, kHeadsKv = 2, kHeadDim = 64 };

/* fa3 takes views: an address, an element type, extents and strides. fa3_dense fills in the strides
 * of a tensor that lies in memory in the order of its shape: (batch, token, head, element of the
 * head). */
static fa3_tensor view(const float* data, int64_t heads) {
  const int64_t shape[4] = {kBatch, kTokens, heads, kHeadDim};
  return fa3_dense(data, FA3_F32, 4, shape);
}

/* A buffer for `heads` heads, filled with numbers in [-1, 1) from a small generator, so that every
 * run is the same. */
static float* random_tensor(int64_t heads, uint32_t seed) {
  const size_t count = (size_t)kBatch * kTokens * (size_t)heads * kHeadDim;
  float* data = malloc(count * sizeof(float));
  for (size_t i = 0; data != NULL && i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
  return data;
}

/* Index of the first element of one token's head in such a buffer. */
static size_t at(int64_t heads, int batch, int token, int head) {
  return (((size_t)batch * kTokens + (size_t)token) * (size_t)heads + (size_t)head) * kHeadDim;
}

/* The same attention for one query, in double and by the definition: scores, softmax, weighted sum
 * of the values. Returns the distance from what fa3 wrote; NaN anywhere makes it NaN. */
static double error_of_row(const float* q, const float* k, const float* v, const float* o,
                           int batch, int token, int head) {
  const int head_kv = head / (kHeadsQ / kHeadsKv); /* the KV head that serves this query head */
  const float* query = q + at(kHeadsQ, batch, token, head);
  double weight[kTokens];
  double sum = 0;
  for (int j = 0; j <= token; ++j) { /* causal: a token sees itself and those before it */
    const float* key = k + at(kHeadsKv, batch, j, head_kv);
    double score = 0;
    for (int c = 0; c < kHeadDim; ++c) score += (double)query[c] * (double)key[c];
    weight[j] = exp(score / sqrt((double)kHeadDim)); /* scores are small: no maximum subtracted */
    sum += weight[j];
  }
  double distance = 0;
  for (int c = 0; c < kHeadDim; ++c) {
    double want = 0;
    for (int j = 0; j <= token; ++j)
      want += weight[j] / sum * (double)v[at(kHeadsKv, batch, j, head_kv) + (size_t)c];
    const double error = want - (double)o[at(kHeadsQ, batch, token, head) + (size_t)c];
    distance += error * error;
  }
  return sqrt(distance);
}

int main(void) {
  /* The caller owns every byte: inputs, output, workspace. */
  float* q = random_tensor(kHeadsQ, 1);
  float* k = random_tensor(kHeadsKv, 2);
  float* v = random_tensor(kHeadsKv, 3);
  float* o = random_tensor(kHeadsQ, 4); /* whatever it holds is overwritten */
  fa3_context* context = NULL;
  fa3_plan* plan = NULL;
  void* workspace = NULL;
  int exit_code = 1;
  if (q == NULL || k == NULL || v == NULL || o == NULL) goto done;

  /* A context stands for one device and its threads; NULL asks for the defaults: this machine's
   * CPU, all cores. */
  if (fa3_context_create(NULL, &context) != FA3_OK) goto failed;

  /* What to compute. struct_size lets the library tell which version of the header this program was
   * built with. */
  fa3_forward_args args = {0};
  args.struct_size = sizeof(args);
  args.q = view(q, kHeadsQ);
  args.k = view(k, kHeadsKv);
  args.v = view(v, kHeadsKv);
  args.o = view(o, kHeadsQ);
  args.mask = FA3_MASK_CAUSAL; /* softmax_scale stays 0, the default: 1/√head_dim */

  /* The plan checks the arguments and decides how to compute them. One plan serves any number of
   * runs with the same shapes, from many threads at once, each with a workspace of its own. */
  if (fa3_plan_forward(context, &args, &plan) != FA3_OK) goto failed;
  const size_t workspace_bytes = fa3_plan_workspace_bytes(plan);
  workspace = malloc(workspace_bytes != 0 ? workspace_bytes : 1);
  if (workspace == NULL) goto done;

  /* Run. On the CPU the output is there when the call returns; the last argument is a stream, for
   * GPUs. */
  if (fa3_plan_run(plan, &args, workspace, workspace_bytes, NULL) != FA3_OK) goto failed;

  /* Look at the result, and check the last query of the last sentence. */
  const size_t row = at(kHeadsQ, kBatch - 1, kTokens - 1, kHeadsQ - 1);
  printf("fa3 %s: O[%d, %d, %d, 0…3] = %.6f %.6f %.6f %.6f\n", fa3_version(), kBatch - 1,
         kTokens - 1, kHeadsQ - 1, o[row], o[row + 1], o[row + 2], o[row + 3]);
  const double error = error_of_row(q, k, v, o, kBatch - 1, kTokens - 1, kHeadsQ - 1);
  printf("distance of that row from plain loops in double: %.1e\n", error);
  exit_code = error <= 1e-5 ? 0 : 1; /* float carries 7 digits; NaN fails too */
  goto done;

failed: /* the message names the argument, what it was, what is needed and what to do */
  fprintf(stderr, "%s\n", fa3_last_error());
done:
  free(workspace);
  fa3_plan_destroy(plan); /* NULL is fine for both */
  fa3_context_destroy(context);
  free(o);
  free(v);
  free(k);
  free(q);
  return exit_code;
}
