// SPDX-License-Identifier: BSD-3-Clause
// key_tile.h — the rows of K and V of a tile of keys of the forward: where they lie in pages, and
// their values where they have 8 bits.
#pragma once

#include "backend/cpu/block.h"
#include "backend/cpu/decode.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

struct KeyTile {
  const Problem& p;
  const Buffers& buffers;
  const CpuPlan& cpu;
  const KvHead& head;
  IndexRange tile;
  ForwardScratch& x;

  // Finds the rows in their pages; before the others.
  void find() const {
    if (!p.cache.paged()) return;
    const Layout &k = p.layout[kK], &v = p.layout[kV];
    int64_t left = 0;  // rows of the page
    KeyPlace at;
    for (int64_t i = 0; i < tile.size(); ++i, ++at.row, --left) {
      if (left == 0) {
        at = key_place(p, buffers, head.b, head.kv_seq.begin + tile.lo + i);
        left = p.cache.page_size - at.row;
      }
      x.k_begin[i] = at.entry * k.batch + at.row * k.row;
      x.v_begin[i] = at.entry * v.batch + at.row * v.row;
    }
  }
  // Decodes K and V of 8 bits; before rows().
  void decode() const {
    for (const TensorId id : {kK, kV}) {
      const Layout& layout = p.layout[id];
      if (!is_8_bit(layout.dtype)) continue;
      const Values to = values_of(id);
      for (int64_t i = 0; i < tile.size(); ++i) {
        const int64_t row = tile.lo + i;
        const int64_t at = p.cache.paged()
                               ? begins(id)[i]
                               : head.entry * layout.batch + (head.kv_seq.begin + row) * layout.row;
        decode_row(layout.dtype, buffers.data[id], at + head.h_kv * layout.head,
                   scales_of(p, buffers, id, head.b, head.kv_seq.begin, row, head.h_kv),
                   p.columns_of(id), to.data + i * to.width);
      }
    }
  }
  // Rows `span` of the tile of K or V.
  Rows rows(TensorId id, Span span) const {
    if (is_8_bit(p.layout[id].dtype)) {
      const Values from = values_of(id);
      return {.data = from.data + span.lo * from.width,
              .dtype = FA3_F32,
              .stride = from.width,
              .rows = span.hi - span.lo,
              .cols = static_cast<int>(p.columns_of(id))};
    }
    const bool paged = p.cache.paged();
    Rows rows = rows_at(p.layout[id], buffers.data[id], paged ? 0 : head.entry,
                        paged ? 0 : head.kv_seq.begin, paged ? 0 : tile.lo + span.lo, head.h_kv,
                        span.hi - span.lo, p.columns_of(id));
    if (paged) rows.begin = begins(id) + span.lo;
    return rows;
  }

 private:
  struct Values {  // of codes
    float* data;
    int64_t width;
  };
  Values values_of(TensorId id) const {
    return id == kK ? Values{x.k_values, cpu.width_qk} : Values{x.v_values, cpu.width_v};
  }
  const int64_t* begins(TensorId id) const { return id == kK ? x.k_begin : x.v_begin; }
};

}  // namespace fa3::cpu
