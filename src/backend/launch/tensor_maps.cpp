// SPDX-License-Identifier: BSD-3-Clause
// tensor_maps.cpp — tensors as TMA sees them, and what kernels read themselves.
#include "backend/launch/tensor_maps.h"

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

TensorMapSpec spec_of_rows(void* base, const Problem& p, TensorId id, const TileLayout& tile) {
  if (!p.axis_of(id).varlen) return spec_of(base, p, id, tile, false);
  Problem one = p;  // whose one sequence is all
  one.q.varlen = one.kv.varlen = false;
  one.batch = 1;
  return spec_of(base, one, id, tile, false);
}

// Dense tensors are not addressed by rows over all sequences, which may exceed 32 bits.
RowAxis axis_of(const Problem& p, TensorId id, const Buffers& buffers, bool ragged) {
  const SeqAxis& axis = p.axis_of(id);
  const Axis which = kTensors[id].axis;
  const int64_t batch_rows = ragged ? ragged_batch_rows(p, axis, p.layout[id]) : 0;
  return {buffers.in<i32>(cu_seqlens_of(which)), buffers.in<i32>(seqused_of(which)),
          static_cast<i32>(axis.rows), static_cast<i32>(batch_rows)};
}

ElementArgs elements_of(const Problem& p, const Buffers& buffers, float slope_factor) {
  return {.alibi_slopes = buffers.in<float>(kAlibiSlopes),
          .slope_batch = p.layout[kAlibiSlopes].batch,
          .slope_factor = slope_factor,
          .ids_q = buffers.in<i32>(kSequenceIdsQ),
          .ids_kv = buffers.in<i32>(kSequenceIdsKv),
          .id_q_batch = p.layout[kSequenceIdsQ].batch,
          .id_kv_batch = p.layout[kSequenceIdsKv].batch};
}

}  // namespace fa3::sm90
