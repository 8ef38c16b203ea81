// SPDX-License-Identifier: BSD-3-Clause
// tensors.h — every tensor of all operations, declared once: what reads arguments, validates them,
// checks for overlap, lays out, fills, simulates and explains loops over this table. The order is
// that of error messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

enum TensorId : int {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kMaxLogit,
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,
  kAlibiSlopes,
  kSequenceIdsQ,
  kSequenceIdsKv,
  kTreeMask,
  kAttnMask,
  kDattnMask,
  kSinks,
  kDsinks,
  kQScale,
  kKScale,
  kVScale,
  kKOffset,
  kVOffset,
  kKNew,
  kVNew,
  kX,
  kCodes,
  kScale,
  kOffset,
  kRotaryCos,
  kRotarySin,
  kVImage,
  kImage,
  kOParts,
  kLseParts,
  kMergedO,
  kMergedLse,
  kCuSeqlensQ,
  kCuSeqlensKv,
  kCuSeqlensNew,
  kCuSeqlens,
  kSequsedQ,
  kSequsedKv,
  kSeqused,
  kRotaryPosition,
  kPageTable,
  kKvBatchIdx,
  kKvBegin,
  kTensorCount
};

// What a tensor is to an operation.
enum class Role : uint8_t { kNone, kInput, kOptionalInput, kOutput, kOptionalOutput };

constexpr bool is_output(Role role) {
  return role == Role::kOutput || role == Role::kOptionalOutput;
}
constexpr bool is_optional(Role role) {
  return role == Role::kOptionalInput || role == Role::kOptionalOutput;
}

// How its dimensions follow from the problem.
enum class Form : uint8_t {
  kRows,       // (batch, seqlen, heads, head_dim) or (total, heads, head_dim)
  kLse,        // (batch, heads, seqlen) or (heads, total)
  kSlopes,     // (heads) or (batch, heads)
  kHeads,      // (heads)
  kIds,        // (batch, seqlen) or (total)
  kTree,       // (batch, seqlen, 2) or (total, 2)
  kMask,       // (batch, heads_q, seqlen_q, max_seqlen_kv), or 1 in any
  kScale,      // of an 8-bit tensor: fa3.h, "8 bits"
  kOffset,     // (batch, heads, head_dim)
  kTable,      // (positions, rotary_dim / 2)
  kImage,      // (batch, heads, tiles, keys, columns) or (heads, tiles, keys, columns)
  kPartRows,   // (parts, …), and those of kRows
  kPartLse,    // (parts, …), and those of kLse
  kCuSeqlens,  // (batch + 1)
  kSeqused,    // (batch)
  kPageTable   // (batch, max_pages)
};

enum class TypeRule : uint8_t {
  kAsQ,       // the type of q
  kAsKey,     // that, or 8 bits: fa3.h, "8 bits"
  kAsV,       // that, or the type of k of 8 bits: fa3.h, "8 bits"
  kAsQOrF32,  // that, or F32
  kF32,
  kI32,
  kFloat,  // F32, F16 or BF16
  kCode,   // F8_E4M3 or I8
  kE4m3,
  kMask,      // BOOL, F32, or the type of q of 16 bits
  kMaskGrad,  // F32, or the type of attn_mask
  kSink,      // F32, F16, BF16 or the type of q, unless that is of 8 bits
  kSinkGrad   // F32, or the type of sinks
};

// On which axis its rows lie: of attention, of what is appended, or of what is quantised or merged.
// Which head dim its columns are of.
enum class Axis : uint8_t { kQuery, kKey, kNew, kToken };
enum class Dim : uint8_t { kNone, kQk, kV };

inline constexpr int kOpCount = 4;
inline constexpr size_t kNoField = SIZE_MAX;

struct TensorRow {
  TensorId id;
  const char* name;                 // as the field of the C structs
  std::array<Role, kOpCount> role;  // of fa3_op − 1, as below
  std::array<size_t, kOpCount> at;  // of that field in the operation's struct
  Form form;
  Axis axis;
  Dim dim;
  TypeRule type;
  const char* help;  // what it is, in one line
};

// clang-format off
#define FA3_ROLES(forward, backward, quantize)                                                  \
  {Role::forward, Role::backward, Role::quantize, Role::kNone}
#define FA3_BOTH(id, field, forward, backward, form, axis, dim, type, help)                     \
  {id, #field, FA3_ROLES(forward, backward, kNone),                                             \
   {offsetof(fa3_forward_args, field), offsetof(fa3_backward_args, field), kNoField, kNoField}, \
   Form::form, Axis::axis, Dim::dim, TypeRule::type, help}
#define FA3_FORWARD(id, field, form, axis, dim, help)                                           \
  {id, #field, FA3_ROLES(kOptionalInput, kNone, kNone),                                         \
   {offsetof(fa3_forward_args, field), kNoField, kNoField, kNoField},                           \
   Form::form, Axis::axis, Dim::dim, TypeRule::kF32, help}
#define FA3_CACHE(id, field, form, help)                                                        \
  {id, #field, FA3_ROLES(kOptionalInput, kNone, kNone),                                         \
   {offsetof(fa3_forward_args, field), kNoField, kNoField, kNoField},                           \
   Form::form, Axis::kKey, Dim::kNone, TypeRule::kI32, help}
#define FA3_NEW(id, field, form, dim, type, help)                                               \
  {id, #field, FA3_ROLES(kOptionalInput, kNone, kNone),                                         \
   {offsetof(fa3_forward_args, field), kNoField, kNoField, kNoField},                           \
   Form::form, Axis::kNew, Dim::dim, TypeRule::type, help}
#define FA3_ROTARY(id, field, form, type, help)                                                 \
  {id, #field, FA3_ROLES(kOptionalInput, kNone, kOptionalInput),                                \
   {offsetof(fa3_forward_args, field), kNoField, offsetof(fa3_quantize_args, field), kNoField}, \
   Form::form, Axis::kToken, Dim::kNone, TypeRule::type, help}
#define FA3_GRAD(id, field, backward, form, axis, dim, type, help)                              \
  {id, #field, FA3_ROLES(kNone, backward, kNone),                                               \
   {kNoField, offsetof(fa3_backward_args, field), kNoField, kNoField},                          \
   Form::form, Axis::axis, Dim::dim, TypeRule::type, help}
#define FA3_QUANTIZE(id, field, quantize, form, dim, type, help)                                \
  {id, #field, FA3_ROLES(kNone, kNone, quantize),                                               \
   {kNoField, kNoField, offsetof(fa3_quantize_args, field), kNoField},                          \
   Form::form, Axis::kToken, Dim::dim, TypeRule::type, help}
#define FA3_COMBINE(id, field, combine, form, dim, type, help)                                  \
  {id, #field, {Role::kNone, Role::kNone, Role::kNone, Role::combine},                          \
   {kNoField, kNoField, kNoField, offsetof(fa3_combine_args, field)},                           \
   Form::form, Axis::kToken, Dim::dim, TypeRule::type, help}
inline constexpr std::array<TensorRow, kTensorCount> kTensors{{
  FA3_BOTH(kQ,    q,    kInput,          kInput,          kRows, kQuery, kQk,   kAsQ,
           "Queries"),
  FA3_BOTH(kK,    k,    kInput,          kInput,          kRows, kKey,   kQk,   kAsKey,
           "Keys"),
  FA3_BOTH(kV,    v,    kInput,          kInput,          kRows, kKey,   kV,    kAsV,
           "Values"),
  FA3_BOTH(kO,    o,    kOutput,         kInput,          kRows, kQuery, kV,    kAsQOrF32,
           "Output"),
  FA3_BOTH(kLse,  lse,  kOptionalOutput, kInput,          kLse,  kQuery, kNone, kF32,
           "Logarithm of the sum of a row's exponentials"),
  {kMaxLogit, "max_logit", FA3_ROLES(kOptionalOutput, kNone, kNone),
   {offsetof(fa3_forward_args, max_logit), kNoField, kNoField, kNoField},
   Form::kHeads, Axis::kQuery, Dim::kNone, TypeRule::kF32,
   "Greatest score of each query head"},
  FA3_GRAD(kDout, dout,                  kInput,          kRows, kQuery, kV,    kAsQOrF32,
           "Gradient of o"),
  FA3_GRAD(kDlse, dlse,                  kOptionalInput,  kLse,  kQuery, kNone, kF32,
           "Gradient of lse"),
  FA3_GRAD(kDq,   dq,                    kOptionalOutput, kRows, kQuery, kQk,   kAsQOrF32,
           "Gradient of q"),
  FA3_GRAD(kDk,   dk,                    kOptionalOutput, kRows, kKey,   kQk,   kAsQOrF32,
           "Gradient of k"),
  FA3_GRAD(kDv,   dv,                    kOptionalOutput, kRows, kKey,   kV,    kAsQOrF32,
           "Gradient of v"),
  FA3_BOTH(kAlibiSlopes,   alibi_slopes,    kOptionalInput, kOptionalInput,
           kSlopes,    kQuery, kNone, kF32,
           "ALiBi: slope*distance is subtracted from a score; may differ between batch entries"),
  FA3_BOTH(kSequenceIdsQ,  sequence_ids_q,  kOptionalInput, kOptionalInput,
           kIds,       kQuery, kNone, kI32,
           "Ids of queries: a query sees the keys of its own id only"),
  FA3_BOTH(kSequenceIdsKv, sequence_ids_kv, kOptionalInput, kOptionalInput,
           kIds,       kKey,   kNone, kI32,
           "Ids of keys"),
  {kTreeMask, "tree_mask", FA3_ROLES(kOptionalInput, kNone, kNone),
   {offsetof(fa3_forward_args, tree_mask), kNoField, kNoField, kNoField},
   Form::kTree, Axis::kQuery, Dim::kNone, TypeRule::kI32,
   "Bits of the sequence's new keys, its last, that a query sees; it sees all before them"},
  FA3_BOTH(kAttnMask,      attn_mask,       kOptionalInput, kOptionalInput,
           kMask,      kQuery, kNone, kMask,
           "Mask, 1 in any dimension: false hides a key, a number is added to the score"),
  FA3_GRAD(kDattnMask,     dattn_mask,                      kOptionalOutput,
           kMask,      kQuery, kNone, kMaskGrad,
           "Gradient of an attn_mask that is added"),
  {kSinks, "sinks", {Role::kOptionalInput, Role::kOptionalInput, Role::kNone, Role::kOptionalInput},
   {offsetof(fa3_forward_args, sinks), offsetof(fa3_backward_args, sinks), kNoField,
    offsetof(fa3_combine_args, sinks)},
   Form::kHeads, Axis::kQuery, Dim::kNone, TypeRule::kSink,
   "Attention sinks: score of a key without a value that every query of the head sees"},
  FA3_GRAD(kDsinks,        dsinks,                          kOptionalOutput,
           kHeads,     kQuery, kNone, kSinkGrad,
           "Gradient of sinks"),
  FA3_FORWARD(kQScale,  q_scale,  kScale,  kQuery, kQk,
           "Scales of 8-bit q"),
  FA3_FORWARD(kKScale,  k_scale,  kScale,  kKey,   kQk,
           "Scales of 8-bit k"),
  FA3_FORWARD(kVScale,  v_scale,  kScale,  kKey,   kV,
           "Scales of 8-bit v"),
  FA3_FORWARD(kKOffset, k_offset, kOffset, kKey,   kQk,
           "Offsets of 8-bit k"),
  FA3_FORWARD(kVOffset, v_offset, kOffset, kKey,   kV,
           "Offsets of 8-bit v"),
  FA3_NEW(kKNew,        k_new,    kRows,   kQk,   kAsQ,
          "Keys that are first appended to k"),
  FA3_NEW(kVNew,        v_new,    kRows,   kV,    kAsQ,
          "Values that are first appended to v"),
  FA3_QUANTIZE(kX,         x,          kInput,          kRows,   kQk,   kFloat,
           "What is quantised"),
  FA3_QUANTIZE(kCodes,     codes,      kOutput,         kRows,   kQk,   kCode,
           "Codes of x"),
  FA3_QUANTIZE(kScale,     scale,      kOutput,         kScale,  kQk,   kF32,
           "Scales of the codes"),
  FA3_QUANTIZE(kOffset,    offset,     kOptionalOutput, kOffset, kQk,   kF32,
           "Means that were subtracted"),
  FA3_ROTARY(kRotaryCos, rotary_cos, kTable, kFloat,
             "Cosines of the rotary embedding"),
  FA3_ROTARY(kRotarySin, rotary_sin, kTable, kFloat,
             "Sines of the rotary embedding"),
  {kVImage, "v_image", FA3_ROLES(kOptionalInput, kNone, kNone),
   {offsetof(fa3_forward_args, v_image), kNoField, kNoField, kNoField},
   Form::kImage, Axis::kKey, Dim::kV, TypeRule::kE4m3,
   "The codes of v again, in tiles that kernels of Hopper GPUs read in place of v"},
  FA3_QUANTIZE(kImage,     v_image,    kOptionalOutput, kImage,  kV,    kE4m3,
           "The codes again, in tiles that kernels of Hopper GPUs read in place of v"),
  FA3_COMBINE(kOParts,    o_parts,     kInput,          kPartRows, kV,  kFloat,
           "O of each part"),
  FA3_COMBINE(kLseParts,  lse_parts,   kInput,          kPartLse, kNone, kF32,
           "LSE of each part"),
  FA3_COMBINE(kMergedO,   o,           kOutput,         kRows,   kV,    kFloat,
           "Output"),
  FA3_COMBINE(kMergedLse, lse,         kOptionalOutput, kLse,    kNone, kF32,
           "Logarithm of the sum of a row's exponentials"),
  FA3_BOTH(kCuSeqlensQ,  cu_seqlens_q,  kOptionalInput, kOptionalInput,
           kCuSeqlens, kQuery, kNone, kI32,
           "First row of each varlen query sequence, and the end"),
  FA3_BOTH(kCuSeqlensKv, cu_seqlens_kv, kOptionalInput, kOptionalInput,
           kCuSeqlens, kKey,   kNone, kI32,
           "First row of each varlen key sequence, and the end"),
  FA3_NEW(kCuSeqlensNew, cu_seqlens_new, kCuSeqlens, kNone, kI32,
          "First row of each varlen sequence of new keys, and the end"),
  FA3_QUANTIZE(kCuSeqlens, cu_seqlens, kOptionalInput,  kCuSeqlens, kNone, kI32,
           "First row of each varlen sequence, and the end"),
  FA3_BOTH(kSequsedQ,    seqused_q,     kOptionalInput, kOptionalInput,
           kSeqused,   kQuery, kNone, kI32,
           "Queries that count in each sequence"),
  FA3_BOTH(kSequsedKv,   seqused_kv,    kOptionalInput, kOptionalInput,
           kSeqused,   kKey,   kNone, kI32,
           "Keys that count in each sequence"),
  FA3_QUANTIZE(kSeqused,   seqused,    kOptionalInput,  kSeqused,   kNone, kI32,
           "Rows that count in each sequence"),
  FA3_ROTARY(kRotaryPosition, rotary_position, kSeqused, kI32,
             "Rotary position of each sequence's first row"),
  FA3_CACHE(kPageTable,  page_table,   kPageTable,
            "Pages of each sequence, which k and v then consist of"),
  FA3_CACHE(kKvBatchIdx, kv_batch_idx, kSeqused,
            "Slot of k and v that each sequence reads"),
  FA3_CACHE(kKvBegin,    kv_begin,     kSeqused,
            "First row of each sequence's keys"),
}};
#undef FA3_CACHE
#undef FA3_COMBINE
#undef FA3_QUANTIZE
#undef FA3_GRAD
#undef FA3_ROTARY
#undef FA3_NEW
#undef FA3_FORWARD
#undef FA3_BOTH
#undef FA3_ROLES
// clang-format on

static_assert(
    [] {
      for (int i = 0; i < kTensorCount; ++i) {
        const TensorRow& row = kTensors[i];
        if (row.id != i) return false;
        for (int op = 0; op < kOpCount; ++op)
          if ((row.role[op] == Role::kNone) != (row.at[op] == kNoField)) return false;
      }
      return true;
    }(),
    "kTensors: a row for each TensorId in its order, with a field where it has a role");

constexpr const char* tensor_name(TensorId id) { return kTensors[id].name; }
constexpr Role role_of(fa3_op op, TensorId id) { return kTensors[id].role[op - 1]; }
constexpr const char* op_name(fa3_op op) {
  return op == FA3_OP_FORWARD    ? "forward"
         : op == FA3_OP_BACKWARD ? "backward"
         : op == FA3_OP_QUANTIZE ? "quantize"
                                 : "combine";
}

constexpr bool is_attention(fa3_op op) { return op == FA3_OP_FORWARD || op == FA3_OP_BACKWARD; }

// What cuts the rows of an axis into sequences.
constexpr TensorId cu_seqlens_of(Axis axis) {
  return axis == Axis::kQuery ? kCuSeqlensQ
         : axis == Axis::kKey ? kCuSeqlensKv
         : axis == Axis::kNew ? kCuSeqlensNew
                              : kCuSeqlens;
}
constexpr TensorId seqused_of(Axis axis) {
  return axis == Axis::kQuery ? kSequsedQ : axis == Axis::kKey ? kSequsedKv : kSeqused;
}

// The scales and the offsets of a tensor of 8 bits: kQ, kK, kV or kCodes. Q has no offsets: those
// of another tensor, which no rule reads for it.
constexpr TensorId scale_of(TensorId id) {
  return id == kQ ? kQScale : id == kK ? kKScale : id == kV ? kVScale : kScale;
}
constexpr TensorId offset_of(TensorId id) {
  return id == kK ? kKOffset : id == kV ? kVOffset : kOffset;
}

// The tensor that scales or offsets belong to.
constexpr TensorId scaled_by(TensorId id) {
  for (const TensorId of : {kQ, kK, kV})
    if (id == scale_of(of) || (of != kQ && id == offset_of(of))) return of;
  return kCodes;
}

constexpr bool has_parts(Form form) { return form == Form::kPartRows || form == Form::kPartLse; }

// Tensors with an entry in Problem::layout: those that may have strides. What says where sequences
// lie is dense.
constexpr bool has_layout(TensorId id) {
  const Form form = kTensors[id].form;
  return form != Form::kCuSeqlens && form != Form::kSeqused && form != Form::kPageTable;
}
inline constexpr int kLayoutCount = kCuSeqlensQ;

}  // namespace fa3
