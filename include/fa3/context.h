/* SPDX-License-Identifier: BSD-3-Clause
 * context.h — devices, backends, and the contexts that stand for them. Part of fa3.h, which
 * includes it.
 */
#ifndef FA3_CONTEXT_H_
#define FA3_CONTEXT_H_

#include <fa3/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Context --------------------------------------------------------------------------------- */

/* Device types, with DLPack's codes. 0 = CPU. */
typedef enum fa3_device_type {
  FA3_DEVICE_DEFAULT = 0,
  FA3_DEVICE_CPU = 1,
  FA3_DEVICE_CUDA = 2
} fa3_device_type;

/* What computes. AUTO follows the context's device: CPU → cpu, CUDA → cuda. Nothing ever moves
 * between devices. */
typedef enum fa3_backend {
  FA3_BACKEND_AUTO = 0,
  FA3_BACKEND_CPU = 1,       /* tiled FlashAttention-2, SIMD and threads; host memory */
  FA3_BACKEND_REFERENCE = 2, /* FP64, untiled, for checking; host memory */
  FA3_BACKEND_CUDA = 3,      /* kernels for Hopper GPUs; memory of one GPU */
  FA3_BACKEND_SIM = 4        /* the same kernels, of fewer types and head dims, on a simulated GPU,
                                every access checked: slow, for checking; host memory. Needs
                                libfa3_sim.so */
} fa3_backend;

/* Runs body(body_context, i) once for each i in [0, count), in any order, on any threads, and
 * returns when all have returned. fa3 calls it with count ≤ the context's thread limit, so that a
 * pool of fewer threads is correct too. body does not throw and returns early once the run has
 * failed or was cancelled. */
typedef void (*fa3_parallel_for_fn)(void* user, int64_t count,
                                    void (*body)(void* body_context, int64_t i),
                                    void* body_context);

/* Reports `done` of `total` units of work (roughly equal in time), from any worker thread, one call
 * at a time; a run that prepares its inputs first counts that in the same total. A non-zero return
 * stops the run with FA3_CANCELLED, and fa3_last_error() has the number. It must not call fa3. */
typedef int (*fa3_progress_fn)(void* user, int64_t done, int64_t total);

typedef enum fa3_log_level {
  FA3_LOG_ERROR = 1,
  FA3_LOG_WARNING = 2,
  FA3_LOG_INFO = 3,
  FA3_LOG_DEBUG = 4
} fa3_log_level;

/* Receives one line (no newline) at a time, from any thread. It must not call fa3: a line may come
 * from within a call that others wait for, such as the compilation of a kernel. */
typedef void (*fa3_log_fn)(void* user, fa3_log_level level, const char* message);

/* Where GPU kernels come from. */
typedef enum fa3_kernel_source {
  FA3_KERNELS_ANY = 0,   /* memory, cache_dir, kernel_pack, else NVRTC compiles them */
  FA3_KERNELS_PACKED = 1 /* memory and kernel_pack: nothing is compiled or written */
} fa3_kernel_source;

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
  int32_t kernel_source; /* fa3_kernel_source */
  const char* cache_dir; /* folder of compiled kernels, absolute; NULL = FA3_CACHE_DIR, else
                            $XDG_CACHE_HOME/fa3, else ~/.cache/fa3. Made when it is needed; refused
                            when others own it or may write to it */
  /* File of compiled kernels, absolute; NULL = FA3_KERNEL_PACK, else none. */
  const char* kernel_pack;
} fa3_context_options;

typedef struct fa3_context fa3_context;

/* Opens a context; options NULL = all defaults. *context is owned by the caller:
 * fa3_context_destroy().
 * Errors: INVALID_ARGUMENT (unknown backend, device, level; negative threads; struct_size),
 * UNSUPPORTED (a backend or device that this build or machine does not offer, with the reason),
 * OUT_OF_MEMORY; with a GPU CUDA_ERROR. */
FA3_API fa3_status fa3_context_create(const fa3_context_options* options, fa3_context** context);

/* Closes a context and frees what it owns. Plans made from it must have been destroyed, and graphs
 * in which their runs were captured must not be launched again: the kernels are the context's. NULL
 * is ignored. */
FA3_API void fa3_context_destroy(fa3_context* context);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_CONTEXT_H_ */
