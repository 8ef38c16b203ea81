// SPDX-License-Identifier: BSD-3-Clause
// tensor_maps_sm90.cpp — tensors as TMA sees them; rows and caches as Hopper kernels address them.
#include "backend/launch/tensor_maps_sm90.h"

#include <algorithm>
#include <bit>

#include "core/dtype.h"
#include "device/sm90/common/ragged.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {

Status check_tma_addresses(const Problem& p, const Buffers& buffers,
                           std::initializer_list<TensorId> ids) {
  constexpr uintptr_t kAlign = 16;  // bytes
  for (const TensorId id : ids) {
    if ((id == kK || id == kV || id == kVImage) && has_no_keys(p)) continue;
    const uintptr_t past = reinterpret_cast<uintptr_t>(buffers.data[id]) % kAlign;
    if (past == 0) continue;
    return unsupported(
        "{}: {}.data={} on sm90 is {} bytes past a multiple of {}, need none, which TMA can "
        "address; copy the tensor to such an address, or use backend cpu",
        op_name(p.op), tensor_name(id), buffers.data[id], past, kAlign);
  }
  return {};
}

TensorMapSpec spec_of(void* base, const Problem& p, TensorId id, const TileLayout& tile,
                      bool ragged) {
  const Layout& layout = p.layout[id];
  const SeqAxis& axis = p.axis_of(id);
  const int64_t heads = p.heads_of(id);
  const auto bytes = [&tile](int64_t extent, int64_t stride) {  // any stride, if it is never used
    return extent > 1 ? static_cast<u64>(tile.element_bytes * stride) : u64{16};
  };
  const u64 head = bytes(heads, layout.head);
  const u64 row =
      ragged ? bytes(axis.varlen ? axis.rows : axis.rows * p.batch, ragged_row_stride(axis, layout))
             : bytes(axis.rows, layout.row);
  TensorMapSpec spec;
  spec.name = tensor_name(id);
  spec.base = base;
  spec.type = layout.dtype == FA3_F16    ? TmaType::kF16
              : layout.dtype == FA3_BF16 ? TmaType::kBf16
                                         : TmaType::kU8;
  spec.swizzle = tile.swizzle();
  spec.dim[0] = static_cast<u64>(p.columns_of(id));
  spec.box[0] = static_cast<u32>(tile.panel_columns());
  spec.box[1] = static_cast<u32>(tile.rows);
  spec.box[2] = spec.box[3] = spec.box[4] = 1;
  const auto dimension = [&spec](int i, u64 extent, u64 stride) {
    spec.dim[i] = extent, spec.stride_bytes[i] = stride;
  };
  if (ragged) {
    // For sequences of equal lengths, y takes the batch stride, whatever it is; the base makes up
    // for `rows` steps of y instead of row strides.
    const u64 y = has_lengths(p) ? row : bytes(p.batch, layout.batch);
    spec.base = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(base) -
                                        static_cast<u64>(axis.rows) * (y - row));
    spec.rank = 5;
    dimension(1, kRaggedRows, row);
    dimension(2, u64{1} << 31, y);
    dimension(3, u64{1} << 31, kRaggedWrap - row);
    dimension(4, static_cast<u64>(heads), head);
  } else {
    spec.rank = 4;
    dimension(1, static_cast<u64>(axis.rows), row);
    dimension(2, static_cast<u64>(heads), head);
    dimension(3, static_cast<u64>(p.batch), bytes(p.batch, layout.batch));
  }
  return spec;
}

TensorMapSpec spec_of_cache(void* base, const Problem& p, TensorId id, const TileLayout& tile) {
  const Layout& layout = p.layout[id];
  const CacheSteps steps = cache_steps(p, id);
  const auto bytes = [&tile](int64_t stride) {
    return static_cast<u64>(tile.element_bytes * stride);
  };
  const u64 row = bytes(steps.row_stride);
  TensorMapSpec spec = spec_of(base, p, id, tile, false);
  spec.box[1] = static_cast<u32>(cache_run(p, tile.rows));
  spec.rank = 5;
  spec.dim[1] = kRaggedRows, spec.stride_bytes[1] = row;
  spec.dim[2] = u64{1} << 31, spec.stride_bytes[2] = bytes(steps.y);
  spec.dim[3] = u64{1} << 31, spec.stride_bytes[3] = kRaggedWrap - row;
  spec.dim[4] = static_cast<u64>(p.heads_kv);
  spec.stride_bytes[4] = p.heads_kv > 1 ? bytes(layout.head) : 16;
  return spec;
}

KvCacheArgs cache_of(const Problem& p, const Buffers& buffers, KvSource source, int tile_kv,
                     int held) {
  KvCacheArgs args = cache_of(p, buffers);
  args.run = source == KvSource::kRows ? 1 : static_cast<int>(cache_run(p, tile_kv));
  args.runs = tile_kv / args.run;
  args.tiles = std::max(32 * held / args.runs, 1);
  return args;
}

KvCacheArgs cache_of(const Problem& p, const Buffers& buffers) {
  const KvCache& cache = p.cache;
  return {.page_table = cache.paged() ? buffers.in<i32>(kPageTable) : nullptr,
          .slots = buffers.in<i32>(kKvBatchIdx),
          .begins = buffers.in<i32>(kKvBegin),
          .entries = static_cast<i32>(cache.paged() || cache.slots ? cache.entries : p.batch),
          .page_size = static_cast<i32>(cache.page_size),
          .max_pages = static_cast<i32>(cache.max_pages),
          .page_log2 = std::has_single_bit(static_cast<uint64_t>(cache.page_size))
                           ? std::countr_zero(static_cast<uint64_t>(cache.page_size))
                           : -1,
          .run = 1,
          .runs = 1,
          .tiles = 1};
}

KvPlaces places_of(const Problem& p, const Buffers& buffers, TensorId id) {
  const int64_t bytes = dtype_bytes(p.layout[id].dtype);
  const CacheSteps steps = cache_steps(p, id);
  return {.entry = static_cast<i32>(steps.entry),
          .row = static_cast<i32>(steps.row),
          .data = buffers.in<u8>(id),
          .step = static_cast<i32>(bytes * steps.y),
          .head = bytes * p.layout[id].head,
          .columns = static_cast<u32>(p.columns_of(id))};
}

TensorMapSpec spec_of_rows(void* base, const Problem& p, TensorId id, const TileLayout& tile) {
  if (!p.axis_of(id).varlen) return spec_of(base, p, id, tile, false);
  Problem one = p;  // whose one sequence is all
  one.q.varlen = one.kv.varlen = false;
  one.batch = 1;
  return spec_of(base, one, id, tile, false);
}

// Dense tensors are not addressed by rows over all sequences, which may exceed 32 bits.
RowAxis axis_of(const Problem& p, TensorId id, const Buffers& buffers, bool ragged) {
  RowAxis axis = lengths_of(p, id, buffers);
  if (ragged) axis.batch_rows = static_cast<i32>(ragged_batch_rows(p, p.axis_of(id), p.layout[id]));
  return axis;
}

}  // namespace fa3::sm90
