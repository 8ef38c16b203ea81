/* SPDX-License-Identifier: BSD-3-Clause
 * jit.h — GPU kernels compiled ahead of time. Part of fa3.h, which includes it.
 */
#ifndef FA3_JIT_H_
#define FA3_JIT_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GPU kernels are compiled when they are first needed and kept in cache_dir. These calls do it
 * ahead of time. They need NVRTC, but no GPU, and take a context of any device.
 *
 * Names of kernels are those of fa3_jit_list, or their beginnings:
 *   "all"      every kernel that fa3_jit_list names
 *   "fwd"      the forward for each head dim of its table (64, 96, 128, 192, 192-128, 256), BF16
 *              and F16, each mask, dense and varlen. Words choose: "fwd/d128/bf16/causal"
 *   "fwd/d80", "fwd/d48-80"  for other head dims of q and k, and of v, rounded up to 16; without
 *              them and NVRTC the next wider kernel of the table computes such a problem, slower
 *   "fwd/…/softcap", "fwd/…/scaled"  with a softcap; with a negative softmax_scale
 *   "bwd"      the backward: "bwd/main/d64", …
 *   "quantize", "score_offset"  quantising, and what k_offset adds to LSE
 *   "samples"  example kernels, where libfa3_conformance.so is installed
 * names: `count` of these; NULL with count 0 = "all". Each kernel is compiled once, on the
 * context's threads, with its progress callback.
 * Errors: INVALID_ARGUMENT (names, count), UNSUPPORTED ("samples" without libfa3_conformance.so),
 * JIT_FAILED (no compiler; the compiler's log), IO_ERROR (a folder or file cannot be written),
 * CANCELLED. */

/* Compiles what the cache lacks. *report (may be NULL) is set to a JSON array of {name, header,
 * expression, source ("memory", "disk", "pack", "compiled"), ms, bytes}, valid until the next fa3
 * call on this thread. IO_ERROR when there is no cache to keep them in. */
FA3_API fa3_status fa3_jit_warm_kernels(fa3_context* context, const char* const* names,
                                        size_t count, const char** report);

/* Writes a file for the option kernel_pack: it serves where there is neither NVRTC nor a cache, on
 * drivers of the same major CUDA version as the NVRTC here, or newer. */
FA3_API fa3_status fa3_jit_pack_kernels(fa3_context* context, const char* const* names,
                                        size_t count, const char* path);

/* The same with the kernels as JSON; superseded by the two above, kept until 1.0. programs: an
 * array of names, and of {"header", "expression"} for a kernel without a name: a file of device
 * code and a kernel in it as C++ names it. NULL = "all". */
FA3_API fa3_status fa3_jit_warm(fa3_context* context, const char* programs, const char** report);
FA3_API fa3_status fa3_jit_pack(fa3_context* context, const char* programs, const char* path);

/* One JSON object: driver, nvrtc, cache and pack (what is used, or why not) and the programs that
 * the library knows with where each is kept ("disk", "pack", null). Valid until the next fa3 call
 * on this thread. */
FA3_API fa3_status fa3_jit_list(fa3_context* context, const char** report);

/* Empties the cache's folder of kernels, other versions' too. Other files in it stay. */
FA3_API fa3_status fa3_jit_clear(fa3_context* context);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_JIT_H_ */
