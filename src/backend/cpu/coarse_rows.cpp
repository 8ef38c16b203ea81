// SPDX-License-Identifier: BSD-3-Clause
// coarse_rows.cpp — the largest score and ln Σ of rows whose LSE holds no fraction, by the GEMM
// that the backward makes its scores by: weights of the same scores add up to 1.
#include "backend/cpu/coarse_rows.h"

#include <cmath>
#include <limits>

#include "backend/cpu/block.h"

namespace fa3::cpu {
namespace {

// LSE of a query of the head.
float lse_of(const Head& head, int64_t h, int64_t query) {
  const Problem& p = head.run.problem;
  return *element<float>(p.layout[kLse], head.run.buffers.data[kLse], head.b, head.q_seq.begin,
                         query, h);
}

bool has_coarse_rows(const Head& head, int64_t h, IndexRange block) {
  for (int64_t i = block.lo; i < block.hi; ++i)
    if (is_coarse(lse_of(head, h, i))) return true;
  return false;
}

// Takes the keys of a chunk into the largest scores and sums of a block of queries, whose Qᵀ is in
// x.qt.
void add_chunk(const Head& head, int64_t h, IndexRange chunk, IndexRange block, float* largest,
               float* sum, BackwardScratch& x) {
  const Backward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int keys = static_cast<int>(chunk.size());
  if (!set_spans(head, h, chunk, block, x)) return;
  kernels.copy_rows(head.rows(kK, chunk.lo, head.h_kv, keys), run.scale.sign, x.k_rows,
                    run.cpu.width_qk);
  set_bias(head, chunk, block, h, x.terms);
  kernels.gemm_columns(static_cast<int>(div_up(keys, kTileRows)), kernels.units(run.width(kQ)),
                       x.k_rows, run.cpu.width_qk, x.qt, static_cast<int>(block.size()), x.s,
                       x.ld_s, x.tile);
  kernels.row_sums({.s = x.s,
                    .ld = x.ld_s,
                    .rows = keys,
                    .visible = x.visible,
                    .tile = x.tile,
                    .scale_log2e = run.scale.scale_log2e,
                    .softcap_in = run.scale.softcap_in,
                    .terms = x.terms.any() ? &x.terms : nullptr},
                   largest, sum);
}

void measure_block(const Head& head, int64_t h, IndexRange block, BackwardScratch& x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Backward& run = head.run;
  const int rows = static_cast<int>(block.size());
  float *const largest = x.largest, *const sum = x.lse_high;
  std::fill_n(largest, round_up(rows, kMaxLanes), -kInfinity);
  std::fill_n(sum, round_up(rows, kMaxLanes), 0.0f);
  run.kernels.pack_transposed(head.rows(kQ, block.lo, h, rows), x.qt);
  const IndexRange keys = visible_keys(run.band, head.aligned, block);
  for (int64_t c = keys.lo / head.chunk_size(); c * head.chunk_size() < keys.hi; ++c)
    add_chunk(head, h, head.chunk(c), block, largest, sum, x);
  for (int i = 0; i < rows; ++i) {
    const float lse = lse_of(head, h, block.lo + i);
    if (!is_coarse(lse)) continue;
    const int64_t at = h * run.coarse.rows + head.first_row() + block.lo + i;
    const bool sees_none = largest[i] == -kInfinity;
    const auto natural = static_cast<float>(largest[i] * run.scale.scale);
    const float log_sum = log_sum_of_coarse(lse, natural, std::log(sum[i]));
    run.coarse.largest[at] = sees_none ? 0.0f : largest[i];
    run.coarse.log2_sum[at] =
        sees_none ? kInfinity : static_cast<float>(kLog2eExact * static_cast<double>(log_sum));
  }
}

}  // namespace

void measure_coarse_rows(Backward& run, std::byte* workspace, const Executor& executor,
                         int64_t total) {
  const Problem& p = run.problem;
  if (!CoarseRows::may_have(p)) return;
  const auto head_of = [&run, &p](int64_t b, int64_t h) {
    return Head(run, b * p.heads_kv + h / p.group_size());
  };
  for (int64_t b = 0; b < p.batch && !run.coarse.any; ++b) {
    for (int64_t h = 0; h < p.heads_q && !run.coarse.any; ++h) {
      const Head head = head_of(b, h);
      run.coarse.any = has_coarse_rows(head, h, {0, head.len.q});
    }
  }
  if (!run.coarse.any) return;
  const int64_t blocks = div_up(longest_q(p, run.buffers), run.cpu.tile_q);
  // The call can be cancelled meanwhile.
  struct Call {
    const Executor& executor;
    int64_t total;
  } call{executor, total};
  const auto report_nothing = [](void* user, int64_t, int64_t) {
    const auto& of = *static_cast<const Call*>(user);
    return of.executor.report(0, of.total);
  };
  const Executor quiet = executor.reporting(report_nothing, &call);
  quiet.run(p.batch * p.heads_q * blocks, [&](const TaskContext& task) {
    const int64_t h = task.index / blocks % p.heads_q;
    const Head head = head_of(task.index / blocks / p.heads_q, h);
    const int64_t first = task.index % blocks * head.block_size();
    const IndexRange block{first, min(first + head.block_size(), head.len.q)};
    if (block.empty() || !has_coarse_rows(head, h, block)) return;
    auto x = scratch_of_slot<BackwardScratch>(workspace, run.cpu, task.slot);
    measure_block(head, h, block, x);
  });
}

}  // namespace fa3::cpu
