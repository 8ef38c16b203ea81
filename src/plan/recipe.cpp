// SPDX-License-Identifier: BSD-3-Clause
// recipe.cpp — the recipes, and where their tensors lie.
#include "plan/recipe.h"

namespace fa3 {
namespace {

// At most this wide, 16-bit V costs nothing beside 8-bit Q·Kᵀ: exponentials are the limit.
constexpr int64_t kNarrow = 64;

struct Choice {
  fa3_dtype qk, v;  // NONE: v keeps its type
  int64_t rows_q;   // rows of q that share a scale
  bool means;       // taken off k and v
};

Choice choice_of(const Problem& p, int64_t rows_q) {
  const bool keeps_v = p.precision == FA3_PRECISION_EIGHT_BIT_ACCURATE ||
                       (p.precision == FA3_PRECISION_EIGHT_BIT && p.head_dim_qk <= kNarrow);
  if (p.precision == FA3_PRECISION_FP8) return {FA3_F8_E4M3, FA3_F8_E4M3, rows_q, false};
  return {FA3_I8, keeps_v ? FA3_DTYPE_NONE : FA3_F8_E4M3, 1, true};
}

// The one tensor of the call, as fa3_quantize's x.
Problem quantization_of(const Problem& p, TensorId id, const Choice& choice, int64_t rows) {
  const SeqAxis& axis = p.axis_of(id);
  const int64_t heads = p.heads_of(id), columns = p.columns_of(id);
  Problem x;
  x.op = FA3_OP_QUANTIZE;
  x.batch = p.batch;
  x.q = axis;
  x.heads_q = x.heads_kv = heads;
  x.head_dim_qk = x.head_dim_v = columns;
  x.block_of(kCodes).rows = rows;
  x.rotation.seed = p.rotation.seed;
  const int64_t power = columns & -columns;
  x.rotation.hadamard = id == kV || power == 1 ? 0 : power;
  x.layout[kX] = p.layout[id];
  x.layout[kCodes] = {id == kV ? choice.v : choice.qk,
                      axis.varlen ? 0 : axis.rows * heads * columns, heads * columns, columns};
  if (axis.varlen && rows == 1) {  // a bound of lengths says little of how many rows there are
    x.block_of(kCodes).by_total_row = true;
    x.layout[kScale] = {FA3_F32, 0, heads, 1};
  } else {
    const int64_t blocks = rows == 0 ? 1 : (axis.max_seqlen + rows - 1) / rows;
    x.layout[kScale] = {FA3_F32, heads * blocks, 1, blocks};
  }
  if (choice.means && id != kQ) x.layout[kOffset] = {FA3_F32, heads * columns, 0, columns};
  return x;
}

}  // namespace

Recipe make_recipe(const Problem& p, const RecipeRows& rows) {
  const Choice choice = choice_of(p, rows.q);
  Recipe recipe{};
  Problem& attention = recipe.attention.problem;
  attention = p;
  attention.precision = FA3_PRECISION_DEFAULT;
  attention.rotation = {};
  // A tensor's elements in the workspace, in whole cache lines: what a quantisation writes and
  // attention reads.
  const auto place = [&](Part& quantization, TensorId written, TensorId read, int64_t bytes) {
    const size_t size = (static_cast<size_t>(bytes) + kCacheLine - 1) / kCacheLine * kCacheLine;
    const Slice slice{tensor_name(read), size, kCacheLine};
    recipe.slices.push_back({slice, 0, PlacedSlice::kWholePlan, 0});
    recipe.bytes = lay_out(recipe.slices);
    const size_t offset = recipe.slices.back().offset;
    quantization.sources.push_back({written, offset});
    recipe.attention.sources.push_back({read, offset});
    attention.layout[read] = quantization.problem.layout[written];
  };
  for (const TensorId id : {kQ, kK, kV}) {
    if (id == kV && choice.v == FA3_DTYPE_NONE) continue;
    Part& x = recipe.quantizations[static_cast<size_t>(recipe.count)];
    recipe.inputs[static_cast<size_t>(recipe.count++)] = id;
    const int64_t share = id == kQ ? choice.rows_q : id == kK ? rows.k : rows.v;
    x.problem = quantization_of(p, id, choice, share);
    const Axis axis = kTensors[id].axis;
    x.sources = {{kX, Part::Source::kOfCall, id},
                 {kCuSeqlens, Part::Source::kOfCall, cu_seqlens_of(axis)},
                 {kSeqused, Part::Source::kOfCall, seqused_of(axis)}};
    const int64_t heads = p.heads_of(id), columns = p.columns_of(id);
    const ScaleBlock& block = x.problem.block_of(kCodes);
    const int64_t scales =
        block.by_total_row ? p.axis_of(id).rows * heads : p.batch * x.problem.layout[kScale].batch;
    place(x, kCodes, id, p.entries_of(id) * p.axis_of(id).rows * heads * columns);
    place(x, kScale, scale_of(id), int64_t{sizeof(float)} * scales);
    if (x.problem.layout[kOffset].present())
      place(x, kOffset, offset_of(id), int64_t{sizeof(float)} * p.batch * heads * columns);
    attention.scale_block[id] = block;
  }
  return recipe;
}

const char* precision_name(fa3_precision precision) {
  switch (precision) {
    case FA3_PRECISION_DEFAULT:
      return "default";
    case FA3_PRECISION_FP8:
      return "fp8";
    case FA3_PRECISION_EIGHT_BIT:
      return "eight_bit";
    case FA3_PRECISION_EIGHT_BIT_ACCURATE:
      return "eight_bit_accurate";
  }
  return "unknown";
}

}  // namespace fa3
