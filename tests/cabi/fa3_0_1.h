/* SPDX-License-Identifier: BSD-3-Clause
 * fa3_0_1.h — fa3.h of version 0.1.0. There are programs compiled against it, so it stays as it is;
 * earlier_release_test.py runs one on the library of today.
 */
/*
 * fa3.h — the C interface of fa3, exact attention as a library.
 *
 * Forward   S = softmax_scale · Q·Kᵀ,  S' = softcap·tanh(S/softcap) where softcap > 0,
 *           P = softmax(S' + mask),  O = P·V,  LSE = ln Σ exp(S' + mask).
 *           Source: Dao et al., FlashAttention 1–3, algorithm 1.
 * Backward  δ = rowsum(dO ∘ O) − dLSE,  dV = Pᵀ·dO,
 *           dS = P ∘ (dO·Vᵀ − δ) [∘ (1 − tanh²) with softcap],
 *           dQ = softmax_scale · dS·K,  dK = softmax_scale · dSᵀ·Q.
 *           Source: FlashAttention-2, algorithm 2.
 *
 * Conventions, fixed for every backend:
 *   Layout    dense: q (batch, seqlen_q, heads_q, head_dim_qk),
 *                    k (batch, seqlen_kv, heads_kv, head_dim_qk),
 *                    v (batch, seqlen_kv, heads_kv, head_dim_v),
 *                    o (batch, seqlen_q, heads_q, head_dim_v).
 *             packed (ragged): rank 3, (total tokens, heads, head_dim), with cu_seqlens. Queries
 *             and keys choose independently. Any strides ≥ 0 with a contiguous last dimension: BHSD
 *             and packed QKV are views. A zero stride (broadcast) is legal for inputs only.
 *   Heads     heads_q is a multiple of heads_kv; query head h reads KV head h / (heads_q /
 *             heads_kv).
 *   Mask      bottom-right aligned: query i of a sequence stands at key position p = i + (len_kv −
 *             len_q); causal shows keys j ≤ p, a window shows p − left ≤ j ≤ p + right (both ends
 *             included).
 *   LSE       FP32, natural logarithm, (batch, heads_q, seqlen_q) or, for packed queries, (heads_q,
 *             total_q).
 *   Empty     a row that sees no key has O = 0, LSE = −inf and gradient 0.
 *   Written   every element of every output is written: rows of no sequence, or beyond seqused, as
 *             empty rows.
 *   NaN, Inf  in a key or value that a row may see, they reach that row. Keys outside a sequence
 *             (tails, other sequences, beyond seqused) never influence anything; keys that the mask
 *             hides do not either on the cpu and reference backends (a GPU tile may let a hidden V
 *             through as 0 × NaN).
 *   Zero      in a field means "default" or "off", so `= {0}` is where every struct starts.
 *
 * Structs begin with struct_size = sizeof(the struct). A smaller size, from a program built against
 * an older header, is accepted (missing fields are off); a larger one is accepted when the bytes
 * unknown to the library are zero.
 *
 * Errors: a function that can fail returns fa3_status; fa3_last_error() then says, on the calling
 * thread, which argument, what was got, what is needed and what to do. On failure outputs that are
 * handles are set to NULL, and arguments are checked in full before anything is written. The
 * library never exits, aborts or prints.
 *
 * Threads: a context and its plans may be used from many threads at once; destroy them when no call
 * is in flight.
 */
#ifndef FA3_FA3_H_
#define FA3_FA3_H_

#include <stddef.h>
#include <stdint.h>

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

/* Version of this header. The library's own: fa3_version(). SemVer over the ABI. */
#define FA3_VERSION_MAJOR 0
#define FA3_VERSION_MINOR 1
#define FA3_VERSION_PATCH 0

/* ---- Status ---------------------------------------------------------------------------------- */

/* What a call came to. Numbers are never reused. */
typedef enum fa3_status {
  FA3_OK = 0,
  FA3_INVALID_ARGUMENT = 1,    /* the arguments contradict each other or the conventions above */
  FA3_UNSUPPORTED = 2,         /* legal, but not offered by this backend, device or build */
  FA3_WORKSPACE_TOO_SMALL = 3, /* fewer bytes than fa3_plan_workspace_bytes, or NULL */
  FA3_JIT_FAILED = 4,          /* a kernel could not be compiled or loaded */
  FA3_CUDA_ERROR = 5,          /* the CUDA driver reported an error */
  FA3_IO_ERROR = 6,            /* a file of the library's own could not be read or written */
  FA3_OUT_OF_MEMORY = 7,       /* host or device memory ran out */
  FA3_INTERNAL = 8,            /* a defect in fa3; please report it with the message */
  FA3_CANCELLED = 9            /* the progress callback asked to stop; outputs are incomplete */
} fa3_status;

/* "OK", "INVALID_ARGUMENT", …; "UNKNOWN" for a number that is none. Static storage, never NULL. */
FA3_API const char* fa3_status_name(fa3_status status);

/* Message of the last failed call on this thread: `where: what, got, need; what to do`. "" when
 * none failed.
 * Valid until the next fa3 call on this thread. Never NULL. */
FA3_API const char* fa3_last_error(void);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Element types. Sizes in bytes: F32 and I32 4, F16 and BF16 2, F8 1. */
typedef enum fa3_dtype {
  FA3_DTYPE_NONE = 0,
  FA3_F32 = 1,
  FA3_F16 = 2,
  FA3_BF16 = 3,
  FA3_I32 = 4,
  FA3_F8_E4M3 = 5, /* reserved: declined with FA3_UNSUPPORTED by every backend of this release */
  FA3_F8_E5M2 = 6  /* reserved, as above */
} fa3_dtype;

#define FA3_MAX_RANK 5

/* A strided view of memory that the caller owns. rank 0 = the tensor is absent. In the calls that
 * run (not in those that only plan), data NULL also means absent, except for a tensor with no
 * elements. Alignment: of the element. */
typedef struct fa3_tensor {
  void* data;                   /* first element; inputs are never written through it */
  int32_t dtype;                /* fa3_dtype */
  int32_t rank;                 /* number of dimensions, 0…5 */
  int64_t shape[FA3_MAX_RANK];  /* extents, each ≥ 0, outermost first */
  int64_t stride[FA3_MAX_RANK]; /* in elements, each ≥ 0, the last 1. All zero = dense */
} fa3_tensor;

/* ---- Context --------------------------------------------------------------------------------- */

/* Device types, with DLPack's codes. 0 = CPU. */
typedef enum fa3_device_type {
  FA3_DEVICE_DEFAULT = 0,
  FA3_DEVICE_CPU = 1,
  FA3_DEVICE_CUDA = 2
} fa3_device_type;

/* Who computes. AUTO follows the context's device: CPU → cpu, CUDA → cuda. Nothing ever moves
 * between devices. */
typedef enum fa3_backend {
  FA3_BACKEND_AUTO = 0,
  FA3_BACKEND_CPU = 1,       /* tiled FlashAttention-2, SIMD and threads; host memory */
  FA3_BACKEND_REFERENCE = 2, /* FP64, plain loops, for checking; host memory */
  FA3_BACKEND_CUDA = 3,      /* reserved: not in this release */
  FA3_BACKEND_SIM = 4        /* reserved: not in this release */
} fa3_backend;

/* Runs body(body_context, i) once for each i in [0, count), in any order, on any threads, and
 * returns when all have returned. fa3 calls it with count ≤ the context's thread limit, so that a
 * pool of fewer threads is correct too. body does not throw and returns early once the run has
 * failed or was cancelled. */
typedef void (*fa3_parallel_for_fn)(void* user, int64_t count,
                                    void (*body)(void* body_context, int64_t i),
                                    void* body_context);

/* Reports `done` of `total` units of work (roughly equal in time), from any worker thread, one call
 * at a time. A non-zero return stops the run with FA3_CANCELLED. */
typedef int (*fa3_progress_fn)(void* user, int64_t done, int64_t total);

typedef enum fa3_log_level {
  FA3_LOG_ERROR = 1,
  FA3_LOG_WARNING = 2,
  FA3_LOG_INFO = 3,
  FA3_LOG_DEBUG = 4
} fa3_log_level;

/* Receives one line (no newline) at a time, from any thread. */
typedef void (*fa3_log_fn)(void* user, fa3_log_level level, const char* message);

/* Options of a context. Strings are copied. */
typedef struct fa3_context_options {
  size_t struct_size;               /* sizeof(fa3_context_options) */
  int32_t device_type;              /* fa3_device_type */
  int32_t device_id;                /* ordinal among devices of that type; 0 for the CPU */
  int32_t backend;                  /* fa3_backend */
  int32_t num_threads;              /* most threads a run may use; 0 = FA3_NUM_THREADS, else every
                                       core allowed to the process */
  fa3_parallel_for_fn parallel_for; /* the host's own pool; NULL = oneTBB */
  void* parallel_for_user;
  fa3_progress_fn progress; /* NULL = none */
  void* progress_user;
  fa3_log_fn log; /* NULL = silent */
  void* log_user;
  int32_t log_level;     /* fa3_log_level: the most detailed level reported; 0 = FA3_LOG_WARNING */
  int32_t kernel_source; /* reserved (compile or packs only): must be 0 in this release */
  const char* cache_dir; /* reserved (kernel cache): not used in this release; NULL = default */
} fa3_context_options;

typedef struct fa3_context fa3_context;

/* Opens a context; options NULL = all defaults. *context is owned by the caller:
 * fa3_context_destroy().
 * Errors: INVALID_ARGUMENT (unknown backend, device, level; negative threads; struct_size),
 * UNSUPPORTED (a backend or device that this build or machine does not offer, with the reason),
 * OUT_OF_MEMORY. */
FA3_API fa3_status fa3_context_create(const fa3_context_options* options, fa3_context** context);

/* Closes a context and frees what it owns. Plans made from it must have been destroyed. NULL is
 * ignored. */
FA3_API void fa3_context_destroy(fa3_context* context);

/* ---- Arguments ------------------------------------------------------------------------------- */

typedef enum fa3_mask { FA3_MASK_FULL = 0, FA3_MASK_CAUSAL = 1, FA3_MASK_WINDOW = 2 } fa3_mask;

/* Forward. q, k, v and o are required. q, k and v share one dtype of F32, F16, BF16; o has that
 * dtype or F32. Head dims are 1…512. */
typedef struct fa3_forward_args {
  size_t struct_size; /* sizeof(fa3_forward_args) */
  fa3_tensor q;       /* in:  (batch, seqlen_q, heads_q, head_dim_qk) or packed (total_q, …) */
  fa3_tensor k;       /* in:  (batch, seqlen_kv, heads_kv, head_dim_qk) or packed (total_kv, …) */
  fa3_tensor v;       /* in:  (batch, seqlen_kv, heads_kv, head_dim_v) or packed, as k */
  fa3_tensor o;       /* out: (batch, seqlen_q, heads_q, head_dim_v) or packed, as q */
  fa3_tensor lse;     /* out, optional: F32, (batch, heads_q, seqlen_q) or (heads_q, total_q) */
  fa3_tensor cu_seqlens_q;  /* in: I32, (batch + 1), dense; required by packed q, forbidden with
                               dense q. Starts at 0, never decreases, ends ≤ total_q: sequence b is
                               rows [cu[b], cu[b+1]) */
  fa3_tensor cu_seqlens_kv; /* in: the same for k and v */
  fa3_tensor seqused_q;     /* in, optional: I32, (batch), dense: how many queries count */
  fa3_tensor seqused_kv;    /* in, optional: the same for keys */
  int64_t max_seqlen_q;     /* packed: upper bound of the sequences' lengths; 0 = total_q */
  int64_t max_seqlen_kv;    /* the same for keys */
  int32_t mask;             /* fa3_mask */
  int32_t reserved;         /* must be 0 */
  int64_t left;         /* window: keys visible before the diagonal, −1 = all; else must be 0 */
  int64_t right;        /* window: keys visible after the diagonal, −1 = all; else must be 0 */
  double softmax_scale; /* 0 = 1/√head_dim_qk; finite */
  double softcap;       /* 0 = off; finite, ≥ 0; in units of scaled scores */
} fa3_forward_args;

/* Backward. Inputs q, k, v, o, lse of the forward and the gradient dout; outputs dq, dk, dv, of
 * which any may be absent. Masks and scalars as in the forward that made o and lse. o, dout: input
 * dtype or F32. */
typedef struct fa3_backward_args {
  size_t struct_size; /* sizeof(fa3_backward_args) */
  fa3_tensor q;       /* in: as in fa3_forward_args */
  fa3_tensor k;
  fa3_tensor v;
  fa3_tensor o;            /* in: the forward's output */
  fa3_tensor lse;          /* in: the forward's LSE, required */
  fa3_tensor dout;         /* in: gradient of o, shape of o */
  fa3_tensor dlse;         /* in, optional: gradient of lse, F32, shape of lse */
  fa3_tensor dq;           /* out: shape of q, input dtype or F32 */
  fa3_tensor dk;           /* out: shape of k; summed over the query heads of a group */
  fa3_tensor dv;           /* out: shape of v; likewise */
  fa3_tensor cu_seqlens_q; /* in: as in fa3_forward_args, and so on to the end */
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
} fa3_backward_args;

/* ---- Plan, then run -------------------------------------------------------------------------- */

typedef struct fa3_plan fa3_plan;

/* Checks the arguments and chooses how to compute them. Reads shapes, dtypes, strides and flags; no
 * data is touched and data pointers may be NULL. The plan is immutable, owned by the caller, and
 * may run on many threads at once, each with a workspace of its own.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY. */
FA3_API fa3_status fa3_plan_forward(fa3_context* context, const fa3_forward_args* args,
                                    fa3_plan** plan);
FA3_API fa3_status fa3_plan_backward(fa3_context* context, const fa3_backward_args* args,
                                     fa3_plan** plan);

/* Frees a plan. NULL is ignored. */
FA3_API void fa3_plan_destroy(fa3_plan* plan);

/* Bytes of workspace that a run needs, in the memory of the context's device; any alignment. 0 for
 * NULL. */
FA3_API size_t fa3_plan_workspace_bytes(const fa3_plan* plan);

/* Runs a plan. args is the struct that the plan was made for (fa3_forward_args or
 * fa3_backward_args) with the same shapes, dtypes, strides and flags, and the data. On the CPU it
 * returns when the outputs are written, allocates nothing that grows with the problem, and stream
 * must be NULL; the content of workspace does not matter.
 * Determinism: on one instruction set the outputs are the same bits for any number of threads.
 * Errors: INVALID_ARGUMENT (arguments that differ from the plan's, NULL or overlapping data, values
 * of cu_seqlens or seqused out of range), WORKSPACE_TOO_SMALL, CANCELLED, OUT_OF_MEMORY. */
FA3_API fa3_status fa3_plan_run(const fa3_plan* plan, const void* args, void* workspace,
                                size_t workspace_bytes, void* stream);

/* Plan and run in one call, with a workspace that the context keeps and reuses. Errors as of the
 * two. */
FA3_API fa3_status fa3_forward(fa3_context* context, const fa3_forward_args* args, void* stream);
FA3_API fa3_status fa3_backward(fa3_context* context, const fa3_backward_args* args, void* stream);

/* ---- Questions ------------------------------------------------------------------------------- */

typedef enum fa3_op { FA3_OP_FORWARD = 1, FA3_OP_BACKWARD = 2 } fa3_op;

/* Would a plan be made? Returns what fa3_plan_* would; *reason (may be NULL) is set to a sentence
 * either way: which backend would run and why, or the refusal. It is valid until the next fa3 call
 * on this thread. */
FA3_API fa3_status fa3_supported(fa3_context* context, fa3_op op, const void* args,
                                 const char** reason);

/* Describes the plan as one JSON object: backend, why, problem, tiles, splits, tasks, threads,
 * workspace_bytes, flops, tiles visited and skipped. Writes at most capacity bytes with a final NUL
 * to text (NULL with capacity 0 asks for the size) and the full size including the NUL to *needed
 * (may be NULL).
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

#endif /* FA3_FA3_H_ */
