// SPDX-License-Identifier: BSD-3-Clause
// scales.cpp — which scales fit an 8-bit tensor.
#include "api/scales.h"

#include <fmt/core.h>

#include <utility>

#include "core/dtype.h"

namespace fa3 {

namespace {

// Keys in a cache have a scale for each head of a sequence or of a page.
Status check_block_in_cache(const Args& args, TensorId id, ScaleBlock& block) {
  const auto has = [&](TensorId of) { return args.tensor[of].rank != 0; };
  if (!has(kPageTable) && !has(kKvBatchIdx) && !has(kKvBegin)) return {};
  const bool whole = block.rows == 0 && block.cols == 0;
  if (whole) return {};
  const int64_t page = has(kPageTable) && args.tensor[id].rank == 4 ? args.tensor[id].shape[1] : 0;
  if (page > 0 && block.rows == page && block.cols == 0) {
    block.by_page = true;
    return {};
  }
  return unsupported(
      "forward: {0}_block=({1}, {2}) beside a cache, need (0, 0), {0}_scale of (1) or (batch, "
      "heads_kv){3}",
      tensor_name(id), block.rows, block.cols,
      page > 0 ? fmt::format("; or ({}, 0), of (pages, heads_kv)", page) : "");
}

}  // namespace

Result<std::array<ScaleBlock, 3>> read_scale_blocks(const Args& args) {
  std::array<ScaleBlock, 3> blocks;
  const char* const op = op_name(args.op);
  if (args.op == FA3_OP_QUANTIZE) {
    const fa3_scale_block block = args.scale_block[0];
    if (block.rows < 0 || block.cols < 0) {
      return invalid("quantize: block=({}, {}) is negative; need ≥ 0 (0 = all)", block.rows,
                     block.cols);
    }
    blocks[0] = {block.rows, block.cols, false, false};
    return blocks;
  }
  for (const TensorId id : {kQScale, kKScale, kVScale, kKOffset, kVOffset}) {
    const TensorId of = scaled_by(id);
    const bool present = args.tensor[id].rank != 0;
    const int32_t dtype = args.tensor[of].dtype;
    if (present && !is_8_bit(dtype)) {
      return invalid("{}: {} is given, but {}.dtype={}, need f8_e4m3 or i8 there; leave {} out", op,
                     tensor_name(id), tensor_name(of), dtype_name(dtype), tensor_name(id));
    }
    if (kTensors[id].form != Form::kScale) continue;
    const fa3_scale_block& block = args.scale_block[of];
    for (const auto& [name, n] : {std::pair("rows", block.rows), std::pair("cols", block.cols)}) {
      if (n < 0) {
        return invalid("{}: {}_block.{}={} is negative; need ≥ 0 (0 = all)", op, tensor_name(of),
                       name, n);
      }
      if (n > 0 && !present) {
        return invalid("{}: {}_block.{}={}, but {} is absent; need 0, or the scales too", op,
                       tensor_name(of), name, n, tensor_name(id));
      }
    }
    blocks[of] = {block.rows, block.cols, false, false};
    if (of != kQ) FA3_RETURN_IF_ERROR(check_block_in_cache(args, of, blocks[of]));
  }
  return blocks;
}

void read_scale_shape(const fa3_tensor& scale, Problem& p, TensorId id) {
  ScaleBlock& block = p.block_of(scaled_by(id));
  block.of_tensor = id == kScale && scale.rank == 1;
  block.by_total_row = p.axis_of(id).varlen && scale.rank == 2 && block.rows == 1 && !block.by_page;
  block.shared_by_group =
      id == kQScale && scale.rank > 1 && p.heads_kv != p.heads_q && scale.shape[1] == p.heads_kv;
}

Dims dims_of_scale(const Problem& p, TensorId id, int rank) {
  const ScaleBlock& block = p.block_of(scaled_by(id));
  const SeqAxis& axis = p.axis_of(id);
  const AxisNames names = names_of(p, id);
  const char* const heads = block.shared_by_group ? "heads_kv" : names.heads;
  const int64_t heads_here = block.shared_by_group ? p.heads_kv : p.heads_of(id);
  const bool whole = block.rows == 0 && block.cols == 0;
  const bool by_token = block.rows == 1 && block.cols == 0;
  Dims dims;
  if (block.by_page) {
    dims.add("pages", p.cache.entries);
    dims.add(heads, heads_here);
  } else if (rank == 1 && whole) {
    dims.add("1", 1);
  } else if (rank == 2 && by_token && axis.varlen) {
    dims.add(names.rows, axis.rows);
    dims.add(heads, heads_here);
  } else if (rank == 3 && by_token && !axis.varlen) {
    dims.add("batch", p.batch);
    dims.add(heads, heads_here);
    dims.add(names.rows, axis.rows);
  } else {
    dims.add("batch", p.batch);
    dims.add(heads, heads_here);
    if (rank == 2 && whole) return dims;
    const auto blocks = [](int64_t n, int64_t size) {
      return size == 0 ? 1 : (n + size - 1) / size;
    };
    dims.add("blocks of rows", blocks(axis.max_seqlen, block.rows));
    dims.add("blocks of columns", blocks(p.columns_of(id), block.cols));
  }
  return dims;
}

}  // namespace fa3
