// SPDX-License-Identifier: BSD-3-Clause
// rotation.cpp — the rules of quantize.h on rotary tables and Hadamard blocks.
#include "api/rotation.h"

#include <algorithm>
#include <bit>

#include "api/tensor.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

Status check_tables(const Args& args, const Problem& p) {
  const int64_t head_dim = p.head_dim_qk;
  const fa3_tensor &cos = args.tensor[kRotaryCos], &sin = args.tensor[kRotarySin];
  if (cos.dtype != sin.dtype || cos.shape[0] != sin.shape[0] || cos.shape[1] != sin.shape[1]) {
    return invalid(
        "quantize: rotary_sin is {} {}, but rotary_cos {} {}; need the same type and shape",
        dtype_name(sin.dtype), tuple_text(sin.shape, 2), dtype_name(cos.dtype),
        tuple_text(cos.shape, 2));
  }
  if (cos.shape[1] < 1 || 2 * cos.shape[1] > head_dim) {
    return invalid(
        "quantize: rotary_cos.shape[1]={}, need 1…{} pairs of columns, at most half of "
        "head_dim={}; pass a table (positions, rotary_dim / 2)",
        cos.shape[1], head_dim / 2, head_dim);
  }
  // Lengths and positions in data are checked where they can be read (check_lengths.cpp).
  const bool in_data = args.tensor[kRotaryPosition].rank != 0 || p.q.varlen || p.q.seqused;
  const int64_t rows = p.batch > 0 ? p.q.rows : 0,
                need = in_data ? std::min<int64_t>(rows, 1) : rows;
  if (cos.shape[0] < need) {
    return invalid(
        "quantize: rotary_cos.shape[0]={}, need at least {}: a position for each row of a "
        "sequence; pass a longer table",
        cos.shape[0], need);
  }
  return {};
}

}  // namespace

Result<Rotation> read_rotation(const Args& args, const Problem& p) {
  const int64_t head_dim = p.head_dim_qk;
  if (args.rotary_layout != FA3_ROTARY_HALVES && args.rotary_layout != FA3_ROTARY_PAIRS) {
    return invalid(
        "quantize: rotary_layout={} is unknown; need FA3_ROTARY_HALVES (0) or FA3_ROTARY_PAIRS (1)",
        args.rotary_layout);
  }
  const int64_t block = args.hadamard;
  if (block != 0 &&
      (block < 2 || !std::has_single_bit(static_cast<uint64_t>(block)) || head_dim % block != 0)) {
    if (head_dim % 2 != 0)
      return invalid("quantize: hadamard={}, need 0 (off): head_dim={} is odd; pad it, or pass 0",
                     block, head_dim);
    return invalid(
        "quantize: hadamard={}, need 0 (off) or a power of two from 2 to {} that divides "
        "head_dim={}; pass one of them",
        block, head_dim & -head_dim, head_dim);
  }
  Rotation rotation;
  rotation.hadamard = block;
  rotation.seed = args.seed;
  rotation.rotary_pairs = args.rotary_layout == FA3_ROTARY_PAIRS;
  if (args.tensor[kRotaryCos].rank == 0) {
    if (args.tensor[kRotaryPosition].rank == 0) return rotation;
    return invalid("quantize: rotary_position is given, but rotary_cos is absent; need the tables");
  }
  FA3_RETURN_IF_ERROR(check_tables(args, p));
  rotation.rotary_dim = 2 * args.tensor[kRotaryCos].shape[1];
  rotation.positions = args.tensor[kRotaryCos].shape[0];
  rotation.positioned = args.tensor[kRotaryPosition].rank != 0;
  return rotation;
}

}  // namespace fa3
