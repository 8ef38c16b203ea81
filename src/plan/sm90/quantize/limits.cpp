// SPDX-License-Identifier: BSD-3-Clause
// limits.cpp — what the quantising kernels decline.
#include "plan/sm90/quantize/limits.h"

#include "core/dtype.h"
#include "device/sm90/quantize/args.h"
#include "plan/sm90/float_types.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 30;  // coordinates stay in 31 bits
constexpr int64_t kAccess = 16;                 // bytes of a load of the tables

Status check_stride(TensorId id, const char* what, int64_t extent, int64_t stride, int64_t size,
                    int64_t access) {
  if (extent <= 1 || stride * size % access == 0) return {};
  return unsupported(
      "quantize: {}: {} stride {} on sm90, need a multiple of {} elements ({} bytes); copy the "
      "tensor, or use backend cpu",
      tensor_name(id), what, stride, access / size, access);
}

// Rows of codes begin with whole pieces.
Status check_codes(const Problem& p) {
  const Layout& codes = p.layout[kCodes];
  constexpr int64_t kPiece = TurnConfig::kPiece;
  FA3_RETURN_IF_ERROR(check_stride(kCodes, "row", p.q.rows, codes.row, 1, kPiece));
  FA3_RETURN_IF_ERROR(check_stride(kCodes, "head", p.heads_q, codes.head, 1, kPiece));
  if (p.q.varlen) return {};
  return check_stride(kCodes, "batch", p.batch, codes.batch, 1, kPiece);
}

}  // namespace

Status check_quantize_limit(const char* what, int64_t value, int64_t limit, const char* remedy) {
  if (value <= limit) return {};
  return unsupported("quantize: {}={} on sm90, need at most {}; {}", what, value, limit, remedy);
}

Result<TurnConfig> turn_of(const Problem& p) {
  const int64_t d = p.head_dim_qk, cols = p.block_of(kCodes).cols;
  const Rotation& r = p.rotation;
  if (d % 16 != 0 || d < 16 || d > kMaxHeadDim)
    return unsupported(
        "quantize: head_dim={} on sm90, need a multiple of 16 up to {}; pad with zero columns, or "
        "use backend cpu",
        d, kMaxHeadDim);
  if (r.rotary_dim % 16 != 0)
    return unsupported(
        "quantize: rotary_cos.shape[1]={} on sm90, need a multiple of 8; use backend cpu",
        r.rotary_dim / 2);
  TurnConfig turn;
  turn.x = float_type_of(p.layout[kX].dtype);
  turn.head_dim = static_cast<int>(d);
  turn.hadamard = r.hadamard > 1 ? static_cast<int>(r.hadamard) : 0;
  if (r.rotary_dim > 0) {
    turn.rotary = r.rotary_pairs ? RotaryKind::kPairs : RotaryKind::kHalves;
    turn.rotary_dim = static_cast<int>(r.rotary_dim);
    turn.table = float_type_of(p.layout[kRotaryCos].dtype);
  }
  if (cols > 0 && cols < d) {
    if (cols % TurnConfig::kPiece != 0)
      return unsupported(
          "quantize: block.cols={} on sm90, need 0 or a multiple of {}; use backend cpu", cols,
          TurnConfig::kPiece);
    turn.block_cols = static_cast<int>(cols);
  }
  if (turn.values() > TurnConfig::kMostValues)
    return unsupported(
        "quantize: head_dim={} with rotary_cos.shape[1]={} and block.cols={} on sm90: {} columns a "
        "thread, which has registers for {}; use wider blocks, or backend cpu",
        d, r.rotary_dim / 2, cols, turn.values(), TurnConfig::kMostValues);
  return turn;
}

Status check_quantize(const Problem& p) {
  FA3_RETURN_IF_ERROR(
      check_quantize_limit("batch", p.batch, kMaxQuantizeGrid - 1, "split the batch"));
  FA3_RETURN_IF_ERROR(check_quantize_limit(p.q.varlen ? "total" : "seqlen", p.q.rows, kMaxRows,
                                           "split the tensor"));
  FA3_RETURN_IF_ERROR(check_quantize_limit("rotary_cos.shape[0]", p.rotation.positions, INT32_MAX,
                                           "keep the positions that occur"));
  FA3_RETURN_IF_ERROR(check_strides(p, kX, false));  // as TMA has them
  FA3_RETURN_IF_ERROR(check_codes(p));
  if (p.image.keys > 0) {  // whose kernel loads codes by TMA
    FA3_RETURN_IF_ERROR(check_strides(p, kCodes, has_lengths(p)));
    FA3_RETURN_IF_ERROR(check_axis(p, "token", kCodes, kCodes, has_lengths(p)));
  }
  for (const TensorId id : {kRotaryCos, kRotarySin}) {
    const Layout& table = p.layout[id];
    if (table.present())
      FA3_RETURN_IF_ERROR(check_stride(id, "row", p.rotation.positions, table.row,
                                       dtype_bytes(table.dtype), kAccess));
  }
  return {};
}

}  // namespace fa3::sm90
