/* SPDX-License-Identifier: BSD-3-Clause
 * combine.h — attention over parts of the keys, merged into attention over all of them. Part of
 * fa3.h, which includes it.
 *
 * A forward over some of a row's keys gives O and LSE; of several such parts
 *   LSE = ln Σ exp(LSEᵢ),   O = Σ exp(LSEᵢ − LSE)·Oᵢ
 * is what one forward over all of these keys gives: keys that are split between processes, steps of
 * a ring, a prefix that many sequences share. LSE is fa3's: FP32, natural logarithm.
 *
 *   Sinks     parts come from forwards without sinks; given here, they are added once, as one more
 *             part whose LSE is the head's sink and whose O is 0.
 *   Empty     a part whose LSE is −inf saw no key: its O, NaN included, is without effect. A row
 *             without keys in all parts, or with no parts at all, has O = 0, LSE = −inf or its
 *             sink.
 *   NaN, Inf  an LSE of NaN or +inf makes its row NaN. NaN and Inf in the O of any other part reach
 *             the row.
 *   Numbers   weights are relative to the row's largest LSE, however large that is. Sums are in
 *             FP32, on the backend reference in FP64, over the parts in their order; so a row's
 *             bits depend on nothing but its own parts.
 *   Strides   ≥ 0; of o_parts and o the last is 1. lse_parts and lse have any: their rows may lie
 *             further apart than their heads.
 */
#ifndef FA3_COMBINE_H_
#define FA3_COMBINE_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* o_parts, lse_parts and o are required. Any number of parts, 0 included; head dims are 1…512. */
typedef struct fa3_combine_args {
  size_t struct_size;   /* sizeof(fa3_combine_args) */
  fa3_tensor o_parts;   /* in:  F32, F16 or BF16, (parts, batch, seqlen, heads, head_dim), or varlen
                           (parts, total, heads, head_dim) */
  fa3_tensor lse_parts; /* in:  F32, (parts, batch, heads, seqlen), or varlen (parts, heads,
                           total) */
  fa3_tensor o;         /* out: F32, F16 or BF16, shape of a part's O */
  fa3_tensor lse;       /* out, optional: F32, shape of a part's LSE */
  fa3_tensor sinks;     /* in, optional: (heads), F32, F16 or BF16 */
} fa3_combine_args;

/* As fa3_plan_forward, for fa3_plan_run with an fa3_combine_args. Varlen rows need no cu_seqlens:
 * to this operation they are those of one sequence. Every element of the outputs is written. No
 * workspace. On the backends cuda and sim a batch entry, or all varlen rows together, has fewer
 * than 2^31 pieces of 64 columns; else UNSUPPORTED. */
FA3_API fa3_status fa3_plan_combine(fa3_context* context, const fa3_combine_args* args,
                                    fa3_plan** plan);

/* Plan and run in one call, as fa3_forward; it can be captured in a graph. */
FA3_API fa3_status fa3_combine(fa3_context* context, const fa3_combine_args* args, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_COMBINE_H_ */
