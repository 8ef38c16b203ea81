// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.cpp — tensor maps, arguments, grid.
#include "backend/launch/fwd_sm90.h"

#include "backend/launch/mask_sm90.h"
#include "backend/launch/tensor_maps_sm90.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/common/ragged.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/score_offset_args.h"
#include "device/sm90/fwd/v_image_args.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {
namespace {

FwdScale fwd_scale(const Problem& p, const Buffers& buffers, TensorId of) {
  const Layout& layout = p.layout[scale_of(of)];
  const ScaleBlock& block = p.scale_block[of];
  const int64_t most = p.axis_of(of).max_seqlen;
  FwdScale scale{};
  scale.data = buffers.in<float>(scale_of(of));
  scale.batch = layout.batch, scale.row = layout.row, scale.head = layout.head;
  scale.block_rows = static_cast<i32>(std::min<int64_t>(block.rows, kRaggedRows));
  scale.blocks = block.rows > 0 ? static_cast<i32>(div_up(most, block.rows)) : 1;
  const bool of_kv_head = of != kQ || block.shared_by_group;
  scale.group_size = of_kv_head ? static_cast<i32>(p.group_size()) : 1;
  scale.by_total_row = block.by_total_row;
  return scale;
}

FwdColumns fwd_columns(const Problem& p, TensorId of) {
  const int64_t columns = p.columns_of(of), block = p.scale_block[of].cols;
  if (block == 0 || block >= columns) return {};
  return {static_cast<i32>(block), static_cast<i32>(div_up(columns, block))};
}

// Of v, or of the codes of a quantisation, in tiles of that many keys.
VImage image_of(const Problem& p, TensorId of, int keys, void* data) {
  const SeqAxis& axis = p.axis_of(of);
  const int64_t tiles = image_tiles(axis, p.batch, keys);
  return {static_cast<u8*>(data), axis.varlen ? 0 : tiles * p.heads_of(of), tiles, axis.varlen};
}

// Of FwdArgs::score_offset; rows follow one another.
struct ScoreOffsetStrides {
  int64_t batch, head;
};
ScoreOffsetStrides score_offset_strides(const Problem& p) {
  return {p.q.varlen ? 0 : p.heads_q * p.q.rows, p.q.rows};
}

}  // namespace

Status launch(const VImagePlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const TensorId of = plan.quantizes ? kCodes : kV;
  const SeqAxis& axis = p.axis_of(of);
  if (p.batch == 0 || axis.rows == 0 || p.heads_of(of) == 0) return {};
  const VImageConfig& c = plan.config;
  VImageArgs args{};
  FA3_TRY(args.v, run.runtime.encode(spec_of(buffers.data[of], p, of, c.raw_tile(), c.ragged)));
  args.kv_axis = axis_of(p, of, buffers, c.ragged);
  void* const to = plan.quantizes ? buffers.data[kImage] : run.slice<u8>(kVImageSlice);
  args.image = image_of(p, of, c.tile.keys, to);
  args.batch = static_cast<i32>(p.batch);
  args.tiles = static_cast<i32>(div_up(axis.rows, c.tile.keys));
  return run.launch(args);
}

Status launch(const ScoreOffsetPlan&, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  if (has_no_keys(p)) return {};
  const Layout &q = p.layout[kQ], &offset = p.layout[kKOffset];
  ScoreOffsetArgs args{};
  args.q = buffers.in<u8>(kQ);
  args.q_batch = q.batch, args.q_row = q.row, args.q_head = q.head;
  args.q_axis = lengths_of(p, kQ, buffers);
  args.q_scale = fwd_scale(p, buffers, kQ);
  args.q_columns = fwd_columns(p, kQ);
  args.k_offset = buffers.in<float>(kKOffset);
  args.k_offset_batch = offset.batch, args.k_offset_head = offset.head;
  args.batch = static_cast<i32>(p.batch);
  args.group_size = static_cast<i32>(p.group_size());
  args.head_dim = static_cast<i32>(p.head_dim_qk);
  args.softmax_scale = static_cast<float>(p.softmax_scale);
  args.to = run.slice<float>(kScoreOffsetSlice);
  const ScoreOffsetStrides to = score_offset_strides(p);
  args.to_batch = to.batch, args.to_head = to.head;
  return run.launch(args);
}

Status check_addresses(const FwdPlan&, const Problem& p, const Buffers& buffers) {
  return check_tma_addresses(p, buffers, {kQ, kK, kV, kO, kVImage});
}

// Of the forward's tensors it asks itself.
Status check_addresses(const VImagePlan&, const Problem& p, const Buffers& buffers) {
  return p.op == FA3_OP_QUANTIZE ? check_tma_addresses(p, buffers, {kCodes, kImage}) : Status();
}

Status launch(const FwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const FwdConfig& c = plan.config;
  FwdArgs args{};
  const auto encode = [&](TensorMap& map, TensorId id, const TileLayout& tile) -> Status {
    const bool in_cache = c.load.cached() && (id == kK || id == kV);
    FA3_TRY(map,
            run.runtime.encode(in_cache ? spec_of_cache(buffers.data[id], p, id, tile)
                                        : spec_of(buffers.data[id], p, id, tile, c.load.ragged)));
    return {};
  };
  FA3_RETURN_IF_ERROR(encode(args.q, kQ, c.q_tile()));
  if (has_no_keys(p)) {
    args.k = args.v = args.q;
  } else {
    FA3_RETURN_IF_ERROR(encode(args.k, kK, c.k_tile()));
    FA3_RETURN_IF_ERROR(encode(args.v, kV, c.v_tile()));
  }
  if (c.output.f32) {
    const Layout& o = p.layout[kO];
    args.o = args.q;
    args.o_f32 = buffers.out<float>(kO);
    args.o_row = o.row, args.o_head = o.head, args.o_batch = o.batch;
  } else {
    FA3_RETURN_IF_ERROR(encode(args.o, kO, c.o_tile()));
  }
  args.lse = buffers.out<float>(kLse);
  const Layout& lse = p.layout[kLse];
  args.lse_row = lse.row, args.lse_head = lse.head, args.lse_batch = lse.batch;
  args.next_tile = run.slice<u32>(kTileCounterSlice);
  args.q_axis = axis_of(p, kQ, buffers, c.load.ragged);
  args.kv_axis = axis_of(p, kK, buffers, c.load.ragged);
  args.batch = static_cast<i32>(p.batch);
  args.heads_q = static_cast<i32>(p.heads_q);
  args.group_size = static_cast<i32>(p.group_size());
  args.left = plan.band.left, args.right = plan.band.right, args.chunks = plan.band.chunks;
  args.score_factor = plan.score_factor;
  args.scale_log2 = plan.scale_log2;
  args.order = plan.order;
  args.elements = element_args_of(p, buffers, plan.slope_factor);
  args.q_scale = fwd_scale(p, buffers, kQ);
  args.k_scale = fwd_scale(p, buffers, kK);
  args.v_scale = fwd_scale(p, buffers, kV);
  args.q_columns = fwd_columns(p, kQ);
  args.k_columns = fwd_columns(p, kK);
  args.v_columns = fwd_columns(p, kV);
  args.v_offset = buffers.in<float>(kVOffset);
  const Layout& v_offset = p.layout[kVOffset];
  args.v_offset_batch = v_offset.batch, args.v_offset_head = v_offset.head;
  args.head_dim_v = static_cast<i32>(p.head_dim_v);
  if (c.load.v_image) {
    void* const image = plan.makes_v_image ? run.slice<u8>(kVImageSlice) : buffers.data[kVImage];
    args.v_image = image_of(p, kV, c.tile.kv, image);
  }
  if (plan.score_offset) {
    args.score_offset = run.slice<const float>(kScoreOffsetSlice);
    const ScoreOffsetStrides from = score_offset_strides(p);
    args.score_offset_batch = from.batch, args.score_offset_head = from.head;
  }
  if (c.mask.has_tensor()) args.mask = mask_of(run, plan.mask);
  args.mask_map = args.q;
  args.cache = cache_of(p, buffers, c.load.kv, c.tile.kv, held_runs(c.load.kv, c.tile.kv, false));
  args.part_o = run.slice<float>(kPartOSlice);
  args.sinks = sink_args_of(p, buffers);
  args.max_logit = max_logit_args_of(p, buffers);
  args.skipped_rows = static_cast<i32>(plan.skips_queries);
  args.k_places = places_of(p, buffers, kK), args.v_places = places_of(p, buffers, kV);
  if (c.mask.stages > 0) {
    const auto map = map_of_mask(buffers.data[kAttnMask], p, c.mask_tile());
    args.mask.by_tma = map.has_value();
    if (map) {
      FA3_TRY(args.mask_map, run.runtime.encode(*map));
    }
  }
  return run.launch(args);
}

}  // namespace fa3::sm90
