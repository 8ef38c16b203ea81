// SPDX-License-Identifier: BSD-3-Clause
// mask_gradient.cpp — dattn_mask = P ∘ (dP − δ), summed over batch entries, heads, queries or keys.
//
// A task is one tile of dattn_mask. It goes through all that is summed into it, in one order, and
// computes S and dP of it again: two GEMMs, for which no other task has to be waited for and no
// memory is needed but the sums of a tile.
#include "backend/cpu/mask_gradient.h"

#include "core/dtype.h"

namespace fa3::cpu {
namespace {

// Where a dimension of a tile begins and ends among what it stands for.
IndexRange part(int64_t at, int64_t size, int64_t extent, int64_t all) {
  return extent == 1 ? IndexRange{0, all} : IndexRange{at * size, min((at + 1) * size, all)};
}
int64_t parts(int64_t extent, int64_t size) { return extent == 1 ? 1 : div_up(extent, size); }

// One tile: what it stands for in each dimension.
struct Tile {
  IndexRange batch, heads, rows, columns;
};

Tile tile_of(const Problem& p, const CpuPlan& plan, int64_t index) {
  const MaskExtents& n = p.mask_grad;
  const int64_t columns = parts(n.columns, plan.tile_kv), rows = parts(n.rows, plan.tile_q);
  Tile tile;
  tile.columns = part(index % columns, plan.tile_kv, n.columns, p.kv.max_seqlen);
  tile.rows = part(index / columns % rows, plan.tile_q, n.rows, p.q.rows);
  tile.heads = part(index / columns / rows % n.heads, 1, n.heads, p.heads_q);
  tile.batch = part(index / columns / rows / n.heads, 1, n.batch, p.batch);
  return tile;
}

// P ∘ (dP − δ) of a block and a chunk into x.dp, in the spans x.visible; K and V are in x.
void score_gradient(const Head& head, const Kernels& kernels, int64_t h, IndexRange chunk,
                    IndexRange block, BackwardScratch& x) {
  const Backward& run = head.run;
  const int queries = static_cast<int>(block.size()), keys = static_cast<int>(chunk.size());
  const int tiles = static_cast<int>(div_up(keys, kTileRows));
  load_queries(head, h, block, x);
  set_bias(head, chunk, block, h, x.terms);
  kernels.gemm_columns(tiles, kernels.units(run.width(kQ)), x.k_rows, run.cpu.width_qk, x.qt,
                       queries, x.s, x.ld_s, x.tile);
  kernels.gemm_columns(tiles, kernels.units(run.width(kV)), x.v_rows, run.cpu.width_v, x.dot,
                       queries, x.dp, x.ld_s, x.tile);
  kernels.softmax_grad({.s = x.s,
                        .dp = x.dp,
                        .ld = x.ld_s,
                        .rows = keys,
                        .visible = x.visible,
                        .tile = x.tile,
                        .lse_high = x.lse_high,
                        .lse_low = x.lse_low,
                        .delta = x.delta,
                        .largest = x.has_coarse_rows ? x.largest : nullptr,
                        .scale_log2e = run.scale.scale_log2e,
                        .softcap_in = run.scale.softcap_in,
                        .terms = &x.terms,
                        .of_mask = true});
}

// Adds one head of one sequence to the sums of a tile.
void add_head(const Backward& run, const Tile& tile, int64_t b, int64_t h, BackwardScratch& x) {
  const Problem& p = run.problem;
  const Head head(run, b * p.heads_kv + h / p.group_size());
  const IndexRange rows = intersect(tile.rows, {0, head.len.q});
  const IndexRange columns = intersect(tile.columns, {0, head.len.kv});
  for (int64_t key = columns.lo; key < columns.hi; key += run.cpu.tile_kv) {
    const IndexRange chunk{key, min(key + run.cpu.tile_kv, columns.hi)};
    const int keys = static_cast<int>(chunk.size());
    bool loaded = false;
    for (int64_t query = rows.lo; query < rows.hi; query += run.cpu.tile_q) {
      const IndexRange block{query, min(query + run.cpu.tile_q, rows.hi)};
      if (!set_spans(head, h, chunk, block, x)) continue;
      if (!loaded) {
        run.kernels.copy_rows(head.rows(kK, key, head.h_kv, keys), run.scale.sign, x.k_rows,
                              run.cpu.width_qk);
        run.kernels.copy_rows(head.rows(kV, key, head.h_kv, keys), 1.0f, x.v_rows, run.cpu.width_v);
        loaded = true;
      }
      score_gradient(head, run.kernels, h, chunk, block, x);
      for (int j = 0; j < keys; ++j) {
        const float* const from = x.dp + j * x.ld_s;
        double* const to = x.mask_grad + (p.mask_grad.columns == 1 ? 0 : j) * x.ld_s;
        const Span seen = x.visible[j];
        for (int i = seen.lo; i < seen.hi; ++i)
          to[p.mask_grad.rows == 1 ? 0 : i] += static_cast<double>(from[i]);
      }
    }
  }
}

template <class T>
void store_tile(const Problem& p, const Tile& tile, void* data, const BackwardScratch& x) {
  const Layout& layout = p.layout[kDattnMask];
  const MaskExtents& n = p.mask_grad;
  const auto first = [](IndexRange range, int64_t extent) { return extent == 1 ? 0 : range.lo; };
  const int64_t rows = n.rows == 1 ? 1 : tile.rows.size();
  const int64_t columns = n.columns == 1 ? 1 : tile.columns.size();
  T* const to = static_cast<T*>(data) + first(tile.batch, n.batch) * layout.batch +
                first(tile.heads, n.heads) * layout.head + first(tile.rows, n.rows) * layout.row +
                first(tile.columns, n.columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[i * layout.row + j] = from_double<T>(x.mask_grad[j * x.ld_s + i]);
}

}  // namespace

int64_t mask_gradient_tasks(const Problem& p, const CpuPlan& plan) {
  if (!p.layout[kDattnMask].present()) return 0;
  const MaskExtents& n = p.mask_grad;
  return n.batch * n.heads * parts(n.rows, plan.tile_q) * parts(n.columns, plan.tile_kv);
}

void mask_gradient(const Backward& shared, std::byte* workspace, const Executor& executor,
                   Progress progress) {
  const Problem& p = shared.problem;
  // dS is summed, and not an operand: in FP32 whatever the type.
  const Backward run{
      p,           shared.cpu,    shared.buffers, kernels(shared.cpu.isa, FA3_F32), shared.scale,
      shared.band, shared.grad_q, shared.coarse};
  executor.run(
      mask_gradient_tasks(p, run.cpu),
      [&](const TaskContext& task) {
        const Tile tile = tile_of(p, run.cpu, task.index);
        auto x = scratch_of_slot<BackwardScratch>(workspace, run.cpu, task.slot);
        std::fill_n(x.mask_grad, round_up(run.cpu.tile_kv, kTileRows) * x.ld_s, 0.0);
        for (int64_t b = tile.batch.lo; b < tile.batch.hi; ++b)
          for (int64_t h = tile.heads.lo; h < tile.heads.hi; ++h) add_head(run, tile, b, h, x);
        void* const data = run.buffers.data[kDattnMask];
        const fa3_dtype dtype = p.layout[kDattnMask].dtype;
        if (dtype == FA3_F16) store_tile<F16>(p, tile, data, x);
        if (dtype == FA3_BF16) store_tile<Bf16>(p, tile, data, x);
        if (dtype == FA3_F32) store_tile<float>(p, tile, data, x);
      },
      progress);
}

}  // namespace fa3::cpu
