// SPDX-License-Identifier: BSD-3-Clause
// naive.cpp — unfused attention in the precision of the inputs, with the spread of its errors.
#include "tools/verify/naive.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace fa3::verify {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Relative error of one FP32 operation that a fast kernel may make: a unit in the last place, since
// its exp2 and tanh are not rounded correctly.
constexpr float kUnitF32 = 0x1p-23f;

// ---- Views -----------------------------------------------------------------------------------

// The sequence of batch entry b on one axis.
struct Sequence {
  int64_t begin = 0, len = 0;
};

Sequence sequence(const fa3_tensor& rows, const fa3_tensor& cu, const fa3_tensor& used, int64_t b) {
  Sequence s{0, rows.shape[1]};
  if (cu.rank != 0) {
    s.begin = static_cast<int64_t>(get(cu, {b}));
    s.len = static_cast<int64_t>(get(cu, {b + 1})) - s.begin;
  }
  if (used.rank != 0) s.len = static_cast<int64_t>(get(used, {b}));
  return s;
}

// Index of token i of batch entry b in a dense (rank 4) or varlen (rank 3) tensor.
Index token_index(const fa3_tensor& t, int64_t b, int64_t i, int64_t head) {
  return t.rank == 4 ? Index{b, i, head, 0} : Index{i, head, 0};
}
Index lse_index(const fa3_tensor& lse, int64_t b, int64_t i, int64_t head) {
  return lse.rank == 3 ? Index{b, head, i} : Index{head, i};
}

// Rows of one head of one sequence as floats, (len, head_dim).
std::vector<float> gather(const fa3_tensor& t, int64_t b, const Sequence& s, int64_t head) {
  const int64_t d = t.shape[t.rank - 1];
  std::vector<float> rows(s.len * d);
  for (int64_t i = 0; i < s.len; ++i) {
    Index at = token_index(t, b, s.begin + i, head);
    for (int64_t c = 0; c < d; ++c) {
      at[t.rank - 1] = c;
      rows[i * d + c] = static_cast<float>(get(t, at));
    }
  }
  return rows;
}

float* row_of(const Tensor& t, const Index& index) {
  int64_t offset = 0;
  for (int d = 0; d < t.view.rank; ++d) offset += index[d] * t.view.stride[d];
  return static_cast<float*>(t.view.data) + offset;
}

// Empty rows: 0, and −inf for LSE.
Estimate make_estimate(const fa3_tensor& like, float empty) {
  const std::vector<int64_t> shape(like.shape, like.shape + like.rank);
  Estimate e{make_tensor(FA3_F32, shape), make_tensor(FA3_F32, shape)};
  fill(e.value.view, empty);
  fill(e.spread.view, 0);
  return e;
}

// ---- Arithmetic ------------------------------------------------------------------------------

// Σ aᵢ·bᵢ and Σ (aᵢ·bᵢ)², in FP32.
struct Dot {
  float sum, squares;
};

Dot dot(const float* a, const float* b, int64_t n) {
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

// Sums of one or more rows while their terms are added. Squares in double: those of small terms
// would be 0 in FP32.
struct Sums {
  Sums(int64_t rows, int64_t d) : d(d), value(rows * d), squares(rows * d) {}

  void clear() {
    std::fill(value.begin(), value.end(), 0.0f);
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

  // Stores a row, rounded to the output's type, and its spread.
  void finish(int64_t row, int32_t out_dtype, float* out, float* spread) const {
    for (int64_t c = 0; c < d; ++c) {
      out[c] = static_cast<float>(round_to(out_dtype, value[row * d + c]));
      spread[c] = static_cast<float>(std::sqrt(squares[row * d + c]));
    }
  }

  int64_t d;
  std::vector<float> value;
  std::vector<double> squares;
};

float square(float x) { return x * x; }

// ---- One head --------------------------------------------------------------------------------

// Scalars of a call, from either argument struct.
struct Call {
  int32_t dtype;
  int32_t mask;
  int64_t left, right;
  float scale, softcap;
  float unit;  // relative error of a term

  // Values that overflow the type stay in FP32: Inf would be no yardstick.
  float round(float x) const {
    const float rounded = static_cast<float>(round_to(dtype, x));
    return std::isinf(rounded) ? x : rounded;
  }
};

template <class Args>
Call call_of(const Args& args) {
  const int64_t d = args.q.shape[args.q.rank - 1];
  const double scale = args.softmax_scale != 0 ? args.softmax_scale : 1 / std::sqrt(double(d));
  return {args.q.dtype,
          args.mask,
          args.left,
          args.right,
          static_cast<float>(scale),
          static_cast<float>(args.softcap),
          args.q.dtype == FA3_F32 ? kUnitF32 : static_cast<float>(unit_roundoff(args.q.dtype))};
}

// One query head of one sequence.
struct Head {
  int64_t len_q = 0, len_kv = 0;
  std::vector<int64_t> ids_q, ids_kv;  // {} = all equal
  bool alibi = false;
  float slope = 0;
};

std::vector<int64_t> gather_ids(const fa3_tensor& t, int64_t b, const Sequence& s) {
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
  if (h.alibi)
    h.slope = static_cast<float>(get(slopes, slopes.rank == 2 ? Index{b, head} : Index{head}));
  return h;
}

// The probabilities of one query.
struct Row {
  std::vector<int64_t> keys;  // visible ones
  std::vector<float> bias;    // what is added to their scores: ALiBi; {} = nothing
  std::vector<float> p;       // probabilities, rounded to the input type
  std::vector<float> error;   // relative error to expect in p
  std::vector<float> slope;   // d score / d (scaled score): 1 without softcap
  std::vector<float> slope_error;
  float lse = -kInf;
  float lse_error = 0;

  // Absolute error to expect in p: FP32 counts in steps of 2^-149 below its normal numbers.
  float p_error(int64_t j) const {
    return p[j] * error[j] + std::numeric_limits<float>::denorm_min();
  }
};

// Query i against the keys of its sequence: bottom-right aligned, see fa3.h.
void see(const Call& call, const Head& head, int64_t i, Row* row) {
  const int64_t p = i + head.len_kv - head.len_q;
  int64_t lo = 0, hi = head.len_kv;
  if (call.mask == FA3_MASK_CAUSAL) hi = std::max<int64_t>(p + 1, 0);
  if (call.mask == FA3_MASK_WINDOW) {
    if (call.left >= 0 && p > call.left) lo = p - call.left;
    if (call.right >= 0 && call.right < head.len_kv - p) hi = std::max(p + call.right + 1, lo);
  }
  row->keys.clear();
  for (int64_t j = lo; j < hi; ++j)
    if (head.ids_q.empty() || head.ids_q[i] == head.ids_kv[j]) row->keys.push_back(j);
  row->bias.assign(head.alibi ? head.len_kv : 0, 0);
  for (size_t j = 0; j < row->bias.size(); ++j)
    row->bias[j] = -head.slope * static_cast<float>(std::abs(p - static_cast<int64_t>(j)));
}

void attend(const Call& call, const float* q, const std::vector<float>& k, int64_t d, Row* row) {
  const size_t len_kv = k.size() / d;
  row->p.resize(len_kv);
  row->error.resize(len_kv);
  row->slope.assign(len_kv, 1);
  row->slope_error.assign(len_kv, 0);
  row->lse = -kInf;
  row->lse_error = 0;
  if (row->keys.empty()) return;
  std::vector<float> exact(len_kv);  // scores before they are rounded to the input type
  float max = -kInf, exact_max = -kInf;
  for (const int64_t j : row->keys) {
    const Dot s = dot(q, k.data() + j * d, d);
    exact[j] = call.scale * s.sum;
    row->p[j] = call.round(exact[j]);
    row->error[j] = std::abs(call.scale) * std::sqrt(static_cast<float>(d) * s.squares);
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
    exact_max = std::max(exact_max, exact[j]);
  }
  float sum = 0, exact_sum = 0;
  const float shift = max == -kInf ? 0 : max, exact_shift = exact_max == -kInf ? 0 : exact_max;
  for (const int64_t j : row->keys) {
    row->p[j] = std::exp(row->p[j] - shift);
    sum += row->p[j];
    exact_sum += std::exp(exact[j] - exact_shift);
  }
  row->lse = exact_shift + std::log(exact_sum);
  // LSE is FP32, but 16-bit kernels may use an exp2 of 2^-19 relative error, far below that of
  // their inputs.
  const float unit = call.dtype == FA3_F32 ? kUnitF32 : 0x1p-19f;
  row->lse_error = unit * (1 + std::abs(row->lse));
  float normaliser = 0;  // square of the error that the scores' errors make in the sum of P
  for (const int64_t j : row->keys) {
    row->p[j] /= sum;
    row->error[j] = kUnitF32 * (row->error[j] + std::abs(row->lse));
    row->lse_error += row->p[j] * row->error[j];
    normaliser += square(row->p[j] * row->error[j]);
  }
  for (const int64_t j : row->keys) {
    row->p[j] = call.round(row->p[j]);
    row->error[j] = std::sqrt(square(call.unit) + square(row->error[j]) + normaliser);
  }
}

// ---- Forward and backward --------------------------------------------------------------------

// work(b, head_kv) for all, on as many threads as there are cores. Each writes its own rows.
template <class Args, class Work>
void for_each_head(const Args& args, Work work) {
  const int64_t batch = args.cu_seqlens_q.rank != 0    ? args.cu_seqlens_q.shape[0] - 1
                        : args.cu_seqlens_kv.rank != 0 ? args.cu_seqlens_kv.shape[0] - 1
                                                       : args.q.shape[0];
  const int64_t heads = args.k.shape[args.k.rank - 2], count = batch * heads;
  std::atomic<int64_t> next{0};
  const auto worker = [&] {
    for (int64_t i; (i = next++) < count;) work(i / heads, i % heads);
  };
  std::vector<std::thread> threads;
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  try {
    for (int64_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(worker);
  } catch (const std::exception&) {  // no more available: the existing ones do all of it
  }
  worker();
  for (std::thread& thread : threads) thread.join();
}

template <class Args>
int64_t group_size(const Args& args) {
  const int64_t heads_kv = args.k.shape[args.k.rank - 2];
  return heads_kv == 0 ? 1 : args.q.shape[args.q.rank - 2] / heads_kv;
}

// O of one query into the only row of sum.
void output_row(const Row& row, const std::vector<float>& v, Sums* sum) {
  sum->clear();
  for (const int64_t j : row.keys) sum->add(0, row.p[j], row.p_error(j), v.data() + j * sum->d);
}

}  // namespace

NaiveForward naive_forward(const fa3_forward_args& args) {
  const Call call = call_of(args);
  const int64_t dqk = args.k.shape[args.k.rank - 1], dv = args.v.shape[args.v.rank - 1];
  NaiveForward out{make_estimate(args.o, 0), {}};
  if (args.lse.rank != 0) out.lse = make_estimate(args.lse, -kInf);
  for_each_head(args, [&](int64_t b, int64_t head_kv) {
    const Sequence sq = sequence(args.q, args.cu_seqlens_q, args.seqused_q, b);
    const Sequence skv = sequence(args.k, args.cu_seqlens_kv, args.seqused_kv, b);
    const std::vector<float> k = gather(args.k, b, skv, head_kv),
                             v = gather(args.v, b, skv, head_kv);
    Row row;
    Sums o(1, dv);
    for (int64_t g = 0; g < group_size(args); ++g) {
      const int64_t head = head_kv * group_size(args) + g;
      const Head of_head = head_of(args, b, sq, skv, head);
      const std::vector<float> q = gather(args.q, b, sq, head);
      for (int64_t i = 0; i < sq.len; ++i) {
        see(call, of_head, i, &row);
        attend(call, q.data() + i * dqk, k, dqk, &row);
        const Index at = token_index(args.o, b, sq.begin + i, head);
        output_row(row, v, &o);
        o.finish(0, args.o.dtype, row_of(out.o.value, at), row_of(out.o.spread, at));
        if (args.lse.rank == 0) continue;
        const Index lse_at = lse_index(args.lse, b, sq.begin + i, head);
        *row_of(out.lse.value, lse_at) = row.lse;
        *row_of(out.lse.spread, lse_at) = row.lse_error;
      }
    }
  });
  return out;
}

namespace {

// Inputs of one query's gradients.
struct RowGradient {
  const float *q, *dout;
  float dlse;
};

// Adds what one query contributes to dQ (its only row), dK and dV. o: a buffer for its output.
void backward_row(const Call& call, const Row& row, const std::vector<float>& k,
                  const std::vector<float>& v, int32_t o_dtype, const RowGradient& x, Sums* o,
                  Sums* dq, Sums* dk, Sums* dv) {
  output_row(row, v, o);
  for (float& value : o->value) value = static_cast<float>(round_to(o_dtype, value));
  const Dot delta_dot = dot(x.dout, o->value.data(), dv->d);
  const float delta = delta_dot.sum - x.dlse;
  std::vector<Dot> dp_dots(row.p.size());
  float of_probabilities = 0;  // square of the error in δ = Σ P·dP that the errors of P make
  for (const int64_t j : row.keys) {
    dp_dots[j] = dot(x.dout, v.data() + j * dv->d, dv->d);
    of_probabilities += square(row.p_error(j) * (dp_dots[j].sum - delta_dot.sum));
  }
  for (const int64_t j : row.keys) {
    const Dot& dp_dot = dp_dots[j];
    const float dp = call.round(dp_dot.sum), p = row.p[j];
    const float ds = call.scale * call.round(p * (dp - delta) * row.slope[j]);
    // Errors: of P, of δ (by way of O, rounded and of erroneous P), of dP, of the slope.
    const float inner = of_probabilities +
                        square(call.unit) * (delta_dot.squares + square(dp_dot.sum)) +
                        square(kUnitF32) * static_cast<float>(dv->d) * dp_dot.squares;
    const float slope_error = row.slope_error[j] * (dp_dot.sum - delta);
    const float of_terms = p * std::sqrt(square(row.slope[j]) * inner + square(slope_error));
    const float of_p = row.p_error(j) * row.slope[j] * (dp_dot.sum - delta);
    const float ds_error = std::abs(call.scale) * std::hypot(of_terms, of_p);
    dq->add(0, ds, ds_error, k.data() + j * dq->d);
    dk->add(j, ds, ds_error, x.q);
    dv->add(j, p, row.p_error(j), x.dout);
  }
}

// Stores the sums of a KV head.
void scatter(const fa3_tensor& like, const Sums& sums, int64_t b, const Sequence& s, int64_t head,
             const Estimate& out) {
  for (int64_t j = 0; j < s.len; ++j) {
    const Index at = token_index(like, b, s.begin + j, head);
    sums.finish(j, like.dtype, row_of(out.value, at), row_of(out.spread, at));
  }
}

}  // namespace

NaiveBackward naive_backward(const fa3_backward_args& args) {
  const Call call = call_of(args);
  const int64_t dqk = args.k.shape[args.k.rank - 1], dv = args.v.shape[args.v.rank - 1];
  // An absent output is computed all the same, in the shape and type of its input.
  const fa3_tensor& like_dq = args.dq.rank != 0 ? args.dq : args.q;
  const fa3_tensor& like_dk = args.dk.rank != 0 ? args.dk : args.k;
  const fa3_tensor& like_dv = args.dv.rank != 0 ? args.dv : args.v;
  NaiveBackward out{make_estimate(like_dq, 0), make_estimate(like_dk, 0),
                    make_estimate(like_dv, 0)};
  for_each_head(args, [&](int64_t b, int64_t head_kv) {
    const Sequence sq = sequence(args.q, args.cu_seqlens_q, args.seqused_q, b);
    const Sequence skv = sequence(args.k, args.cu_seqlens_kv, args.seqused_kv, b);
    const std::vector<float> k = gather(args.k, b, skv, head_kv),
                             v = gather(args.v, b, skv, head_kv);
    Sums o(1, dv), dq_sum(1, dqk), dk_sums(skv.len, dqk), dv_sums(skv.len, dv);
    Row row;
    for (int64_t g = 0; g < group_size(args); ++g) {
      const int64_t head = head_kv * group_size(args) + g;
      const Head of_head = head_of(args, b, sq, skv, head);
      const std::vector<float> q = gather(args.q, b, sq, head);
      const std::vector<float> dout = gather(args.dout, b, sq, head);
      for (int64_t i = 0; i < sq.len; ++i) {
        see(call, of_head, i, &row);
        attend(call, q.data() + i * dqk, k, dqk, &row);
        RowGradient x{q.data() + i * dqk, dout.data() + i * dv, 0};
        if (args.dlse.rank != 0)
          x.dlse = static_cast<float>(get(args.dlse, lse_index(args.dlse, b, sq.begin + i, head)));
        dq_sum.clear();
        backward_row(call, row, k, v, args.o.dtype, x, &o, &dq_sum, &dk_sums, &dv_sums);
        const Index at = token_index(like_dq, b, sq.begin + i, head);
        dq_sum.finish(0, like_dq.dtype, row_of(out.dq.value, at), row_of(out.dq.spread, at));
      }
    }
    scatter(like_dk, dk_sums, b, skv, head_kv, out.dk);
    scatter(like_dv, dv_sums, b, skv, head_kv, out.dv);
  });
  return out;
}

}  // namespace fa3::verify
