/* SPDX-License-Identifier: BSD-3-Clause
 * fa3_0_2.h — the headers of version 0.2.0 without their comments. There are programs compiled
 * against them, so it stays as it is; earlier_release_test.py runs one on the library of today.
 */
#ifndef FA3_FA3_H_
#define FA3_FA3_H_
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(_WIN32)
#define FA3_API __declspec(dllimport)
#elif defined(__GNUC__)
#define FA3_API __attribute__((visibility("default")))
#else
#define FA3_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define FA3_VERSION_MAJOR 0
#define FA3_VERSION_MINOR 2
#define FA3_VERSION_PATCH 0
typedef enum fa3_status {
  FA3_OK = 0,
  FA3_INVALID_ARGUMENT = 1,
  FA3_UNSUPPORTED = 2,
  FA3_WORKSPACE_TOO_SMALL = 3,
  FA3_JIT_FAILED = 4,
  FA3_CUDA_ERROR = 5,
  FA3_IO_ERROR = 6,
  FA3_OUT_OF_MEMORY = 7,
  FA3_INTERNAL = 8,
  FA3_CANCELLED = 9
} fa3_status;
FA3_API const char* fa3_status_name(fa3_status status);
FA3_API const char* fa3_last_error(void);
typedef enum fa3_dtype {
  FA3_DTYPE_NONE = 0,
  FA3_F32 = 1,
  FA3_F16 = 2,
  FA3_BF16 = 3,
  FA3_I32 = 4,
  FA3_F8_E4M3 = 5,
  FA3_F8_E5M2 = 6,
  FA3_I8 = 7,
  FA3_BOOL = 8,
  FA3_F64 = 9
} fa3_dtype;
#define FA3_MAX_RANK 5
typedef struct fa3_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[FA3_MAX_RANK];
  int64_t stride[FA3_MAX_RANK];
} fa3_tensor;
static inline fa3_tensor fa3_dense(const void* data, fa3_dtype dtype, int32_t rank,
                                   const int64_t* shape) {
  fa3_tensor t;
  const int32_t dims = rank < 0 ? 0 : rank > FA3_MAX_RANK ? FA3_MAX_RANK : rank;
  uint64_t next = 1;
  int32_t d;
  memset(&t, 0, sizeof t);
  memcpy(&t.data, &data, sizeof data);
  t.dtype = (int32_t)dtype;
  t.rank = rank;
  for (d = 0; d < dims; ++d) t.shape[d] = shape[d];
  for (d = dims - 1; d >= 0; --d) {
    t.stride[d] = (int64_t)next;
    next *= t.shape[d] > 1 ? (uint64_t)t.shape[d] : 1;
  }
  return t;
}
typedef enum fa3_device_type {
  FA3_DEVICE_DEFAULT = 0,
  FA3_DEVICE_CPU = 1,
  FA3_DEVICE_CUDA = 2
} fa3_device_type;
typedef enum fa3_backend {
  FA3_BACKEND_AUTO = 0,
  FA3_BACKEND_CPU = 1,
  FA3_BACKEND_REFERENCE = 2,
  FA3_BACKEND_CUDA = 3,
  FA3_BACKEND_SIM = 4
} fa3_backend;
typedef void (*fa3_parallel_for_fn)(void* user, int64_t count,
                                    void (*body)(void* body_context, int64_t i),
                                    void* body_context);
typedef int (*fa3_progress_fn)(void* user, int64_t done, int64_t total);
typedef enum fa3_log_level {
  FA3_LOG_ERROR = 1,
  FA3_LOG_WARNING = 2,
  FA3_LOG_INFO = 3,
  FA3_LOG_DEBUG = 4
} fa3_log_level;
typedef void (*fa3_log_fn)(void* user, fa3_log_level level, const char* message);
typedef enum fa3_kernel_source { FA3_KERNELS_ANY = 0, FA3_KERNELS_PACKED = 1 } fa3_kernel_source;
typedef struct fa3_context_options {
  size_t struct_size;
  int32_t device_type;
  int32_t device_id;
  int32_t backend;
  int32_t num_threads;
  fa3_parallel_for_fn parallel_for;
  void* parallel_for_user;
  fa3_progress_fn progress;
  void* progress_user;
  fa3_log_fn log;
  void* log_user;
  int32_t log_level;
  int32_t kernel_source;
  const char* cache_dir;
  const char* kernel_pack;
} fa3_context_options;
typedef struct fa3_context fa3_context;
FA3_API fa3_status fa3_context_create(const fa3_context_options* options, fa3_context** context);
FA3_API void fa3_context_destroy(fa3_context* context);
typedef enum fa3_mask { FA3_MASK_FULL = 0, FA3_MASK_CAUSAL = 1, FA3_MASK_WINDOW = 2 } fa3_mask;
typedef enum fa3_mask_alignment {
  FA3_ALIGN_BOTTOM_RIGHT = 0,
  FA3_ALIGN_TOP_LEFT = 1
} fa3_mask_alignment;
typedef struct fa3_scale_block {
  int32_t rows;
  int32_t cols;
} fa3_scale_block;
typedef enum fa3_precision {
  FA3_PRECISION_DEFAULT = 0,
  FA3_PRECISION_FP8 = 1,
  FA3_PRECISION_EIGHT_BIT = 2,
  FA3_PRECISION_EIGHT_BIT_ACCURATE = 3
} fa3_precision;
typedef enum fa3_v_image_layout { FA3_V_IMAGE_NONE = 0, FA3_V_IMAGE_SM90 = 1 } fa3_v_image_layout;
typedef struct fa3_forward_args {
  size_t struct_size;
  fa3_tensor q;
  fa3_tensor k;
  fa3_tensor v;
  fa3_tensor o;
  fa3_tensor lse;
  fa3_tensor cu_seqlens_q;
  fa3_tensor cu_seqlens_kv;
  fa3_tensor seqused_q;
  fa3_tensor seqused_kv;
  int64_t max_seqlen_q;
  int64_t max_seqlen_kv;
  int32_t mask;
  int32_t reserved;
  int64_t left;
  int64_t right;
  double softmax_scale;
  double softcap;
  fa3_tensor alibi_slopes;
  fa3_tensor sequence_ids_q;
  fa3_tensor sequence_ids_kv;
  fa3_tensor q_scale;
  fa3_tensor k_scale;
  fa3_tensor v_scale;
  fa3_tensor k_offset;
  fa3_tensor v_offset;
  fa3_scale_block q_block;
  fa3_scale_block k_block;
  fa3_scale_block v_block;
  int32_t precision;
  int32_t precision_reserved;
  uint64_t precision_seed;
  fa3_tensor v_image;
  int32_t v_image_layout;
  int32_t v_image_reserved;
  fa3_tensor attn_mask;
  int32_t mask_alignment;
  int32_t mask_alignment_reserved;
} fa3_forward_args;
typedef struct fa3_backward_args {
  size_t struct_size;
  fa3_tensor q;
  fa3_tensor k;
  fa3_tensor v;
  fa3_tensor o;
  fa3_tensor lse;
  fa3_tensor dout;
  fa3_tensor dlse;
  fa3_tensor dq;
  fa3_tensor dk;
  fa3_tensor dv;
  fa3_tensor cu_seqlens_q;
  fa3_tensor cu_seqlens_kv;
  fa3_tensor seqused_q;
  fa3_tensor seqused_kv;
  int64_t max_seqlen_q;
  int64_t max_seqlen_kv;
  int32_t mask;
  int32_t reserved;
  int64_t left;
  int64_t right;
  double softmax_scale;
  double softcap;
  fa3_tensor alibi_slopes;
  fa3_tensor sequence_ids_q;
  fa3_tensor sequence_ids_kv;
  int32_t deterministic;
  int32_t deterministic_reserved;
  fa3_tensor attn_mask;
  int32_t mask_alignment;
  int32_t mask_alignment_reserved;
  fa3_tensor dattn_mask;
} fa3_backward_args;
typedef struct fa3_plan fa3_plan;
FA3_API fa3_status fa3_plan_forward(fa3_context* context, const fa3_forward_args* args,
                                    fa3_plan** plan);
FA3_API fa3_status fa3_plan_backward(fa3_context* context, const fa3_backward_args* args,
                                     fa3_plan** plan);
FA3_API void fa3_plan_destroy(fa3_plan* plan);
FA3_API size_t fa3_plan_workspace_bytes(const fa3_plan* plan);
FA3_API fa3_status fa3_plan_v_image(const fa3_plan* plan, fa3_tensor* image, int32_t* layout);
FA3_API fa3_status fa3_plan_run(const fa3_plan* plan, const void* args, void* workspace,
                                size_t workspace_bytes, void* stream);
FA3_API fa3_status fa3_forward(fa3_context* context, const fa3_forward_args* args, void* stream);
FA3_API fa3_status fa3_backward(fa3_context* context, const fa3_backward_args* args, void* stream);
#ifdef __cplusplus
}
#endif
#endif
#ifndef FA3_INFO_H_
#define FA3_INFO_H_
#ifdef __cplusplus
extern "C" {
#endif
typedef enum fa3_op { FA3_OP_FORWARD = 1, FA3_OP_BACKWARD = 2, FA3_OP_QUANTIZE = 3 } fa3_op;
FA3_API fa3_status fa3_supported(fa3_context* context, fa3_op op, const void* args,
                                 const char** reason);
FA3_API fa3_status fa3_explain(fa3_context* context, fa3_op op, const void* args, char* text,
                               size_t capacity, size_t* needed);
typedef struct fa3_device_info {
  size_t struct_size;
  int32_t device_type;
  int32_t device_id;
  int32_t backend;
  int32_t num_threads;
  int64_t l1_bytes;
  int64_t l2_bytes;
  int64_t memory_bytes;
  char name[128];
  char instruction_set[32];
} fa3_device_info;
FA3_API fa3_status fa3_get_device_info(const fa3_context* context, fa3_device_info* info);
FA3_API const char* fa3_version(void);
FA3_API const char* fa3_build_info(void);
FA3_API const char* fa3_environment(void);
#ifdef __cplusplus
}
#endif
#endif
#ifndef FA3_JIT_H_
#define FA3_JIT_H_
#ifdef __cplusplus
extern "C" {
#endif
FA3_API fa3_status fa3_jit_warm_kernels(fa3_context* context, const char* const* names,
                                        size_t count, const char** report);
FA3_API fa3_status fa3_jit_pack_kernels(fa3_context* context, const char* const* names,
                                        size_t count, const char* path);
FA3_API fa3_status fa3_jit_warm(fa3_context* context, const char* programs, const char** report);
FA3_API fa3_status fa3_jit_pack(fa3_context* context, const char* programs, const char* path);
FA3_API fa3_status fa3_jit_list(fa3_context* context, const char** report);
FA3_API fa3_status fa3_jit_clear(fa3_context* context);
#ifdef __cplusplus
}
#endif
#endif
#ifndef FA3_QUANTIZE_H_
#define FA3_QUANTIZE_H_
#ifdef __cplusplus
extern "C" {
#endif
typedef enum fa3_rotary_layout { FA3_ROTARY_HALVES = 0, FA3_ROTARY_PAIRS = 1 } fa3_rotary_layout;
typedef struct fa3_quantize_args {
  size_t struct_size;
  fa3_tensor x;
  fa3_tensor codes;
  fa3_tensor scale;
  fa3_tensor offset;
  fa3_tensor cu_seqlens;
  fa3_tensor seqused;
  fa3_tensor rotary_cos;
  fa3_tensor rotary_sin;
  fa3_tensor rotary_position;
  int64_t max_seqlen;
  fa3_scale_block block;
  int32_t rotary_layout;
  int32_t hadamard;
  uint64_t seed;
  fa3_tensor v_image;
  int32_t v_image_layout;
  int32_t v_image_reserved;
} fa3_quantize_args;
FA3_API fa3_status fa3_plan_quantize(fa3_context* context, const fa3_quantize_args* args,
                                     fa3_plan** plan);
FA3_API fa3_status fa3_quantize(fa3_context* context, const fa3_quantize_args* args, void* stream);
#ifdef __cplusplus
}
#endif
#endif
#ifndef FA3_SELFTEST_H_
#define FA3_SELFTEST_H_
#ifdef __cplusplus
extern "C" {
#endif
typedef enum fa3_case_status {
  FA3_CASE_PASSED = 1,
  FA3_CASE_FAILED = 2,
  FA3_CASE_SKIPPED = 3
} fa3_case_status;
typedef struct fa3_case_result {
  size_t struct_size;
  const char* name;
  int32_t status;
  int32_t done;
  int32_t total;
  int32_t device_lost;
  const char* message;
} fa3_case_result;
typedef int (*fa3_case_fn)(void* user, const fa3_case_result* result);
typedef struct fa3_selftest_args {
  size_t struct_size;
  const char* filter;
  uint64_t seed;
  fa3_case_fn on_case;
  void* on_case_user;
  int32_t backend;
  int32_t list;
  int32_t measure;
  int32_t first;
} fa3_selftest_args;
FA3_API fa3_status fa3_selftest(fa3_context* context, const fa3_selftest_args* args,
                                const char** report);
#ifdef __cplusplus
}
#endif
#endif
