/* SPDX-License-Identifier: BSD-3-Clause
 * info.h — what a context would do, what it computes on, and what the library is. Part of fa3.h,
 * which includes it.
 */
#ifndef FA3_INFO_H_
#define FA3_INFO_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Questions ------------------------------------------------------------------------------- */

typedef enum fa3_op {
  FA3_OP_FORWARD = 1,
  FA3_OP_BACKWARD = 2,
  FA3_OP_QUANTIZE = 3,
  FA3_OP_COMBINE = 4
} fa3_op;

/* Would a plan be made? Returns what fa3_plan_* would, except that no kernel is compiled or loaded:
 * a plan may still fail with JIT_FAILED or CUDA_ERROR. *reason (may be NULL) is set to a sentence
 * either way: which backend would run and why, or the refusal. It is valid until the next fa3 call
 * on this thread. */
FA3_API fa3_status fa3_supported(fa3_context* context, fa3_op op, const void* args,
                                 const char** reason);

/* Describes the plan as one JSON object: backend, why, problem, threads, workspace_bytes, flops,
 * visible_pairs and, under the backend's name, its tiles (visited, skipped), splits and tasks. Of
 * the GPU kernel also, under "estimate", what it would take on an H200 by a model: the model and
 * its fields may change from release to release.
 * Writes at most capacity bytes with a final NUL to text (NULL with capacity 0 asks for the size)
 * and the full size including the NUL to *needed (may be NULL).
 * Errors: as of fa3_plan_*; INVALID_ARGUMENT when capacity > 0 is too small (nothing but "" is
 * written then). */
FA3_API fa3_status fa3_explain(fa3_context* context, fa3_op op, const void* args, char* text,
                               size_t capacity, size_t* needed);

/* What a context computes on. */
typedef struct fa3_device_info {
  size_t struct_size;  /* in: sizeof(fa3_device_info); nothing beyond it is written */
  int32_t device_type; /* fa3_device_type */
  int32_t device_id;
  int32_t backend;          /* fa3_backend that AUTO resolved to */
  int32_t num_threads;      /* most threads a run uses */
  int64_t l1_bytes;         /* data cache per core; 0 = unknown */
  int64_t l2_bytes;         /* per core; 0 = unknown */
  int64_t memory_bytes;     /* of the device, in all; 0 = unknown */
  char name[128];           /* e.g. the processor's own name; NUL-terminated */
  char instruction_set[32]; /* in use: "scalar", "sse4", "avx2", "avx3", "avx3_bf16", "neon", … */
} fa3_device_info;

/* Errors: INVALID_ARGUMENT (NULL, struct_size). */
FA3_API fa3_status fa3_get_device_info(const fa3_context* context, fa3_device_info* info);

/* ---- Fields ---------------------------------------------------------------------------------- */

/* The type of a field of fa3_forward_args and of the other operations' structs. */
typedef enum fa3_field_kind {
  FA3_FIELD_TENSOR = 1,  /* fa3_tensor */
  FA3_FIELD_I32 = 2,     /* int32_t */
  FA3_FIELD_I64 = 3,     /* int64_t */
  FA3_FIELD_U64 = 4,     /* uint64_t */
  FA3_FIELD_F64 = 5,     /* double */
  FA3_FIELD_BLOCK = 6,   /* fa3_scale_block */
  FA3_FIELD_RESERVED = 7 /* int32_t, must be 0; a later release may name it and give it a meaning */
} fa3_field_kind;

/* What a field is to the operation. */
typedef enum fa3_field_role {
  FA3_FIELD_OPTION = 0, /* no tensor */
  FA3_FIELD_INPUT = 1,
  FA3_FIELD_OPTIONAL_INPUT = 2,
  FA3_FIELD_OUTPUT = 3,
  FA3_FIELD_OPTIONAL_OUTPUT = 4
} fa3_field_role;

/* One field. Strings are static, in English, and NULL where they say so. */
typedef struct fa3_field {
  size_t struct_size;       /* in: sizeof(fa3_field); nothing beyond it is written */
  const char* name;         /* of the member: "alibi_slopes" */
  size_t offset;            /* of the member from the begin of the struct, in bytes */
  int32_t kind;             /* fa3_field_kind */
  int32_t role;             /* fa3_field_role */
  int32_t dtype;            /* fa3_dtype: the only one that the tensor may have; 0 = several */
  int32_t strided;          /* 1 = a tensor of any strides, 0 = a dense one */
  const char* types;        /* "f32, f16, bf16"; NULL unless it is a tensor */
  const char* shape;        /* "(batch, heads_q, seqlen_q)"; NULL unless it is a tensor. Scales,
                               slopes and mask may have other shapes too: fa3.h */
  const char* varlen_shape; /* "(heads_q, total_q)"; NULL where varlen changes nothing */
  const char* of;           /* of scales, offsets, an image and blocks: the name of the tensor of
                               codes; else NULL */
  const char* help;         /* what it is, in one line */
} fa3_field;

/* Describes the field `index` of the struct of `op`: from 0 on all of them but struct_size, in the
 * order of the struct. A later library appends fields, and may so have some beyond the end of the
 * caller's struct; others keep their index. Read them until it refuses the index.
 * Errors: INVALID_ARGUMENT (op, index, NULL, struct_size). */
FA3_API fa3_status fa3_fields(fa3_op op, int32_t index, fa3_field* field);

/* ---- Library --------------------------------------------------------------------------------- */

/* "major.minor.patch" of the library. Static storage. */
FA3_API const char* fa3_version(void);

/* The build as one JSON object: version, compiler, build type, instruction sets, and each backend
 * with whether it can be used here and why not. Static storage, never NULL. */
FA3_API const char* fa3_build_info(void);

/* The environment variables that the library reads, as a JSON array of {name, value, default,
 * meaning}; value is null when unset. Valid until the next fa3 call on this thread. Never NULL. */
FA3_API const char* fa3_environment(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_INFO_H_ */
