// SPDX-License-Identifier: BSD-3-Clause
// backward.cpp — the tiled backward: FlashAttention-2's loop, a chunk of keys outside, blocks of
// queries inside.
//
// A task is one chunk of one KV head. It holds K and V of the chunk and FP32 accumulators of dK and
// dV, and visits every block of queries that sees it, of every head of the group. All block
// matrices are transposed (row = key), so that LSE and δ lie along vectors and P, dS are operands
// as stored:
//   Sᵀ = K·Qᵀ, dPᵀ = V·dOᵀ → P, dS;  dV += Pᵀ·dO, dK += dSᵀ·Q;  dQ += dS·K.
// dQ is shared by the chunks of a head: they add to a block of it in the order of the chunks,
// waiting for their turn, so the bits do not depend on the number of threads. Tasks are numbered
// chunk by chunk, so the one waited for has always begun.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "backend/cpu/backward_head.h"
#include "backend/cpu/coarse_rows.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/mask_gradient.h"
#include "backend/cpu/sink_gradient.h"

namespace fa3::cpu {

namespace {

// Waits until a chunk, and so every one before it, has added to the block. False when the run has
// stopped.
bool await_turn(const std::atomic<int32_t>& turn, int64_t chunk, const TaskContext& task) {
  for (int spins = 0; turn.load(std::memory_order_acquire) != chunk + 1; ++spins) {
    if (task.stopped()) return false;
    if (spins > 64) std::this_thread::yield();
  }
  return true;
}

// One block of queries of one head against the keys of a chunk; K, V and the spans are in x.
struct Step {
  const Head& head;
  IndexRange chunk;
  IndexRange block;
  int64_t h;
  bool k_finite;
  bool first_of_chunk;  // dK and dV begin here

  void grad_kv(BackwardScratch& x) const;
  void add_stretches(BackwardScratch& x) const;
  void grad_q(bool first, BackwardScratch& x) const;
};

// P and dS, then dV += Pᵀ·dO and dK += dSᵀ·Q.
void Step::grad_kv(BackwardScratch& x) const {
  const Backward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int keys = static_cast<int>(chunk.size());
  const int queries = static_cast<int>(block.size());
  const int tiles = static_cast<int>(div_up(keys, kTileRows));
  const int d_qk = run.width(kQ);
  const int d_v = run.width(kV);
  const bool finite = load_queries(head, h, block, x);
  set_bias(head, chunk, block, h, x.terms);
  kernels.gemm_columns(tiles, kernels.units(d_qk), x.k_rows, run.cpu.width_qk, x.qt, queries, x.s,
                       x.ld_s, x.tile);
  kernels.gemm_columns(tiles, kernels.units(d_v), x.v_rows, run.cpu.width_v, x.dot, queries, x.dp,
                       x.ld_s, x.tile);
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
                        .terms = x.terms.any() ? &x.terms : nullptr});
  if (!finite && head.may_have_gaps()) return add_stretches(x);
  const auto add = finite ? kernels.gemm_depth : kernels.gemm_depth_rows;
  const int rows = finite ? tiles : keys;
  const Span* spans = finite ? x.tile : x.visible;
  const int depth = kernels.units(queries);
  if (run.wants(kDv))
    add(rows, depth, x.s, x.ld_s, x.dout, d_v, x.dv, run.cpu.width_v, spans, first_of_chunk);
  if (run.wants(kDk))
    add(rows, depth, x.dp, x.ld_s, x.q, d_qk, x.dk, run.cpu.width_qk, spans, first_of_chunk);
}

// The end of grad_kv where ids or a mask hide queries and 0 × (NaN or Inf) could leak: only what a
// key sees is touched.
void Step::add_stretches(BackwardScratch& x) const {
  const Backward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int depth = kernels.units(block.size());
  const SeenColumns seen{static_cast<int>(chunk.size()),
                         x.visible,
                         x.terms.gaps,
                         x.terms.row_id,
                         x.terms.column_id,
                         x.terms.mask_at,
                         x.terms.mask_step,
                         x.terms.mask_dtype};
  seen.for_each([&](int row, Span span, bool first) {
    const auto add = [&](const float* a, const float* b, int n, float* c, int width) {
      kernels.gemm_depth_rows(1, depth, a + row * x.ld_s, x.ld_s, b, n,
                              c + static_cast<int64_t>(row) * width, width, &span,
                              first && first_of_chunk);
    };
    if (run.wants(kDv)) add(x.s, x.dout, run.width(kV), x.dv, run.cpu.width_v);
    if (run.wants(kDk)) add(x.dp, x.q, run.width(kQ), x.dk, run.cpu.width_qk);
  });
}

// dQ += dS·K.
void Step::grad_q(bool first, BackwardScratch& x) const {
  const Backward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int keys = static_cast<int>(chunk.size());
  const int queries = static_cast<int>(block.size());
  const float* ds = x.dp;
  if (kernels.pair_rows) {
    kernels.pair_rows(keys, static_cast<int>(round_up(queries, kTileRows)), x.dp, x.ld_s, x.s,
                      x.ld_s);
    ds = x.s;  // P is no longer needed
  }
  if (!k_finite && head.may_have_gaps()) {
    const HeadMask mask(run.problem, run.buffers, head.b, h);
    const SeenColumns seen{queries,        x.visible_q, x.gaps_q,    x.terms.column_id,
                           x.terms.row_id, x.mask_at_q, mask.column, mask.dtype};
    seen.for_each([&](int row, Span span, bool first_stretch) {
      kernels.gemm_depth_at_rows(1, kernels.units(keys), ds + row, x.ld_s, x.k_panels,
                                 run.width(kQ), head.dq(h, block.lo + row), run.cpu.width_qk, &span,
                                 first && first_stretch);
    });
    return;
  }
  const auto add = k_finite ? kernels.gemm_depth_at : kernels.gemm_depth_at_rows;
  add(k_finite ? static_cast<int>(div_up(queries, kTileRows)) : queries, kernels.units(keys), ds,
      x.ld_s, x.k_panels, run.width(kQ), head.dq(h, block.lo), run.cpu.width_qk,
      k_finite ? x.tile_q : x.visible_q, first);
}

IdRange ids_of(const Head& head, IndexRange block) {
  return head.q_ids == nullptr ? IdRange() : range_of(head.q_ids, block);
}

// One chunk of keys of one KV head against all queries that see it. False when the run has stopped.
bool attend_chunk(const Head& head, int64_t index, const TaskContext& task, BackwardScratch& x) {
  const Backward& run = head.run;
  const IndexRange chunk = head.chunk(index);
  const int keys = static_cast<int>(chunk.size());
  const Rows k = head.rows(kK, chunk.lo, head.h_kv, keys);
  const Rows v = head.rows(kV, chunk.lo, head.h_kv, keys);
  run.kernels.copy_rows(k, run.scale.sign, x.k_rows, run.cpu.width_qk);
  run.kernels.copy_rows(v, 1.0f, x.v_rows, run.cpu.width_v);
  const bool k_finite = run.kernels.pack_rows(k, x.k_panels);

  bool first_of_chunk = true;
  const int64_t rows = head.block_size();
  const IndexRange queries = head.queries_of(run.band, chunk);
  for (int64_t g = 0; g < run.problem.group_size(); ++g) {
    const int64_t h = head.h_kv * run.problem.group_size() + g;
    for (int64_t i = queries.lo / rows; i * rows < queries.hi; ++i) {
      const IndexRange block{i * rows, min((i + 1) * rows, head.len.q)};
      if (!head.may_have_gaps()) {
        if (!set_spans(head, h, chunk, block, x)) continue;
      } else if (!head.meets(block, ids_of(head, block), index)) {
        continue;
      }
      const bool seen = !head.may_have_gaps() || set_spans(head, h, chunk, block, x);
      const Step step{head, chunk, block, h, k_finite, first_of_chunk};
      if (seen) step.grad_kv(x);
      first_of_chunk = first_of_chunk && !seen;
      if (!run.wants(kDq)) continue;
      std::atomic<int32_t>& turn = head.turn(h, i);
      const int64_t before = head.chunk_before(index, block);
      if (before >= 0 && !await_turn(turn, before, task)) return false;
      if (seen) {
        step.grad_q(before < 0, x);
      } else if (before < 0) {
        std::fill_n(head.dq(h, block.lo), block.size() * run.cpu.width_qk, 0.0f);
      }
      turn.store(static_cast<int32_t>(index + 1), std::memory_order_release);
    }
  }
  if (first_of_chunk) {  // no query sees this chunk
    std::fill(x.dk, x.dk + chunk.size() * run.cpu.width_qk, 0.0f);
    std::fill(x.dv, x.dv + chunk.size() * run.cpu.width_v, 0.0f);
  }
  return true;
}

// FP32 rows times one factor into a caller's tensor.
void store(const Head& head, TensorId id, int64_t row, int64_t h, int rows, const float* from,
           int64_t ld, float factor, BackwardScratch& x) {
  const Layout& layout = head.run.problem.layout[id];
  if (!layout.present()) return;
  std::fill(x.factor, x.factor + rows, factor);
  const Rows to = head.rows(id, row, h, rows);
  head.run.kernels.store_rows(from, ld, x.factor, rows, to.cols, layout.dtype,
                              const_cast<void*>(to.data), to.stride);
}

}  // namespace

void backward(const Plan& plan, const Buffers& buffers, std::byte* workspace,
              const Executor& executor) {
  const Problem& p = plan.problem;
  const CpuPlan& cpu = *plan.cpu;
  Arena shared(workspace);
  // dO is an operand, and may be FP32 beside BF16 inputs: all operands of a table are of one type.
  Backward run{p,
               cpu,
               buffers,
               kernels(cpu.isa, p.layout[kDout].dtype),
               ScoreScale(p),
               exact_band_of(p),
               GradQ(shared, cpu, p),
               CoarseRows(shared, p)};
  const int64_t heads = p.batch * p.heads_kv;
  const int64_t tasks =
      run.wants_inputs() ? heads * div_up(longest_kv(p, buffers), cpu.tile_kv) : 0;
  const int64_t blocks = div_up(longest_q(p, buffers), cpu.tile_q);
  const int64_t dq_tasks = run.wants(kDq) ? p.batch * p.heads_q * blocks : 0;
  if (run.wants(kDq)) std::uninitialized_fill_n(run.grad_q.turn, p.heads_q * run.grad_q.turns, 0);

  const int64_t mask_tasks = mask_gradient_tasks(p, cpu);
  const int64_t sink_tasks = sink_gradient_tasks(p);
  const int64_t total = tasks + dq_tasks + mask_tasks + sink_tasks;
  measure_coarse_rows(run, workspace, executor, total);

  const float scale = static_cast<float>(p.softmax_scale);
  executor.run(tasks,
               [&](const TaskContext& task) {
                 const Head head(run, task.index % heads);
                 const int64_t chunk = task.index / heads;
                 const int64_t first = chunk * head.chunk_size();
                 if (first >= head.len.kv) return;
                 auto x = scratch_of_slot<BackwardScratch>(workspace, cpu, task.slot);
                 if (!attend_chunk(head, chunk, task, x)) return;
                 const int rows = static_cast<int>(min(head.chunk_size(), head.len.kv - first));
                 store(head, kDk, first, head.h_kv, rows, x.dk, cpu.width_qk, scale, x);
                 store(head, kDv, first, head.h_kv, rows, x.dv, cpu.width_v, 1.0f, x);
               },
               {0, total});
  executor.run(
      dq_tasks,
      [&](const TaskContext& task) {
        const int64_t h = task.index / blocks % p.heads_q;
        const Head head(run, task.index / blocks / p.heads_q * p.heads_kv + h / p.group_size());
        const int64_t first = task.index % blocks * head.block_size();
        if (first >= head.len.q) return;
        const IndexRange block{first, min(first + head.block_size(), head.len.q)};
        auto x = scratch_of_slot<BackwardScratch>(workspace, cpu, task.slot);
        float* dq = head.dq(h, first);
        if (head.sees_none(block)) std::fill(dq, dq + block.size() * cpu.width_qk, 0.0f);
        store(head, kDq, first, h, static_cast<int>(block.size()), dq, cpu.width_qk, scale, x);
      },
      {tasks, total});
  if (mask_tasks > 0) mask_gradient(run, workspace, executor, {tasks + dq_tasks, total});
  if (sink_tasks > 0) sink_gradient(run, executor, {total - sink_tasks, total});
}

}  // namespace fa3::cpu
