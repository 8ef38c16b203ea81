// SPDX-License-Identifier: BSD-3-Clause
// decode_sm90.cpp — tensor maps and arguments of the decode kernels.
#include "backend/launch/decode_sm90.h"

#include "backend/launch/append_sm90.h"
#include "backend/launch/arguments.h"
#include "backend/launch/tensor_maps_sm90.h"
#include "core/dtype.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/decode/args.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

// The kernel that merges loads no keys.
KvSource source_of(const DecodeConfig& c) { return c.kv; }
KvSource source_of(const CombineConfig&) { return KvSource::kTensor; }

u32 cluster_of(const DecodePlan& plan) { return plan.cluster; }
u32 cluster_of(const CombinePlan&) { return 1; }

// plan: of one of both kernels.
DecodeShape shape_for(const StepRun& run, const auto& plan, const Band32& band) {
  const auto& c = plan.config;
  const Problem& p = run.problem;
  return {.q_axis = axis_of(p, kQ, run.buffers, c.ragged),
          .kv_axis = axis_of(p, kK, run.buffers, c.ragged),
          .most_q = static_cast<i32>(plan.beside ? kFewQueries : most_rows(p.q)),
          .most_kv = static_cast<i32>(most_rows(p.kv)),
          .beside = plan.beside,
          .batch = static_cast<i32>(p.batch),
          .heads_kv = static_cast<i32>(p.heads_kv),
          .group = Divider::by(static_cast<u32>(p.group_size())),
          .band = band,
          .ctas = static_cast<i32>(plan.ctas),
          .most_parts = static_cast<u32>(p.num_splits),
          .cluster = Divider::by(cluster_of(plan)),
          .cache = cache_of(p, run.buffers, source_of(c), c.tile_kv,
                            held_runs(source_of(c), c.tile_kv, true)),
          .fresh = static_cast<i32>(c.appends ? p.fresh.rows : 0)};
}

DecodeAppend append_of(const StepRun& run) {
  const Problem& p = run.problem;
  const auto tensor = [&](TensorId id) {
    return append_tensor(p.layout[id], run.buffers.data[id]);
  };
  return {.k_new = tensor(kKNew),
          .v_new = tensor(kVNew),
          .k = tensor(kK),
          .v = tensor(kV),
          .table = append_table(p, run.buffers),
          .rotated = static_cast<i32>(p.rotation.rotary_dim / 2),
          .head_dim_v = static_cast<i32>(p.head_dim_v),
          .moves = p.has_positions()};
}

DecodeScales scales_of(const StepRun& run, TensorId id) {
  const Layout& layout = run.problem.layout[scale_of(id)];
  return {run.buffers.in<float>(scale_of(id)), layout.batch, layout.head};
}

DecodeOutput output_of(const StepRun& run) {
  const Problem& p = run.problem;
  const Layout &o = p.layout[kO], &lse = p.layout[kLse];
  return {.o = run.buffers.data[kO],
          .o_row = o.row,
          .o_head = o.head,
          .o_batch = o.batch,
          .lse = run.buffers.out<float>(kLse),
          .lse_row = lse.row,
          .lse_head = lse.head,
          .lse_batch = lse.batch,
          .head_dim_v = static_cast<i32>(p.head_dim_v),
          .sinks = sink_args_of(p, run.buffers),
          .max_logit = max_logit_args_of(p, run.buffers)};
}

DecodeParts parts_of(const StepRun& run, const PartGrid& grid, float scale_log2) {
  return {.o = run.slice<float>(kPartsOSlice),
          .lse = run.slice<float>(kPartsLseSlice),
          .row_tiles = grid.row_tiles,
          .per_unit = grid.per_unit,
          .scale_log2 = scale_log2};
}

}  // namespace

Status check_addresses(const DecodePlan& plan, const Problem& p, const Buffers& buffers) {
  if (plan.config.appends)
    FA3_RETURN_IF_ERROR(check_tma_addresses(p, buffers, {kKNew, kVNew, kRotaryCos, kRotarySin}));
  return check_tma_addresses(p, buffers, {kQ, kK, kV, kO});
}

Status launch(const DecodePlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const DecodeConfig& c = plan.config;
  DecodeArgs args{};
  const auto spec = [&](TensorId id, const TileLayout& tile) {
    return c.cached() ? spec_of_cache(buffers.data[id], p, id, tile)
                      : spec_of(buffers.data[id], p, id, tile, c.ragged);
  };
  FA3_TRY(args.k, run.runtime.encode(spec(kK, c.k_tile())));
  FA3_TRY(args.v, run.runtime.encode(spec(kV, c.v_tile())));
  args.k_places = places_of(p, buffers, kK), args.v_places = places_of(p, buffers, kV);
  args.shape = shape_for(run, plan, plan.forward.band);
  args.q = buffers.in<u16>(kQ);
  const Layout& q = p.layout[kQ];
  args.q_row = q.row, args.q_head = q.head, args.q_batch = q.batch;
  args.head_dim_qk = static_cast<i32>(p.head_dim_qk);
  args.score_factor = plan.forward.score_factor;
  args.scale_log2 = plan.forward.scale_log2;
  args.alibi_slopes = buffers.in<float>(kAlibiSlopes);
  args.slope_batch = p.layout[kAlibiSlopes].batch;
  args.slope_factor = plan.forward.slope_factor;
  args.out = output_of(run);
  args.parts = parts_of(run, plan.parts, plan.forward.scale_log2);
  if (c.appends) args.append = append_of(run);
  const Layout& tree = p.layout[kTreeMask];
  args.tree = {buffers.in<u32>(kTreeMask), tree.batch, tree.row};
  args.q_scale = scales_of(run, kQ), args.k_scale = scales_of(run, kK);
  args.v_scale = scales_of(run, kV);
  args.q_scale_of_group = p.scale_block[kQ].shared_by_group;
  return run.launch(args);
}

Status launch(const CombinePlan& plan, const StepRun& run) {
  CombineArgs args{};
  args.shape = shape_for(run, plan, plan.band);
  args.waits = run.step.part->in_workspace(kSequsedKv);
  args.row_tiles = plan.by_unit() ? plan.row_tiles : 0;
  args.out = output_of(run);
  args.parts = parts_of(run, plan.parts, plan.scale_log2);
  args.in_trees = run.problem.has_tree();
  return run.launch(args);
}

}  // namespace fa3::sm90
