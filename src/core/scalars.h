// SPDX-License-Identifier: BSD-3-Clause
// scalars.h — the arguments of all operations as one struct, and every field of the C structs that
// is no tensor, declared once: what reads arguments, compares, publishes and explains them loops
// over this table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/options.h"
#include "core/tensors.h"

namespace fa3 {

// The arguments of any operation. Tensors that the operation does not have are absent (rank 0).
struct Args {
  fa3_op op = FA3_OP_FORWARD;
  std::array<fa3_tensor, kTensorCount> tensor{};
  Options options;
  int64_t max_seqlen_q = 0;
  int64_t max_seqlen_kv = 0;
  int32_t mask = 0;
  std::array<fa3_scale_block, 3> scale_block{};  // of q, k, v; of codes the first
  int32_t precision = 0;
  int32_t rotary_layout = 0;
  int32_t hadamard = 0;
  uint64_t seed = 0;  // of signs
  int32_t deterministic = 0;
  int32_t v_image_layout = 0;
  int32_t mask_alignment = 0;
};

struct ScalarRow {
  const char* name;  // as the field of the C structs
  fa3_field_kind kind;
  std::array<size_t, kOpCount> at;  // of that field in the operation's struct
  size_t in_args;                   // of the member of Args; reserved fields have none
  const char* help;                 // what it is, in one line

  // Whether it is a member of Options, and where in that.
  constexpr bool is_option() const {
    return in_args != kNoField && in_args >= offsetof(Args, options) &&
           in_args < offsetof(Args, options) + sizeof(Options);
  }
  constexpr size_t in_options() const { return in_args - offsetof(Args, options); }
};

// clang-format off
#define FA3_BOTH(field, kind, member, help)                                                     \
  {#field, FA3_FIELD_##kind,                                                                    \
   {offsetof(fa3_forward_args, field), offsetof(fa3_backward_args, field), kNoField, kNoField}, \
   member, help}
#define FA3_FORWARD(field, kind, member, help)                                                  \
  {#field, FA3_FIELD_##kind, {offsetof(fa3_forward_args, field), kNoField, kNoField, kNoField}, \
   member, help}
#define FA3_BACKWARD(field, kind, member, help)                                                 \
  {#field, FA3_FIELD_##kind, {kNoField, offsetof(fa3_backward_args, field), kNoField, kNoField}, \
   member, help}
#define FA3_QUANTIZE(field, kind, member, help)                                                 \
  {#field, FA3_FIELD_##kind, {kNoField, kNoField, offsetof(fa3_quantize_args, field), kNoField}, \
   member, help}
#define FA3_MEMBER(member) offsetof(Args, member)
#define FA3_OPTION(member) offsetof(Args, options.member)
inline constexpr ScalarRow kScalars[] = {
  FA3_BOTH(max_seqlen_q,  I64, FA3_MEMBER(max_seqlen_q),
           "Upper bound of the lengths of varlen query sequences; 0 = all rows"),
  FA3_BOTH(max_seqlen_kv, I64, FA3_MEMBER(max_seqlen_kv),
           "Upper bound of the lengths of varlen key sequences; 0 = all rows"),
  FA3_BOTH(mask,          I32, FA3_MEMBER(mask),           "fa3_mask: full, causal or window"),
  FA3_BOTH(reserved,      RESERVED, kNoField,              "Must be 0"),
  FA3_BOTH(left,          I64, FA3_OPTION(left),
           "Keys that a window shows before the diagonal, -1 = all"),
  FA3_BOTH(right,         I64, FA3_OPTION(right),
           "Keys that a window shows after the diagonal, -1 = all"),
  FA3_BOTH(softmax_scale, F64, FA3_OPTION(softmax_scale),
           "Scale of the scores; 0 = 1/sqrt(head_dim_qk)"),
  FA3_BOTH(softcap,       F64, FA3_OPTION(softcap),
           "Scores become softcap*tanh(score/softcap); 0 = off"),
  FA3_FORWARD(q_block, BLOCK, FA3_MEMBER(scale_block),     "Rows and columns that share a q_scale"),
  FA3_FORWARD(k_block, BLOCK, FA3_MEMBER(scale_block) + sizeof(fa3_scale_block),
              "Rows and columns that share a k_scale"),
  FA3_FORWARD(v_block, BLOCK, FA3_MEMBER(scale_block) + 2 * sizeof(fa3_scale_block),
              "Rows and columns that share a v_scale"),
  FA3_FORWARD(precision, I32, FA3_MEMBER(precision),
              "fa3_precision: the bits in which tensors of 16 bits are computed"),
  FA3_FORWARD(precision_reserved, RESERVED, kNoField,      "Must be 0"),
  FA3_FORWARD(precision_seed, U64, FA3_MEMBER(seed),       "Seed of the signs of a precision"),
  FA3_FORWARD(v_image_layout, I32, FA3_MEMBER(v_image_layout),
              "fa3_v_image_layout: the order of bytes of v_image"),
  FA3_FORWARD(v_image_reserved, RESERVED, kNoField,        "Must be 0"),
  FA3_BACKWARD(deterministic, I32, FA3_MEMBER(deterministic),
               "1 = bitwise the same gradients in every run"),
  FA3_BACKWARD(deterministic_reserved, RESERVED, kNoField, "Must be 0"),
  FA3_BOTH(mask_alignment, I32, FA3_MEMBER(mask_alignment),
           "fa3_mask_alignment: the corner that positions of queries count from"),
  FA3_BOTH(mask_alignment_reserved, RESERVED, kNoField,    "Must be 0"),
  FA3_FORWARD(num_splits, I32, FA3_OPTION(num_splits),
              "The most parts that a sequence's keys are computed in; 0 = any"),
  FA3_FORWARD(sm_margin, I32, FA3_OPTION(sm_margin), "SMs that persistent kernels leave free"),
  FA3_FORWARD(batch_invariant, I32, FA3_OPTION(batch_invariant),
              "1 = bits of a row depend on its own sequence and position alone"),
  FA3_FORWARD(batch_invariant_reserved, RESERVED, kNoField, "Must be 0"),
  FA3_FORWARD(rotary_layout, I32, FA3_MEMBER(rotary_layout),
              "fa3_rotary_layout: the columns that rotary embedding pairs"),
  FA3_FORWARD(rotary_reserved, RESERVED, kNoField,         "Must be 0"),
  FA3_BOTH(attention_chunk, I64, FA3_OPTION(attention_chunk),
           "Queries see keys of their own chunk of so many positions; 0 = all chunks"),
  FA3_QUANTIZE(max_seqlen, I64, FA3_MEMBER(max_seqlen_q),
               "Upper bound of the lengths of varlen sequences; 0 = all rows"),
  FA3_QUANTIZE(block, BLOCK, FA3_MEMBER(scale_block),      "Rows and columns that share a scale"),
  FA3_QUANTIZE(rotary_layout, I32, FA3_MEMBER(rotary_layout),
               "fa3_rotary_layout: the columns that rotary embedding pairs"),
  FA3_QUANTIZE(hadamard, I32, FA3_MEMBER(hadamard),
               "Columns that a Hadamard transform mixes; 0 = off"),
  FA3_QUANTIZE(seed, U64, FA3_MEMBER(seed),                "Seed of the signs before it"),
  FA3_QUANTIZE(v_image_layout, I32, FA3_MEMBER(v_image_layout),
               "fa3_v_image_layout: the order of bytes of v_image"),
  FA3_QUANTIZE(v_image_reserved, RESERVED, kNoField,       "Must be 0"),
};
#undef FA3_OPTION
#undef FA3_MEMBER
#undef FA3_QUANTIZE
#undef FA3_BACKWARD
#undef FA3_FORWARD
#undef FA3_BOTH
// clang-format on

// Bytes of a field.
constexpr size_t bytes_of(fa3_field_kind kind) {
  switch (kind) {
    case FA3_FIELD_TENSOR:
      return sizeof(fa3_tensor);
    case FA3_FIELD_I32:
    case FA3_FIELD_RESERVED:
      return sizeof(int32_t);
    case FA3_FIELD_I64:
    case FA3_FIELD_U64:
    case FA3_FIELD_F64:
      return sizeof(int64_t);
    case FA3_FIELD_BLOCK:
      return sizeof(fa3_scale_block);
  }
  return 0;
}

}  // namespace fa3
