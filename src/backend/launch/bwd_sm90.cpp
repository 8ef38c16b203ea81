// SPDX-License-Identifier: BSD-3-Clause
// bwd_sm90.cpp — tensor maps and arguments of the backward kernels.
#include "backend/launch/bwd_sm90.h"

#include <algorithm>
#include <cmath>

#include "backend/launch/mask_sm90.h"
#include "backend/launch/tensor_maps_sm90.h"
#include "core/dtype.h"
#include "device/attn/conventions.h"
#include "device/sm90/bwd/args.h"
#include "plan/sm90/float_types.h"
#include "plan/sm90/slices.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

BwdTensor tensor(const Problem& p, const Buffers& buffers, TensorId id) {
  const Layout& layout = p.layout[id];
  return {buffers.data[id], layout.batch, layout.row, layout.head, layout.dtype == FA3_F32};
}

BwdTiles tiles_of(const BwdPlan& plan, const Problem& p) {
  const int64_t of_sequence = div_up(p.q.rows, plan.config.tile_q);
  if (p.q.varlen) return {0, plan.tiles / p.heads_q, true};
  return {of_sequence * p.heads_q, of_sequence, false};
}

// In FP32, of scores that have a term of LSE: at least 2^-100, so that LSE / scale is finite. With
// less no score counts.
float scale_of_scores(const Problem& p) {
  return scale_in_fp32(
      std::copysign(std::max(std::fabs(p.softmax_scale), 0x1p-100), p.softmax_scale));
}

// The slices, from the first of a launch's sequences on.
struct Space {
  float* stats;
  u32 *sums, *flags;
  ptx::Vec<u32, 4>* bounds;
  DqZeroArgs zeros{};
  CoarseRowArgs coarse;

  Space(const BwdPlan& plan, const StepRun& run) {
    const BwdConfig& c = plan.config;
    const BwdTiles of = tiles_of(plan, run.problem);
    const int64_t tile = plan.first_sequence * (of.varlen ? 1 : of.batch);
    const int64_t head = plan.first_sequence * run.problem.heads_kv;
    coarse = {run.slice<float>(kCoarseRowsSlice, tile * 2 * c.tile_q),
              run.slice<float>(kCoarseRowsSlice, plan.tiles * 2 * c.tile_q + tile)};
    stats = run.slice<float>(kStatsSlice, tile * c.row_floats());
    sums = run.slice<u32>(kDqSumsSlice, tile * c.dq_sums());
    flags = run.slice<u32>(kDqFlagsSlice, tile * c.dq_flags());
    bounds = run.slice<ptx::Vec<u32, 4>>(kBoundsSlice, head * plan.bound_entries);
    u32* const counts = run.slice<u32>(kZeroCountsSlice);
    if (plan.zero_ahead == 0 || counts == nullptr) return;
    zeros.ahead = static_cast<i32>(plan.zero_ahead);
    zeros.tiles = static_cast<u32>(plan.tiles / plan.heads);
    zeros.taken = counts + tile;
    zeros.set = counts + plan.tiles + head;
  }
};

// Where a launch has but some of the sequences: the problem of those, and its tensors.
struct SomeSequences {
  Problem problem;
  Buffers buffers;

  SomeSequences(const BwdPlan& plan, const Problem& p, const Buffers& all)
      : problem(p), buffers(all) {
    const int64_t first = plan.first_sequence;
    problem.batch = plan.sequences;
    for (const TensorRow& row : kTensors) {
      void*& data = buffers.data[static_cast<size_t>(row.id)];
      if (data == nullptr) continue;
      const bool lengths = row.form == Form::kCuSeqlens || row.form == Form::kSeqused;
      int64_t bytes = sizeof(i32);
      if (!lengths) bytes = p.layout[row.id].batch * dtype_bytes(p.layout[row.id].dtype);
      data = static_cast<std::byte*>(data) + first * bytes;
    }
  }
};

Status launch_bound(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const Space space(plan, run);
  BwdBoundArgs args{};
  args.k = tensor(p, buffers, kK), args.v = tensor(p, buffers, kV);
  args.kv_axis = axis_of(p, kK, buffers, plan.config.ragged);
  args.batch = static_cast<i32>(p.batch);
  args.head_dim_qk = static_cast<i32>(p.head_dim_qk);
  args.head_dim_v = static_cast<i32>(p.head_dim_v);
  args.bounds = space.bounds;
  return run.launch(args);
}

Status launch_dq(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const Space space(plan, run);
  BwdDqArgs args{};
  args.dq = tensor(p, buffers, kDq);
  args.q_axis = axis_of(p, kQ, buffers, plan.config.ragged);
  args.batch = static_cast<i32>(p.batch);
  args.head_dim_qk = static_cast<i32>(p.head_dim_qk);
  args.scale = static_cast<float>(p.softmax_scale);
  args.tiles = tiles_of(plan, p);
  args.dq_sum = space.sums, args.dq_flag = space.flags, args.stats = space.stats;
  return run.launch(args);
}

// Whether some query may see some key; else dK and dV are set to 0.
bool visits(const Problem& p) { return !has_no_rows(p) && p.batch > 0; }

// Boxes of tensor maps.
struct MainTiles {
  TileLayout k, v, q, dout;
};

// Of the main kernel, and of all that does the same with scores.
BwdArgs main_args_without_maps(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const BwdConfig& c = plan.config;
  const Space space(plan, run);
  BwdArgs args{};
  if (visits(p)) args.q_axis = axis_of(p, kQ, buffers, c.ragged);
  args.kv_axis = axis_of(p, kK, buffers, c.ragged);
  args.batch = static_cast<i32>(p.batch);
  args.group_size = static_cast<i32>(p.group_size());
  args.section_log2 = plan.section_log2;
  args.kv_rows = static_cast<i32>(most_rows(p.kv));
  args.head_dim_qk = static_cast<i32>(p.head_dim_qk);
  args.head_dim_v = static_cast<i32>(p.head_dim_v);
  args.stores_dq = plan.stores_dq, args.sums_dq = plan.sums_dq;
  args.band = band_of(p);
  const bool capped = p.softcap > 0;
  const double unit = c.adds_mask() ? 1 : double{kLog2e};
  args.scale_log2 =
      capped ? scale_in_fp32(p.softcap * unit) : scale_in_fp32(scale_of_scores(p) * unit);
  args.score_factor = capped ? scale_in_fp32(p.softmax_scale / p.softcap) : 1;
  args.unscale = 1 / args.scale_log2;
  args.scale = static_cast<float>(p.softmax_scale);
  args.tiles = tiles_of(plan, p);
  args.stats = space.stats, args.dq_sum = space.sums, args.dq_flag = space.flags;
  args.zeros = space.zeros;
  args.dk = tensor(p, buffers, kDk), args.dv = tensor(p, buffers, kDv);
  args.ids_kv = buffers.in<i32>(kSequenceIdsKv);
  args.id_kv_batch = p.layout[kSequenceIdsKv].batch;
  if (c.adds_mask()) {
    args.image = image_of(plan.image, run.slice<std::byte>(kMaskImageSlice), plan.first_sequence);
    args.coarse = space.coarse;
  } else if (c.has_mask()) {
    args.mask = mask_of(run, plan.mask);
    args.mask.bits += plan.first_sequence * args.mask.bits_batch;
    args.mask.tiles += plan.first_sequence * args.mask.tiles_batch;
  }
  return args;
}
Result<BwdArgs> main_args(const BwdPlan& plan, const MainTiles& tiles, const StepRun& run) {
  const Problem& p = run.problem;
  BwdArgs args = main_args_without_maps(plan, run);
  if (!visits(p)) return args;
  const auto encode = [&](TensorMap& map, TensorId id, const TileLayout& tile) -> Status {
    FA3_TRY(map,
            run.runtime.encode(spec_of(run.buffers.data[id], p, id, tile, plan.config.ragged)));
    return {};
  };
  if (p.kv.rows > 0) FA3_RETURN_IF_ERROR(encode(args.k, kK, tiles.k));
  if (p.kv.rows > 0) FA3_RETURN_IF_ERROR(encode(args.v, kV, tiles.v));
  FA3_RETURN_IF_ERROR(encode(args.q, kQ, tiles.q));
  FA3_RETURN_IF_ERROR(encode(args.dout, kDout, tiles.dout));
  return args;
}

Status launch_delta(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const Space space(plan, run);
  BwdMaskedDeltaArgs args{};
  args.o = tensor(p, buffers, kO), args.dout = tensor(p, buffers, kDout);
  args.lse = buffers.in<float>(kLse), args.dlse = buffers.in<float>(kDlse);
  const Layout &lse = p.layout[kLse], &dlse = p.layout[kDlse];
  args.lse_batch = lse.batch, args.lse_row = lse.row, args.lse_head = lse.head;
  args.dlse_batch = dlse.batch, args.dlse_row = dlse.row, args.dlse_head = dlse.head;
  args.q_axis = axis_of(p, kQ, buffers, plan.config.ragged);
  args.batch = static_cast<i32>(p.batch);
  args.head_dim_v = static_cast<i32>(p.head_dim_v);
  args.tiles = tiles_of(plan, p);
  args.minus_unscale = -1 / scale_of_scores(p);
  args.stats = space.stats, args.dq_flag = space.flags, args.zeros = space.zeros;
  args.dq_sum = plan.sums_dq && !plan.stores_dq ? space.sums : nullptr;
  args.elements = element_args_of(p, buffers, 1);
  args.bounds = space.bounds;
  args.bound_entries = static_cast<i32>(plan.bound_entries);
  args.group_size = static_cast<i32>(p.group_size());
  args.sinks = sink_args_of(p, buffers);
  if (plan.config.adds_mask()) {
    args.q = tensor(p, buffers, kQ), args.k = tensor(p, buffers, kK);
    args.main = main_args_without_maps(plan, run);
    return run.launch(args);
  }
  const BwdDeltaArgs& unmasked = args;
  return run.launch(unmasked);
}

Status launch_sinks(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const Space space(plan, run);
  BwdSinksArgs args{};
  args.sinks = sink_args_of(p, buffers);
  args.dsinks = buffers.data[kDsinks];
  args.type = float_type_of(p.layout[kDsinks].dtype);
  args.lse = buffers.in<float>(kLse);
  const Layout& lse = p.layout[kLse];
  args.lse_batch = lse.batch, args.lse_row = lse.row, args.lse_head = lse.head;
  args.q_axis = axis_of(p, kQ, buffers, plan.config.ragged);
  args.batch = static_cast<i32>(plan.visits ? p.batch : 0);
  args.tiles = tiles_of(plan, p);
  args.stats = space.stats;
  args.tile_q = plan.config.tile_q;
  args.row_floats = plan.config.row_floats(), args.delta_at = plan.config.delta_at();
  return run.launch(args);
}

Status launch_mask_gradient(const BwdPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& buffers = run.buffers;
  const BwdConfig& c = plan.gradient;
  MaskGradientArgs args{};
  const MainTiles tiles{c.k_tile(), c.v_tile(), c.q_tiles(), c.dout_tiles()};
  FA3_TRY(args.main, main_args(plan, tiles, run));
  const Layout& layout = p.layout[kDattnMask];
  args.data = buffers.data[kDattnMask];
  args.batch = layout.batch, args.head = layout.head, args.row = layout.row;
  args.f32 = layout.dtype == FA3_F32;
  const MaskExtents& n = p.mask_grad;
  args.rows = static_cast<i32>(n.rows), args.keys = static_cast<i32>(n.columns);
  args.sum_rows = n.rows == 1, args.sum_keys = n.columns == 1;
  const int64_t odd = layout.batch | layout.head | layout.row | n.columns;
  const size_t four_bytes = 4 * static_cast<size_t>(dtype_bytes(layout.dtype));
  args.fours = odd % 4 == 0 && reinterpret_cast<uintptr_t>(args.data) % four_bytes == 0;
  const auto extent = [](int64_t own, int64_t all, int64_t tile = 1) {
    return GradientExtent{static_cast<i32>(div_up(own, tile)), static_cast<i32>(div_up(all, tile))};
  };
  args.batches = extent(n.batch, p.batch);
  args.heads = extent(n.heads, p.heads_q);
  args.q_tiles = extent(n.rows, most_rows(p.q), c.tile_q * c.parts());
  args.kv_tiles = extent(n.columns, most_rows(p.kv), c.tile_kv());
  return run.launch(args);
}

}  // namespace

Status check_addresses(const BwdPlan&, const Problem& p, const Buffers& buffers) {
  return check_tma_addresses(p, buffers, {kQ, kK, kV, kO, kDout, kDq, kDk, kDv});
}

namespace {
Status launch_part(const BwdPlan& plan, const StepRun& run) {
  switch (plan.pass) {
    case BwdPass::kBound:
      return launch_bound(plan, run);
    case BwdPass::kDelta:
      return launch_delta(plan, run);
    case BwdPass::kDq:
      return launch_dq(plan, run);
    case BwdPass::kMaskGradient:
      return launch_mask_gradient(plan, run);
    case BwdPass::kSinks:
      return launch_sinks(plan, run);
    default:
      break;
  }
  const BwdConfig& c = plan.config;
  const Problem& p = run.problem;
  if (p.kv.rows == 0 || p.heads_kv == 0 || (p.batch == 0 && !p.kv.varlen)) return {};
  const MainTiles tiles{c.k_tile(), c.v_tile(), c.q_tile(), c.dout_tile()};
  FA3_TRY(const BwdArgs args, main_args(plan, tiles, run));
  return run.launch(args);
}

}  // namespace

Status launch(const BwdPlan& plan, const StepRun& run) {
  if (plan.sequences == run.problem.batch) return launch_part(plan, run);
  const SomeSequences some(plan, run.problem, run.buffers);
  return launch_part(
      plan, {run.step, run.runtime, run.stream, some.problem, some.buffers, run.workspace});
}

}  // namespace fa3::sm90
