// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.cpp — tensor maps, arguments, grid.
#include "backend/launch/fwd_sm90.h"

#include "device/sm90/fwd/args.h"

namespace fa3::sm90 {
namespace {

// A tensor as FwdArgs describes it to TMA: rows of one head, in boxes of one panel of the tile.
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
  spec.type = layout.dtype == FA3_F16 ? TmaType::kF16 : TmaType::kBf16;
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

// Dense tensors are not addressed by rows over all sequences, which may exceed 32 bits.
FwdAxis axis_of(const Problem& p, const SeqAxis& axis, const Layout& layout, bool ragged,
                const i32* cu_seqlens, const i32* seqused) {
  const int64_t batch_rows = ragged ? ragged_batch_rows(p, axis, layout) : 0;
  return {cu_seqlens, seqused, static_cast<i32>(axis.rows), static_cast<i32>(batch_rows)};
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

}  // namespace

Status check_addresses(const FwdPlan&, const Problem& p, const Buffers& buffers) {
  constexpr uintptr_t kAlign = 16;
  for (const TensorId id : {kQ, kK, kV, kO}) {
    if ((id == kK || id == kV) && has_no_keys(p)) continue;
    const uintptr_t past = reinterpret_cast<uintptr_t>(buffers.data[id]) % kAlign;
    if (past == 0) continue;
    return unsupported(
        "forward: {}.data={} on sm90 is {} bytes past a multiple of {}, need none, which TMA can "
        "address; copy the tensor to such an address, or use backend cpu",
        tensor_name(id), buffers.data[id], past, kAlign);
  }
  return {};
}

Status launch(const FwdPlan& plan, const KernelStep& step, GpuRuntime& runtime, StreamRef stream,
              const Problem& p, const Buffers& buffers, std::byte* workspace) {
  const FwdConfig& c = plan.config;
  FwdArgs args{};
  const auto encode = [&](TensorMap& map, TensorId id, const TileLayout& tile) -> Status {
    FA3_TRY(map, runtime.encode(spec_of(buffers.data[id], p, id, tile, c.ragged)));
    return {};
  };
  FA3_RETURN_IF_ERROR(encode(args.q, kQ, c.q_tile()));
  if (has_no_keys(p)) {
    args.k = args.v = args.q;
  } else {
    FA3_RETURN_IF_ERROR(encode(args.k, kK, c.k_tile()));
    FA3_RETURN_IF_ERROR(encode(args.v, kV, c.v_tile()));
  }
  FA3_RETURN_IF_ERROR(encode(args.o, kO, c.o_tile()));
  args.lse = buffers.out<float>(kLse);
  const Layout& lse = p.layout[kLse];
  args.lse_row = lse.row, args.lse_head = lse.head, args.lse_batch = lse.batch;
  args.next_tile = plan.counter ? reinterpret_cast<u32*>(workspace) : nullptr;
  args.q_axis = axis_of(p, p.q, p.layout[kQ], c.ragged, buffers.in<i32>(kCuSeqlensQ),
                        buffers.in<i32>(kSequsedQ));
  args.kv_axis = axis_of(p, p.kv, p.layout[kK], c.ragged, buffers.in<i32>(kCuSeqlensKv),
                         buffers.in<i32>(kSequsedKv));
  args.batch = static_cast<i32>(p.batch);
  args.heads_q = static_cast<i32>(p.heads_q);
  args.group_size = static_cast<i32>(p.group_size());
  args.band = plan.band;
  args.score_factor = plan.score_factor;
  args.scale_log2 = plan.scale_log2;
  args.order = plan.order;
  args.elements = elements_of(p, buffers, plan.slope_factor);
  return runtime.launch(step.program, step.shape, &args, sizeof args, stream);
}

}  // namespace fa3::sm90
