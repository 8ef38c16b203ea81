// SPDX-License-Identifier: BSD-3-Clause
// fill.cpp — empty rows: O, dQ, dK, dV = 0, LSE = −inf.
#include "backend/fill.h"

#include <array>
#include <cstring>
#include <limits>

#include "core/dtype.h"

namespace fa3 {
namespace {

// An output tensor as rows × heads × columns.
struct Output {
  TensorId id;
  bool query;  // its rows are those of the queries
  int64_t heads;
  int64_t columns;  // 0: LSE, one number per row and head
};

// Nothing here allocates: a run that has begun to write does not run out of memory.
std::array<Output, 3> outputs_of(const Problem& p) {
  const Output dq{kDq, true, p.heads_q, p.head_dim_qk};  // a forward has none
  if (p.op == FA3_OP_FORWARD)
    return {{{kO, true, p.heads_q, p.head_dim_v}, {kLse, true, p.heads_q, 0}, dq}};
  return {{dq, {kDk, false, p.heads_kv, p.head_dim_qk}, {kDv, false, p.heads_kv, p.head_dim_v}}};
}

// Rows [first, last) of batch entry b, in all heads.
void fill(const Output& out, const Layout& layout, void* data, int64_t b, int64_t first,
          int64_t last) {
  const int64_t element = dtype_bytes(layout.dtype);
  std::byte* const entry = static_cast<std::byte*>(data) + b * layout.batch * element;
  const float empty_lse = -std::numeric_limits<float>::infinity();
  for (int64_t row = first; row < last; ++row) {
    for (int64_t head = 0; head < out.heads; ++head) {
      std::byte* const at = entry + (row * layout.row + head * layout.head) * element;
      if (out.columns > 0) {
        std::memset(at, 0, static_cast<size_t>(out.columns * element));  // 0 in every dtype
      } else {
        std::memcpy(at, &empty_lse, sizeof empty_lse);
      }
    }
  }
}

}  // namespace

void fill_unowned_rows(const Problem& p, const Buffers& buffers) {
  for (const Output& out : outputs_of(p)) {
    const Layout& layout = p.layout[out.id];
    const SeqAxis& axis = out.query ? p.q : p.kv;
    if (!layout.present() || out.heads == 0 || !(axis.packed || axis.seqused)) continue;
    const int32_t* cu = buffers.in<int32_t>(out.query ? kCuSeqlensQ : kCuSeqlensKv);
    for (int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = out.query ? q_sequence(p, buffers, b) : kv_sequence(p, buffers, b);
      fill(out, layout, buffers.data[out.id], b, s.begin + s.len,
           axis.packed ? cu[b + 1] : axis.rows);
    }
    if (axis.packed) fill(out, layout, buffers.data[out.id], 0, cu[p.batch], axis.rows);
  }
}

void fill_all_rows(const Problem& p, const Buffers& buffers) {
  for (const Output& out : outputs_of(p)) {
    const Layout& layout = p.layout[out.id];
    const SeqAxis& axis = out.query ? p.q : p.kv;
    if (!layout.present() || out.heads == 0 || axis.rows == 0) continue;
    const int64_t entries = axis.packed ? 1 : p.batch;
    for (int64_t b = 0; b < entries; ++b) fill(out, layout, buffers.data[out.id], b, 0, axis.rows);
  }
}

}  // namespace fa3
