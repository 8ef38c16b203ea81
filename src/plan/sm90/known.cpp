// SPDX-License-Identifier: BSD-3-Clause
// known.cpp — lists of kernels from the tables of rows.
#include "plan/sm90/known.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "plan/kernels.h"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/decode/configs.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/kernels.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/fwd/variants.h"

namespace fa3::sm90 {
namespace {

constexpr int kHeadDims[] = {64, 96, 128, 192, 256};  // of the forward's table

VImagePlan v_image_of(const VImageConfig& config) {
  VImagePlan plan;
  plan.config = config;
  return plan;
}

// The greatest power of two that divides head_dim: what Hadamard transforms have.
int hadamard_of(int head_dim) { return head_dim & -head_dim; }

MaskBitsPlan mask_bits_of(MaskTensor type, bool bf16, int tile_q, int tile_kv) {
  MaskBitsPlan plan;
  plan.config.type = type, plan.config.bf16 = bf16;
  plan.config.tile_q = tile_q, plan.config.tile_kv = tile_kv;
  return plan;
}

// A type of attn_mask's elements.
struct MaskType {
  MaskTensor type;
  bool bf16;
};
constexpr MaskType kMaskTypes[] = {{MaskTensor::kBool, false},
                                   {MaskTensor::kF32, false},
                                   {MaskTensor::k16, false},
                                   {MaskTensor::k16, true}};

// The passes of a backward with that configuration.
void add_passes(BwdPlan plan, const BwdRow& row, NamedKernels& list) {
  for (const auto pass : {BwdPass::kBound, BwdPass::kDelta, BwdPass::kMain, BwdPass::kDq}) {
    if (pass == BwdPass::kBound && !plan.config.deterministic) continue;
    plan.pass = pass;
    plan.config.sets_zeros = false;
    list.add(plan);
    plan.config.sets_zeros = true;
    if (can_set_zeros(plan.config, row)) list.add(plan);
  }
  plan.pass = BwdPass::kSinks;
  list.add(plan);
  if (!plan.config.adds_mask()) return;
  plan.pass = BwdPass::kMaskGradient, plan.config.sets_zeros = false;
  for (const BwdConfig& gradient : mask_gradients_of(plan.config)) {
    plan.gradient = gradient;
    list.add(plan);
  }
}

}  // namespace

Result<std::vector<NamedProgram>> known_forward(std::string_view name) {
  FA3_TRY(const std::vector<FwdKernel> kernels, fwd_kernels(name));
  NamedKernels images;
  std::vector<NamedProgram> programs;
  for (const FwdKernel& kernel : kernels) {
    const FwdConfig& c = kernel.config;
    const size_t known = images.programs.size();
    if (c.load.v_image) images.add(v_image_of({c.turned_v(), c.load.ragged}));
    if (images.programs.size() > known) programs.push_back(images.programs.back());
    FwdPlan plan;
    plan.config = c, plan.functors = kernel.functors;
    programs.push_back({kernel.name, program_of(plan)});
  }
  return programs;
}

// Q has a scale for each row; K, rotated like it, and V for each head. FP8 finds their maxima; with
// INT8 means are taken off, which finds them, too.
std::vector<NamedProgram> known_quantizing() {
  NamedKernels list;
  for (const int head_dim : kHeadDims) {
    for (const FloatType x : {FloatType::kF16, FloatType::kBf16}) {
      const auto add = [&](QuantizePass pass, int hadamard, bool to_i8, int block_rows) {
        QuantizePlan plan;
        plan.pass = pass;
        plan.config.turn.x = x;
        plan.config.turn.head_dim = head_dim, plan.config.turn.hadamard = hadamard;
        plan.config.to_i8 = to_i8, plan.config.block_rows = block_rows;
        list.add(plan);
      };
      const int rotated = hadamard_of(head_dim);
      for (const bool to_i8 : {false, true}) add(QuantizePass::kCodes, rotated, to_i8, 1);
      for (const int hadamard : {rotated, 0}) {
        add(QuantizePass::kMaxima, hadamard, false, 0);
        add(QuantizePass::kMeans, hadamard, false, 0);
        add(QuantizePass::kCodes, hadamard, false, 0);
      }
      add(QuantizePass::kCodes, rotated, true, 0);
    }
    ScoreOffsetPlan offset;
    offset.config = score_offset_config(FA3_I8, head_dim);
    list.add(offset);
  }
  return list.programs;
}

std::vector<NamedProgram> known_v_images() {
  NamedKernels list;
  for (const FwdRow& row : kFwdRows) {
    if (!row.config.load.v_image) continue;
    for (const int columns : kHeadDims)
      for (const bool ragged : {false, true})
        if (columns <= row.config.tile.head_dim_v)
          list.add(v_image_of({{row.config.tile.kv, columns}, ragged}));
  }
  return list.programs;
}

std::vector<NamedProgram> known_mask_readers() {
  NamedKernels list;
  for (const MaskType& mask : kMaskTypes) {
    for (const FwdRow& row : kFwdRows) {
      if (!row.takes(Operands::k16) || row.plain_only || row.config.tile.consumer_wgs == 3)
        continue;
      FwdVariant variant;
      variant.functors.attn_mask = mask.type;
      const FwdConfig c = config_of(row, variant);
      list.add(mask_bits_of(mask.type, mask.bf16, c.tile.q(), c.tile.kv));
    }
    if (mask.type == MaskTensor::kBool) {
      for (const BwdRow& row : kBwdRows)
        if (!row.config.staggered())
          list.add(mask_bits_of(mask.type, mask.bf16, row.config.tile_q, row.config.tile_kv()));
      continue;
    }
    MaskImagePlan image;
    image.config.type = mask.type, image.config.bf16 = mask.bf16;
    list.add(image);
  }
  return list.programs;
}

namespace {

// Those of a configuration that differ in how many CTAs there are, and what merges their parts.
void add_decode(DecodePlan decode, const DecodeHeadDims& dims, NamedKernels& list) {
  DecodeConfig& c = decode.config;
  const int rows = c.rows;
  const int most = !two_fit(c, dims, rows) ? 1 : c.appends ? with_appends(c).ctas_per_sm : 2;
  for (int ctas = 1; ctas <= most; ++ctas) {
    c = with_tiles(c, dims, rows, ctas);
    list.add(decode);
  }
  if (can_have_clusters(c)) {
    c = with_clusters(c, dims);
    if (c.appends) c = with_appends(c);
    list.add(decode);
    c.clusters = false;
  }
  CombinePlan combine;
  combine.config = combine_of(c);
  if (c.score == ScoreKind::kPlain && !c.tree) list.add(combine);
}

}  // namespace

std::vector<NamedProgram> known_decode(bool with_terms, std::string_view name) {
  NamedKernels list;
  // Whether one of both begins with the other.
  const auto may_be = [name](const std::string& family) {
    const size_t common = std::min(family.size(), name.size());
    return name.substr(0, common) == std::string_view(family).substr(0, common);
  };
  constexpr ScoreKind kScores[] = {ScoreKind::kPlain, ScoreKind::kSoftcap, ScoreKind::kScaled};
  for (const DecodeHeadDims& dims : kDecodeHeadDims) {
    for (const DecodeTile& tile : kDecodeTiles) {
      const int rows = tile.rows;
      DecodePlan least;
      least.config.wide = tile.wide;
      least.config = with_tiles(least.config, dims, rows);
      if (!may_be(fmt::format("decode/d{}/rows{}", head_dims_text(least), rows)) &&
          !may_be(fmt::format("combine/d{}/rows{}", dims.v, rows)))
        continue;
      for (int variant = 0; variant < (with_terms ? 1152 : 16); ++variant) {
        DecodePlan decode;
        DecodeConfig& c = decode.config;
        c.wide = tile.wide, c.one_tile = tile.one_tile;
        c.dtype = (variant & 1) != 0 ? MmaType::kF16 : MmaType::kBf16;
        c.ragged = (variant & 2) != 0;
        c.kv = kKvSources[variant / 4 % 4];
        c.o_f32 = (variant & 16) != 0;
        c.alibi = (variant & 32) != 0;
        c.score = kScores[variant / 64 % 3];
        c.appends = variant / 192 % 2 != 0;
        c.tree = variant / 384 == 1;
        c.chunks = variant / 384 == 2;
        if (c.appends && (!c.ragged || !c.one_tile || c.wide || rows == kMostNarrowRows)) continue;
        if (c.cached() && !c.ragged) continue;
        if (c.alibi && c.score == ScoreKind::kPlain) continue;
        for (const int part_tiles : {0, kPartTiles}) {
          if (part_tiles > 0 && (!with_terms || c.tree || (rows == kWgRows && !tile.wide))) break;
          c.part_tiles = part_tiles;
          // The names as far as the type of the operands.
          const std::string of_rows =
              fmt::format("{}{}{}{}{}/{}", tile.one_tile ? "" : "/several",
                          part_tiles > 0 ? "/parts" : "", c.appends ? "/appends" : "",
                          c.tree ? "/tree" : "", c.chunks ? "/chunks" : "", word(c.dtype));
          if (!may_be(fmt::format("decode/d{}/rows{}{}{}", head_dims_text(least), rows,
                                  tile.wide ? "/wide" : "", of_rows)) &&
              !may_be(fmt::format("combine/d{}/rows{}{}", dims.v, rows, of_rows)))
            continue;
          c.rows = rows;
          for (int codes = 0; codes < 3; ++codes) {
            c.kv8 = codes > 0, c.q8 = codes == 2;
            if (c.kv8 && (c.wide || c.appends || part_tiles > 0)) continue;
            add_decode(decode, dims, list);
          }
        }
      }
    }
  }
  return list.programs;
}

std::vector<NamedProgram> known_appends() {
  NamedKernels list;
  for (const MmaType type : {MmaType::kF16, MmaType::kBf16}) {
    for (const FloatType table : {FloatType::kF32, FloatType::kF16, FloatType::kBf16}) {
      AppendPlan append;
      append.config = {type, table};
      list.add(append);
    }
  }
  return list.programs;
}

std::vector<NamedProgram> known_merges() {
  constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBf16};
  NamedKernels list;
  for (const FloatType parts : kTypes) {
    for (const FloatType o : kTypes) {
      MergePlan merge;
      merge.config = {parts, o};
      list.add(merge);
    }
  }
  return list.programs;
}

std::vector<NamedProgram> known_backward(bool with_terms) {
  NamedKernels list;
  for (const BwdRow& row : kBwdRows) {
    for (int variant = 0; variant < (with_terms ? 128 : 32); ++variant) {
      constexpr MaskTensor kMasks[] = {MaskTensor::kNone, MaskTensor::kBool, MaskTensor::kF32,
                                       MaskTensor::k16};
      BwdPlan plan;
      plan.config = row.config;
      plan.config.dtype = (variant & 1) != 0 ? MmaType::kF16 : MmaType::kBf16;
      plan.config.ragged = (variant & 2) != 0;
      plan.config.softcap = (variant & 4) != 0;
      plan.config.functors = (variant & 8) != 0;
      plan.config.deterministic = (variant & 16) != 0;
      plan.config.attn_mask = kMasks[variant / 32];
      if (!with_terms && (plan.config.softcap || plan.config.functors)) continue;
      if (why_illegal(plan.config) == nullptr) add_passes(plan, row, list);
    }
  }
  return list.programs;
}

std::vector<NamedProgram> known_programs() {
  std::vector<NamedProgram> all = known_forward("fwd").value();
  for (const std::vector<NamedProgram>& more :
       {known_decode(false), known_quantizing(), known_backward(false), known_merges(),
        known_appends()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name) {
  if (name.substr(0, name.find('/')) == "fwd") return known_forward(name);
  const bool in_full = name.find('/') != name.npos;
  std::vector<NamedProgram> programs;
  add_named(known_quantizing(), name, programs);
  if (name.starts_with("decode") || name.starts_with("combine"))
    add_named(known_decode(in_full, name), name, programs);
  add_named(known_merges(), name, programs);
  add_named(known_appends(), name, programs);
  if (name.starts_with("v_image")) add_named(known_v_images(), name, programs);
  if (name.starts_with("mask_")) add_named(known_mask_readers(), name, programs);
  add_named(known_backward(in_full), name, programs);
  return programs;
}

}  // namespace fa3::sm90
