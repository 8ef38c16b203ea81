// SPDX-License-Identifier: BSD-3-Clause
// args.cpp — from the C structs to Args.
#include "api/args.h"

#include <algorithm>
#include <cstring>

namespace fa3 {
namespace {

// Sizes of the structs in the first release. They never change; see read_struct.
constexpr size_t kForwardArgsFirstSize = 928;
constexpr size_t kBackwardArgsFirstSize = 1408;
constexpr size_t kQuantizeArgsFirstSize = 904;
static_assert(sizeof(fa3_forward_args) >= kForwardArgsFirstSize, "fields are only ever appended");
static_assert(sizeof(fa3_backward_args) >= kBackwardArgsFirstSize, "fields are only ever appended");
static_assert(sizeof(fa3_quantize_args) >= kQuantizeArgsFirstSize, "fields are only ever appended");

// A struct_size above this counts as uninitialised, and its bytes are not read.
constexpr size_t kPlausibleStructBytes = 1 << 16;

// The tensors of the operation's struct.
Args tensors_of(fa3_op op, const void* c) {
  Args args;
  args.op = op;
  for (const TensorRow& row : kTensors) {
    const size_t at = row.at[op - 1];
    if (at != kNoField)
      std::memcpy(&args.tensor[row.id], static_cast<const char*>(c) + at, sizeof(fa3_tensor));
  }
  return args;
}

// fa3_forward_args or fa3_backward_args.
template <class CArgs>
Args attention_args_of(fa3_op op, const CArgs& c) {
  Args args = tensors_of(op, &c);
  args.max_seqlen_q = c.max_seqlen_q;
  args.max_seqlen_kv = c.max_seqlen_kv;
  args.mask = c.mask;
  args.reserved = c.reserved;
  args.left = c.left;
  args.right = c.right;
  args.softmax_scale = c.softmax_scale;
  args.softcap = c.softcap;
  args.mask_alignment = c.mask_alignment;
  args.mask_alignment_reserved = c.mask_alignment_reserved;
  if constexpr (requires { c.q_block; }) {
    args.scale_block = {c.q_block, c.k_block, c.v_block};
    args.precision = c.precision;
    args.precision_reserved = c.precision_reserved;
    args.seed = c.precision_seed;
    args.v_image_layout = c.v_image_layout;
    args.v_image_reserved = c.v_image_reserved;
  }
  if constexpr (requires { c.deterministic; }) {
    args.deterministic = c.deterministic;
    args.deterministic_reserved = c.deterministic_reserved;
  }
  return args;
}

Args quantize_args_of(const fa3_quantize_args& c) {
  Args args = tensors_of(FA3_OP_QUANTIZE, &c);
  args.max_seqlen_q = c.max_seqlen;
  args.scale_block[0] = c.block;
  args.rotary_layout = c.rotary_layout;
  args.hadamard = c.hadamard;
  args.seed = c.seed;
  args.v_image_layout = c.v_image_layout;
  args.v_image_reserved = c.v_image_reserved;
  return args;
}

}  // namespace

Status read_struct(const char* where, const void* source, size_t first_size, void* copy,
                   size_t size) {
  if (source == nullptr) return invalid("{}: the struct is NULL; need a pointer to one", where);
  size_t given = 0;
  std::memcpy(&given, source, sizeof given);  // struct_size comes first in every struct
  if (given < first_size || given > kPlausibleStructBytes) {
    return invalid(
        "{}: struct_size={} is that of no release, need {} to {}; set it to sizeof of the struct",
        where, given, first_size, kPlausibleStructBytes);
  }
  std::memset(copy, 0, size);
  std::memcpy(copy, source, std::min(given, size));
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (size_t i = size; i < given; ++i) {
    if (bytes[i] != 0) {
      return invalid(
          "{}: struct_size={} is that of a newer fa3 than this library ({} bytes), and byte {} of "
          "what it added is {}, need 0; leave newer fields at 0 or update the library",
          where, given, size, i, bytes[i]);
    }
  }
  return {};
}

Result<Args> read_args(fa3_op op, const void* source) {
  if (op == FA3_OP_FORWARD) {
    fa3_forward_args c;
    FA3_RETURN_IF_ERROR(read_struct("forward: args", source, kForwardArgsFirstSize, &c, sizeof c));
    return attention_args_of(op, c);
  }
  if (op == FA3_OP_BACKWARD) {
    fa3_backward_args c;
    FA3_RETURN_IF_ERROR(
        read_struct("backward: args", source, kBackwardArgsFirstSize, &c, sizeof c));
    return attention_args_of(op, c);
  }
  if (op == FA3_OP_QUANTIZE) {
    fa3_quantize_args c;
    FA3_RETURN_IF_ERROR(
        read_struct("quantize: args", source, kQuantizeArgsFirstSize, &c, sizeof c));
    return quantize_args_of(c);
  }
  return invalid(
      "op={} is unknown; need FA3_OP_FORWARD (1), FA3_OP_BACKWARD (2) or FA3_OP_QUANTIZE (3)",
      static_cast<int>(op));
}

bool same_shapes(const Args& a, const Args& b) {
  const auto same = [](const fa3_tensor& x, const fa3_tensor& y) {
    return x.dtype == y.dtype && x.rank == y.rank && std::ranges::equal(x.shape, y.shape) &&
           std::ranges::equal(x.stride, y.stride);
  };
  const auto same_block = [](const fa3_scale_block& x, const fa3_scale_block& y) {
    return x.rows == y.rows && x.cols == y.cols;
  };
  return a.op == b.op && std::ranges::equal(a.tensor, b.tensor, same) &&
         a.max_seqlen_q == b.max_seqlen_q && a.max_seqlen_kv == b.max_seqlen_kv &&
         a.mask == b.mask && a.reserved == b.reserved && a.left == b.left && a.right == b.right &&
         a.softmax_scale == b.softmax_scale && a.softcap == b.softcap &&
         std::ranges::equal(a.scale_block, b.scale_block, same_block) &&
         a.precision == b.precision && a.precision_reserved == b.precision_reserved &&
         a.rotary_layout == b.rotary_layout && a.hadamard == b.hadamard && a.seed == b.seed &&
         a.deterministic == b.deterministic &&
         a.deterministic_reserved == b.deterministic_reserved &&
         a.v_image_layout == b.v_image_layout && a.v_image_reserved == b.v_image_reserved &&
         a.mask_alignment == b.mask_alignment &&
         a.mask_alignment_reserved == b.mask_alignment_reserved;
}

void drop_tensors_without_data(Args& args) {
  for (const TensorRow& row : kTensors) {
    fa3_tensor& t = args.tensor[row.id];
    if (t.data != nullptr || t.rank == 0 || !is_optional(role_of(args.op, row.id))) continue;
    // A tensor with no elements needs no data; malformed shapes are left to make_problem.
    const int rank = std::clamp(t.rank, 0, FA3_MAX_RANK);
    if (std::any_of(t.shape, t.shape + rank, [](int64_t n) { return n <= 0; })) continue;
    t = fa3_tensor{};
    if (row.form == Form::kImage) args.v_image_layout = FA3_V_IMAGE_NONE;
  }
}

}  // namespace fa3
