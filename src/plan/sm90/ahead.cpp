// SPDX-License-Identifier: BSD-3-Clause
// ahead.cpp — for a problem's variant of a row, one compiled ahead that computes it, too.
#include "plan/sm90/ahead.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/dtype.h"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/decode/configs.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/variants.h"
#include "plan/sm90/quantize/configs.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

// ---- Forward ------------------------------------------------------------------------------------

// Whether all blocks of scales have whole tiles.
bool has_tiles(const Problem& p, int tile_kv) {
  return p.scale_block[kK].rows % tile_kv == 0 && p.scale_block[kV].rows % tile_kv == 0;
}

Status not_ahead(const Problem& p, const FwdVariant& variant) {
  if (variant.by_parts)
    return unsupported(
        "forward: batch_invariant with q of {}, head_dim_qk={}, head_dim_v={}: the simulator has "
        "it for bf16, head dims up to 64, o of bf16 and a positive softmax_scale, without softcap, "
        "ALiBi or sequence ids; use backend cpu",
        dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v);
  if (variant.kv != KvSource::kTensor)
    return unsupported(
        "forward: {} with q of {}, head_dim_qk={}, head_dim_v={}: the simulator has caches for "
        "bf16, equal head dims up to 128, those above 64 with page_size a multiple of 16, o of "
        "bf16 and a positive softmax_scale, without softcap, ALiBi or attn_mask; use backend cpu",
        p.cache.paged() ? "page_table"
        : p.cache.slots ? "kv_batch_idx"
                        : "kv_begin",
        dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v);
  if (variant.o_f32)
    return unsupported(
        "forward: o of f32 with q of {}: the simulator has it for bf16 and 8 bits, with a positive "
        "softmax_scale, a scale per head, and no softcap, ALiBi or sequence ids; use backend cpu",
        dtype_name(p.layout[kQ].dtype));
  if (variant.scale_columns > 0)
    return unsupported(
        "forward: q_block.cols={}, k_block.cols={}, v_block.cols={}, head_dim_qk={}, "
        "head_dim_v={}: the simulator has multiples of 64 on rows of head dim 128, and of 256 for "
        "f8_e4m3, with o of bf16 and without softcap, ALiBi and sequence ids; use backend cpu",
        p.scale_block[kQ].cols, p.scale_block[kK].cols, p.scale_block[kV].cols, p.head_dim_qk,
        p.head_dim_v);
  if (variant.kv_scales != KvScales::kHead)
    return unsupported(
        "forward: k_block.rows={}, v_block.rows={}, head_dim_qk={}, head_dim_v={}: the simulator "
        "has them with o of bf16 and v of f8_e4m3 only, and above head dim 64 only multiples of "
        "128; use backend cpu",
        p.scale_block[kK].rows, p.scale_block[kV].rows, p.head_dim_qk, p.head_dim_v);
  return unsupported(
      "forward: {}: q of {}, head_dim_qk={}, head_dim_v={}: the simulator has it for bf16 on rows "
      "of head dim 64 and 128 only; use backend cpu",
      variant.max_logit             ? "max_logit"
      : variant.functors.has_mask() ? "attn_mask"
      : variant.functors.any()      ? tensor_name(p.has_alibi() ? kAlibiSlopes : kSequenceIdsQ)
      : p.attention_chunk > 0       ? "attention_chunk"
                                    : "softcap or a negative softmax_scale with 8 bits and f16 o",
      dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v);
}

// ---- Backward -----------------------------------------------------------------------------------

// Fewer sequences in a launch than a grid has room for, so that several launches run.
constexpr int64_t kMostSequences = 3;

Status not_ahead(const Problem& p, const BwdConfig& config) {
  return unsupported(
      "backward: dtype {}, head_dim_qk={}, head_dim_v={}{}{}: the simulator has no such "
      "kernel, but some of bf16, with attn_mask those of f32, with that or a softcap none that "
      "is deterministic; use backend cpu",
      dtype_name(p.layout[kQ].dtype), p.head_dim_qk, p.head_dim_v,
      config.deterministic ? ", deterministic" : "",
      p.softcap > 0                           ? ", with a softcap"
      : p.has_mask()                          ? ", with attn_mask"
      : p.has_alibi() || p.has_sequence_ids() ? ", with ALiBi or sequence ids"
                                              : "");
}

// ---- Quantisation -------------------------------------------------------------------------------

// Whether a kernel for images of such tiles is compiled ahead.
bool is_ahead(const ImageTile& image) {
  const auto is = [&](const FwdConfig& c) {
    return c.load.v_image && c.tile.kv == image.keys && c.tile.head_dim_v == image.columns;
  };
  for (const FwdRow& row : kFwdRows) {
    if (is(row.config)) return true;
    const FwdVariants all = compiled_ahead(row);
    for (size_t i = 0; i < all.count; ++i)
      if (is(config_of(row, all.variant[i]))) return true;
  }
  return false;
}

template <class T, size_t n>
bool contains(const T (&list)[n], const T& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

}  // namespace

Result<FwdPlan> ahead_fwd_plan(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(FwdChoice choice, choose_fwd(p, device));
  FwdVariant& variant = choice.variant;
  if (variant.kv_scales == KvScales::kTiles && !has_tiles(p, choice.row->config.tile.kv))
    variant.kv_scales = KvScales::kKeys;
  const bool three = choice.row->config.tile.consumer_wgs == 3;
  const bool of_few = variant.by_parts || variant.max_logit || variant.mask == MaskKind::kChunk;
  if (of_few || (variant.kv != KvSource::kTensor && three)) {
    choice.plan.need.three_consumers = false;
    if (of_few)  // two consumers
      choice.plan.need.seqlen_q = most_rows(p.q) + kWgRows + 1;
    choice.row = choose_row(choice.plan.need);
    choice.plan.row = choice.row->name;
  }
  variant.kv = fwd_source(p, choice.row->config.tile.kv);
  variant = ahead(variant);
  if (!compiled_ahead(*choice.row).has(variant)) return not_ahead(p, variant);
  return fwd_plan_of(choice, config_of(*choice.row, variant), p, device);
}

// With more rows than there are, if need be.
std::optional<DecodeConfig> ahead_decode_config(const FwdPlan& forward, const Problem& p,
                                                const DeviceInfo& device) {
  std::optional<DecodeConfig> config = decode_config(forward, p, device);
  if (!config) return config;
  config->ragged = config->chunks = true, config->clusters = false;
  const DecodeHeadDims dims{config->head_dim_qk, config->head_dim_v};
  const int most = config->wide ? kMostDecodeRows : kMostNarrowRows;
  for (int rows = config->rows; rows <= most; rows *= 2) {
    DecodeConfig c = with_tiles(*config, dims, rows);
    c.kv = decode_source(p, c.tile_kv);
    c.one_tile = c.one_tile && rows < kMostNarrowRows;
    if (contains(kDecodeAhead, c)) return c;
  }
  return std::nullopt;
}

bool ahead_appends(const DecodeConfig& config, const Problem& p) {
  return can_append(config, p) && contains(kDecodeAhead, with_appends(config));
}

Result<std::vector<BwdPlan>> ahead_bwd_plans(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(const BwdChoice choice, choose_bwd(p, device));
  BwdConfig config = choice.config;
  config.sets_zeros = can_set_zeros(config, *choice.row);
  if (!is_simulated(config)) {
    config.ragged = true, config.sets_zeros = false;  // computes dense problems, too
    if (config.has_mask() && config.split()) config.functors = true;
    if (!is_simulated(config)) return not_ahead(p, config);
  }
  FA3_TRY(std::vector<BwdPlan> plans,
          bwd_plans_of(config, gradient_of(config), p, device, kMostSequences));
  return with_choice(std::move(plans), choice);
}

Result<std::vector<QuantizePlan>> ahead_quantize_plans(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(QuantizeConfig config, quantize_config(p));
  if (!contains(kTurnsAhead, config.turn))
    return unsupported(
        "quantize: {} of head_dim={} with hadamard={} and rotary_cos.shape[1]={}: the simulator "
        "has a choice of kernels only (src/plan/sm90/quantize/configs.h); use backend cpu",
        dtype_name(p.layout[kX].dtype), p.head_dim_qk, p.rotation.hadamard,
        p.rotation.rotary_dim / 2);
  if (p.image.keys > 0 && !is_ahead(p.image))
    return unsupported(
        "quantize: v_image with tiles of {} keys and {} columns: the simulator has those of the "
        "forward's rows only (src/plan/sm90/fwd/configs.h); use backend cpu",
        p.image.keys, p.image.columns);
  if (config.block_rows > 1 && !contains(kBlockRowsAhead, config.block_rows)) config.block_rows = 0;
  return quantize_plans_of(config, p, device);
}

}  // namespace fa3::sm90
