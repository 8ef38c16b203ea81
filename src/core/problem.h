// SPDX-License-Identifier: BSD-3-Clause
// problem.h — one attention call, validated and normalised: Problem (shapes, strides, flags: what a
// plan depends on) and Buffers (the addresses: what a run depends on). Made by src/api, read by
// src/plan and src/backend.
#pragma once

#include <array>
#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

// Tensors of both operations. The order is that of error messages.
enum TensorId : int {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,
  kCuSeqlensQ,
  kCuSeqlensKv,
  kSequsedQ,
  kSequsedKv,
  kTensorCount
};

// Where element (batch b, row i, head h, column c) of a tensor lies: data + b·batch + i·row +
// h·head + c, in elements. Packed tensors have batch = 0 and count rows from the first token of
// all; LSE has no column. NONE = absent.
struct Layout {
  fa3_dtype dtype = FA3_DTYPE_NONE;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;

  bool present() const { return dtype != FA3_DTYPE_NONE; }
  bool operator==(const Layout&) const = default;
};

// The sequence dimension of the queries or of the keys.
struct SeqAxis {
  bool packed = false;     // rows of all sequences one after another, cut by cu_seqlens
  bool seqused = false;    // only the first seqused[b] rows of a sequence count
  int64_t rows = 0;        // dense: rows per batch entry; packed: rows of all sequences
  int64_t max_seqlen = 0;  // upper bound of a sequence's length

  bool operator==(const SeqAxis&) const = default;
};

struct Problem {
  fa3_op op = FA3_OP_FORWARD;
  fa3_dtype dtype = FA3_DTYPE_NONE;  // of q, k and v
  int64_t batch = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t head_dim_qk = 0;
  int64_t head_dim_v = 0;
  SeqAxis q;
  SeqAxis kv;
  fa3_mask mask = FA3_MASK_FULL;
  int64_t left = 0;                        // window only; −1 = unbounded
  int64_t right = 0;                       // window only; −1 = unbounded
  double softmax_scale = 0;                // resolved: never 0 for "default"
  double softcap = 0;                      // 0 = off
  std::array<Layout, kCuSeqlensQ> layout;  // kQ … kDv

  // Query heads per KV head.
  int64_t group_size() const { return heads_kv == 0 ? 1 : heads_q / heads_kv; }
  bool operator==(const Problem&) const = default;
};

// Addresses of one run, in the order of TensorId; absent = nullptr. Inputs are only read.
struct Buffers {
  std::array<void*, kTensorCount> data{};

  template <class T>
  const T* in(TensorId id) const {
    return static_cast<const T*>(data[id]);
  }
  template <class T>
  T* out(TensorId id) const {
    return static_cast<T*>(data[id]);
  }
};

// Rows of sequence b on one axis: those that count, and where they begin.
struct Sequence {
  int64_t begin = 0;  // first row, from the tensor's first (packed) or the batch entry's (dense: 0)
  int64_t len = 0;    // rows that count (after seqused)
};

inline Sequence sequence(const SeqAxis& axis, const int32_t* cu_seqlens, const int32_t* seqused,
                         int64_t b) {
  Sequence s;
  s.begin = axis.packed ? cu_seqlens[b] : 0;
  s.len = axis.packed ? cu_seqlens[b + 1] - s.begin : axis.rows;
  if (axis.seqused) s.len = seqused[b];
  return s;
}
inline Sequence q_sequence(const Problem& p, const Buffers& x, int64_t b) {
  return sequence(p.q, x.in<int32_t>(kCuSeqlensQ), x.in<int32_t>(kSequsedQ), b);
}
inline Sequence kv_sequence(const Problem& p, const Buffers& x, int64_t b) {
  return sequence(p.kv, x.in<int32_t>(kCuSeqlensKv), x.in<int32_t>(kSequsedKv), b);
}

}  // namespace fa3
