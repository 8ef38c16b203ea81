// SPDX-License-Identifier: BSD-3-Clause
// tensor_limits.cpp — limits of TMA and of 32-bit coordinates, with the argument that breaks one.
#include "plan/sm90/tensor_limits.h"

#include <algorithm>
#include <numeric>

#include "core/dtype.h"
#include "device/sm90/common/ragged.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kStrideLimit = int64_t{1} << 39;      // elements: TMA's strides end at 2^40 bytes
constexpr int64_t kMaxRaggedStride = int64_t{1} << 32;  // elements: well below kRaggedWrap bytes
constexpr int64_t kMaxCacheStride = int64_t{1} << 30;   // elements: 32 bits in bytes
constexpr int64_t kMaxRows = kRaggedRows - 512;         // coordinates of a tile stay in 31 bits

// Elements in 16 bytes, of which TMA wants multiples.
int64_t tma_elements(fa3_dtype dtype) { return 16 / dtype_bytes(dtype); }

Status check_stride(const Problem& p, TensorId id, const char* what, int64_t extent, int64_t stride,
                    fa3_dtype dtype) {
  const int64_t unit = tma_elements(dtype);
  if (extent <= 1 || (stride % unit == 0 && stride < kStrideLimit)) return {};
  return unsupported(
      "{}: {}: {} stride {} on sm90, need a multiple of {} elements (16 bytes) below 2^39, "
      "which TMA can address; copy the tensor, or use backend cpu",
      op_name(p.op), tensor_name(id), what, stride, unit);
}

}  // namespace

Status check_head_dim(const Problem& p, const char* name, int64_t dim, fa3_dtype dtype) {
  const int64_t unit = tma_elements(dtype);
  if (dim >= 1 && dim <= 256 && dim % unit == 0) return {};
  return unsupported(
      "{}: {}={} on sm90, need a multiple of {} up to 256; pad with zero columns, or use "
      "backend cpu",
      op_name(p.op), name, dim, unit);
}

Status check_strides(const Problem& p, TensorId id, bool ragged) {
  const Layout& layout = p.layout[id];
  const SeqAxis& axis = p.axis_of(id);
  FA3_RETURN_IF_ERROR(check_stride(p, id, "row", axis.rows, layout.row, layout.dtype));
  FA3_RETURN_IF_ERROR(check_stride(p, id, "head", p.heads_of(id), layout.head, layout.dtype));
  if (!axis.varlen)
    FA3_RETURN_IF_ERROR(check_stride(p, id, "batch", p.batch, layout.batch, layout.dtype));
  if (!ragged) return {};
  const int64_t row = ragged_row_stride(axis, layout);
  if (row >= kMaxRaggedStride) {
    return unsupported("{}: {}: row stride {} on sm90, need less than {}; copy the tensor",
                       op_name(p.op), tensor_name(id), row, kMaxRaggedStride);
  }
  if (!has_lengths(p) || axis.varlen || p.batch <= 1) return {};
  if (layout.batch == 0 || (row > 0 && layout.batch % row == 0)) return {};
  return unsupported(
      "{}: {}: batch stride {} with varlen or seqused tensors on sm90, need a multiple of the "
      "row stride {}; copy the tensor, or use backend cpu",
      op_name(p.op), tensor_name(id), layout.batch, row);
}

Status check_axis(const Problem& p, const char* name, TensorId a, TensorId b, bool ragged) {
  const SeqAxis& axis = p.axis_of(a);
  const int64_t batch_rows = ragged ? ragged_batch_rows(p, axis, p.layout[a]) : 0;
  const int64_t other = ragged ? ragged_batch_rows(p, axis, p.layout[b]) : 0;
  if (batch_rows != other) {
    return unsupported(
        "{}: the {} tensors' sequences lie {} and {} rows apart on sm90 with varlen or "
        "seqused tensors, need the same; copy one of them, or use backend cpu",
        op_name(p.op), name, batch_rows, other);
  }
  const int64_t rows = std::max(axis.rows, batch_rows * p.batch);
  if (rows <= kMaxRows) return {};
  const bool of_many = p.batch > 1 && (axis.varlen || axis.rows <= kMaxRows);
  return unsupported("{}: {} rows of {} on sm90, need at most {}; {}", op_name(p.op), rows, name,
                     kMaxRows, of_many ? "split the batch" : "use backend cpu");
}

CacheSteps cache_steps(const Problem& p, TensorId id) {
  const Layout& layout = p.layout[id];
  const int64_t entry = p.entries_of(id) > 1 ? layout.batch : 0;
  CacheSteps steps;
  steps.row_stride = layout.row;
  if (p.rows_of(id) <= 1)  // any, as it is never used
    steps.row_stride = entry > 0 ? entry : tma_elements(layout.dtype);
  steps.y = std::gcd(entry, steps.row_stride);
  if (steps.y == 0) steps.y = tma_elements(layout.dtype);
  steps.entry = entry / steps.y, steps.row = steps.row_stride / steps.y;
  return steps;
}

int64_t cache_run(const Problem& p, int64_t tile_kv) {
  if (!p.cache.paged()) return tile_kv;
  return p.cache.begins ? 1 : std::gcd(p.cache.page_size, tile_kv);
}

KvSource kv_source(const Problem& p, int64_t tile_kv, int64_t least_run) {
  if (!p.cache.present()) return KvSource::kTensor;
  const int64_t run = cache_run(p, tile_kv);
  if (run == tile_kv) return KvSource::kTiles;
  return run < least_run ? KvSource::kRows : KvSource::kRuns;
}

Status check_cache(const Problem& p) {
  constexpr int64_t kMaxSteps = int64_t{1} << 31;
  for (const TensorId id : {kK, kV}) {
    const Layout& layout = p.layout[id];
    const int64_t entries = p.entries_of(id), rows = p.rows_of(id);
    FA3_RETURN_IF_ERROR(check_stride(p, id, "row", rows, layout.row, layout.dtype));
    FA3_RETURN_IF_ERROR(check_stride(p, id, "head", p.heads_kv, layout.head, layout.dtype));
    FA3_RETURN_IF_ERROR(check_stride(p, id, "batch", entries, layout.batch, layout.dtype));
    const CacheSteps steps = cache_steps(p, id);
    if (steps.row_stride >= kMaxCacheStride)
      return unsupported("forward: {}: row stride {} on sm90, need less than {}; copy the tensor",
                         tensor_name(id), steps.row_stride, kMaxCacheStride);
    if (1.0 * entries * steps.entry + 1.0 * rows * steps.row < 1.0 * kMaxSteps) continue;
    return unsupported(
        "forward: {}: {} pages or slots of {} rows, with strides {} and {}, lie more than 2^31 "
        "times {} elements apart, their greatest common divisor, on sm90; split the cache, or use "
        "backend cpu",
        tensor_name(id), entries, rows, layout.batch, layout.row, steps.y);
  }
  if (p.kv.rows <= kMaxRows) return {};
  return unsupported("forward: {} rows of a sequence on sm90, need at most {}; {}", p.kv.rows,
                     kMaxRows,
                     p.cache.paged() ? "pass fewer columns of page_table" : "use backend cpu");
}

int64_t ragged_row_stride(const SeqAxis& axis, const Layout& layout) {
  return axis.varlen || axis.rows > 1 ? layout.row : layout.batch;
}

int64_t ragged_batch_rows(const Problem& problem, const SeqAxis& axis, const Layout& layout) {
  if (!has_lengths(problem)) return 1;
  const int64_t row = ragged_row_stride(axis, layout);
  return axis.varlen || problem.batch <= 1 || row == 0 ? 0 : layout.batch / row;
}

}  // namespace fa3::sm90
