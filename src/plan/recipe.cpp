// SPDX-License-Identifier: BSD-3-Clause
// recipe.cpp — the recipes, and where their tensors lie.
#include "plan/recipe.h"

#include "plan/cpu/cpu_plan.h"

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
  Recipe recipe;
  recipe.attention = p;
  recipe.attention.precision = FA3_PRECISION_DEFAULT;
  recipe.attention.rotation = {};
  Arena arena(nullptr);
  for (const TensorId id : {kQ, kK, kV}) {
    if (id == kV && choice.v == FA3_DTYPE_NONE) continue;
    Quantization& x = recipe.quantizations[recipe.count];
    recipe.inputs[recipe.count++] = id;
    const int64_t share = id == kQ ? choice.rows_q : id == kK ? rows.k : rows.v;
    x.problem = quantization_of(p, id, choice, share);
    const int64_t heads = p.heads_of(id), columns = p.columns_of(id);
    x.codes = arena.used();
    arena.take<std::byte>(p.entries_of(id) * p.axis_of(id).rows * heads * columns);
    x.scale = arena.used();
    const bool by_total_row = x.problem.block_of(kCodes).by_total_row;
    arena.take<float>(by_total_row ? p.axis_of(id).rows * heads
                                   : p.batch * x.problem.layout[kScale].batch);
    x.offset = arena.used();
    if (x.problem.layout[kOffset].present()) arena.take<float>(p.batch * heads * columns);
    recipe.attention.layout[id] = x.problem.layout[kCodes];
    recipe.attention.layout[scale_of(id)] = x.problem.layout[kScale];
    if (id != kQ) recipe.attention.layout[offset_of(id)] = x.problem.layout[kOffset];
    recipe.attention.scale_block[id] = x.problem.block_of(kCodes);
  }
  recipe.bytes = arena.used();
  return recipe;
}

Buffers buffers_of(const Recipe& recipe, int i, const Buffers& call, std::byte* workspace) {
  const Quantization& x = recipe.quantizations[i];
  const TensorId id = recipe.inputs[i];
  Buffers buffers;
  buffers.data[kX] = call.data[id];
  buffers.data[kCodes] = workspace + x.codes;
  buffers.data[kScale] = workspace + x.scale;
  if (x.problem.layout[kOffset].present()) buffers.data[kOffset] = workspace + x.offset;
  buffers.data[kCuSeqlens] = call.data[cu_seqlens_of(kTensors[id].axis)];
  buffers.data[kSeqused] = call.data[seqused_of(kTensors[id].axis)];
  return buffers;
}

Buffers attention_buffers(const Recipe& recipe, const Buffers& call, std::byte* workspace) {
  Buffers buffers = call;
  for (int i = 0; i < recipe.count; ++i) {
    const TensorId id = recipe.inputs[i];
    const Buffers of_input = buffers_of(recipe, i, call, workspace);
    buffers.data[id] = of_input.data[kCodes];
    buffers.data[scale_of(id)] = of_input.data[kScale];
    if (id != kQ) buffers.data[offset_of(id)] = of_input.data[kOffset];
  }
  return buffers;
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
