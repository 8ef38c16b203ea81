// SPDX-License-Identifier: BSD-3-Clause
// span.cpp — extents of tensors in the order of their strides.
#include "core/span.h"

namespace fa3 {
Counts counts_of(const Problem& p, TensorId id) {
  const auto blocks = [](int64_t n, int64_t size) { return size == 0 ? 1 : (n + size - 1) / size; };
  switch (kTensors[id].form) {
    case Form::kScale: {
      const ScaleBlock& block = p.block_of(scaled_by(id));
      if (block.of_tensor) return {1, 1, 1, 1};
      const int64_t heads = block.shared_by_group ? p.heads_kv : p.heads_of(id);
      const int64_t cols = blocks(p.columns_of(id), block.cols);
      if (block.by_total_row) return {1, p.axis_of(id).rows, heads, cols};
      if (block.by_page) return {p.cache.entries, 1, heads, 1};
      return {p.batch, blocks(p.axis_of(id).max_seqlen, block.rows), heads, cols};
    }
    case Form::kOffset:
      return {p.batch, 1, p.heads_of(id), p.columns_of(id)};
    case Form::kTable:
      return {1, p.rotation.positions, 1, p.rotation.rotary_dim / 2};
    case Form::kTree:
      return {p.entries_of(id), p.rows_of(id), 1, 2};
    case Form::kMask: {
      if (id == kAttnMask) return {p.batch, p.q.rows, p.heads_q, p.kv.max_seqlen};
      const MaskExtents& n = p.mask_grad;
      return {n.batch, n.rows, n.heads, n.columns};
    }
    default:
      return {p.entries_of(id), p.rows_of(id), p.heads_of(id), p.columns_of(id)};
  }
}

int64_t span_of(const Problem& p, TensorId id) {
  if (!p.layout[id].present()) return 0;
  const Layout& layout = p.layout[id];
  if (kTensors[id].form == Form::kImage)
    return p.entries_of(id) * p.heads_of(id) * image_tiles(p.axis_of(id), p.batch, p.image.keys) *
           p.image.keys * p.image.columns;
  const Counts n = counts_of(p, id);
  if (n.batch == 0 || n.rows == 0 || n.heads == 0 || n.columns == 0) return 0;
  const bool of_parts = has_parts(kTensors[id].form);
  if (of_parts && p.parts == 0) return 0;
  const int64_t parts_before = of_parts ? p.parts - 1 : 0;
  return parts_before * layout.part + (n.batch - 1) * layout.batch + (n.rows - 1) * layout.row +
         (n.heads - 1) * layout.head + (n.columns - 1) * layout.column + 1;
}

int64_t elements_of(const Problem& p, TensorId id) {
  const Form form = kTensors[id].form;
  if (form == Form::kPageTable) return p.batch * p.cache.max_pages;
  return p.batch + (form == Form::kCuSeqlens ? 1 : 0);
}

bool is_sum(const Problem& p, TensorId id) {
  const Form form = kTensors[id].form;
  return has_layout(id) && p.op == FA3_OP_BACKWARD && is_output(role_of(p.op, id)) &&
         form != Form::kRows && p.layout[id].present();
}

bool has_no_output_rows(const Problem& p) {
  for (const TensorRow& row : kTensors)
    if (is_sum(p, row.id) && span_of(p, row.id) > 0) return false;
  if (p.has_max_logit() && p.heads_q > 0) return false;
  if (p.appends() && p.batch > 0 && p.fresh.rows > 0 && span_of(p, kK) > 0) return false;
  const bool no_keys = (p.batch == 0 && !p.kv.varlen) || p.heads_kv == 0 || p.kv.rows == 0;
  return has_no_rows(p) && (p.op != FA3_OP_BACKWARD || no_keys);
}

}  // namespace fa3
