// SPDX-License-Identifier: BSD-3-Clause
// dims.cpp — the shape of each tensor, from the dimensions of a problem.
#include "api/dims.h"

#include <algorithm>

#include "api/scales.h"

namespace fa3 {

AxisNames names_of(const Problem& p, TensorId id) {
  const bool varlen = p.axis_of(id).varlen, of_v = kTensors[id].dim == Dim::kV;
  switch (kTensors[id].axis) {
    case Axis::kQuery:
      return {varlen ? "total_q" : "seqlen_q", "heads_q", of_v ? "head_dim_v" : "head_dim_qk"};
    case Axis::kKey:
      if (p.cache.paged())
        return {"max_pages · page_size", "heads_kv", of_v ? "head_dim_v" : "head_dim_qk"};
      return {varlen ? "total_kv" : "seqlen_kv", "heads_kv", of_v ? "head_dim_v" : "head_dim_qk"};
    case Axis::kNew:
      return {varlen ? "total_new" : "seqlen_new", "heads_kv", of_v ? "head_dim_v" : "head_dim_qk"};
    case Axis::kToken:
      break;
  }
  return {varlen ? "total" : "seqlen", "heads", "head_dim"};
}

Dims expected_dims(const Problem& p, TensorId id, const fa3_tensor& given) {
  const SeqAxis& axis = p.axis_of(id);
  const AxisNames names = names_of(p, id);
  Dims dims;
  if (has_parts(kTensors[id].form)) dims.add("parts", p.parts);
  switch (kTensors[id].form) {
    case Form::kRows:
    case Form::kPartRows:
      if (p.in_cache(id))
        dims.add(p.cache.paged() ? "pages" : "slots", p.entries_of(id));
      else if (!axis.varlen)
        dims.add("batch", p.batch);
      dims.add(p.in_cache(id) && p.cache.paged() ? "page_size" : names.rows, p.rows_of(id));
      dims.add(names.heads, p.heads_of(id));
      dims.add(names.columns, p.columns_of(id));
      break;
    case Form::kLse:
    case Form::kPartLse:
      if (!axis.varlen) dims.add("batch", p.batch);
      dims.add(names.heads, p.heads_of(id));
      dims.add(names.rows, axis.rows);
      break;
    case Form::kSlopes:
      if (given.rank == 2) dims.add("batch", p.batch);
      dims.add(names.heads, p.heads_of(id));
      break;
    case Form::kHeads:
      dims.add(p.op == FA3_OP_COMBINE ? "heads" : names.heads, p.heads_of(id));
      break;
    case Form::kIds:
      if (!axis.varlen) dims.add("batch", p.batch);
      dims.add(names.rows, axis.rows);
      break;
    case Form::kTree:
      if (!axis.varlen) dims.add("batch", p.batch);
      dims.add(names.rows, axis.rows);
      dims.add("words", 2);
      break;
    case Form::kMask: {
      const auto add = [&](const char* name, int64_t extent) {
        dims.add(name, given.shape[dims.rank] == 1 ? 1 : extent);
      };
      add("batch", p.batch);
      add(names.heads, p.heads_q);
      add(names.rows, axis.rows);
      add(p.kv.varlen || p.cache.paged() ? "max_seqlen_kv" : "seqlen_kv", p.kv.max_seqlen);
      break;
    }
    case Form::kScale:
      return dims_of_scale(p, id, given.rank);
    case Form::kOffset:
      dims.add("batch", p.batch);
      dims.add(names.heads, p.heads_of(id));
      dims.add(names.columns, p.columns_of(id));
      break;
    case Form::kTable:  // extents of its own, which read_rotation() checks
      dims.add("positions", given.shape[0]);
      dims.add("rotary_dim / 2", given.shape[1]);
      break;
    case Form::kImage: {  // tiles of an extent of their own, which read_image() checks
      const int last = std::clamp(given.rank - 1, 1, FA3_MAX_RANK - 1);
      if (!axis.varlen) dims.add("batch", p.batch);
      dims.add(names.heads, p.heads_of(id));
      dims.add("tiles", image_tiles(axis, p.batch, std::max<int64_t>(given.shape[last - 1], 1)));
      dims.add("keys of a tile", given.shape[last - 1]);
      dims.add("columns of a tile", given.shape[last]);
      break;
    }
    case Form::kCuSeqlens:
      dims.add("batch + 1", p.batch + 1);
      break;
    case Form::kSeqused:
      dims.add("batch", p.batch);
      break;
    case Form::kPageTable:
      dims.add("batch", p.batch);
      dims.add("max_pages", p.cache.max_pages);
      break;
  }
  return dims;
}

}  // namespace fa3
