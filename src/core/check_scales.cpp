// SPDX-License-Identifier: BSD-3-Clause
// check_scales.cpp — scales of rows, and their values.
#include "core/check_scales.h"

#include <cmath>

#include "core/dtype.h"

namespace fa3 {
namespace {

Status check_row(const Problem& p, const Buffers& x, TensorId id, int64_t b, int64_t begin,
                 int64_t i, int64_t head) {
  const RowScales row = scales_of(p, x, id, b, begin, i, head);
  for (int64_t column = 0; column < p.columns_of(id); column += row.cols) {
    const float scale = row.scale_of(column);
    if (std::isfinite(scale) && scale > 0) continue;
    return invalid(
        "{}: {} of sequence {}, head {}, row {}, column {} is {}, need a finite number > 0; a "
        "block of zeros has any scale, e.g. 1",
        op_name(p.op), tensor_name(scale_of(id)), b, head, i, column, scale);
  }
  return {};
}

}  // namespace

RowScales scales_of(const Problem& p, const Buffers& x, TensorId id, int64_t b, int64_t begin,
                    int64_t i, int64_t head) {
  const ScaleBlock& block = p.block_of(id);
  RowScales row;
  row.cols = block.cols > 0 ? block.cols : p.columns_of(id);
  if (const auto* const data = x.in<float>(scale_of(id))) {
    const Layout& layout = p.layout[scale_of(id)];
    const int64_t entry = block.by_page ? key_place(p, x, b, begin + i).entry : b;
    const int64_t at = block.by_total_row                 ? begin + i
                       : block.rows == 0 || block.by_page ? 0
                                                          : i / block.rows;
    const int64_t of = block.shared_by_group ? head / p.group_size() : head;
    row.scale = data + entry * layout.batch + at * layout.row + of * layout.head;
  }
  const TensorId offset = offset_of(id);
  if (id == kQ || x.data[offset] == nullptr) return row;
  const Layout& layout = p.layout[offset];
  row.offset = x.in<float>(offset) + b * layout.batch + head * layout.head;
  return row;
}

Status check_scales(const Problem& p, const Buffers& x) {
  for (const TensorId id : {kQ, kK, kV}) {
    if (x.data[scale_of(id)] == nullptr) continue;
    const int64_t step = std::max<int64_t>(p.scale_block[id].rows, 1);
    const bool once = p.scale_block[id].rows == 0;  // a scale for all rows
    for (int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = id == kQ ? q_sequence(p, x, b) : kv_sequence(p, x, b);
      for (int64_t head = 0; head < p.heads_of(id); ++head)
        for (int64_t i = 0; i < (once ? std::min<int64_t>(s.len, 1) : s.len); i += step)
          FA3_RETURN_IF_ERROR(check_row(p, x, id, b, s.begin, i, head));
    }
  }
  return {};
}

}  // namespace fa3
