/* SPDX-License-Identifier: BSD-3-Clause
 * fa3.h — the C interface of fa3, exact attention as a library.
 *
 * Forward   S = softmax_scale · Q·Kᵀ,  S' = softcap·tanh(S/softcap) where softcap > 0,
 *           S" = S' − slope·|p − j| with alibi_slopes, + attn_mask (see ALiBi, Mask tensor),
 *           P = softmax(S" + mask),  O = P·V,  LSE = ln Σ exp(S" + mask),
 *           where sinks add exp(sink of the head) to the sum of every row.
 *           Source: Dao et al., FlashAttention 1–3, algorithm 1.
 * Backward  δ = rowsum(dO ∘ O) − dLSE,  dV = Pᵀ·dO,
 *           dS = P ∘ (dO·Vᵀ − δ) [∘ (1 − tanh²) with softcap],
 *           dQ = softmax_scale · dS·K,  dK = softmax_scale · dSᵀ·Q;
 *           dattn_mask = P ∘ (dO·Vᵀ − δ),  dsinks = −Σ exp(sink − LSE)·δ over rows.
 *           Source: FlashAttention-2, algorithm 2.
 *
 * Conventions, fixed for every backend:
 *   Layout    dense: q (batch, seqlen_q, heads_q, head_dim_qk),
 *                    k (batch, seqlen_kv, heads_kv, head_dim_qk),
 *                    v (batch, seqlen_kv, heads_kv, head_dim_v),
 *                    o (batch, seqlen_q, heads_q, head_dim_v).
 *             varlen (ragged): rank 3, (total tokens, heads, head_dim), with cu_seqlens.
 *             Queries and keys choose independently. Any strides ≥ 0 with a contiguous last
 *             dimension: BHSD and packed QKV are views. Inputs may be expanded: a zero stride in
 *             any dimension but the last. fa3_dense() makes a contiguous tensor.
 *   Heads     heads_q is a multiple of heads_kv; query head h reads KV head h / (heads_q /
 *             heads_kv).
 *   Mask      bottom-right aligned: query i of a sequence is at key position p = i + (len_kv −
 *             len_q); causal keeps keys j ≤ p, a window keeps p − left ≤ j ≤ p + right (both ends
 *             included). Top-left aligned where mask_alignment says so: p = i. With
 *             attention_chunk = c > 0 also only keys of p's chunk: ⌊j / c⌋ = ⌊p / c⌋.
 *   Mask tensor  attn_mask applies to the keys that mask and ids keep. Shape (batch, heads_q,
 *             seqlen_q, seqlen_kv); an extent of 1 or a stride of 0 broadcasts. Row i, column j are
 *             query i and key j of the sequence. Queries must be dense; with varlen keys there are
 *             max_seqlen_kv columns. BOOL: 0 hides a key. F32, or the type of q unless that is of 8
 *             bits: added to the score, after softcap; −inf hides the key. A query whose keys are
 *             all hidden is an empty row. Tiles in which it hides every key are skipped, except by
 *             the kernel that computes dattn_mask. On cuda and sim q, k and v must be F16 or BF16.
 *             Hide keys by −inf. A row that sees none but keys of −1e9, say, sees them almost
 *             alike, since FP32 has no more of a score beside that; its gradients are those of the
 *             weights that its O is made of.
 *   Tree      with tree_mask, for drafts of which several branch off one token: the last len_q
 *             keys of a sequence are those of its queries, and query i sees of them the j-th where
 *             bit j % 32 of tree_mask[…, i, j / 32] is set, and all keys before. mask is full,
 *             len_q ≤ 64; without attn_mask and ids, on cuda and sim not of I8. Other bits have no
 *             effect.
 *   Ids       of the keys that the mask keeps, a query sees those whose sequence_ids_kv equals its
 *             own sequence_ids_q: documents in one sequence; padding, by an id that no key has. Any
 *             values in any order; where ids are sorted, other documents than the query's cost next
 *             to nothing. Ids of rows of no sequence, or beyond seqused, have no effect.
 *   ALiBi     a score, scaled and softcapped, loses slope·|p − j|, with p as above (of the lengths
 *             after seqused), before the mask; Inf and NaN included. LSE has it.
 *   Sinks     a number for each query head, as of a key that every query sees and that has no
 *             value: in units of S", to which softmax_scale, softcap, ALiBi and masks do nothing.
 *             LSE has it. A row that sees no key has O = 0 and LSE = sink. −inf: none; NaN, +inf:
 *             rows of NaN. The LSE of a part of the keys must not have it: fa3_combine adds it,
 *             once.
 *   Append    with k_new and v_new a run first writes these to k and v as the rows that follow the
 *             seqused_kv[b] keys of sequence b, and attends to all of them: seqused_kv is the
 *             length before, and stays as it is; masks, ALiBi and positions are of that after. With
 *             rotary tables, t = rotary_position[b], or seqused_kv[b] without it: row i of k_new is
 *             rotated by position t + i (quantize.h, "Rotary"), row i of q by t + i where mask is
 *             causal or a window, or there are chunks, else by t. Rotated values are rounded to the
 *             type of q. Refused on the host, and with FA3_CHECK=1: rows beyond max_seqlen_kv or
 *             without a place, rows that two sequences append, positions beyond the tables. On cuda
 *             such rows are not appended, and lengths and positions end with what there is.
 *   LSE       FP32, natural logarithm, (batch, heads_q, seqlen_q) or, for varlen queries, (heads_q,
 *             total_q).
 *   8 bits    a value of q, k or v is code · scale + offset in FP32. q and k are both F8_E4M3 or
 *             both I8, or k is F8_E4M3 beside q of F32, F16 or BF16; v is F8_E4M3, beside I8 also
 *             F16 or BF16. Scales: finite and > 0; absent = 1; (1): one for the tensor; (batch,
 *             heads): one for each head of a sequence; (batch, heads, ⌈max_seqlen/rows⌉,
 *             ⌈head_dim/cols⌉): one for each block of rows × cols, counted from the sequence's
 *             first row, where max_seqlen is the extent of dense tensors; per token, rows = 1,
 *             also (batch, heads, seqlen) or varlen (total, heads). heads is the tensor's; scales
 *             of q may have heads_kv. In a cache (fa3_forward_args) k and v of 8 bits are F8_E4M3,
 *             without offsets, and scales are of the tensor, of heads of a sequence or, with block
 *             rows = page_size, of pages: (pages, heads_kv). Forward only.
 *   Empty     a row that sees no key has O = 0, LSE = −inf (with sinks, the sink) and gradient 0.
 *   Written   every element of every output is written: rows of no sequence, or beyond seqused, as
 *             empty rows without a sink; of a v_image only tiles with rows that count.
 *   NaN, Inf  in a key or value that a row may see, they reach that row, and so does a NaN of
 *             attn_mask there. A sink of NaN or +∞ makes its rows NaN, but for O of rows that see
 *             no key. Keys outside a sequence (tails, other sequences, beyond seqused)
 *             never influence anything; keys that the mask, ids or attn_mask hide do not either on
 *             the cpu and reference backends (a GPU tile may let a hidden V through as 0 × NaN, in
 *             a backward a hidden Q, K or dO, too; and a deterministic one rounds dQ by the largest
 *             key and value of the head, hidden or not: ADR 0019).
 *   Range     scores and sums of P·V accumulate in FP32 and overflow to Inf, as sums may from
 *             |v| = 10^36 / keys on; in FP64 on the reference backend. Subnormal elements of BF16
 *             count as 0 on processors whose instructions do that (AVX-512 BF16).
 *   Zero      in a field means "default" or "off", so every struct can start as `= {0}`. Strides
 *             have no default.
 *
 * Structs begin with struct_size = sizeof(the struct). A smaller size, from a program built against
 * an older header, is accepted (missing fields are off); a larger one, up to 65536, is accepted
 * when the bytes unknown to the library are zero.
 *
 * Errors: a function that can fail returns fa3_status; fa3_last_error() then says, on the calling
 * thread, which argument, what was got, what is needed and what to do. On failure output handles
 * are set to NULL, and arguments are checked in full before anything is written. The
 * library never exits, aborts or prints.
 *
 * Memory: when an allocation fails, anywhere in a call, the call returns FA3_OUT_OF_MEMORY with a
 * message, never ending the process; later calls work. A run on the CPU allocates before it
 * writes: its outputs are untouched, or written in full. Where oneTBB lacks memory or threads, the
 * run takes place on the calling thread. Other libraries are not always so careful: see tests/oom;
 * nor is the simulator, which may end the process.
 *
 * Threads: a context and its plans may be used from many threads at once; destroy them when no call
 * is in flight and, on a GPU, the work of their runs has ended.
 */
#ifndef FA3_FA3_H_
#define FA3_FA3_H_

#include <fa3/base.h>
#include <fa3/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Arguments ------------------------------------------------------------------------------- */

/* fa3_fields (info.h) describes the fields of these structs as data, for bindings to loop over. */

typedef enum fa3_mask { FA3_MASK_FULL = 0, FA3_MASK_CAUSAL = 1, FA3_MASK_WINDOW = 2 } fa3_mask;

/* Which corner of queries × keys the position p of a query is counted from: p = i + (len_kv −
 * len_q), or p = i. Of causal, window, chunks and ALiBi; the same where the lengths are equal. */
typedef enum fa3_mask_alignment {
  FA3_ALIGN_BOTTOM_RIGHT = 0,
  FA3_ALIGN_TOP_LEFT = 1
} fa3_mask_alignment;

/* The elements of a tensor that share a scale: `rows` consecutive rows of one head by `cols`
 * columns. 0 = all. */
typedef struct fa3_scale_block {
  int32_t rows;
  int32_t cols;
} fa3_scale_block;

/* In how many bits a forward on tensors of 16 bits computes. All but the first quantise q, k and v
 * in the run, as fa3_quantize does, and attend on the codes; q and k are rotated first (signs,
 * Hadamard transform in blocks of the largest power of two that divides head_dim_qk). Errors:
 * docs/guide/accuracy.md. Keys share scales and means: a key that a mask or ids hide still affects
 * the rounding of visible keys, and large or NaN padding can spoil all of them. Exclude padding by
 * seqused or cu_seqlens. Scales: on cpu and reference as listed below, and P is not rounded; on
 * cuda and sim q has one for each row, k and v one for each head of a sequence. */
typedef enum fa3_precision {
  FA3_PRECISION_DEFAULT = 0,   /* the tensors' own type */
  FA3_PRECISION_FP8 = 1,       /* FlashAttention-3's recipe: E4M3 for q, k and v, a scale for each
                                  tile of rows */
  FA3_PRECISION_EIGHT_BIT = 2, /* not FP8 alone: q and k I8, v E4M3; a scale for each row of q and
                                  each tile of k and v, means of k and v subtracted. Where
                                  head_dim_qk ≤ 64 the next, which costs the same there */
  FA3_PRECISION_EIGHT_BIT_ACCURATE = 3 /* that, with v in its own type */
} fa3_precision;

/* How the bytes of a tile of v_image are ordered. An order never changes under its number. */
typedef enum fa3_v_image_layout {
  FA3_V_IMAGE_NONE = 0,
  FA3_V_IMAGE_SM90 = 1 /* for Hopper's 8-bit tensor cores; docs/guide/fwd_schedule.md */
} fa3_v_image_layout;

/* Forward. q, k, v and o are required. q, k and v share one dtype of F32, F16, BF16 or, on backend
 * reference, F64, and o has that dtype or F32; or k and v are of 8 bits (see above), and
 * so may be q: o is then F32, F16 or BF16. Head dims are 1…512. */
typedef struct fa3_forward_args {
  size_t struct_size; /* sizeof(fa3_forward_args) */
  fa3_tensor q;       /* in:  (batch, seqlen_q, heads_q, head_dim_qk) or varlen (total_q, …) */
  fa3_tensor k;       /* in:  (batch, seqlen_kv, heads_kv, head_dim_qk) or varlen (total_kv, …) */
  fa3_tensor v;       /* in:  (batch, seqlen_kv, heads_kv, head_dim_v) or varlen, as k */
  fa3_tensor o;       /* out: (batch, seqlen_q, heads_q, head_dim_v) or varlen, as q */
  fa3_tensor lse;     /* out, optional: F32, (batch, heads_q, seqlen_q) or (heads_q, total_q) */
  fa3_tensor cu_seqlens_q;  /* in: I32, (batch + 1), dense; required by varlen q, forbidden with
                               dense q. Starts at 0, never decreases, ends ≤ total_q: sequence b is
                               rows [cu[b], cu[b+1]) */
  fa3_tensor cu_seqlens_kv; /* in: the same for k and v */
  fa3_tensor seqused_q;     /* in, optional: I32, (batch), dense: how many queries count */
  fa3_tensor seqused_kv;    /* in, optional: the same for keys */
  int64_t max_seqlen_q;     /* varlen: upper bound of the sequences' lengths; 0 = total_q, as is
                               more; dense: no meaning */
  int64_t max_seqlen_kv;    /* the same for keys */
  int32_t mask;             /* fa3_mask */
  int32_t reserved;         /* must be 0 */
  int64_t left;         /* window: keys visible before the diagonal, −1 = all; else must be 0 */
  int64_t right;        /* window: keys visible after the diagonal, −1 = all; else must be 0 */
  double softmax_scale; /* 0 = 1/√head_dim_qk; finite */
  double softcap;       /* 0 = off; finite, ≥ 0; in units of scaled scores */
  fa3_tensor alibi_slopes;    /* in, optional: F32, (heads_q) or (batch, heads_q), of any sign */
  fa3_tensor sequence_ids_q;  /* in, both or neither: I32, (batch, seqlen_q) or varlen (total_q) */
  fa3_tensor sequence_ids_kv; /* in: (batch, seqlen_kv) or varlen (total_kv) */
  fa3_tensor q_scale;         /* in, optional, 8-bit q only: F32; shapes above */
  fa3_tensor k_scale;      /* the same for k; on cuda and sim beside q of more bits, or in a cache,
                                 of (1) or (batch, heads_kv), and so is v_scale */
  fa3_tensor v_scale;      /* the same for v */
  fa3_tensor k_offset;     /* in, optional, 8-bit k only: F32, (batch, heads_kv, head_dim_qk) */
  fa3_tensor v_offset;     /* in, optional, 8-bit v only: F32, (batch, heads_kv, head_dim_v) */
  fa3_scale_block q_block; /* of q_scale; 0 where that is (1) or (batch, heads) */
  fa3_scale_block k_block;
  fa3_scale_block v_block;
  int32_t precision;          /* fa3_precision; q, k and v of F16 or BF16 unless it is DEFAULT */
  int32_t precision_reserved; /* must be 0 */
  uint64_t precision_seed;    /* of the signs; else must be 0 */
  fa3_tensor v_image;         /* in, optional, v of F8_E4M3 only: the same codes as fa3_quantize
                                 writes them for a GPU kernel, which then reads this and not v.
                                 Shape, type and layout are those of fa3_plan_v_image of a plan for
                                 this problem; a kernel with other tiles declines it, naming both */
  int32_t v_image_layout;     /* fa3_v_image_layout; 0 without v_image */
  int32_t v_image_reserved;   /* must be 0 */
  fa3_tensor attn_mask;   /* in, optional: (batch, heads_q, seqlen_q, seqlen_kv) or 1 in any; BOOL,
                             F32 or, unless it is of 8 bits, the type of q. Not with varlen q */
  int32_t mask_alignment; /* fa3_mask_alignment; of unequal lengths: backends cpu and reference */
  int32_t mask_alignment_reserved; /* must be 0 */
  /* Caches; all optional, without cu_seqlens_kv, of 8 bits F8_E4M3 ("8 bits"). Nothing outside the
   * keys of a sequence is read, entries of page_table beyond them included; with FA3_CHECK=1, and
   * on the host, a value that is needed and out of range is refused; else, on cuda, nothing is
   * read for it. Views k and v of pages may share elements: a page of memory is then one of K or
   * one of V, and which one is up to page_table */
  fa3_tensor page_table;   /* in: I32, (batch, max_pages), dense: k is (pages, page_size, heads_kv,
                              head_dim_qk) and v as k; row r of sequence b is row r % page_size of
                              page page_table[b, r / page_size]. Needs seqused_kv; max_seqlen_kv
                              bounds that, 0 = max_pages · page_size */
  fa3_tensor kv_batch_idx; /* in: I32, (batch): k and v are (slots, seqlen_kv, …), and sequence b is
                              slot kv_batch_idx[b]. Not with page_table */
  fa3_tensor kv_begin; /* in: I32, (batch): keys of sequence b are rows kv_begin[b] … kv_begin[b]
                              + seqused_kv[b] − 1 of its slot, its pages, or of k and v of rank 3,
                              (total_kv, …), where sequences may share rows; positions and columns
                              of attn_mask count from there. Needs seqused_kv */
  int32_t num_splits; /* on cuda and sim, of few queries: the most parts that the keys of a sequence
                          and KV head are computed in and then merged, 0 = any; more queries never
                          have parts */
  int32_t sm_margin;  /* on cuda and sim: SMs that persistent kernels leave to others; at least one
                          is used */
  int32_t batch_invariant; /* 1: bits of a row of O and LSE depend on its sequence's keys, values,
                              position, heads and head dims alone: not on other sequences,
                              order, pages, bounds of lengths or how many queries share the call.
                              With num_splits 0; on cuda, sim: 16 bits, no attn_mask */
  int32_t batch_invariant_reserved; /* must be 0 */
  fa3_tensor sinks;                 /* in, optional: (heads_q), F32, F16, BF16 or the type of q */
  /* Append (above); all optional. Needs seqused_kv, k and v without cu_seqlens_kv and of dtypes
   * beyond 8 bits; k and v are written, too, and must be nothing else's memory */
  fa3_tensor k_new; /* in: (batch, seqlen_new, heads_kv, head_dim_qk) or varlen (total_new, …) */
  fa3_tensor v_new; /* in: (batch, seqlen_new, heads_kv, head_dim_v) or varlen, as k_new */
  fa3_tensor cu_seqlens_new;  /* in: I32, (batch + 1), dense; required by varlen k_new */
  fa3_tensor rotary_cos;      /* in, both or neither: (positions, rotary_dim / 2), F32, F16, BF16 */
  fa3_tensor rotary_sin;      /* in: the same shape and type */
  fa3_tensor rotary_position; /* in: I32, (batch), dense: position of the first new row */
  int32_t rotary_layout;      /* fa3_rotary_layout; 0 without tables */
  int32_t rotary_reserved;    /* must be 0 */
  int64_t attention_chunk;    /* ≥ 1: keys of a chunk (Mask, above); 0 = there are none */
  fa3_tensor tree_mask;       /* in, optional: I32, (batch, seqlen_q, 2) or varlen (total_q, 2) */
  fa3_tensor max_logit; /* out, optional: F32, (heads_q): the greatest S" that some query of the
                              head sees, −inf if none sees a key; anything if a score is NaN. On
                              cuda and sim not of I8, without batch_invariant */
} fa3_forward_args;

/* Backward. Inputs q, k, v, o, lse of the forward and the gradient dout; outputs dq, dk, dv, any
 * of which may be absent. Masks and scalars as in the forward that made o and lse. o: input
 * dtype or F32; dout: likewise, but on cuda and sim the input dtype. */
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
  fa3_tensor alibi_slopes; /* no gradient of slopes */
  fa3_tensor sequence_ids_q;
  fa3_tensor sequence_ids_kv;
  /* 1: bitwise the same gradients in every run of the problem on the same kind of device. 0: on
   * cuda and sim, dq is accumulated in no fixed order. dk and dv, and everything on cpu and
   * reference, are reproducible in either case. */
  int32_t deterministic;
  int32_t deterministic_reserved; /* must be 0 */
  fa3_tensor attn_mask;           /* in: as in fa3_forward_args */
  int32_t mask_alignment;
  int32_t mask_alignment_reserved;
  fa3_tensor dattn_mask; /* out, optional: gradient of an attn_mask that is added, reduced over its
                            dimensions of extent 1; F32 or the type of attn_mask; 0 where a key is
                            hidden; reproducible */
  fa3_tensor sinks;      /* in: as in fa3_forward_args */
  fa3_tensor dsinks;     /* out, optional: gradient of sinks, (heads_q), F32 or the type of sinks;
                            dlse counts; reproducible */
  int64_t attention_chunk; /* as in fa3_forward_args */
} fa3_backward_args;

/* ---- Plan, then run -------------------------------------------------------------------------- */

typedef struct fa3_plan fa3_plan;

/* Checks the arguments and chooses how to compute them. Reads shapes, dtypes, strides and flags; no
 * data is touched and data pointers may be NULL. The plan is immutable, owned by the caller, and
 * may run on many threads at once, each with a workspace of its own. With a GPU its kernel is found
 * or compiled here, never in a run.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY; with a GPU JIT_FAILED, CUDA_ERROR; with the
 * simulator IO_ERROR (FA3_SIM_TRACE). */
FA3_API fa3_status fa3_plan_forward(fa3_context* context, const fa3_forward_args* args,
                                    fa3_plan** plan);
FA3_API fa3_status fa3_plan_backward(fa3_context* context, const fa3_backward_args* args,
                                     fa3_plan** plan);

/* Frees a plan. NULL is ignored. */
FA3_API void fa3_plan_destroy(fa3_plan* plan);

/* Bytes of workspace that a run needs, in the memory of the context's device; any alignment. 0 for
 * NULL. */
FA3_API size_t fa3_plan_workspace_bytes(const fa3_plan* plan);

/* Which v_image a plan would take (a forward) or writes (a quantisation): *image gets its type,
 * shape and strides, with data NULL, and *layout its fa3_v_image_layout; rank 0 and 0 if there is
 * none. That of a forward is known before there is an image: plan it without one, quantise v for
 * what this says, then plan with it. On the backends cpu and reference a forward reads v and takes
 * an image of any tiles without looking at it.
 * Errors: INVALID_ARGUMENT (NULL). */
FA3_API fa3_status fa3_plan_v_image(const fa3_plan* plan, fa3_tensor* image, int32_t* layout);

/* Runs a plan. args is the struct that the plan was made for (fa3_forward_args, fa3_backward_args,
 * …) with the same shapes, dtypes, strides and flags, and the data. On the CPU it
 * returns when the outputs are written, allocates nothing that grows with the problem, and stream
 * must be NULL; the content of workspace does not matter. With a GPU it returns when the work is on
 * stream, a CUstream (NULL = the legacy default stream), and reads no tensor: kernels keep to the
 * tensors whatever cu_seqlens and seqused hold. Such a run may be captured in a graph. With
 * FA3_CHECK=1 in the environment when the context is created, a run with cu_seqlens, seqused or
 * scales waits for stream, reads these and refuses what the CPU would, and a capture: slow, for
 * finding errors.
 * Determinism: on one instruction set the outputs are the same bits for any number of threads.
 * Errors: INVALID_ARGUMENT (arguments that differ from the plan's, NULL or overlapping data, values
 * of cu_seqlens or seqused out of range), WORKSPACE_TOO_SMALL, CANCELLED, OUT_OF_MEMORY; with a GPU
 * CUDA_ERROR; with the simulator IO_ERROR (FA3_SIM_TRACE), INTERNAL (its report of a kernel that
 * broke a rule). */
FA3_API fa3_status fa3_plan_run(const fa3_plan* plan, const void* args, void* workspace,
                                size_t workspace_bytes, void* stream);

/* Plan and run in one call, with a workspace that the context keeps and reuses: on a GPU one for
 * each stream, until the context closes. A run that needs some cannot be captured in a graph.
 * Errors of both. */
FA3_API fa3_status fa3_forward(fa3_context* context, const fa3_forward_args* args, void* stream);
FA3_API fa3_status fa3_backward(fa3_context* context, const fa3_backward_args* args, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* The rest of the interface, by subject. */
#include <fa3/combine.h>
#include <fa3/info.h>
#include <fa3/jit.h>
#include <fa3/quantize.h>
#include <fa3/selftest.h>

#endif /* FA3_FA3_H_ */
