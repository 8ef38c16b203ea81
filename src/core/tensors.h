// SPDX-License-Identifier: BSD-3-Clause
// tensors.h — every tensor of both operations, declared once: what reads arguments, validates them,
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
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,
  kAlibiSlopes,
  kSequenceIdsQ,
  kSequenceIdsKv,
  kQScale,
  kKScale,
  kVScale,
  kKOffset,
  kVOffset,
  kCuSeqlensQ,
  kCuSeqlensKv,
  kSequsedQ,
  kSequsedKv,
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
  kIds,        // (batch, seqlen) or (total)
  kScale,      // of an 8-bit tensor: fa3.h, "8 bits"
  kOffset,     // (batch, heads, head_dim)
  kCuSeqlens,  // (batch + 1)
  kSeqused     // (batch)
};

enum class TypeRule : uint8_t {
  kAsQ,       // the type of q
  kAsV,       // that, but for 8-bit q: fa3.h, "8 bits"
  kAsQOrF32,  // that, or F32
  kF32,
  kI32
};

// On which axis its rows lie, and which head dim its columns are of.
enum class Axis : uint8_t { kQuery, kKey };
enum class Dim : uint8_t { kNone, kQk, kV };

struct TensorRow {
  TensorId id;
  const char* name;  // as the field of the C structs
  Role forward, backward;
  size_t forward_at, backward_at;  // of that field in fa3_forward_args, fa3_backward_args
  Form form;
  Axis axis;
  Dim dim;
  TypeRule type;

  constexpr bool query() const { return axis == Axis::kQuery; }
};

inline constexpr size_t kNoField = SIZE_MAX;

// clang-format off
#define FA3_BOTH(id, field, forward, backward, form, axis, dim, type)                           \
  {id, #field, Role::forward, Role::backward, offsetof(fa3_forward_args, field),                \
   offsetof(fa3_backward_args, field), Form::form, Axis::axis, Dim::dim, TypeRule::type}
#define FA3_FORWARD(id, field, form, axis, dim)                                                 \
  {id, #field, Role::kOptionalInput, Role::kNone, offsetof(fa3_forward_args, field), kNoField,  \
   Form::form, Axis::axis, Dim::dim, TypeRule::kF32}
#define FA3_GRAD(id, field, backward, form, axis, dim, type)                                    \
  {id, #field, Role::kNone, Role::backward, kNoField, offsetof(fa3_backward_args, field),       \
   Form::form, Axis::axis, Dim::dim, TypeRule::type}
inline constexpr std::array<TensorRow, kTensorCount> kTensors{{
  FA3_BOTH(kQ,    q,    kInput,          kInput,          kRows, kQuery, kQk,   kAsQ),
  FA3_BOTH(kK,    k,    kInput,          kInput,          kRows, kKey,   kQk,   kAsQ),
  FA3_BOTH(kV,    v,    kInput,          kInput,          kRows, kKey,   kV,    kAsV),
  FA3_BOTH(kO,    o,    kOutput,         kInput,          kRows, kQuery, kV,    kAsQOrF32),
  FA3_BOTH(kLse,  lse,  kOptionalOutput, kInput,          kLse,  kQuery, kNone, kF32),
  FA3_GRAD(kDout, dout,                  kInput,          kRows, kQuery, kV,    kAsQOrF32),
  FA3_GRAD(kDlse, dlse,                  kOptionalInput,  kLse,  kQuery, kNone, kF32),
  FA3_GRAD(kDq,   dq,                    kOptionalOutput, kRows, kQuery, kQk,   kAsQOrF32),
  FA3_GRAD(kDk,   dk,                    kOptionalOutput, kRows, kKey,   kQk,   kAsQOrF32),
  FA3_GRAD(kDv,   dv,                    kOptionalOutput, kRows, kKey,   kV,    kAsQOrF32),
  FA3_BOTH(kAlibiSlopes,   alibi_slopes,    kOptionalInput, kOptionalInput,
           kSlopes,    kQuery, kNone, kF32),
  FA3_BOTH(kSequenceIdsQ,  sequence_ids_q,  kOptionalInput, kOptionalInput,
           kIds,       kQuery, kNone, kI32),
  FA3_BOTH(kSequenceIdsKv, sequence_ids_kv, kOptionalInput, kOptionalInput,
           kIds,       kKey,   kNone, kI32),
  FA3_FORWARD(kQScale,  q_scale,  kScale,  kQuery, kQk),
  FA3_FORWARD(kKScale,  k_scale,  kScale,  kKey,   kQk),
  FA3_FORWARD(kVScale,  v_scale,  kScale,  kKey,   kV),
  FA3_FORWARD(kKOffset, k_offset, kOffset, kKey,   kQk),
  FA3_FORWARD(kVOffset, v_offset, kOffset, kKey,   kV),
  FA3_BOTH(kCuSeqlensQ,  cu_seqlens_q,  kOptionalInput, kOptionalInput,
           kCuSeqlens, kQuery, kNone, kI32),
  FA3_BOTH(kCuSeqlensKv, cu_seqlens_kv, kOptionalInput, kOptionalInput,
           kCuSeqlens, kKey,   kNone, kI32),
  FA3_BOTH(kSequsedQ,    seqused_q,     kOptionalInput, kOptionalInput,
           kSeqused,   kQuery, kNone, kI32),
  FA3_BOTH(kSequsedKv,   seqused_kv,    kOptionalInput, kOptionalInput,
           kSeqused,   kKey,   kNone, kI32),
}};
#undef FA3_GRAD
#undef FA3_FORWARD
#undef FA3_BOTH
// clang-format on

static_assert(
    [] {
      for (int i = 0; i < kTensorCount; ++i) {
        const TensorRow& row = kTensors[i];
        if (row.id != i || (row.forward == Role::kNone) != (row.forward_at == kNoField) ||
            (row.backward == Role::kNone) != (row.backward_at == kNoField))
          return false;
      }
      return true;
    }(),
    "kTensors: a row for each TensorId in its order, with a field where it has a role");

constexpr const char* tensor_name(TensorId id) { return kTensors[id].name; }
constexpr Role role_of(fa3_op op, TensorId id) {
  return op == FA3_OP_FORWARD ? kTensors[id].forward : kTensors[id].backward;
}
constexpr const char* op_name(fa3_op op) { return op == FA3_OP_FORWARD ? "forward" : "backward"; }

// Tensors with an entry in Problem::layout: those that may have strides. What cuts sequences is
// dense.
constexpr bool has_layout(TensorId id) {
  return kTensors[id].form != Form::kCuSeqlens && kTensors[id].form != Form::kSeqused;
}
inline constexpr int kLayoutCount = kCuSeqlensQ;

}  // namespace fa3
