// SPDX-License-Identifier: BSD-3-Clause
// naive.cpp — unfused attention in the precision of the inputs, with the spread of its errors.
#include "tools/verify/naive.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/verify/naive_row.h"

namespace fa3::verify {
namespace {

// ---- Forward and backward --------------------------------------------------------------------

// work(b, head_kv) for all, on as many threads as there are cores. Each writes its own rows.
template <class Args, class Work>
void for_each_head(const Args& args, Work work) {
  const int64_t batch = args.cu_seqlens_q.rank != 0    ? args.cu_seqlens_q.shape[0] - 1
                        : args.cu_seqlens_kv.rank != 0 ? args.cu_seqlens_kv.shape[0] - 1
                                                       : args.q.shape[0];
  const int64_t heads = args.k.shape[args.k.rank - 2], count = batch * heads;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;  // the first one
  const auto worker = [&]() noexcept {
    try {
      for (int64_t i; (i = next++) < count;) work(i / heads, i % heads);
    } catch (...) {
      next = count;  // the others need not go on
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  try {
    for (int64_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(worker);
  } catch (const std::exception&) {  // no more available: the existing ones do all of it
  }
  worker();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
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

// The same by FP8 tensor cores.
void output_row_in_steps(const Row& row, const std::vector<float>& v, Sums* sum) {
  sum->clear();
  for (size_t begin = 0; begin < row.keys.size(); begin += kStep) {
    for (size_t i = begin; i < std::min(begin + kStep, row.keys.size()); ++i) {
      const int64_t j = row.keys[i];
      sum->add_in_steps(row.p[j], row.p_error(j), v.data() + j * sum->d);
    }
    sum->cut();
  }
}

}  // namespace

NaiveForward naive_forward(const fa3_forward_args& args) {
  const Call call = call_of(args);
  const int64_t dv = args.v.shape[args.v.rank - 1];
  const Input in_q = input_q(args), in_k = input_k(args), in_v = input_v(args);
  NaiveForward out{make_estimate(args.o, 0), {}, {}};
  if (args.lse.rank != 0) out.lse = make_estimate(args.lse, -kInf);
  if (args.max_logit.rank != 0) out.max_logit = make_estimate(args.max_logit, -kInf);
  std::mutex of_max_logit;
  for_each_head(args, [&](int64_t b, int64_t head_kv) {
    const Sequence sq = sequence(args.q, args.cu_seqlens_q, args.seqused_q, b);
    const Sequence skv = key_sequence(args, b);
    const std::vector<float> k = gather(in_k, b, skv, head_kv), v = gather(in_v, b, skv, head_kv),
                             k_offset = gather_offset(in_k, b, head_kv),
                             v_offset = gather_offset(in_v, b, head_kv);
    Row row;
    Sums o(1, dv);
    for (int64_t g = 0; g < group_size(args); ++g) {
      const int64_t head = head_kv * group_size(args) + g;
      const Head of_head = head_of(args, b, sq, skv, head);
      const std::vector<float> q = gather(in_q, b, sq, head);
      for (int64_t i = 0; i < sq.len; ++i) {
        see(call, of_head, i, &row);
        attend(call, q.data() + i * call.d, k, k_offset, &row);
        const Index at = token_index(args.o, b, sq.begin + i, head);
        if (call.p_dtype == FA3_F8_E4M3)
          output_row_in_steps(row, v, &o);
        else
          output_row(row, v, &o);
        for (size_t c = 0; c < v_offset.size() && !row.keys.empty(); ++c)
          o.value[c] += v_offset[c] * (1 - row.of_sink);
        o.finish(0, args.o.dtype, row_of(out.o.value, at), row_of(out.o.spread, at));
        if (args.max_logit.rank != 0) {
          const std::lock_guard lock(of_max_logit);
          float& most = *row_of(out.max_logit.value, {head});
          if (row.most > most)
            most = row.most, *row_of(out.max_logit.spread, {head}) = row.most_error;
        }
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
  std::vector<Dot>* of_mask;  // out: its terms of dattn_mask for each key, and their squared errors
  Dot* of_sink;               // out: its term of dsinks, and the square of that's error
};

// dattn_mask while its terms are added, in double and from any thread: the order does not show.
class MaskSums {
 public:
  explicit MaskSums(const fa3_tensor& like)
      : like_(like), value_(element_count(like)), squares_(value_.size()) {}

  bool any() const { return like_.rank != 0; }
  void add(int64_t b, int64_t head, int64_t i, const Row& row, const std::vector<Dot>& terms) {
    const std::lock_guard lock(mutex_);
    for (const int64_t j : row.keys) {
      const size_t at = place({b, head, i, j});
      value_[at] += double{terms[j].sum};
      squares_[at] += double{terms[j].squares};
    }
  }
  void finish(const Estimate& out) const {
    auto *value = static_cast<float*>(out.value.view.data),
         *spread = static_cast<float*>(out.spread.view.data);
    for (size_t at = 0; at < value_.size(); ++at) {
      value[at] = static_cast<float>(round_to(like_.dtype, value_[at]));
      spread[at] = static_cast<float>(std::sqrt(squares_[at]));
    }
  }

 private:
  size_t place(const Index& index) const {
    int64_t at = 0;
    for (int d = 0; d < like_.rank; ++d)
      at = at * like_.shape[d] + (like_.shape[d] == 1 ? 0 : index[d]);
    return static_cast<size_t>(at);
  }

  fa3_tensor like_;
  std::vector<double> value_, squares_;
  std::mutex mutex_;
};

// dsinks while its terms are added, in double and from any thread, in any order.
class SinkSums {
 public:
  explicit SinkSums(const fa3_tensor& like)
      : like_(like), value_(element_count(like)), squares_(value_.size()) {}

  bool any() const { return like_.rank != 0; }
  void add(int64_t head, const Dot& term) {
    const std::lock_guard lock(mutex_);
    value_[static_cast<size_t>(head)] += double{term.sum};
    squares_[static_cast<size_t>(head)] += double{term.squares};
  }
  void finish(const Estimate& out) const {
    for (size_t h = 0; h < value_.size(); ++h) {
      const Index at{static_cast<int64_t>(h)};
      *row_of(out.value, at) = static_cast<float>(round_to(like_.dtype, value_[h]));
      *row_of(out.spread, at) = static_cast<float>(std::sqrt(squares_[h]));
    }
  }

 private:
  fa3_tensor like_;
  std::vector<double> value_, squares_;
  std::mutex mutex_;
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
  x.of_mask->resize(row.p.size());
  float of_probabilities = 0;  // square of the error in δ = Σ P·dP that the errors of P make
  for (const int64_t j : row.keys) {
    dp_dots[j] = dot(x.dout, v.data() + j * dv->d, dv->d);
    of_probabilities += square(row.p_error(j) * (dp_dots[j].sum - delta_dot.sum));
  }
  // Errors of δ and of the sink's probability, to which those of LSE go.
  *x.of_sink = {-row.of_sink * delta,
                square(row.of_sink) * (of_probabilities + square(call.unit) * delta_dot.squares +
                                       square(delta * row.lse_error))};
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
    const float before_cap = std::max(
        std::hypot(p * std::sqrt(inner), row.p_error(j) * (dp_dot.sum - delta)), call.least_step());
    (*x.of_mask)[j] = {p * (dp - delta), square(before_cap) + square(call.unit * p * (dp - delta))};
    const float ds_error =
        std::abs(call.scale) * std::max(std::hypot(of_terms, of_p), call.least_step());
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
  NaiveBackward out{
      make_estimate(like_dq, 0), make_estimate(like_dk, 0), make_estimate(like_dv, 0), {}, {}};
  if (args.dattn_mask.rank != 0) out.dattn_mask = make_estimate(args.dattn_mask, 0);
  if (args.dsinks.rank != 0) out.dsinks = make_estimate(args.dsinks, 0);
  MaskSums mask_sums(args.dattn_mask);
  SinkSums sink_sums(args.dsinks);
  for_each_head(args, [&](int64_t b, int64_t head_kv) {
    const Sequence sq = sequence(args.q, args.cu_seqlens_q, args.seqused_q, b);
    const Sequence skv = sequence(args.k, args.cu_seqlens_kv, args.seqused_kv, b);
    const std::vector<float> k = gather(args.k, b, skv, head_kv),
                             v = gather(args.v, b, skv, head_kv);
    Sums o(1, dv), dq_sum(1, dqk), dk_sums(skv.len, dqk), dv_sums(skv.len, dv);
    std::vector<Dot> of_mask;
    Row row;
    for (int64_t g = 0; g < group_size(args); ++g) {
      const int64_t head = head_kv * group_size(args) + g;
      const Head of_head = head_of(args, b, sq, skv, head);
      const std::vector<float> q = gather(args.q, b, sq, head);
      const std::vector<float> dout = gather(args.dout, b, sq, head);
      for (int64_t i = 0; i < sq.len; ++i) {
        see(call, of_head, i, &row);
        attend(call, q.data() + i * dqk, k, {}, &row);
        Dot of_sink{0, 0};
        RowGradient x{q.data() + i * dqk, dout.data() + i * dv, 0, &of_mask, &of_sink};
        if (args.dlse.rank != 0)
          x.dlse = static_cast<float>(get(args.dlse, lse_index(args.dlse, b, sq.begin + i, head)));
        dq_sum.clear();
        backward_row(call, row, k, v, args.o.dtype, x, &o, &dq_sum, &dk_sums, &dv_sums);
        if (mask_sums.any()) mask_sums.add(b, head, i, row, of_mask);
        if (sink_sums.any()) sink_sums.add(head, of_sink);
        const Index at = token_index(like_dq, b, sq.begin + i, head);
        dq_sum.finish(0, like_dq.dtype, row_of(out.dq.value, at), row_of(out.dq.spread, at));
      }
    }
    scatter(like_dk, dk_sums, b, skv, head_kv, out.dk);
    scatter(like_dv, dv_sums, b, skv, head_kv, out.dv);
  });
  if (mask_sums.any()) mask_sums.finish(out.dattn_mask);
  if (sink_sums.any()) sink_sums.finish(out.dsinks);
  return out;
}

}  // namespace fa3::verify
