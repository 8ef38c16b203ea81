/* SPDX-License-Identifier: BSD-3-Clause
 * base.h — the version, statuses, element types and tensors. Part of fa3.h, which includes it.
 */
#ifndef FA3_BASE_H_
#define FA3_BASE_H_

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

/* Version of this header. The library's own: fa3_version(). SemVer over the ABI. */
#define FA3_VERSION_MAJOR 0
#define FA3_VERSION_MINOR 2
#define FA3_VERSION_PATCH 0

/* ---- Status ---------------------------------------------------------------------------------- */

/* Result of a call. Numbers are never reused. */
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

/* "OK", "INVALID_ARGUMENT", …; "UNKNOWN" for any other number. Static storage, never NULL. */
FA3_API const char* fa3_status_name(fa3_status status);

/* Message of the last failed call on this thread: `where: what, got, need; what to do`. "" when
 * none failed. Valid until the next fa3 call on this thread. Never NULL. */
FA3_API const char* fa3_last_error(void);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Element types. Sizes in bytes: F64 8, F32 and I32 4, F16 and BF16 2, F8, I8 and BOOL 1. */
typedef enum fa3_dtype {
  FA3_DTYPE_NONE = 0,
  FA3_F32 = 1,
  FA3_F16 = 2,
  FA3_BF16 = 3,
  FA3_I32 = 4,
  FA3_F8_E4M3 = 5, /* 1 sign, 4 exponent, 3 mantissa bits; no Inf, largest 448. OCP FP8 */
  FA3_F8_E5M2 = 6, /* reserved: declined with FA3_UNSUPPORTED by every backend of this release */
  FA3_I8 = 7,      /* codes −128…127 */
  FA3_BOOL = 8,    /* a byte: 0 = false, any other = true; of attn_mask alone */
  FA3_F64 = 9      /* q, k, v, o and gradients of backend reference, for checks of derivatives */
} fa3_dtype;

#define FA3_MAX_RANK 5

/* A strided view of memory that the caller owns. rank 0 = the tensor is absent. In the calls
 * that plan and run at once data NULL also means absent, except for a tensor with no elements;
 * fa3_plan_run takes what was planned. Alignment: of the element; on a GPU q, k, v and o take
 * addresses and strides of whole 16 bytes, others are declined.
 * Strides: those of an absent tensor, of one without elements, and of a dimension of extent 1 are
 * ignored. All zero on a tensor of more than one element means that they were not set, and is
 * refused, also where only a plan is made and data is NULL. */
typedef struct fa3_tensor {
  void* data;                   /* first element; inputs are never written through it */
  int32_t dtype;                /* fa3_dtype */
  int32_t rank;                 /* number of dimensions, 0…5 */
  int64_t shape[FA3_MAX_RANK];  /* extents, each ≥ 0, outermost first */
  int64_t stride[FA3_MAX_RANK]; /* in elements, each ≥ 0, the last 1 (of attn_mask 1 or 0) */
} fa3_tensor;

/* A contiguous row-major tensor: the last dimension varies fastest.
 * shape: `rank` extents, outermost first. data may be NULL where only a plan is made. It reports
 * nothing: a wrong rank or extent is refused by the call that takes the tensor. */
static inline fa3_tensor fa3_dense(const void* data, fa3_dtype dtype, int32_t rank,
                                   const int64_t* shape) {
  fa3_tensor t;
  const int32_t dims = rank < 0 ? 0 : rank > FA3_MAX_RANK ? FA3_MAX_RANK : rank;
  uint64_t next = 1; /* unsigned: extents that overflow are refused later, and no error here */
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_BASE_H_ */
