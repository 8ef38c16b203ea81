// SPDX-License-Identifier: BSD-3-Clause
// rotation.cpp — the rules of quantize.h on rotary tables and Hadamard blocks.
#include "api/rotation.h"

#include <algorithm>
#include <bit>

#include "api/tensor.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

// The tables of a quantisation, or of what a forward appends.
Status check_tables(const Args& args, const Problem& p) {
  const char* const op = op_name(args.op);
  const int64_t head_dim = p.head_dim_qk;
  const fa3_tensor &cos = args.tensor[kRotaryCos], &sin = args.tensor[kRotarySin];
  if (cos.dtype != sin.dtype || cos.shape[0] != sin.shape[0] || cos.shape[1] != sin.shape[1]) {
    return invalid("{}: rotary_sin is {} {}, but rotary_cos {} {}; need the same type and shape",
                   op, dtype_name(sin.dtype), tuple_text(sin.shape, 2), dtype_name(cos.dtype),
                   tuple_text(cos.shape, 2));
  }
  if (cos.shape[1] < 1 || 2 * cos.shape[1] > head_dim) {
    return invalid(
        "{}: rotary_cos.shape[1]={}, need 1…{} pairs of columns, at most half of {}={}; pass a "
        "table (positions, rotary_dim / 2)",
        op, cos.shape[1], head_dim / 2, args.op == FA3_OP_FORWARD ? "head_dim_qk" : "head_dim",
        head_dim);
  }
  // Lengths and positions in data are checked where they can be read (check_lengths.cpp).
  const SeqAxis& axis = args.op == FA3_OP_FORWARD ? p.fresh : p.q;
  const bool in_data = args.op == FA3_OP_FORWARD || args.tensor[kRotaryPosition].rank != 0 ||
                       axis.varlen || axis.seqused;
  const int64_t rows = p.batch > 0 ? axis.rows : 0,
                need = in_data ? std::min<int64_t>(rows, 1) : rows;
  if (cos.shape[0] < need) {
    return invalid(
        "{}: rotary_cos.shape[0]={}, need at least {}: a position for each row of a sequence; pass "
        "a longer table",
        op, cos.shape[0], need);
  }
  return {};
}

}  // namespace

Result<Rotation> read_rotation(const Args& args, const Problem& p) {
  const int64_t head_dim = p.head_dim_qk;
  if (args.rotary_layout != FA3_ROTARY_HALVES && args.rotary_layout != FA3_ROTARY_PAIRS) {
    return invalid(
        "{}: rotary_layout={} is unknown; need FA3_ROTARY_HALVES (0) or FA3_ROTARY_PAIRS (1)",
        op_name(args.op), args.rotary_layout);
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
    return invalid("{}: rotary_position is given, but rotary_cos is absent; need the tables",
                   op_name(args.op));
  }
  FA3_RETURN_IF_ERROR(check_tables(args, p));
  rotation.rotary_dim = 2 * args.tensor[kRotaryCos].shape[1];
  rotation.positions = args.tensor[kRotaryCos].shape[0];
  rotation.positioned = args.tensor[kRotaryPosition].rank != 0;
  return rotation;
}

}  // namespace fa3
