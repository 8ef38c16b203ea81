// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — the problem without what is appended, and where its tensors lie.
#include "plan/append.h"

#include <algorithm>

#include "core/dtype.h"
#include "core/span.h"

namespace fa3 {
namespace {

// q again without gaps, dimensions in the same order. Sequences lie as many rows apart: kernels
// that count rows of all sequences want that of q and o.
Layout without_gaps(const Problem& p, const Layout& q) {
  const bool heads_first = q.head > q.row && p.q.rows > 1;
  Layout dense = q;
  dense.row = (heads_first ? 1 : p.heads_q) * p.head_dim_qk;
  dense.head = (heads_first ? p.q.rows : 1) * p.head_dim_qk;
  if (p.q.varlen) return dense;
  const int64_t natural = (heads_first ? p.heads_q : 1) * p.q.rows;  // rows apart
  const bool known = q.row > 0 && p.q.rows > 1 && q.batch % q.row == 0;
  dense.batch = std::max(known ? q.batch / q.row : natural, natural) * dense.row;
  return dense;
}

}  // namespace

Append make_append(const Problem& p) {
  Append append;
  Problem& attention = append.attention.problem;
  attention = p;
  attention.fresh = {};
  attention.rotation = {};
  for (const TensorId id : {kKNew, kVNew, kRotaryCos, kRotarySin}) attention.layout[id] = {};
  const auto place = [&append](TensorId id, int64_t bytes) {
    const size_t size = (static_cast<size_t>(bytes) + kCacheLine - 1) / kCacheLine * kCacheLine;
    append.slices.push_back({{tensor_name(id), size, kCacheLine}, 0, PlacedSlice::kWholePlan, 0});
    append.bytes = lay_out(append.slices);
    const size_t offset = append.slices.back().offset;
    append.attention.sources.push_back({id, offset});
    return offset;
  };
  append.lengths = place(kSequsedKv, int64_t{sizeof(int32_t)} * p.batch);
  if (p.rotation.rotary_dim == 0) return append;
  Layout& q = attention.layout[kQ];
  q = without_gaps(p, q);
  append.queries = place(kQ, span_of(attention, kQ) * dtype_bytes(q.dtype));
  return append;
}

}  // namespace fa3
