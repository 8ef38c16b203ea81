// SPDX-License-Identifier: BSD-3-Clause
// fill.cpp — empty rows: O, dQ, dK, dV = 0, LSE = −inf; sums of no rows, such as dattn_mask: 0.
#include "backend/cpu/fill.h"

#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "core/span.h"

namespace fa3 {
namespace {

// Rows [first, last) of batch entry b, in all heads.
void fill(const Problem& p, TensorId id, void* data, int64_t b, int64_t first, int64_t last) {
  const Layout& layout = p.layout[id];
  const int64_t element = dtype_bytes(layout.dtype);
  std::byte* const entry = static_cast<std::byte*>(data) + b * layout.batch * element;
  const float empty_lse = -std::numeric_limits<float>::infinity();
  for (int64_t row = first; row < last; ++row) {
    for (int64_t head = 0; head < p.heads_of(id); ++head) {
      std::byte* const at = entry + (row * layout.row + head * layout.head) * element;
      if (kTensors[id].form == Form::kRows) {
        std::memset(at, 0, static_cast<size_t>(p.columns_of(id) * element));  // 0 in every dtype
      } else {
        std::memcpy(at, &empty_lse, sizeof empty_lse);
      }
    }
  }
}

// Is it an output of the problem that has rows, and elements? Nothing here allocates: a run that
// has begun to write does not run out of memory.
bool is_filled(const Problem& p, TensorId id) {
  const Form form = kTensors[id].form;
  return (form == Form::kRows || form == Form::kLse) && is_output(role_of(p.op, id)) &&
         p.layout[id].present() && p.heads_of(id) != 0;
}

// Where there is nothing that could be summed.
void fill_sum(const Problem& p, TensorId id, void* data) {
  const Layout& layout = p.layout[id];
  const Counts n = counts_of(p, id);
  const int64_t element = dtype_bytes(layout.dtype);
  for (int64_t b = 0; b < n.batch; ++b) {
    for (int64_t h = 0; h < n.heads; ++h) {
      for (int64_t i = 0; i < n.rows; ++i) {
        const int64_t at = b * layout.batch + h * layout.head + i * layout.row;
        std::memset(static_cast<std::byte*>(data) + at * element, 0,
                    static_cast<size_t>(n.columns * element));
      }
    }
  }
}

}  // namespace

void fill_unowned_rows(const Problem& p, const Buffers& buffers) {
  for (const TensorRow& out : kTensors) {
    if (!is_filled(p, out.id)) continue;
    const SeqAxis& axis = p.axis_of(out.id);
    if (!(axis.varlen || axis.seqused)) continue;
    void* const data = buffers.data[out.id];
    const int32_t* cu = buffers.in<int32_t>(cu_seqlens_of(out.axis));
    for (int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = sequence_of(p, buffers, out.axis, b);
      fill(p, out.id, data, b, s.begin + s.len, axis.varlen ? cu[b + 1] : axis.rows);
    }
    if (axis.varlen) fill(p, out.id, data, 0, cu[p.batch], axis.rows);
  }
}

void fill_all_rows(const Problem& p, const Buffers& buffers) {
  for (const TensorRow& out : kTensors) {
    if (!is_filled(p, out.id)) continue;
    const SeqAxis& axis = p.axis_of(out.id);
    if (axis.rows == 0) continue;  // of any number of batch entries
    const int64_t entries = axis.varlen ? 1 : p.batch;
    for (int64_t b = 0; b < entries; ++b) fill(p, out.id, buffers.data[out.id], b, 0, axis.rows);
  }
  for (const TensorRow& out : kTensors)
    if (is_sum(p, out.id)) fill_sum(p, out.id, buffers.data[out.id]);
}

}  // namespace fa3
