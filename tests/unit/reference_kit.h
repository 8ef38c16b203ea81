// SPDX-License-Identifier: BSD-3-Clause
// reference_kit.h — small problems for the FP64 reference, and its gradients by finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/reference.h"

namespace fa3::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// An F32 problem with its tensors, dense: q (batch, seqlen_q, heads_q, head_dim_qk) and so on; lse
// (batch, heads_q, seqlen_q). Varlen after pack(): all rows are then consecutive.
struct Case {
  Problem p;
  std::vector<float> q, k, v, o, lse, dout, dlse, dq, dk, dv;
  std::vector<int32_t> cu_q, cu_kv, used_q, used_kv;
  std::vector<float> slopes;           // (heads_q) or (batch, heads_q); {} = none
  std::vector<int32_t> ids_q, ids_kv;  // of all rows; {} = none
  // Extents of a mask of floats and of its gradient, and the values; {} = none.
  std::vector<int64_t> mask_shape;
  std::vector<float> mask, dmask;

  Case(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q, int64_t seqlen_kv,
       int64_t dqk, int64_t dv) {
    p.batch = batch;
    p.heads_q = heads_q;
    p.heads_kv = heads_kv;
    p.head_dim_qk = dqk;
    p.head_dim_v = dv;
    p.q.rows = p.q.max_seqlen = seqlen_q;
    p.kv.rows = p.kv.max_seqlen = seqlen_kv;
    p.softmax_scale = 1;
    resize();
  }

  int64_t tokens_q() const { return p.q.varlen ? p.q.rows : p.batch * p.q.rows; }
  int64_t tokens_kv() const { return p.kv.varlen ? p.kv.rows : p.batch * p.kv.rows; }

  // Cuts both sides into sequences at cu (first 0); rows are those of the tensors.
  void pack(std::vector<int32_t> q_cu, int64_t rows_q, std::vector<int32_t> kv_cu,
            int64_t rows_kv) {
    p.batch = static_cast<int64_t>(q_cu.size()) - 1;
    p.q.varlen = p.kv.varlen = true;
    p.q.rows = p.q.max_seqlen = rows_q;
    p.kv.rows = p.kv.max_seqlen = rows_kv;
    cu_q = std::move(q_cu);
    cu_kv = std::move(kv_cu);
    resize();
  }

  void resize() {
    const int64_t nq = tokens_q() * p.heads_q, nkv = tokens_kv() * p.heads_kv;
    q.assign(nq * p.head_dim_qk, 0);
    k.assign(nkv * p.head_dim_qk, 0);
    v.assign(nkv * p.head_dim_v, 0);
    dout.assign(nq * p.head_dim_v, 0);
    dlse.assign(nq, 0);
    o.assign(nq * p.head_dim_v, kNan);
    lse.assign(nq, kNan);
    dq.assign(q.size(), kNan);
    dk.assign(k.size(), kNan);
    dv.assign(v.size(), kNan);
  }

  // Multiples of 2^-8, so that x ± 2^-6 is exact.
  void randomise(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (auto* tensor : {&q, &k, &v, &dout, &dlse})
      for (float& x : *tensor)
        x = static_cast<float>(std::lround(std::normal_distribution<>()(random) * 256)) / 256;
  }

  Layout rows_of(const SeqAxis& axis, int64_t heads, int64_t d) const {
    return {FA3_F32, axis.varlen ? 0 : axis.rows * heads * d, heads * d, d};
  }

  void run(fa3_op op, int threads = 1) {
    p.op = op;
    p.q.seqused = !used_q.empty();
    p.kv.seqused = !used_kv.empty();
    const Layout lse_layout{FA3_F32, p.q.varlen ? 0 : p.heads_q * p.q.rows, 1, p.q.rows};
    p.layout[kQ] = p.layout[kDq] = rows_of(p.q, p.heads_q, p.head_dim_qk);
    p.layout[kK] = p.layout[kDk] = rows_of(p.kv, p.heads_kv, p.head_dim_qk);
    p.layout[kV] = p.layout[kDv] = rows_of(p.kv, p.heads_kv, p.head_dim_v);
    p.layout[kO] = p.layout[kDout] = rows_of(p.q, p.heads_q, p.head_dim_v);
    p.layout[kLse] = p.layout[kDlse] = lse_layout;
    const bool of_batch = std::ssize(slopes) > p.heads_q;
    if (!slopes.empty()) p.layout[kAlibiSlopes] = {FA3_F32, of_batch ? p.heads_q : 0, 0, 1};
    if (!ids_q.empty()) {
      p.layout[kSequenceIdsQ] = {FA3_I32, p.q.varlen ? 0 : p.q.rows, 1, 0};
      p.layout[kSequenceIdsKv] = {FA3_I32, p.kv.varlen ? 0 : p.kv.rows, 1, 0};
    }
    if (!mask.empty()) {
      const std::vector<int64_t>& n = mask_shape;
      const auto stride = [&](int d, int64_t of) { return n[d] == 1 ? 0 : of; };
      p.layout[kAttnMask] = {FA3_F32, stride(0, n[1] * n[2] * n[3]), stride(2, n[3]),
                             stride(1, n[2] * n[3]), stride(3, 1)};
      p.layout[kDattnMask] = p.layout[kAttnMask];
      p.mask_grad = {n[0], n[1], n[2], n[3]};
      if (op == FA3_OP_BACKWARD) dmask.assign(mask.size(), kNan);
    }
    Buffers x;
    x.data[kAttnMask] = mask.data();
    x.data[kDattnMask] = dmask.data();
    x.data[kQ] = q.data();
    x.data[kK] = k.data();
    x.data[kV] = v.data();
    x.data[kO] = o.data();
    x.data[kLse] = lse.data();
    x.data[kDout] = dout.data();
    x.data[kDlse] = dlse.data();
    x.data[kDq] = dq.data();
    x.data[kDk] = dk.data();
    x.data[kDv] = dv.data();
    x.data[kAlibiSlopes] = slopes.data();
    x.data[kSequenceIdsQ] = ids_q.data();
    x.data[kSequenceIdsKv] = ids_kv.data();
    x.data[kCuSeqlensQ] = cu_q.data();
    x.data[kCuSeqlensKv] = cu_kv.data();
    x.data[kSequsedQ] = used_q.data();
    x.data[kSequsedKv] = used_kv.data();
    const Executor executor(threads);
    // Garbage in the workspace, at an odd address, must not matter.
    std::vector<std::byte> workspace(reference::workspace_bytes(p, threads) + 1, std::byte{0xff});
    if (op == FA3_OP_FORWARD) reference::forward(p, x, workspace.data() + 1, executor);
    if (op == FA3_OP_BACKWARD) reference::backward(p, x, workspace.data() + 1, executor);
  }
  void forward() { run(FA3_OP_FORWARD); }
  void backward() { run(FA3_OP_BACKWARD); }
};

inline void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                        double tolerance = 2e-7) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(std::abs(actual[i] - expected[i]), tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
}

// L = Σ dO ∘ O + Σ dLSE ∘ LSE, over rows that see a key.
inline double loss(Case& c) {
  c.forward();
  double sum = 0;
  for (size_t i = 0; i < c.o.size(); ++i) sum += double{c.dout[i]} * c.o[i];
  for (size_t i = 0; i < c.lse.size(); ++i)
    if (c.lse[i] != -kInf) sum += double{c.dlse[i]} * c.lse[i];
  return sum;
}

// dL/dx by central differences at steps h and h/2, extrapolated: error O(h⁴) ≈ 1e-7 and from the
// FP32 outputs some 1e-7 · √outputs / h ≈ 1e-5.
inline double derivative(Case& c, float* x) {
  const float middle = *x;
  const auto central = [&](float h) {
    *x = middle + h;
    const double up = loss(c);
    *x = middle - h;
    const double down = loss(c);
    *x = middle;
    return (up - down) / (2.0 * h);
  };
  const double coarse = central(0x1p-5f), fine = central(0x1p-6f);
  return fine + (fine - coarse) / 3;
}

inline void check_gradients(Case c, uint64_t seed) {
  c.randomise(seed);
  c.backward();
  double largest = 0;
  const auto check = [&](const char* name, std::vector<float>& input, const std::vector<float>& d) {
    for (size_t i = 0; i < input.size(); ++i) {
      const double expected = derivative(c, &input[i]);
      largest = std::max(largest, std::abs(expected));
      ASSERT_LE(std::abs(d[i] - expected), 5e-5) << name << "[" << i << "]";
    }
  };
  check("dq", c.q, c.dq);
  check("dk", c.k, c.dk);
  check("dv", c.v, c.dv);
  if (!c.mask.empty()) check("dmask", c.mask, std::vector<float>(c.dmask));
  EXPECT_GT(largest, 0.1) << "gradients too small for the check to say anything";
}

}  // namespace fa3::test
