// SPDX-License-Identifier: BSD-3-Clause
// forward.cpp — the tiled forward: FlashAttention-2's loop, keys outside, blocks of queries inside.
//
// A task is a run of query blocks of one KV head (and one split of the keys). For each tile of keys
// it packs K and V once, then every block takes its step: S = Q·Kᵀ, online softmax, O =
// rescale·O + P·V. A block visits its keys in the same order whatever the grouping, so the bits do
// not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/block.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/ids.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/key_tile.h"
#include "backend/cpu/mask_rows.h"
#include "backend/cpu/max_logit.h"
#include "backend/cpu/sink.h"
#include "backend/cpu/tree_rows.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// Everything that the tasks of one run share.
struct Forward {
  const Problem& problem;
  const CpuPlan& cpu;
  const Buffers& buffers;
  const Kernels& kernels;
  ScoreScale scale;
  Band band;
  Partials partials;
  TreeRows tree;
};

// One (sequence, KV head) with its blocks of query rows.
struct Head : KvHead {
  const Forward& run;
  RowBlocks blocks;

  Head(const Forward& run, int64_t index)
      : KvHead(run.problem, run.buffers, index),
        run(run),
        blocks(row_blocks(q_seq.len, run.problem.group_size(), run.cpu.tile_q)) {}

  bool has_mask() const { return run.problem.hides_by_row(); }
  bool may_have_gaps() const { return kv_ids != nullptr || has_mask(); }
  HeadMask mask(int64_t h) const {
    if (!run.problem.has_tree()) return {run.problem, run.buffers, b, h};
    return run.tree.mask(run.problem, b, q_seq, len.diagonal(0));
  }

  // Calls f(query head, first query, row of the block, rows) for each stretch of a block inside one
  // head.
  template <class F>
  void for_each_stretch(const RowBlocks::Block& block, F&& f) const {
    for (int row = 0; row < block.rows;) {
      const int64_t r = block.first + row;
      const int64_t query = r % len.q;
      const int rows = static_cast<int>(min(block.rows - row, len.q - query));
      f(h_kv * run.problem.group_size() + r / len.q, query, row, rows);
      row += rows;
    }
  }
};

Rows rows_of(const Head& head, TensorId id, int64_t begin, int64_t row, int64_t h, int rows,
             int64_t cols) {
  return rows_at(head.run.problem.layout[id], head.run.buffers.data[id], head.b, begin, row, h,
                 rows, cols);
}

KeyTile key_tile(const Head& head, IndexRange tile, ForwardScratch& x) {
  return {head.run.problem, head.run.buffers, head.run.cpu, head, tile, x};
}

// Copies Q of a block and resets its state.
void open_block(const Head& head, const RowBlocks::Block& block, QBlock& state) {
  const Forward& run = head.run;
  state.ids = {};
  head.for_each_stretch(block, [&](int64_t h, int64_t query, int row, int rows) {
    if (head.q_ids != nullptr)
      state.ids = join(state.ids, range_of(head.q_ids, {query, query + rows}));
    run.kernels.copy_rows(
        rows_of(head, kQ, head.q_seq.begin, query, h, rows, run.problem.head_dim_qk),
        run.scale.sign, state.q + row * run.cpu.width_qk, run.cpu.width_qk);
  });
  const int64_t padded = round_up(block.rows, kTileRows);
  std::fill(state.q + block.rows * run.cpu.width_qk, state.q + padded * run.cpu.width_qk, 0.0f);
  std::fill(state.o, state.o + padded * run.cpu.width_v, 0.0f);
  std::fill(state.row_max, state.row_max + block.rows, kNegInf);
  std::fill(state.row_sum, state.row_sum + block.rows, 0.0f);
}

// What the mask leaves visible in the spans of a block's rows. Hidden keys may remain in between.
void mask_spans(const Head& head, const RowBlocks::Block& block, IndexRange tile,
                ForwardScratch& x) {
  head.for_each_stretch(block, [&](int64_t h, int64_t query, int row, int rows) {
    const HeadMask mask = head.mask(h);
    x.terms.mask_step = mask.column;
    x.terms.mask_dtype = mask.dtype;
    for (int i = 0; i < rows; ++i) {
      const MaskRow keys = mask.keys_of(query + i, tile.lo);
      const Span seen = keys.visible(x.visible[row + i]);
      x.visible[row + i] = seen;
      x.terms.mask_at[row + i] = keys.at;
      // Few rows read V in place, all for all where none has gaps. The others look when they have
      // to.
      x.terms.gaps[row + i] = !head.run.cpu.few_rows || keys.hides_any(seen);
    }
  });
}

// Does the mask show some key of a tile to some row of a block?
bool mask_shows(const Head& head, const RowBlocks::Block& block, IndexRange tile) {
  bool any = false;
  head.for_each_stretch(block, [&](int64_t h, int64_t query, int, int rows) {
    const HeadMask mask = head.mask(h);
    for (int i = 0; i < rows && !any; ++i) {
      const Span within = local_span(visible_keys(head.run.band, head.aligned, query + i), tile);
      any = !mask.keys_of(query + i, tile.lo).visible(within).empty();
    }
  });
  return any;
}

// What the ids of a tile leave visible in the spans of a block's rows.
void narrow_spans(const Head& head, const RowBlocks::Block& block, IndexRange tile,
                  ForwardScratch& x) {
  const int32_t* const ids = head.kv_ids + tile.lo;
  IdFinder keys(ids, tile.size());
  std::copy_n(ids, tile.size(), x.terms.column_id);
  head.for_each_stretch(block, [&](int64_t, int64_t query, int row, int rows) {
    for (int i = 0; i < rows; ++i) {
      const int32_t id = head.q_ids[query + i];
      const IdSpan& found = keys.find(id);
      x.visible[row + i] = overlap(x.visible[row + i], found.span);
      x.terms.row_id[row + i] = id;
      x.terms.gaps[row + i] = found.gaps || (head.has_mask() && x.terms.gaps[row + i] != 0);
    }
  });
}

// Which keys of [tile.lo, tile.hi) each row of a block sees, relative to tile.lo. False when none
// sees any.
bool set_spans(const Head& head, const RowBlocks::Block& block, IndexRange tile,
               ForwardScratch& x) {
  const int padded = static_cast<int>(round_up(block.rows, kTileRows));
  std::fill(x.visible + block.rows, x.visible + padded, Span{});
  head.for_each_stretch(block, [&](int64_t, int64_t query, int row, int rows) {
    for (int i = 0; i < rows; ++i)
      x.visible[row + i] = local_span(visible_keys(head.run.band, head.aligned, query + i), tile);
  });
  if (head.has_mask()) mask_spans(head, block, tile, x);
  if (head.kv_ids != nullptr) narrow_spans(head, block, tile, x);
  return join_spans(x.visible, padded, head.run.kernels.unit, x.tile);
}

// The scale, and the ALiBi of a block's rows for a tile of keys.
void set_bias(const Head& head, const RowBlocks::Block& block, IndexRange tile, ScoreTerms& terms) {
  const Forward& run = head.run;
  if (!run.problem.has_alibi() && !head.has_mask()) return;
  terms.scale_high = run.scale.term_high;
  terms.scale_low = run.scale.term_low;
  if (!run.problem.has_alibi()) return;
  head.for_each_stretch(block, [&](int64_t h, int64_t query, int row, int rows) {
    set_slopes(run.problem, run.buffers, head.b, h, row, rows, terms);
    for (int i = 0; i < rows; ++i)
      terms.position[row + i] = static_cast<float>(head.aligned.diagonal(query + i) - tile.lo);
  });
}

// Turns the scores in x.s into P, and rescales what the block has accumulated to the new maximum.
void soften(const Forward& run, int rows, QBlock& state, ForwardScratch& x) {
  run.kernels.softmax({.s = x.s,
                       .ld = x.ld_s,
                       .rows = rows,
                       .visible = x.visible,
                       .tile = x.tile,
                       .row_max = state.row_max,
                       .row_sum = state.row_sum,
                       .rescale = x.rescale,
                       .scale_log2e = run.scale.scale_log2e,
                       .softcap_in = run.scale.softcap_in,
                       .terms = x.terms.any() ? &x.terms : nullptr});
  run.kernels.scale_rows(rows, run.cpu.width_v, state.o, run.cpu.width_v, x.rescale);
}

SeenColumns seen_columns(int rows, const ForwardScratch& x) {
  return {rows,
          x.visible,
          x.terms.gaps,
          x.terms.row_id,
          x.terms.column_id,
          x.terms.mask_at,
          x.terms.mask_step,
          x.terms.mask_dtype};
}

// One block against one tile of keys, whose panels are in x.
void step(const Head& head, const RowBlocks::Block& block, IndexRange tile, bool v_finite,
          QBlock& state, ForwardScratch& x) {
  if (!set_spans(head, block, tile, x)) return;
  const Forward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int tiles = static_cast<int>(div_up(block.rows, kTileRows));
  const int keys = static_cast<int>(tile.size());
  const int depth = kernels.units(keys);
  const int head_dim_v = static_cast<int>(run.problem.head_dim_v);
  kernels.gemm_columns(tiles, kernels.units(run.problem.head_dim_qk), state.q, run.cpu.width_qk,
                       x.k, keys, x.s, x.ld_s, x.tile);
  set_bias(head, block, tile, x.terms);
  soften(run, block.rows, state, x);
  if (v_finite) {
    kernels.gemm_depth(tiles, depth, x.s, x.ld_s, x.v, head_dim_v, state.o, run.cpu.width_v, x.tile,
                       false);
  } else if (head.may_have_gaps()) {
    seen_columns(block.rows, x).for_each([&](int row, Span span, bool) {
      kernels.gemm_depth_rows(1, depth, x.s + row * x.ld_s, x.ld_s, x.v, head_dim_v,
                              state.o + row * run.cpu.width_v, run.cpu.width_v, &span, false);
    });
  } else {
    kernels.gemm_depth_rows(block.rows, depth, x.s, x.ld_s, x.v, head_dim_v, state.o,
                            run.cpu.width_v, x.visible, false);
  }
}

// The same for a handful of rows, with K and V read in place. A hidden V is not touched: keys that
// all rows see are added for all at once, the others row by row.
void step_few(const Head& head, const RowBlocks::Block& block, IndexRange tile, QBlock& state,
              ForwardScratch& x) {
  if (!set_spans(head, block, tile, x)) return;
  const Forward& run = head.run;
  const Problem& p = run.problem;
  Span seen = x.tile[0];
  for (int t = 1; t < div_up(block.rows, kTileRows); ++t) {
    if (seen.empty()) seen = x.tile[t];
    if (!x.tile[t].empty())
      seen = {std::min(seen.lo, x.tile[t].lo), std::max(seen.hi, x.tile[t].hi)};
  }
  run.kernels.few_dot(block.rows, state.q, run.cpu.width_qk, key_tile(head, tile, x).rows(kK, seen),
                      x.s + seen.lo, x.ld_s);
  set_bias(head, block, tile, x.terms);
  soften(run, block.rows, state, x);

  const auto add = [&](int row, int rows, Span span) {
    if (span.empty()) return;
    run.kernels.few_add(rows, x.s + row * x.ld_s + span.lo, x.ld_s,
                        key_tile(head, tile, x).rows(kV, span), state.o + row * run.cpu.width_v,
                        run.cpu.width_v);
  };
  if (head.may_have_gaps() && std::count(x.terms.gaps, x.terms.gaps + block.rows, 0) < block.rows) {
    // The heads of one query: V is read once for all.
    const bool alike = head.len.q == 1 && (!head.has_mask() || p.layout[kAttnMask].head == 0);
    seen_columns(alike ? 1 : block.rows, x).for_each([&](int row, Span span, bool) {
      add(row, alike ? block.rows : 1, span);
    });
    return;
  }
  Span common = seen;
  for (int r = 0; r < block.rows; ++r)
    common = {std::max(common.lo, x.visible[r].lo), std::min(common.hi, x.visible[r].hi)};
  if (common.empty()) common = {seen.hi, seen.hi};
  add(0, block.rows, common);
  for (int r = 0; r < block.rows; ++r) {
    const Span row = x.visible[r];
    add(r, 1, {row.lo, std::min(row.hi, common.lo)});
    add(r, 1, {std::max(row.lo, common.hi), row.hi});
  }
}

// Does a row of a query head with this sum of P see no key?
bool sees_none(const Head& head, int64_t h, int64_t query, float sum, IdFinder& keys) {
  const IndexRange shown = visible_keys(head.run.band, head.aligned, query);
  if (shown.empty() || !head.may_have_gaps()) return shown.empty();
  // The greatest score of a row gives P = 1, unless that is −inf or there is none.
  if (sum != 0) return false;
  if (head.run.problem.has_tree()) {
    const Buffers& x = head.run.buffers;
    const uint64_t bits = tree_bits(head.run.problem, x, head.b, head.q_seq.begin + query);
    return !sees_some(bits, head.len.diagonal(0), head.len.kv);
  }
  if (head.has_mask()) {
    const MaskRow mask = head.mask(h).keys_of(query, 0);
    for (int64_t j = shown.lo; j < shown.hi; ++j)
      if (!mask.hides(j) && (head.kv_ids == nullptr || head.kv_ids[j] == head.q_ids[query]))
        return false;
    return true;
  }
  const int32_t id = head.q_ids[query];
  const Span found = keys.find(id).span;
  const IndexRange within = intersect(shown, {found.lo, found.hi});
  return within.empty() ||
         std::find(head.kv_ids + within.lo, head.kv_ids + within.hi, id) == head.kv_ids + within.hi;
}

// O and LSE of a block from its state.
void close_block(const Head& head, const RowBlocks::Block& block, const QBlock& state,
                 float* factor) {
  const Forward& run = head.run;
  const Problem& p = run.problem;
  IdFinder keys(head.kv_ids, head.len.kv);
  head.for_each_stretch(block, [&](int64_t h, int64_t query, int row, int rows) {
    const double sink = sink_of(p, run.buffers, h);
    for (int i = 0; i < rows; ++i) {
      const float sum = state.row_sum[row + i];
      const bool empty = sees_none(head, h, query + i, sum, keys);
      factor[row + i] = empty ? 1.0f : 1.0f / sum;
      if (!empty)
        raise_max_logit(p, run.buffers, h,
                        static_cast<double>(state.row_max[row + i]) * run.scale.scale);
      if (!p.layout[kLse].present() && !p.has_sinks()) continue;
      const double max = static_cast<double>(state.row_max[row + i]) * run.scale.scale;
      const double lse = empty ? kNegInf : max + std::log(static_cast<double>(sum));
      const SinkRow with = with_sink(lse, sink);
      if (p.has_sinks() && !empty)
        factor[row + i] = with.keys == 0 ? 0 : factor[row + i] * static_cast<float>(with.keys);
      if (!p.layout[kLse].present()) continue;
      *element<float>(p.layout[kLse], run.buffers.data[kLse], head.b, head.q_seq.begin, query + i,
                      h) = static_cast<float>(with.lse);
    }
    const Layout& layout = p.layout[kO];
    run.kernels.store_rows(
        state.o + row * run.cpu.width_v, run.cpu.width_v, factor + row, rows,
        static_cast<int>(p.head_dim_v), layout.dtype,
        element<char>(layout, run.buffers.data[kO], head.b, head.q_seq.begin, query, h),
        layout.row);
  });
}

int64_t partial_slot(const Forward& run, int64_t head, int64_t block, int64_t split) {
  return ((head * run.cpu.blocks + block) * run.cpu.splits + split) * run.cpu.tile_q;
}

// Blocks [first, last) of a head against the keys of one split; results to the outputs, or to
// partials when split.
void attend(const Head& head, int64_t head_index, int64_t first, int64_t last, int64_t split,
            ForwardScratch& x) {
  const Forward& run = head.run;
  for (int64_t i = first; i < last; ++i) {
    QBlock& state = x.blocks[i - first];
    if (run.cpu.splits > 1) {
      const int64_t slot = partial_slot(run, head_index, i, split);
      state.o = run.partials.o + slot * run.cpu.width_v;
      state.row_max = run.partials.row_max + slot;
      state.row_sum = run.partials.row_sum + slot;
    }
    open_block(head, head.blocks.block(i), state);
  }
  IndexRange keys{head.len.kv, 0};  // that some row of the task sees
  for (int64_t i = first; i < last; ++i) {
    head.for_each_stretch(head.blocks.block(i), [&](int64_t, int64_t query, int, int rows) {
      const IndexRange seen = visible_keys(run.band, head.aligned, IndexRange{query, query + rows});
      if (!seen.empty()) keys = {min(keys.lo, seen.lo), max(keys.hi, seen.hi)};
    });
  }
  if (run.cpu.splits > 1)
    keys = intersect(keys, {split * run.cpu.split_len, (split + 1) * run.cpu.split_len});
  const bool fixed = run.cpu.splits > 1 || run.problem.batch_invariant != 0;
  const int64_t size =
      fixed ? run.cpu.tile_kv : balanced_tile(head.len.kv, run.cpu.tile_kv, run.kernels.panel);
  for (int64_t lo = round_down(keys.lo, size); lo < keys.hi; lo += size) {
    const IndexRange tile{lo, min(lo + size, head.len.kv)};
    const IdRange ids = head.kv_ids == nullptr ? IdRange() : range_of(head.kv_ids, tile);
    const auto meets = [&](int64_t i) {
      return (head.kv_ids == nullptr || ids.meets(x.blocks[i - first].ids)) &&
             (!head.has_mask() || mask_shows(head, head.blocks.block(i), tile));
    };
    const KeyTile key_rows = key_tile(head, tile, x);
    key_rows.find();
    if (run.cpu.few_rows) {
      key_rows.decode();
      for (int64_t i = first; i < last; ++i)
        if (meets(i)) step_few(head, head.blocks.block(i), tile, x.blocks[i - first], x);
      continue;
    }
    int64_t begin = first;  // of the blocks that visit the tile
    while (begin < last && !meets(begin)) ++begin;
    if (begin == last) continue;
    key_rows.decode();
    const Span all{0, static_cast<int32_t>(tile.size())};
    run.kernels.pack_transposed(key_rows.rows(kK, all), x.k);
    const bool v_finite = run.kernels.pack_rows(key_rows.rows(kV, all), x.v);
    for (int64_t i = begin; i < last; ++i)
      if (meets(i)) step(head, head.blocks.block(i), tile, v_finite, x.blocks[i - first], x);
  }
}

// Merges the splits of one block, in their order, into the state of split 0.
void merge_splits(const Forward& run, int64_t head, int64_t block, int rows, QBlock& into) {
  const int width = run.cpu.width_v;
  const int64_t first = partial_slot(run, head, block, 0);
  into.o = run.partials.o + first * width;
  into.row_max = run.partials.row_max + first;
  into.row_sum = run.partials.row_sum + first;
  for (int split = 1; split < run.cpu.splits; ++split) {
    const int64_t slot = first + static_cast<int64_t>(split) * run.cpu.tile_q;
    for (int r = 0; r < rows; ++r) {
      const float max = run.partials.row_max[slot + r];
      const float joint = std::fmax(into.row_max[r], max);
      const auto weight = [&](float m) {  // −inf − (−inf) would be NaN: nothing seen yet weighs 0
        return m == kNegInf ? 0.0f : std::exp2((m - joint) * run.scale.scale_log2e);
      };
      const float a = weight(into.row_max[r]);
      const float b = weight(max);
      into.row_max[r] = joint;
      into.row_sum[r] = into.row_sum[r] * a + run.partials.row_sum[slot + r] * b;
      float* o = into.o + static_cast<int64_t>(r) * width;
      const float* from = run.partials.o + (slot + r) * width;
      for (int c = 0; c < width; ++c) o[c] = o[c] * a + from[c] * b;
    }
  }
}

}  // namespace

void forward(const Plan& plan, const Buffers& buffers, std::byte* workspace,
             const Executor& executor) {
  const Problem& p = plan.computed();
  const CpuPlan& cpu = *plan.cpu;
  Arena shared(workspace);
  const int64_t heads = p.batch * p.heads_kv;
  const Forward run{
      p,
      cpu,
      buffers,
      kernels(cpu.isa, p.has_8_bit_keys() ? FA3_F32 : p.layout[kQ].dtype, cpu.few_rows),
      ScoreScale(p),
      exact_band_of(p),
      Partials(shared, cpu, heads),
      TreeRows(shared, cpu, p)};
  run.tree.write(p, buffers, executor);

  const int64_t blocks = most_blocks(longest_q(p, buffers), p.group_size(), cpu.tile_q);
  const int64_t groups = div_up(blocks, cpu.blocks_per_task);
  const int64_t tasks = heads * groups * cpu.splits;
  const Progress progress{0, tasks + (cpu.splits > 1 ? heads * blocks : 0)};
  executor.run(
      tasks,
      [&](const TaskContext& task) {
        // Later blocks first: under a causal mask they see the most keys.
        const int64_t index = task.index % heads;
        const int64_t split = task.index / heads % cpu.splits;
        const int64_t group = groups - 1 - task.index / heads / cpu.splits;
        const Head head(run, index);
        const int64_t first = group * cpu.blocks_per_task;
        const int64_t last = std::min(first + cpu.blocks_per_task, head.blocks.count);
        if (first >= last) return;
        auto x = scratch_of_slot<ForwardScratch>(workspace, cpu, task.slot);
        attend(head, index, first, last, split, x);
        if (cpu.splits > 1) return;
        for (int64_t i = first; i < last; ++i)
          close_block(head, head.blocks.block(i), x.blocks[i - first], x.rescale);
      },
      progress);
  if (cpu.splits == 1) return;
  executor.run(heads * blocks,
               [&](const TaskContext& task) {
                 const int64_t index = task.index / blocks;
                 const Head head(run, index);
                 const int64_t i = task.index % blocks;
                 if (i >= head.blocks.count) return;
                 auto x = scratch_of_slot<ForwardScratch>(workspace, cpu, task.slot);
                 const RowBlocks::Block block = head.blocks.block(i);
                 QBlock state = x.blocks[0];
                 merge_splits(run, index, i, block.rows, state);
                 close_block(head, block, state, x.rescale);
               },
               {tasks, progress.total});
}

}  // namespace fa3::cpu
