/* SPDX-License-Identifier: BSD-3-Clause
 * conformance.h — small programs that show whether a Hopper GPU, or its simulator, does what the
 * PTX specification says. For developers of kernels; attention needs none of it.
 *
 * The functions are in libfa3_conformance.so, of the same version as libfa3.so:
 *     cc … -lfa3_conformance -lfa3         find_package(fa3 COMPONENTS conformance)
 * Conventions, errors and struct_size are those of fa3.h.
 */
#ifndef FA3_CONFORMANCE_H_
#define FA3_CONFORMANCE_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Result of a case. Numbers are never reused. */
typedef enum fa3_conformance_status {
  FA3_CONFORMANCE_PASSED = 1,
  FA3_CONFORMANCE_FAILED = 2,
  FA3_CONFORMANCE_SKIPPED =
      3 /* it did not run: cases are listed only, or an earlier one stopped the GPU */
} fa3_conformance_status;

/* One case, on all the devices it ran on. Valid during the call that hands it over. */
typedef struct fa3_conformance_result {
  size_t struct_size;  /* sizeof(fa3_conformance_result) of the library */
  const char* name;    /* e.g. "wgmma/ss/bf16-k/bf16-k/n64/swizzle128-128" */
  int32_t status;      /* fa3_conformance_status */
  int32_t done;        /* cases handed over so far, this one included */
  int32_t total;       /* cases in all */
  int32_t device_lost; /* 1 = the GPU runs nothing more in this process */
  const char* message; /* what differs or went wrong, by device; "" when it passed. Never NULL */
} fa3_conformance_result;

/* Takes the result of a case, on the calling thread. A non-zero return stops the call with
 * FA3_CANCELLED. */
typedef int (*fa3_conformance_case_fn)(void* user, const fa3_conformance_result* result);

typedef struct fa3_conformance_args {
  size_t struct_size;              /* sizeof(fa3_conformance_args) */
  const char* filter;              /* regular expression (ECMAScript), searched for in the names of
                                      cases; NULL = all cases */
  uint64_t seed;                   /* of inputs, and of the simulator's schedule */
  fa3_conformance_case_fn on_case; /* NULL = none */
  void* on_case_user;
  int32_t backend; /* FA3_BACKEND_SIM, FA3_BACKEND_CUDA, or FA3_BACKEND_AUTO: each that is here */
  int32_t list;    /* 1 = nothing runs, the cases are only handed over */
  int32_t measure; /* 1 = after the cases, measure on the GPU what PTX leaves open: clocks, limits,
                      precision; takes a minute */
  int32_t first;   /* index of the first case to run among the chosen ones, in the order of `list`.
                      To go on in another process after a case that ended one */
} fa3_conformance_args;

/* Runs small programs, one or a few instructions each, in the simulator, on the first Hopper GPU,
 * or on both, and compares what they write with what the PTX specification asks for and with each
 * other. It takes a context of any device, whose options say where GPU kernels come from.
 * args NULL = all cases with seed 0. *report (may be NULL) is set to one JSON object, valid until
 * the next fa3 call on this thread: seed, devices (each {backend, usable, and why not or name,
 * driver, nvrtc}), cases (each {name, status, message}), summary {cases, passed, failed, skipped},
 * and with `measure` measurements {values {name: number}, and why these are not all}.
 * FA3_OK says that the cases ran, not that they passed; a caller looks at summary.
 * Errors: INVALID_ARGUMENT (backend, filter, list, measure, first, struct_size; measure where no
 * GPU is to be used), UNSUPPORTED (no simulator, no GPU, with the reasons; a libfa3 of another
 * version), CANCELLED, OUT_OF_MEMORY. A case that makes the GPU hang makes this call hang, and one
 * that stops the GPU stops it for the process; `fa3 selftest` runs the cases in child processes. */
FA3_API fa3_status fa3_conformance_run(fa3_context* context, const fa3_conformance_args* args,
                                       const char** report);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_CONFORMANCE_H_ */
