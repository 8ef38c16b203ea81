// SPDX-License-Identifier: BSD-3-Clause
// naive_input.cpp — rows out of tensors of any layout.
#include "tools/verify/naive_input.h"

#include <algorithm>
#include <limits>

#include "tools/verify/scales.h"

namespace fa3::verify {

Sequence sequence(const fa3_tensor& rows, const fa3_tensor& cu, const fa3_tensor& used, int64_t b) {
  Sequence s{0, rows.shape[1]};
  if (cu.rank != 0) {
    s.begin = static_cast<int64_t>(get(cu, {b}));
    s.len = static_cast<int64_t>(get(cu, {b + 1})) - s.begin;
  }
  if (used.rank != 0) s.len = static_cast<int64_t>(get(used, {b}));
  return s;
}

Sequence key_sequence(const fa3_forward_args& a, int64_t b) {
  Sequence s = sequence(a.k, a.cu_seqlens_kv, a.seqused_kv, b);
  if (a.kv_begin.rank != 0) s.begin = static_cast<int64_t>(get(a.kv_begin, {b}));
  return s;
}

Index token_index(const fa3_tensor& t, int64_t b, int64_t i, int64_t head) {
  return t.rank == 4 ? Index{b, i, head, 0} : Index{i, head, 0};
}
Index lse_index(const fa3_tensor& lse, int64_t b, int64_t i, int64_t head) {
  return lse.rank == 3 ? Index{b, head, i} : Index{head, i};
}

Input input_q(const fa3_forward_args& a) {
  return {a.q, a.q_scale, {}, a.q_block, a.cu_seqlens_q.rank != 0};
}
Input input_k(const fa3_forward_args& a) {
  return {a.k,          a.k_scale,     a.k_offset, a.k_block, a.cu_seqlens_kv.rank != 0,
          a.page_table, a.kv_batch_idx};
}
Input input_v(const fa3_forward_args& a) {
  return {a.v,          a.v_scale,     a.v_offset, a.v_block, a.cu_seqlens_kv.rank != 0,
          a.page_table, a.kv_batch_idx};
}

Index key_index(const Input& x, int64_t b, int64_t row, int64_t head) {
  if (x.kv_batch_idx.rank != 0) b = static_cast<int64_t>(get(x.kv_batch_idx, {b}));
  if (x.page_table.rank == 0) return token_index(x.values, b, row, head);
  const int64_t size = x.values.shape[1];
  return {static_cast<int64_t>(get(x.page_table, {b, row / size})), row % size, head, 0};
}

namespace {

std::vector<float> gather_rows(const Input& x, int64_t b, const Sequence& s, int64_t head) {
  const fa3_tensor& t = x.values;
  const int64_t d = t.shape[t.rank - 1];
  std::vector<float> rows(s.len * d);
  for (int64_t i = 0; i < s.len; ++i) {
    Index at = key_index(x, b, s.begin + i, head);
    for (int64_t c = 0; c < d; ++c) {
      at[t.rank - 1] = c;
      rows[i * d + c] = static_cast<float>(get(t, at));
    }
  }
  return rows;
}

}  // namespace

std::vector<float> gather(const fa3_tensor& t, int64_t b, const Sequence& s, int64_t head) {
  return gather_rows({t}, b, s, head);
}

std::vector<float> gather(const Input& x, int64_t b, const Sequence& s, int64_t head) {
  std::vector<float> rows = gather_rows(x, b, s, head);
  if (x.scale.rank == 0) return rows;
  const fa3_tensor& t = x.values;
  const int64_t d = t.shape[t.rank - 1], cols = x.block.cols > 0 ? x.block.cols : d;
  for (int64_t i = 0; i < s.len; ++i) {
    const bool of_page = x.page_table.rank != 0 && x.block.rows > 0;
    Index at = of_page ? Index{key_index(x, b, s.begin + i, head)[0], head}
                       : scale_index(x.scale, x.block,
                                     {b, i, s.begin + i, head, t.shape[t.rank - 2], x.varlen});
    for (int64_t c = 0; c < d; c += cols, of_page ? 0 : ++at[x.scale.rank - 1]) {
      const auto scale = static_cast<float>(get(x.scale, at));
      for (int64_t e = c; e < std::min(c + cols, d); ++e) rows[i * d + e] *= scale;
    }
  }
  return rows;
}

std::vector<float> gather_offset(const Input& x, int64_t b, int64_t head) {
  std::vector<float> offset(x.offset.rank == 0 ? 0 : x.offset.shape[2]);
  for (size_t c = 0; c < offset.size(); ++c)
    offset[c] = static_cast<float>(get(x.offset, {b, head, static_cast<int64_t>(c)}));
  return offset;
}

float mask_value(const fa3_tensor& mask, int64_t b, int64_t head, int64_t i, int64_t j) {
  Index at{b, head, i, j};
  for (int d = 0; d < mask.rank; ++d)
    if (mask.shape[d] == 1) at[d] = 0;
  const auto value = static_cast<float>(get(mask, at));
  if (mask.dtype != FA3_BOOL) return value;
  return value != 0 ? 0 : -std::numeric_limits<float>::infinity();
}

float* row_of(const Tensor& t, const Index& index) {
  int64_t offset = 0;
  for (int d = 0; d < t.view.rank; ++d) offset += index[d] * t.view.stride[d];
  return static_cast<float*>(t.view.data) + offset;
}

Estimate make_estimate(const fa3_tensor& like, float empty) {
  const std::vector<int64_t> shape(like.shape, like.shape + like.rank);
  Estimate e{make_tensor(FA3_F32, shape), make_tensor(FA3_F32, shape)};
  fill(e.value.view, empty);
  fill(e.spread.view, 0);
  return e;
}

}  // namespace fa3::verify
