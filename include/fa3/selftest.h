/* SPDX-License-Identifier: BSD-3-Clause
 * selftest.h — what GPU and simulator do with single instructions, compared. Part of fa3.h, which
 * includes it.
 */
#ifndef FA3_SELFTEST_H_
#define FA3_SELFTEST_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Superseded by fa3_conformance_run of fa3/conformance.h, kept until 1.0. fa3_selftest opens
 * libfa3_conformance.so when it is called, so a program that is not linked to it can use it. */

/* Result of a case. */
typedef enum fa3_case_status {
  FA3_CASE_PASSED = 1,
  FA3_CASE_FAILED = 2,
  FA3_CASE_SKIPPED = 3 /* it did not run: cases are only listed, or one stopped the GPU */
} fa3_case_status;

/* One case, on all the devices it ran on. Valid during the call that hands it over. */
typedef struct fa3_case_result {
  size_t struct_size;  /* sizeof(fa3_case_result) of the library */
  const char* name;    /* e.g. "wgmma/ss/bf16-k/bf16-k/n64/swizzle128-128" */
  int32_t status;      /* fa3_case_status */
  int32_t done;        /* cases handed over so far, this one included */
  int32_t total;       /* of these in all */
  int32_t device_lost; /* 1 = the GPU runs nothing more in this process */
  const char* message; /* what differs or went wrong, by device; "" when it passed. Never NULL */
} fa3_case_result;

/* Takes the result of a case, on the calling thread. A non-zero return stops the call with
 * FA3_CANCELLED. */
typedef int (*fa3_case_fn)(void* user, const fa3_case_result* result);

typedef struct fa3_selftest_args {
  size_t struct_size;  /* sizeof(fa3_selftest_args) */
  const char* filter;  /* regular expression (ECMAScript), found somewhere in a case's name; NULL =
                         all cases */
  uint64_t seed;       /* of inputs, and of what the simulator may choose */
  fa3_case_fn on_case; /* NULL = none */
  void* on_case_user;
  int32_t backend; /* FA3_BACKEND_SIM, FA3_BACKEND_CUDA, or FA3_BACKEND_AUTO: each that is here */
  int32_t list;    /* 1 = nothing runs, the cases are only handed over */
  int32_t measure; /* 1 = after the cases, measure on the GPU what PTX leaves open: clocks, limits,
                      precision; takes a minute */
  int32_t first; /* so many of the cases, as listed, are left out; 0 = none. For a caller that goes
                      on in another process when a case has ended one */
} fa3_selftest_args;

/* What fa3_conformance_run of fa3/conformance.h does, with its report and errors, and UNSUPPORTED
 * where libfa3_conformance.so is not there or of another version. args NULL = all cases with seed
 * 0. */
FA3_API fa3_status fa3_selftest(fa3_context* context, const fa3_selftest_args* args,
                                const char** report);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_SELFTEST_H_ */
