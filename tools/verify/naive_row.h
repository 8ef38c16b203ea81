// SPDX-License-Identifier: BSD-3-Clause
// naive_row.h — one query of unfused attention in the precision of the inputs: which keys it sees,
// its probabilities, and the errors to expect in them. For naive.cpp and naive_mask.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "tools/verify/naive_input.h"

namespace fa3::verify {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
// Relative error of one FP32 operation that a fast kernel may make: a unit in the last place, since
// its exp2 and tanh are not rounded correctly.
inline constexpr float kUnitF32 = 0x1p-23f;

// ---- Arithmetic ------------------------------------------------------------------------------

// Σ aᵢ·bᵢ and Σ (aᵢ·bᵢ)², in FP32.
struct Dot {
  float sum, squares;
};

inline Dot dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 8;  // partial sums, so that the compiler can use vectors
  float sum[kLanes] = {}, squares[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes)
    for (int u = 0; u < kLanes; ++u) {
      const float x = a[c + u] * b[c + u];
      sum[u] += x;
      squares[u] += x * x;
    }
  for (; c < n; ++c) {
    const float x = a[c] * b[c];
    sum[0] += x;
    squares[0] += x * x;
  }
  Dot total{0, 0};
  for (int u = 0; u < kLanes; ++u) total.sum += sum[u], total.squares += squares[u];
  return total;
}

// Whether an FP32 sum of these products, or log2(e)·scale times as much, may overflow in some
// order. Inf and NaN among the inputs do not count.
inline bool may_overflow(const float* a, const float* b, int64_t n, float scale) {
  constexpr double kLog2E = 1.4426950408889634;
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += std::abs(double{a[c]} * b[c]);
  const double most = sum * std::max(1.0, kLog2E * std::abs(double{scale}));
  return std::isfinite(most) && most > std::numeric_limits<float>::max();
}

// FP8 tensor cores: terms of one step of a sum, and what remains of its largest term.
inline constexpr int64_t kStep = 32;
inline constexpr float kCut = 0x1p-13f;

// dot() and, in *cut, the error to expect when FP8 tensor cores compute it.
inline Dot dot_in_steps(const float* a, const float* b, int64_t n, float* cut) {
  Dot total{0, 0};
  float squares = 0;
  for (int64_t c = 0; c < n; c += kStep) {
    const Dot step = dot(a + c, b + c, std::min(kStep, n - c));
    total.sum += step.sum;
    total.squares += step.squares;
    squares += std::max(step.squares, total.sum * total.sum);
  }
  *cut = kCut * std::sqrt(squares);
  return total;
}

// Sums of one or more rows while their terms are added. Squares in double: those of small terms
// would be 0 in FP32.
struct Sums {
  Sums(int64_t rows, int64_t d)
      : d(d), value(rows * d), cuts(rows * d), lost(d), before(d), squares(rows * d) {}

  void clear() {
    std::fill(value.begin(), value.end(), 0.0f);
    std::fill(cuts.begin(), cuts.end(), 0.0f);
    std::fill(lost.begin(), lost.end(), 0.0f);
    std::fill(before.begin(), before.end(), 0.0f);
    std::fill(squares.begin(), squares.end(), 0.0);
  }

  // Adds a·x to a row, and the square of its error w·x.
  void add(int64_t row, float a, float w, const float* x) {
    float* v = value.data() + row * d;
    double* s = squares.data() + row * d;
    for (int64_t c = 0; c < d; ++c) {
      v[c] += a * x[c];
      s[c] += double{w} * x[c] * (double{w} * x[c]);
    }
  }

  // The same for FP8 tensor cores, of the only row: what each term loses, toward zero, when it is
  // aligned to the sum before it.
  void add_in_steps(float a, float w, const float* x) {
    add(0, a, w, x);
    for (int64_t c = 0; c < d; ++c)
      lost[c] += std::copysign(std::min(std::abs(a * x[c]), kCut * before[c]), x[c]);
  }
  // They end a step.
  void cut() {
    for (int64_t c = 0; c < d; ++c) {
      cuts[c] += kCut * std::abs(value[c]) + std::abs(lost[c]);
      lost[c] = 0;
      before[c] = std::abs(value[c]);
    }
  }

  // Stores a row, rounded to the output's type, and its spread.
  void finish(int64_t row, int32_t out_dtype, float* out, float* spread) const {
    for (int64_t c = 0; c < d; ++c) {
      out[c] = static_cast<float>(round_to(out_dtype, value[row * d + c]));
      spread[c] = static_cast<float>(std::sqrt(squares[row * d + c])) + cuts[row * d + c];
    }
  }

  int64_t d;
  std::vector<float> value, cuts;
  std::vector<float> lost, before;  // of the only row: since the last step, and the sum then
  std::vector<double> squares;
};

inline float square(float x) { return x * x; }

// ---- One head --------------------------------------------------------------------------------

// Scalars of a call, from either argument struct.
struct Call {
  int32_t dtype;    // that scores are rounded to
  int32_t p_dtype;  // that P is rounded to
  bool fp8_scores;  // of FP8 tensor cores
  int64_t d;        // head_dim_qk
  int32_t mask;
  int64_t left, right, chunk;
  float scale, softcap;
  float unit;      // relative error of a term
  float lse_unit;  // of LSE

  // Values that overflow the type stay in FP32: Inf would be no yardstick.
  static float round_as(int32_t dtype, float x) {
    const float rounded = static_cast<float>(round_to(dtype, x));
    return std::isinf(rounded) ? x : rounded;
  }
  float round(float x) const { return round_as(dtype, x); }
  // A probability; sum: what it was divided by.
  float round_p(float p, float sum) const {
    if (p_dtype != FA3_F8_E4M3) return round_as(p_dtype, p);
    const float lifted = 0x1p4f * sum;
    return static_cast<float>(round_to(FA3_F8_E4M3, p * lifted)) / lifted;
  }
  // Absolute error of any probability, and of any of dS.
  float least_error(float sum) const {
    return p_dtype == FA3_F8_E4M3 ? 0x1p-14f / sum : least_step();
  }
  // BF16 dot products take subnormal operands as 0.
  float least_step() const {
    return p_dtype == FA3_BF16 ? std::numeric_limits<float>::min()
                               : std::numeric_limits<float>::denorm_min();
  }
};

inline bool has_cache(const fa3_forward_args& a) {
  return a.page_table.rank != 0 || a.kv_batch_idx.rank != 0 || a.kv_begin.rank != 0;
}
inline bool has_cache(const fa3_backward_args&) { return false; }

template <class Args>
Call call_of(const Args& args) {
  const int64_t d = args.q.shape[args.q.rank - 1];
  const double scale = args.softmax_scale != 0 ? args.softmax_scale : 1 / std::sqrt(double(d));
  const bool of_codes = is_8_bit(args.q.dtype) && !has_cache(args);
  // Codes in a cache are computed in 16 bits.
  const int32_t p_dtype = of_codes                 ? args.v.dtype
                          : is_8_bit(args.q.dtype) ? int32_t{FA3_F16}
                                                   : args.q.dtype;
  Call call{};
  call.dtype = is_8_bit(args.q.dtype) ? int32_t{FA3_F32} : args.q.dtype;
  call.p_dtype = p_dtype;
  call.fp8_scores = of_codes && args.q.dtype == FA3_F8_E4M3;
  call.d = d;
  call.mask = args.mask;
  call.left = args.left;
  call.right = args.right;
  call.chunk = args.attention_chunk;
  call.scale = static_cast<float>(scale);
  call.softcap = static_cast<float>(args.softcap);
  call.unit = p_dtype == FA3_F32 ? kUnitF32 : static_cast<float>(unit_roundoff(p_dtype));
  // LSE is FP32, but kernels of narrower types may use an exp2 of 2^-19 relative error, far below
  // that of their inputs.
  call.lse_unit = args.q.dtype == FA3_F32 ? kUnitF32 : 0x1p-19f;
  return call;
}

// One query head of one sequence.
struct Head {
  int64_t len_q = 0, len_kv = 0;
  std::vector<int64_t> ids_q, ids_kv;  // {} = all equal
  bool alibi = false;
  float slope = 0;
  std::vector<uint32_t> tree{};  // two words of each query; {} = none
  bool top_left = false;
  float sink = -kInf;
  fa3_tensor mask{};  // attn_mask and where this head is in it
  int64_t b = 0, head = 0;

  int64_t position(int64_t i) const { return top_left ? i : i + len_kv - len_q; }
  // Does query i see key j of those that are not older than the queries?
  bool in_tree(int64_t i, int64_t j) const {
    const int64_t bit = j - (len_kv - len_q);
    return bit < 0 || (tree[2 * i + bit / 32] >> bit % 32 & 1) != 0;
  }
};

inline std::vector<int64_t> gather_ids(const fa3_tensor& t, int64_t b, const Sequence& s) {
  std::vector<int64_t> ids;
  for (int64_t i = s.begin; t.rank != 0 && i < s.begin + s.len; ++i)
    ids.push_back(static_cast<int64_t>(get(t, t.rank == 2 ? Index{b, i} : Index{i})));
  return ids;
}

template <class Args>
Head head_of(const Args& args, int64_t b, const Sequence& q, const Sequence& kv, int64_t head) {
  const fa3_tensor& slopes = args.alibi_slopes;
  Head h{q.len, kv.len, gather_ids(args.sequence_ids_q, b, q),
         gather_ids(args.sequence_ids_kv, b, kv), slopes.rank != 0};
  h.top_left = args.mask_alignment == FA3_ALIGN_TOP_LEFT;
  if constexpr (std::is_same_v<Args, fa3_forward_args>) {
    const fa3_tensor& tree = args.tree_mask;
    for (int64_t i = q.begin; tree.rank != 0 && i < q.begin + q.len; ++i)
      for (const int64_t word : {0, 1})
        h.tree.push_back(static_cast<uint32_t>(
            static_cast<int64_t>(get(tree, tree.rank == 3 ? Index{b, i, word} : Index{i, word}))));
  }
  if (args.attn_mask.data != nullptr) h.mask = args.attn_mask;
  h.b = b;
  h.head = head;
  if (h.alibi)
    h.slope = static_cast<float>(get(slopes, slopes.rank == 2 ? Index{b, head} : Index{head}));
  if (args.sinks.rank != 0) h.sink = static_cast<float>(get(args.sinks, {head}));
  return h;
}

// The probabilities of one query.
struct Row {
  std::vector<int64_t> keys;  // visible ones
  std::vector<float> bias;    // what is added to their scores: ALiBi, mask; {} = nothing
  std::vector<float> p;       // probabilities, rounded to the input type
  std::vector<float> error;   // relative error to expect in p
  std::vector<float> slope;   // d score / d (scaled score): 1 without softcap
  std::vector<float> slope_error;
  float lse = -kInf;
  float lse_error = 0;
  float most = -kInf, most_error = 0;  // the greatest score
  float least_error = 0;               // of p: types count in steps below their normal numbers
  float sink = -kInf;                  // of the head
  float of_sink = 0;                   // its probability

  // Absolute error to expect in p.
  float p_error(int64_t j) const { return std::max(p[j] * error[j], least_error); }
};

// Query i against the keys of its sequence.
inline void see(const Call& call, const Head& head, int64_t i, Row* row) {
  const int64_t p = head.position(i);
  int64_t lo = 0, hi = head.len_kv;
  if (call.mask == FA3_MASK_CAUSAL) hi = std::max<int64_t>(p + 1, 0);
  if (call.mask == FA3_MASK_WINDOW) {
    if (call.left >= 0 && p > call.left) lo = p - call.left;
    if (call.right >= 0 && call.right < head.len_kv - p) hi = std::max(p + call.right + 1, lo);
  }
  hi = std::min(hi, head.len_kv);
  if (call.chunk > 0) {
    const int64_t own = p >= 0 ? p / call.chunk : -1;  // ⌊p / c⌋ of keys is never negative
    while (lo < hi && lo / call.chunk < own) ++lo;
    while (lo < hi && (hi - 1) / call.chunk > own) --hi;
  }
  const bool masked = head.mask.rank != 0;
  row->sink = head.sink;
  row->keys.clear();
  row->bias.assign(head.alibi || masked ? head.len_kv : 0, 0);
  for (int64_t j = 0; head.alibi && j < head.len_kv; ++j)
    row->bias[j] = -head.slope * static_cast<float>(std::abs(p - j));
  for (int64_t j = lo; j < hi; ++j) {
    if (!head.ids_q.empty() && head.ids_q[i] != head.ids_kv[j]) continue;
    if (!head.tree.empty() && !head.in_tree(i, j)) continue;
    if (masked) {
      const float value = mask_value(head.mask, head.b, head.head, i, j);
      if (value == -kInf) continue;
      row->bias[j] += value;
    }
    row->keys.push_back(j);
  }
}

// A row with a sink, from what it is without.
inline void add_sink(const Call& call, Row* row) {
  row->of_sink = 0;
  if (row->sink == -kInf) return;
  const float none = row->sink - row->sink;  // NaN of +∞, which makes the row NaN
  const float apart = row->sink - row->lse + none, less = std::exp(-std::abs(apart));
  const float keys = (apart > 0 ? less : 1) / (1 + less);  // of the sum, their part
  row->of_sink = (apart > 0 ? 1 : less) / (1 + less);
  const float of_part = row->of_sink * row->lse_error;
  row->lse = std::max(row->lse, row->sink) + std::log1p(less);
  // Of that part, and of probabilities that are made of an LSE of FP32.
  const float relative = std::hypot(of_part, kUnitF32 * row->lse);
  row->lse_error = keys * row->lse_error + call.lse_unit * (1 + std::abs(row->lse));
  for (const int64_t j : row->keys) {
    row->p[j] = keys == 0 ? 0 : row->p[j] * keys;
    row->error[j] = std::hypot(row->error[j], relative);
  }
}

// k_offset: added to each key; {} = nothing.
inline void attend(const Call& call, const float* q, const std::vector<float>& k,
                   const std::vector<float>& k_offset, Row* row) {
  const int64_t d = call.d;
  const size_t len_kv = k.size() / d;
  const Dot shift_of_keys = k_offset.empty() ? Dot{0, 0} : dot(q, k_offset.data(), d);
  row->p.resize(len_kv);
  row->error.resize(len_kv);
  row->slope.assign(len_kv, 1);
  row->slope_error.assign(len_kv, 0);
  row->lse = -kInf;
  row->lse_error = 0;
  row->most = -kInf, row->most_error = 0;
  if (row->keys.empty()) return add_sink(call, row);
  std::vector<float> exact(len_kv);  // scores before they are rounded to the input type
  float max = -kInf, exact_max = -kInf;
  for (const int64_t j : row->keys) {
    float cut = 0;
    Dot s =
        call.fp8_scores ? dot_in_steps(q, k.data() + j * d, d, &cut) : dot(q, k.data() + j * d, d);
    if (!std::isfinite(s.squares) && may_overflow(q, k.data() + j * d, d, call.scale))
      s.sum = std::numeric_limits<float>::quiet_NaN();
    s.sum += shift_of_keys.sum;
    s.squares += shift_of_keys.squares;
    exact[j] = call.scale * s.sum;
    row->p[j] = call.round(exact[j]);
    row->error[j] =
        std::abs(call.scale) * (std::sqrt(static_cast<float>(d) * s.squares) + cut / kUnitF32);
    if (call.softcap > 0) {
      const float t = std::tanh(exact[j] / call.softcap);
      exact[j] = call.softcap * t;
      row->p[j] = call.round(call.softcap * std::tanh(row->p[j] / call.softcap));
      row->slope[j] = 1 - t * t;
      row->error[j] = row->slope[j] > 0 ? row->error[j] * row->slope[j] : 0;
      // 1 − t², with t a few units off and from a score that is off as well.
      row->slope_error[j] = kUnitF32 * (4 + 2 * std::abs(t) * row->error[j] / call.softcap);
    }
    row->error[j] += std::abs(exact[j]);
    if (!row->bias.empty()) {
      exact[j] += row->bias[j];
      row->p[j] += row->bias[j];
      row->error[j] += std::abs(row->bias[j]);
    }
    if (exact[j] == -kInf) row->error[j] = 0;  // P is 0, exactly
    max = std::max(max, row->p[j]);
    if (exact[j] > exact_max)  // tanh is as fast as exp2
      row->most_error = kUnitF32 * row->error[j] +
                        (call.softcap > 0 ? call.lse_unit * (1 + std::abs(exact[j])) : 0);
    exact_max = std::max(exact_max, exact[j]);
  }
  row->most = exact_max;
  float sum = 0, exact_sum = 0;
  const float shift = max == -kInf ? 0 : max, exact_shift = exact_max == -kInf ? 0 : exact_max;
  for (const int64_t j : row->keys) {
    row->p[j] = std::exp(row->p[j] - shift);
    sum += row->p[j];
    exact_sum += std::exp(exact[j] - exact_shift);
  }
  row->lse = exact_shift + std::log(exact_sum);
  row->lse_error = call.lse_unit * (1 + std::abs(row->lse));
  float normaliser = 0;  // square of the error that the scores' errors make in the sum of P
  for (const int64_t j : row->keys) {
    row->p[j] /= sum;
    row->error[j] = kUnitF32 * (row->error[j] + std::abs(row->lse));
    row->lse_error += row->p[j] * row->error[j];
    normaliser += square(row->p[j] * row->error[j]);
  }
  row->least_error = call.least_error(sum);
  for (const int64_t j : row->keys) {
    row->p[j] = call.round_p(row->p[j], sum);
    row->error[j] = std::sqrt(square(call.unit) + square(row->error[j]) + normaliser);
  }
  add_sink(call, row);
}

}  // namespace fa3::verify
