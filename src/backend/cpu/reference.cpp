// SPDX-License-Identifier: BSD-3-Clause
// reference.cpp — attention in FP64 by simple loops; every result is rounded once, when stored.
//
// A row is one query of one head. Only its visible keys are read, so that nothing else can
// influence it. Consecutive rows are taken kRows at a time for one reason: each K and V row is then
// converted to double once for all of them.
//
// A key is visible when the mask keeps it, with sequence ids its id is that of the query, and
// attn_mask or tree_mask does not hide it.
//
// Where Inf and NaN meet the formulas (fa3.h says that they reach the rows that see them):
// - no visible key: O = 0, LSE = −inf, gradient 0;
// - all visible scores −inf: O = NaN (0/0), LSE = −inf (ln 0), gradients of what the row sees NaN;
// - a visible score +inf or NaN: O = NaN, LSE = NaN (inf − inf);
// - a visible V Inf or NaN: O = Inf or NaN in that column, also where P underflows to 0 (0 · Inf).
#include "backend/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

#include "backend/cpu/decode.h"
#include "backend/cpu/max_logit.h"
#include "backend/cpu/reference_rows.h"
#include "backend/cpu/sink.h"
#include "core/dtype.h"

namespace fa3::reference {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kMaxHeadDim = 512;
constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- Elements ----------------------------------------------------------------------------------

// Sequence ids of the rows of one sequence. Without them every query and key has the same.
struct Ids {
  const int32_t* q = nullptr;
  const int32_t* kv = nullptr;
  int64_t stride_q = 0;
  int64_t stride_kv = 0;

  bool equal(int64_t i, int64_t j) const {
    return q == nullptr || q[i * stride_q] == kv[j * stride_kv];
  }
};

// attn_mask of one head of one batch entry. Without it every value is 0.
struct MaskValues {
  const Layout* layout = nullptr;
  const void* data = nullptr;
  int64_t first = 0;  // element of query 0 and key 0

  // −inf hides a key.
  double at(int64_t i, int64_t j) const {
    if (data == nullptr) return 0;
    const int64_t index = first + i * layout->row + j * layout->column;
    if (layout->dtype == FA3_BOOL) return static_cast<const uint8_t*>(data)[index] != 0 ? 0 : -kInf;
    if (layout->dtype == FA3_F16) return to_float(static_cast<const F16*>(data)[index]);
    if (layout->dtype == FA3_BF16) return to_float(static_cast<const Bf16*>(data)[index]);
    if (layout->dtype == FA3_F64) return static_cast<const double*>(data)[index];
    return static_cast<const float*>(data)[index];
  }
};

// Up to kRows consecutive queries [first, first + count) of one head of sequence b.
struct Rows {
  int64_t b = 0;
  int64_t head_q = 0;
  int64_t head_kv = 0;
  int64_t first = 0;
  int64_t count = 0;
  Sequence q;
  Sequence kv;
  Ids ids;
  MaskValues mask;
  bool in_tree = false;
};

// Row j of K or V of a sequence whose keys those are.
void load_key(const Problem& p, const Buffers& x, TensorId id, const Rows& rows, int64_t j,
              double* out) {
  const KeyPlace at = key_place(p, x, rows.b, rows.kv.begin + j);
  const Layout& layout = p.layout[id];
  if (is_8_bit(layout.dtype)) {
    float row[kMaxHeadDim];
    cpu::decode_row(layout.dtype, x.data[id], offset(layout, at.entry, at.row, rows.head_kv),
                    scales_of(p, x, id, rows.b, rows.kv.begin, j, rows.head_kv), p.columns_of(id),
                    row);
    std::copy_n(row, p.columns_of(id), out);
    return;
  }
  load_row(p, x, id, at.entry, at.row, rows.head_kv, p.columns_of(id), out);
}

// ---- Arithmetic --------------------------------------------------------------------------------

// Eight partial sums: one would wait for each addition, and the compiler may not split it itself.
double dot(const double* a, const double* b, int64_t n) {
  double sum[8] = {};
  int64_t c = 0;
  for (; c + 8 <= n; c += 8)
    for (int64_t u = 0; u < 8; ++u) sum[u] += a[c + u] * b[c + u];
  for (; c < n; ++c) sum[c % 8] += a[c] * b[c];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// y += a·x
void add_scaled(double a, const double* x, int64_t n, double* y) {
  for (int64_t c = 0; c < n; ++c) y[c] += a * x[c];
}

// Keys [lo, hi) that the mask keeps for query i of a sequence; lo == hi: none.
struct Keys {
  int64_t lo = 0;
  int64_t hi = 0;
};

// p of query i: < kv.len but for top left; negative before the first key.
int64_t position_of(const Problem& p, const Sequence& q, const Sequence& kv, int64_t i) {
  return p.top_left ? i : i + (kv.len - q.len);
}

Keys shown_keys(const Problem& p, const Sequence& q, const Sequence& kv, int64_t i) {
  const int64_t position = position_of(p, q, kv, i);
  Keys keys{0, kv.len};
  if (p.mask == FA3_MASK_CAUSAL) keys.hi = position + 1;
  if (p.mask == FA3_MASK_WINDOW) {
    // left and right may be as large as an int64: compare before adding.
    if (p.left >= 0 && p.left < position) keys.lo = position - p.left;
    if (p.right >= 0 && p.right < kv.len - position) keys.hi = position + p.right + 1;
  }
  if (const int64_t c = p.attention_chunk; c > 0) {
    if (position < 0) return {};
    const int64_t first = position / c * c;
    keys = {std::min(std::max(keys.lo, first), kv.len), std::min(keys.hi, first + c)};
  }
  keys.hi = std::clamp(keys.hi, keys.lo, kv.len);
  return keys;
}

// ---- One block of rows -------------------------------------------------------------------------

// Scratch of one thread, in doubles. Rows of s, slope and dp are max_seqlen_kv apart.
struct Scratch {
  double* q;      // (kRows, head_dim_qk)
  double* s;      // (kRows, max_seqlen_kv): scores, then probabilities
  double* row;    // (max(head_dim_qk, head_dim_v)): a K or V row, or an output row
  double* o;      // (kRows, head_dim_v)
  double* dout;   // backward (kRows, head_dim_v)
  double* slope;  // backward (kRows, max_seqlen_kv): d score / d (scaled score), 1 without softcap
  double* dp;     // backward (kRows, max_seqlen_kv): dP, then dS
  double* dq;     // backward (kRows, head_dim_qk)
  double* dk;     // backward (max_seqlen_kv, head_dim_qk)
  double* dv;     // backward (max_seqlen_kv, head_dim_v)
  double* dmask;  // backward (max(max_seqlen_kv, columns of dattn_mask)): a row of dattn_mask
  double lse[kRows];
  double most[kRows];    // the greatest score
  uint64_t tree[kRows];  // bits of tree_mask
  double delta[kRows];   // backward: Σ O·dO − dLSE
  Keys keys[kRows];      // what the mask keeps for each row
  Keys any;              // what it keeps for some row
};

// Does the r-th row see key j?
bool sees(const Rows& rows, const Scratch& scratch, int64_t r, int64_t j) {
  return j >= scratch.keys[r].lo && j < scratch.keys[r].hi && rows.ids.equal(rows.first + r, j) &&
         rows.mask.at(rows.first + r, j) != -kInf &&
         (!rows.in_tree || tree_shows(scratch.tree[r], rows.kv.len - rows.q.len, j));
}

// Hands out the arrays of a Scratch one after another from base; returns how many doubles they
// take. base nullptr only counts them. In double, since the count may exceed what an integer holds.
double place(const Problem& p, double* base, Scratch* s) {
  double used = 0;
  const auto take = [&](double rows, int64_t columns) {
    double* at = base == nullptr ? nullptr : base + static_cast<int64_t>(used);
    used += rows * static_cast<double>(columns);
    return at;
  };
  const int64_t keys = p.kv.max_seqlen;
  s->q = take(kRows, p.head_dim_qk);
  s->s = take(kRows, keys);
  s->row = take(1, std::max(p.head_dim_qk, p.head_dim_v));
  s->o = take(kRows, p.head_dim_v);
  if (p.op == FA3_OP_BACKWARD) {
    s->dout = take(kRows, p.head_dim_v);
    s->slope = take(kRows, keys);
    s->dp = take(kRows, keys);
    s->dq = take(kRows, p.head_dim_qk);
    s->dk = take(static_cast<double>(keys), p.head_dim_qk);
    s->dv = take(static_cast<double>(keys), p.head_dim_v);
    s->dmask = take(1, std::max(keys, p.mask_grad.columns));
  }
  return used;
}

// What is subtracted from the score of the r-th row for key j.
double alibi_of(const Problem& p, const Rows& rows, double slope, int64_t r, int64_t j) {
  if (!p.has_alibi()) return 0;
  return slope * static_cast<double>(std::abs(position_of(p, rows.q, rows.kv, rows.first + r) - j));
}

// Scores, probabilities and LSE of the rows, into scratch.s (and slope) and scratch.lse.
void attend(const Problem& p, const Buffers& x, const Rows& rows, Scratch& scratch) {
  const int64_t ld = p.kv.max_seqlen, d = p.head_dim_qk;
  double alibi_slope = 0;
  if (p.has_alibi()) load_row(p, x, kAlibiSlopes, rows.b, 0, rows.head_q, 1, &alibi_slope);
  scratch.any = {rows.kv.len, 0};
  for (int64_t r = 0; r < rows.count; ++r) {
    if (rows.in_tree) scratch.tree[r] = tree_bits(p, x, rows.b, rows.q.begin + rows.first + r);
    load_row(p, x, kQ, rows.b, rows.q.begin + rows.first + r, rows.head_q, d, scratch.q + r * d);
    const Keys keys = shown_keys(p, rows.q, rows.kv, rows.first + r);
    scratch.keys[r] = keys;
    if (keys.lo == keys.hi) continue;
    scratch.any = {std::min(scratch.any.lo, keys.lo), std::max(scratch.any.hi, keys.hi)};
  }
  for (int64_t j = scratch.any.lo; j < scratch.any.hi; ++j) {
    load_key(p, x, kK, rows, j, scratch.row);
    for (int64_t r = 0; r < rows.count; ++r) {
      if (!sees(rows, scratch, r, j)) continue;
      double score = p.softmax_scale * dot(scratch.q + r * d, scratch.row, d);
      double slope = 1;
      if (p.softcap > 0) {
        const double t = std::tanh(score / p.softcap);
        score = p.softcap * t;
        slope = 1 - t * t;
      }
      scratch.s[r * ld + j] =
          score - alibi_of(p, rows, alibi_slope, r, j) + rows.mask.at(rows.first + r, j);
      if (p.op == FA3_OP_BACKWARD) scratch.slope[r * ld + j] = slope;
    }
  }
  const double sink = sink_of(p, x, rows.head_q);
  for (int64_t r = 0; r < rows.count; ++r) {
    const auto [lo, hi] = scratch.keys[r];
    double* s = scratch.s + r * ld;
    double most = -kInf, sum = 0;
    for (int64_t j = lo; j < hi; ++j)
      if (sees(rows, scratch, r, j)) most = std::max(most, s[j]);
    scratch.most[r] = most;
    const double max = std::max(most, sink);
    const double shift = max == -kInf ? 0 : max;  // −inf − −inf is NaN; exp(−inf) = 0 is wanted
    if (sink != -kInf) sum = std::exp(sink - shift);
    for (int64_t j = lo; j < hi; ++j) {
      if (!sees(rows, scratch, r, j)) continue;
      s[j] = std::exp(s[j] - shift);
      sum += s[j];
    }
    for (int64_t j = lo; j < hi; ++j)
      if (sees(rows, scratch, r, j)) s[j] /= sum;
    scratch.lse[r] = shift + std::log(sum);
  }
}

void forward_rows(const Problem& p, const Buffers& x, const Rows& rows, Scratch& scratch) {
  const int64_t ld = p.kv.max_seqlen, d = p.head_dim_v;
  attend(p, x, rows, scratch);
  std::fill_n(scratch.o, rows.count * d, 0.0);
  for (int64_t j = scratch.any.lo; j < scratch.any.hi; ++j) {
    load_key(p, x, kV, rows, j, scratch.row);
    for (int64_t r = 0; r < rows.count; ++r) {
      if (!sees(rows, scratch, r, j)) continue;
      add_scaled(scratch.s[r * ld + j], scratch.row, d, scratch.o + r * d);
    }
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows.q.begin + rows.first + r;
    store_row(p, x, kO, rows.b, row, rows.head_q, d, scratch.o + r * d);
    if (p.layout[kLse].present())
      store_row(p, x, kLse, rows.b, row, rows.head_q, 1, &scratch.lse[r]);
    raise_max_logit(p, x, rows.head_q, scratch.most[r]);
  }
}

// dS of the rows into scratch.dp; leaves dO in scratch.dout.
void differentiate(const Problem& p, const Buffers& x, const Rows& rows, Scratch& scratch) {
  const int64_t ld = p.kv.max_seqlen, d = p.head_dim_v;
  for (int64_t r = 0; r < rows.count; ++r)
    load_row(p, x, kDout, rows.b, rows.q.begin + rows.first + r, rows.head_q, d,
             scratch.dout + r * d);
  std::fill_n(scratch.o, rows.count * d, 0.0);
  for (int64_t j = scratch.any.lo; j < scratch.any.hi; ++j) {
    load_key(p, x, kV, rows, j, scratch.row);
    for (int64_t r = 0; r < rows.count; ++r) {
      if (!sees(rows, scratch, r, j)) continue;
      scratch.dp[r * ld + j] = dot(scratch.dout + r * d, scratch.row, d);
      add_scaled(scratch.s[r * ld + j], scratch.row, d, scratch.o + r * d);
    }
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const auto [lo, hi] = scratch.keys[r];
    const double *prob = scratch.s + r * ld, *slope = scratch.slope + r * ld;
    double *dp = scratch.dp + r * ld, dlse = 0;
    if (p.layout[kDlse].present())
      load_row(p, x, kDlse, rows.b, rows.q.begin + rows.first + r, rows.head_q, 1, &dlse);
    const double delta = dot(scratch.dout + r * d, scratch.o + r * d, d) - dlse;
    scratch.delta[r] = delta;
    for (int64_t j = lo; j < hi; ++j)
      if (sees(rows, scratch, r, j)) dp[j] = prob[j] * (dp[j] - delta) * slope[j];
  }
}

// Stores dQ of the rows and adds their part to scratch.dk and scratch.dv.
void backward_rows(const Problem& p, const Buffers& x, const Rows& rows, Scratch& scratch) {
  const int64_t ld = p.kv.max_seqlen, dqk = p.head_dim_qk, dv = p.head_dim_v;
  attend(p, x, rows, scratch);
  differentiate(p, x, rows, scratch);
  std::fill_n(scratch.dq, rows.count * dqk, 0.0);
  for (int64_t j = scratch.any.lo; j < scratch.any.hi; ++j) {
    load_key(p, x, kK, rows, j, scratch.row);
    for (int64_t r = 0; r < rows.count; ++r) {
      if (!sees(rows, scratch, r, j)) continue;
      const double ds = p.softmax_scale * scratch.dp[r * ld + j];
      add_scaled(ds, scratch.row, dqk, scratch.dq + r * dqk);
      add_scaled(ds, scratch.q + r * dqk, dqk, scratch.dk + j * dqk);
      add_scaled(scratch.s[r * ld + j], scratch.dout + r * dv, dv, scratch.dv + j * dv);
    }
  }
  if (!p.layout[kDq].present()) return;
  for (int64_t r = 0; r < rows.count; ++r)
    store_row(p, x, kDq, rows.b, rows.q.begin + rows.first + r, rows.head_q, dqk,
              scratch.dq + r * dqk);
}

// ---- One KV head of one sequence ---------------------------------------------------------------

Ids ids_of(const Problem& p, const Buffers& x, int64_t b, const Sequence& q, const Sequence& kv) {
  if (!p.has_sequence_ids()) return {};
  const Layout &of_q = p.layout[kSequenceIdsQ], &of_kv = p.layout[kSequenceIdsKv];
  return {x.in<int32_t>(kSequenceIdsQ) + offset(of_q, b, q.begin, 0),
          x.in<int32_t>(kSequenceIdsKv) + offset(of_kv, b, kv.begin, 0), of_q.row, of_kv.row};
}

// The rows of one head, none of them yet.
Rows rows_of(const Problem& p, const Buffers& x, int64_t b, int64_t head_q) {
  Rows rows;
  rows.b = b;
  rows.head_q = head_q;
  rows.head_kv = head_q / p.group_size();
  rows.q = q_sequence(p, x, b);
  rows.kv = kv_sequence(p, x, b);
  rows.ids = ids_of(p, x, b, rows.q, rows.kv);
  rows.in_tree = p.has_tree();
  const Layout& mask = p.layout[kAttnMask];
  if (p.has_mask()) rows.mask = {&mask, x.data[kAttnMask], b * mask.batch + head_q * mask.head};
  return rows;
}

template <class RowsFn>
void for_each_block(const Problem& p, const Buffers& x, int64_t b, int64_t head_kv, RowsFn run) {
  for (int64_t g = 0; g < p.group_size(); ++g) {
    Rows rows = rows_of(p, x, b, head_kv * p.group_size() + g);
    for (rows.first = 0; rows.first < rows.q.len; rows.first += kRows) {
      rows.count = std::min(kRows, rows.q.len - rows.first);
      run(rows);
    }
  }
}

void backward_head(const Problem& p, const Buffers& x, int64_t b, int64_t head_kv,
                   Scratch& scratch) {
  const Sequence kv = kv_sequence(p, x, b);
  std::fill_n(scratch.dk, kv.len * p.head_dim_qk, 0.0);
  std::fill_n(scratch.dv, kv.len * p.head_dim_v, 0.0);
  for_each_block(p, x, b, head_kv, [&](const Rows& rows) { backward_rows(p, x, rows, scratch); });
  for (int64_t j = 0; j < kv.len; ++j) {
    if (p.layout[kDk].present())
      store_row(p, x, kDk, b, kv.begin + j, head_kv, p.head_dim_qk, scratch.dk + j * p.head_dim_qk);
    if (p.layout[kDv].present())
      store_row(p, x, kDv, b, kv.begin + j, head_kv, p.head_dim_v, scratch.dv + j * p.head_dim_v);
  }
}

// One row of dattn_mask: the sum of P ∘ (dP − δ) over what it stands for.
void mask_gradient_row(const Problem& p, const Buffers& x, int64_t index, Scratch& scratch) {
  const MaskExtents& n = p.mask_grad;
  const int64_t i = index % n.rows, h = index / n.rows % n.heads, b = index / n.rows / n.heads;
  const auto range = [](int64_t at, int64_t extent, int64_t all) {
    return extent == 1 ? Keys{0, all} : Keys{at, at + 1};
  };
  const Keys batch = range(b, n.batch, p.batch), heads = range(h, n.heads, p.heads_q);
  std::fill_n(scratch.dmask, std::max(p.kv.max_seqlen, n.columns), 0.0);
  for (int64_t entry = batch.lo; entry < batch.hi; ++entry) {
    for (int64_t head = heads.lo; head < heads.hi; ++head) {
      Rows rows = rows_of(p, x, entry, head);
      const Keys queries = range(i, n.rows, p.q.rows);
      const int64_t end = std::min(queries.hi, rows.q.len);
      for (rows.first = queries.lo; rows.first < end; rows.first += kRows) {
        rows.count = std::min(kRows, end - rows.first);
        attend(p, x, rows, scratch);
        std::fill_n(scratch.slope, rows.count * p.kv.max_seqlen, 1.0);  // softcap comes before
        differentiate(p, x, rows, scratch);
        for (int64_t r = 0; r < rows.count; ++r) {
          for (int64_t j = scratch.keys[r].lo; j < scratch.keys[r].hi; ++j) {
            if (!sees(rows, scratch, r, j)) continue;
            scratch.dmask[n.columns == 1 ? 0 : j] += scratch.dp[r * p.kv.max_seqlen + j];
          }
        }
      }
    }
  }
  store_row(p, x, kDattnMask, b, i, h, n.columns, scratch.dmask);
}

// dsinks of a head: minus the weight of the sink times δ, over all rows.
void sink_gradient(const Problem& p, const Buffers& x, int64_t head, Scratch& scratch) {
  const double sink = sink_of(p, x, head);
  double sum = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    Rows rows = rows_of(p, x, b, head);
    for (rows.first = 0; rows.first < rows.q.len; rows.first += kRows) {
      rows.count = std::min(kRows, rows.q.len - rows.first);
      attend(p, x, rows, scratch);
      differentiate(p, x, rows, scratch);
      for (int64_t r = 0; r < rows.count; ++r)
        sum += fa3::sink_gradient(scratch.lse[r], sink, scratch.delta[r]);
    }
  }
  store_sink_gradient(p, x, head, sum);
}

// The scratch of one thread in a workspace of any alignment.
Scratch scratch_of(const Problem& p, std::byte* workspace, int slot) {
  void* base = workspace;
  size_t space = sizeof(double) + alignof(double);
  std::align(alignof(double), sizeof(double), base, space);
  Scratch scratch{};
  const auto doubles = static_cast<int64_t>(place(p, nullptr, &scratch));
  place(p, static_cast<double*>(base) + slot * doubles, &scratch);
  return scratch;
}

}  // namespace

size_t workspace_bytes(const Problem& problem, int threads) {
  Scratch unused{};
  const double bytes =
      place(problem, nullptr, &unused) * threads * sizeof(double) + alignof(double);
  return static_cast<size_t>(std::min(bytes, 0x1p53));  // 2^53: more than anyone has
}

void forward(const Problem& p, const Buffers& x, std::byte* workspace, const Executor& executor) {
  double* row = scratch_of(p, workspace, 0).row;
  fill(p, x, kO, p.q, p.heads_q, p.head_dim_v, 0, row);
  fill(p, x, kLse, p.q, p.heads_q, 1, -kInf, row);
  // Tasks of one block each, so that a run can be cancelled within a head; of varlen sequences on
  // average: a longer one has more blocks in a task.
  const int64_t sequences = p.q.varlen ? std::max<int64_t>(p.batch, 1) : 1;
  const int64_t parts = (p.q.rows + kRows * sequences - 1) / (kRows * sequences);
  executor.run(p.batch * p.heads_q * parts, [&](const TaskContext& task) {
    Scratch scratch = scratch_of(p, workspace, task.slot);
    const int64_t part = task.index % parts, head = task.index / parts;
    Rows rows = rows_of(p, x, head / p.heads_q, head % p.heads_q);
    for (rows.first = part * kRows; rows.first < rows.q.len; rows.first += parts * kRows) {
      rows.count = std::min(kRows, rows.q.len - rows.first);
      forward_rows(p, x, rows, scratch);
    }
  });
}

void backward(const Problem& p, const Buffers& x, std::byte* workspace, const Executor& executor) {
  double* row = scratch_of(p, workspace, 0).row;
  fill(p, x, kDq, p.q, p.heads_q, p.head_dim_qk, 0, row);
  fill(p, x, kDk, p.kv, p.heads_kv, p.head_dim_qk, 0, row);
  fill(p, x, kDv, p.kv, p.heads_kv, p.head_dim_v, 0, row);
  executor.run(p.batch * p.heads_kv, [&](const TaskContext& task) {
    Scratch scratch = scratch_of(p, workspace, task.slot);
    backward_head(p, x, task.index / p.heads_kv, task.index % p.heads_kv, scratch);
  });
  if (p.layout[kDsinks].present()) {
    executor.run(p.heads_q, [&](const TaskContext& task) {
      Scratch scratch = scratch_of(p, workspace, task.slot);
      sink_gradient(p, x, task.index, scratch);
    });
  }
  if (!p.layout[kDattnMask].present()) return;
  const MaskExtents& n = p.mask_grad;
  executor.run(n.batch * n.heads * n.rows, [&](const TaskContext& task) {
    Scratch scratch = scratch_of(p, workspace, task.slot);
    mask_gradient_row(p, x, task.index, scratch);
  });
}

}  // namespace fa3::reference
