// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — what the Hopper kernel takes, which row of the table, and the grid.
#include "plan/sm90/fwd/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/tuning.h"
#include "device/attn/conventions.h"
#include "device/sm90/fwd/args.h"
#include "plan/sm90/features.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/rows.h"
#include "plan/sm90/roofline.h"
#include "plan/sm90/slices.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMaxTiles = int64_t{1} << 31;
constexpr int kColumnsUnit = 32;  // of 8-bit head dims and of blocks of scales: a wgmma's depth
constexpr int kLeastRun = 16;     // keys that TMA loads at a time as fast as they are multiplied
constexpr int64_t kMaxGridY = 65535;  // of the kernels before the forward: heads, sequences

// ---- What is declined ---------------------------------------------------------------------------

Status check_layout(const Problem& p, bool ragged) {
  FA3_RETURN_IF_ERROR(check_strides(p, kQ, ragged));
  if (p.cache.present()) {
    FA3_RETURN_IF_ERROR(check_cache(p));
  } else {
    for (const TensorId id : {kK, kV}) FA3_RETURN_IF_ERROR(check_strides(p, id, ragged));
    FA3_RETURN_IF_ERROR(check_axis(p, "key", kK, kV, ragged));
  }
  // O in FP32 is not addressed by TMA.
  const bool o_f32 = p.layout[kO].dtype == FA3_F32;
  FA3_RETURN_IF_ERROR(check_strides(p, kO, ragged && !o_f32));
  return check_axis(p, "query", kQ, o_f32 ? kQ : kO, ragged);
}

// Keys of a tile are a multiple of this.
int64_t keys_unit(const Problem& p) { return p.layout[kV].dtype == FA3_F8_E4M3 ? 32 : 16; }

// Columns of a block of scales; 0: of all.
int64_t block_columns(const Problem& p, TensorId id) {
  const int64_t columns = p.scale_block[id].cols;
  return p.is_8_bit() && columns < p.columns_of(id) ? columns : 0;
}

// FwdScores::scale_columns: the most that divide all blocks, and the head dims of GEMMs in 8 bits.
int scale_columns_of(const Problem& p) {
  int most = 0;
  for (const TensorId id : {kQ, kK, kV})
    if (block_columns(p, id) > 0) most = 128;
  const int64_t of_v = p.layout[kV].dtype == FA3_F8_E4M3 ? p.head_dim_v : 0;
  const int64_t all[] = {block_columns(p, kQ), block_columns(p, kK), block_columns(p, kV),
                         round_up(p.head_dim_qk, kColumnsUnit), round_up(of_v, kColumnsUnit)};
  for (const int64_t columns : all)
    while (most > kColumnsUnit && columns % most != 0) most /= 2;
  return most;
}

// Of K and V. Where they change along head_dim, the finer code takes those of heads, too.
KvScales kv_scales_of(const Problem& p) {
  KvScales of = scale_columns_of(p) > 0 ? KvScales::kTiles : KvScales::kHead;
  for (const TensorId id : {kK, kV}) {
    const int64_t rows = p.scale_block[id].rows;
    if (!p.is_8_bit() || rows == 0) continue;
    if (rows % keys_unit(p) != 0) return KvScales::kKeys;
    of = KvScales::kTiles;
  }
  return of;
}
bool has_block_scales(const Problem& p) { return kv_scales_of(p) != KvScales::kHead; }

// Whether FwdArgs::score_offset matters: there is a k_offset, and something that notices it.
bool needs_score_offset(const Problem& p) {
  return p.layout[kKOffset].present() && (p.layout[kLse].present() || p.softcap > 0);
}

// Scales that the kernel applies.
Status check_scales(const Problem& p) {
  for (const TensorId id : {kQ, kK, kV}) {
    const int64_t columns = block_columns(p, id);
    if (columns % kColumnsUnit != 0)
      return unsupported(
          "forward: {}_block.cols={} on sm90, need a multiple of {}, or 0, a scale for all "
          "columns; quantise by such blocks, or use backend cpu",
          tensor_name(id), columns, kColumnsUnit);
  }
  if (needs_score_offset(p))
    for (const auto& [what, value] : {std::pair("heads_q", p.heads_q), std::pair("batch", p.batch)})
      if (value > kMaxGridY)
        return unsupported(
            "forward: {}={} with k_offset and lse or softcap on sm90, need at most {}; split the "
            "batch",
            what, value, kMaxGridY);
  return {};
}

Status check_problem(const Problem& p) {
  const fa3_dtype dtype = p.layout[kQ].dtype, o = p.layout[kO].dtype;
  FA3_RETURN_IF_ERROR(check_features(p));
  const fa3_dtype v = p.layout[kV].dtype;
  if (o != FA3_F32 && p.is_8_bit() && is_16_bit(v) && v != o)
    return unsupported(
        "forward: o is {} and v is {} on sm90, need equal types, or o of f32; use backend cpu",
        dtype_name(o), dtype_name(v));
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_qk", p.head_dim_qk, dtype));
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_v", p.head_dim_v, p.layout[kV].dtype));
  FA3_RETURN_IF_ERROR(check_scales(p));
  if (v == FA3_F8_E4M3 && p.heads_kv > kMaxGridY)
    return unsupported(
        "forward: heads_kv={} with v of f8_e4m3 on sm90, need at most {}; split the heads",
        p.heads_kv, kMaxGridY);
  return check_layout(p, has_lengths(p));
}

// ---- Choices ------------------------------------------------------------------------------------

// The length that rows of the table are chosen by. Varlen: long sequences weigh more than the mean
// says; twice the mean was within 2 % of the best row for log-normal lengths. Rows for short
// queries take all sequences or none.
int64_t typical_rows(const SeqAxis& axis, int64_t batch) {
  const int64_t most = most_rows(axis);
  if (!axis.varlen || most <= kWgRows || batch == 0) return most;
  return std::clamp<int64_t>(2 * axis.rows / batch, kWgRows + 1, most);
}

int64_t count_tiles(const Problem& p, int tile_q) {
  if (!p.q.varlen) return div_up(p.q.rows, tile_q) * p.heads_q * p.batch;
  // Every sequence, and the rows of none, may end in a partial tile.
  return (p.q.rows / tile_q + p.batch + 1) * p.heads_q;
}

// Is a tile of 192 queries by three consumers better than one of 128 by two? A query takes less
// time in it, a fifth at head dim 64, but fewer tiles may fill the last wave worse. The
// counter balances uneven tiles when every SM gets a few, unless much of them is empty.
bool is_small(const Problem& p) { return std::max(p.head_dim_qk, p.head_dim_v) <= 64; }
bool three_consumers_pay(const Problem& p, MaskKind mask, int64_t sms) {
  const bool small = is_small(p);
  const auto queries_of_sm = [&](int tile_q) {
    return div_up(count_tiles(p, tile_q), sms) * tile_q;
  };
  if (mask != MaskKind::kFull || has_lengths(p)) {
    const bool by_mean = mask == MaskKind::kFull && !small;
    const int64_t rows = by_mean ? typical_rows(p.q, p.batch) : most_rows(p.q);
    const int64_t three = round_up(rows, 3 * kWgRows), two = round_up(rows, 2 * kWgRows);
    return 5 * three <= 6 * two && count_tiles(p, 3 * kWgRows) >= (small ? 1 : 2) * sms;
  }
  return 100 * queries_of_sm(3 * kWgRows) <= (small ? 120 : 107) * queries_of_sm(2 * kWgRows);
}

// Query heads that run concurrently, of a varlen tensor within a sequence: as many as have K and V
// in two thirds of the L2 cache, in groups of about equal size. Short sequences also move Q and O
// through it, and their long tiles must not all run at the same time: fewer heads, the more columns
// they have.
uint32_t head_group_of(const Problem& p, int tile_q, int64_t l2_bytes) {
  const int64_t heads = p.q.varlen ? p.heads_kv : p.heads_kv * p.batch;
  if (heads == 0 || p.heads_q == 0) return 1;
  const int64_t q_tiles = div_up(most_rows(p.q), tile_q);
  const int64_t columns = p.head_dim_qk + p.head_dim_v;
  const int64_t size = dtype_bytes(p.layout[kK].dtype);
  const int64_t bytes = std::max<int64_t>(most_rows(p.kv) * columns * size, 1);
  const int64_t most = std::min<int64_t>(64, (q_tiles <= 4 ? 8192 : 16384) / columns);
  const int64_t fit = std::min(l2_bytes * 2 / 3 / bytes, most / p.group_size());
  const int64_t groups = div_up(heads, std::clamp<int64_t>(fit, 1, heads));
  return static_cast<uint32_t>(div_up(heads, groups) * p.group_size());
}

// To zero the counter takes a node in the stream, some 2 µs. Tiles of different length balance by
// it; those of one length end together, but for what SMs differ in speed: 1 to 2 % of a long run.
bool counter_pays(const Problem& p, MaskKind mask, int64_t sms) {
  if (mask != MaskKind::kFull || has_lengths(p) || p.has_sequence_ids() || p.has_mask())
    return true;
  constexpr double kLong = 1e5;  // clocks of an SM's tensor cores: 100 µs at 60 % of their peak
  const double pairs = static_cast<double>(p.q.rows) * static_cast<double>(p.kv.rows);
  const double flops =
      2 * pairs * static_cast<double>(p.batch * p.heads_q * (p.head_dim_qk + p.head_dim_v));
  return flops >= kLong * kMmaFlops * static_cast<double>(sms);
}

Operands operands_of(const Problem& p) {
  if (!p.is_8_bit()) return Operands::k16;
  if (p.layout[kQ].dtype == FA3_F8_E4M3) return Operands::kE4m3;
  return p.layout[kV].dtype == FA3_F8_E4M3 ? Operands::kI8E4m3 : Operands::kI8V16;
}

// Of an E4M3 sum the tensor cores keep 13 bits and cut toward zero: a column of V that has a mean
// loses up to 2.8 % of it in as many keys, about what E4M3 is off by anyway, and twice that in
// twice as many (docs/guide/accuracy.md). With v_offset the mean is not in the sum.
constexpr int64_t kMostSummedKeys = 4096;

Sums sums_of(const Problem& p, const Band32& band) {
  if (p.layout[kV].dtype != FA3_F8_E4M3) return Sums::kShort;
  if (has_block_scales(p)) return Sums::kBlocks;
  if (p.layout[kVOffset].present()) return Sums::kShort;
  const bool bounded = band.left != Band32::kUnbounded && band.right != Band32::kUnbounded;
  const int64_t seen = bounded ? int64_t{band.left} + band.right + 1 : most_rows(p.kv);
  return std::min(seen, most_rows(p.kv)) > kMostSummedKeys ? Sums::kLong : Sums::kShort;
}

// ALiBi and attn_mask are added to scaled scores, and scales of blocks are part of them.
ScoreKind score_of(const Problem& p) {
  if (p.softcap > 0) return ScoreKind::kSoftcap;
  const bool adds = p.has_alibi() || adds_to_scores(mask_tensor_of(p));
  return p.softmax_scale < 0 || adds || has_block_scales(p) ? ScoreKind::kScaled
                                                            : ScoreKind::kPlain;
}

// What is added to scores by attn_mask is so in natural units (FwdMask::adds_tensor()).
void set_natural_scale(const Problem& p, FwdPlan& plan) {
  plan.score_factor = scale_in_fp32(p.softcap > 0 ? p.softmax_scale / p.softcap : p.softmax_scale);
  plan.scale_log2 = kLog2e;
  plan.slope_factor = 1;
}

void set_scale(const Problem& p, FwdPlan& plan) {
  if (plan.config.mask.adds_tensor()) return set_natural_scale(p, plan);
  switch (plan.config.scores.kind) {
    case ScoreKind::kSoftcap:
      plan.score_factor = scale_in_fp32(p.softmax_scale / p.softcap);
      plan.scale_log2 = scale_in_fp32(p.softcap * double{kLog2e});
      plan.slope_factor = scale_in_fp32(1 / p.softcap);
      break;
    case ScoreKind::kScaled:
      plan.score_factor = scale_in_fp32(p.softmax_scale * double{kLog2e});
      plan.scale_log2 = 1;
      plan.slope_factor = kLog2e;
      break;
    case ScoreKind::kPlain:
      plan.scale_log2 = scale_in_fp32(p.softmax_scale * double{kLog2e});
      break;
  }
}

// The first row with the image's tiles, also where three consumers would not pay but rows with two
// are for wider heads; where there is none, one that takes an image of its own.
const FwdRow* row_of_image(const Problem& p, const FwdFunctors& functors, RowNeed& need) {
  need.v_image = true;
  for (const int64_t keys : {p.image.keys, int64_t{0}}) {
    need.image_keys = keys;
    RowNeed three = need;
    three.three_consumers = !functors.any() && !has_block_scales(p);
    const FwdRow* const row = choose_row(need);
    const FwdRow* const other = choose_row(three);
    if (other != nullptr &&
        (row == nullptr || other->config.tile.head_dim_v < row->config.tile.head_dim_v)) {
      need = three;
      return other;
    }
    if (row != nullptr) return row;
  }
  return nullptr;
}

// An image of V is of the kernel's own tiles.
Status check_image(const Problem& p, const FwdRow& row, const FwdConfig& c) {
  const ImageTile& image = p.image;
  if (image.keys == 0) return {};
  const char* const remedy =
      "quantise v for what fa3_plan_v_image says of a plan without v_image, or leave v_image out";
  if (image.keys == c.tile.kv && image.columns == c.tile.head_dim_v) return {};
  return unsupported(
      "forward: v_image has tiles of {} keys and {} columns, but row '{}' of the table has {} and "
      "{}; {}",
      image.keys, image.columns, row.name, c.tile.kv, c.tile.head_dim_v, remedy);
}

// The row that a tuning names for the problem; `by_rule` where it names none that can run it.
const FwdRow* tuned_row(const Problem& p, const Tuning& tuning, const FwdFunctors& functors,
                        const FwdRow* by_rule, FwdPlan& plan) {
  const std::string* const name = tuning.row_of(p);
  if (name == nullptr || *name == kDecodeRow) return by_rule;  // decode is not chosen here
  const FwdRow* const row = row_named(*name);
  std::string why =
      row == nullptr ? "no row of the table is called so" : why_not(*row, plan.need, functors);
  if (why.empty() && row->config.tile.consumer_wgs == 3 &&
      fwd_source(p, row->config.tile.kv) == KvSource::kRows)
    why = "three consumers: copies of rows take their registers";
  plan.tuned = why.empty();
  if (plan.tuned) return row;
  plan.declined = fmt::format("{}: {}", *name, why);
  return by_rule;
}

}  // namespace

Status check_layout_of_codes(const Problem& p) {
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_qk", p.head_dim_qk, p.layout[kK].dtype));
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_v", p.head_dim_v, p.layout[kV].dtype));
  return check_layout(p, has_lengths(p));
}

KvSource fwd_source(const Problem& p, int tile_kv) {
  const KvSource source = kv_source(p, tile_kv, kLeastRun);
  return source == KvSource::kTiles ? KvSource::kRuns : source;
}

Program program_of(const FwdPlan& plan) {
  return {fwd_header(plan.config), fwd_expression(plan.config, plan.functors), kHopperArch};
}

LaunchShape shape_of(const FwdPlan& plan) {
  const FwdConfig& c = plan.config;
  LaunchShape shape;
  shape.grid[0] = plan.grid;
  shape.pdl = true;
  shape.threads = static_cast<u32>(c.threads());
  shape.smem_bytes = static_cast<u32>(c.smem_bytes());
  shape.interacting = plan.counter || c.output.max_logit;
  return shape;
}

int64_t v_image_tiles(const SeqAxis& axis, int64_t batch, int tile_kv) {
  return image_tiles(axis, batch, tile_kv) * (axis.varlen ? 1 : batch);
}

std::vector<Slice> writes(const FwdPlan& plan) {
  std::vector<Slice> slices;
  if (plan.counter)
    slices.push_back({.name = kTileCounterSlice, .bytes = sizeof(uint32_t), .zeroed = true});
  if (plan.part_bytes > 0)
    slices.push_back(
        {.name = kPartOSlice, .bytes = static_cast<size_t>(plan.part_bytes), .align = kCacheLine});
  return slices;
}

std::vector<const char*> reads(const FwdPlan& plan) {
  std::vector<const char*> names;
  if (plan.makes_v_image) names.push_back(kVImageSlice);
  if (plan.score_offset) names.push_back(kScoreOffsetSlice);
  if (!plan.config.mask.has_tensor()) return names;
  names.push_back(kMaskBitsSlice);
  names.push_back(kMaskTilesSlice);
  return names;
}

ImageTile image_of(const FwdPlan& plan) {
  const FwdConfig& c = plan.config;
  return c.load.v_image ? ImageTile{c.tile.kv, c.tile.head_dim_v} : ImageTile{};
}

std::optional<FwdPlan> wider(const FwdPlan& plan) {
  const FwdConfig& row = row_named(plan.row)->config;  // as wide with functors
  FwdPlan wide = plan;
  wide.config.tile.head_dim_qk = row.tile.head_dim_qk;
  wide.config.tile.head_dim_v = row.tile.head_dim_v;
  wide.config.output.in_q = row.output.in_q && !plan.config.output.f32;
  wide.config.output.parts = row.output.parts;
  if (plan.config.load.v_image) return std::nullopt;  // V was transposed for these head dims
  if (wide.config == plan.config) return std::nullopt;
  return wide;
}

FwdPlan with_config(FwdPlan plan, const FwdConfig& c, const Problem& p, int multiprocessors) {
  plan.config = c;
  plan.tiles = static_cast<uint32_t>(count_tiles(p, c.tile.q()));
  const bool persistent = c.overlap.schedule != FwdSchedule::kOneTile;
  plan.grid =
      persistent ? std::min(plan.tiles, static_cast<uint32_t>(multiprocessors)) : plan.tiles;
  plan.counter = plan.tiles > plan.grid && counter_pays(p, mask_of(plan.band), multiprocessors);
  plan.order.q_tiles = static_cast<uint32_t>(div_up(p.q.rows, c.tile.q()));
  plan.makes_v_image = c.load.v_image && p.image.keys == 0;
  plan.score_offset = needs_score_offset(p);
  const int part_tiles = c.accumulate.part_tiles;
  const bool parts = part_tiles > 0 && most_rows(p.kv) > int64_t{part_tiles} * c.tile.kv;
  const FwdRow* const row = row_named(plan.row);  // the kernel may be wider(), as wide as its row
  const int columns = std::max(c.tile.head_dim_v, row == nullptr ? 0 : row->config.tile.head_dim_v);
  plan.part_bytes = parts ? int64_t{plan.grid} * c.tile.q() * columns * 4 : 0;
  plan.mask = c.mask.has_tensor() ? mask_shape(p, c.tile.q(), c.tile.kv) : MaskShape{};
  return plan;
}

Result<FwdChoice> choose_fwd(const Problem& p, const DeviceInfo& device) {
  FA3_RETURN_IF_ERROR(check_problem(p));
  FwdChoice choice;
  FwdPlan& plan = choice.plan;
  plan.band = band_of(p);
  const MaskKind mask = mask_of(plan.band);
  const FwdFunctors functors{p.has_alibi(), p.has_sequence_ids(), mask_tensor_of(p)};
  const bool cached = p.cache.present();  // runs of keys are rows of whole panels
  plan.need = {cached ? round_up(p.head_dim_qk, 64) : p.head_dim_qk,
               cached ? round_up(p.head_dim_v, 64) : p.head_dim_v, mask, typical_rows(p.q, p.batch),
               // Blocks of scales seldom have a multiple of their keys.
               !functors.any() && !has_block_scales(p) &&
                   !(cached && (!is_small(p) || fwd_source(p, kLeastRun) == KvSource::kRows)) &&
                   three_consumers_pay(p, mask, device.multiprocessors),
               operands_of(p), sums_of(p, plan.band)};
  const bool o_f32 = p.layout[kO].dtype == FA3_F32;
  // Of all that has 16 bits.
  const fa3_dtype of_16 = o_f32 ? p.layout[kV].dtype : p.layout[kO].dtype;
  const MmaType dtype = of_16 == FA3_F16 ? MmaType::kF16 : MmaType::kBf16;
  choice.variant = {.dtype = dtype,
                    .mask = mask,
                    .score = score_of(p),
                    .ragged = has_lengths(p),
                    .functors = functors,
                    .operands = plan.need.operands,
                    .kv_scales = kv_scales_of(p),
                    .o_f32 = o_f32,
                    .scale_columns = scale_columns_of(p),
                    .kv = cached ? KvSource::kRuns : KvSource::kTensor,
                    .by_parts = p.batch_invariant != 0,
                    .max_logit = p.has_max_logit()};
  plan.need.plain = choice.variant.plain();
  choice.row = p.image.keys > 0 ? row_of_image(p, functors, plan.need) : choose_row(plan.need);
  if (choice.row == nullptr)
    return unsupported("forward: head_dim_qk={}, head_dim_v={}: no row of the table fits",
                       p.head_dim_qk, p.head_dim_v);
  // What was measured with scales of rows says nothing of those of columns.
  if (device.tuning && scale_columns_of(p) == 0 && p.batch_invariant == 0)
    choice.row = tuned_row(p, *device.tuning, functors, choice.row, plan);
  plan.row = choice.row->name;
  return choice;
}

Result<FwdPlan> fwd_plan_of(const FwdChoice& choice, const FwdConfig& config, const Problem& p,
                            const DeviceInfo& device) {
  const int64_t tiles = count_tiles(p, config.tile.q());
  if (tiles >= kMaxTiles)
    return unsupported("forward: {} tiles of {} queries, need fewer than 2^31; split the batch",
                       tiles, config.tile.q());
  // check_problem() asked for the layout of a kernel that is ragged only where lengths are.
  if (config.load.ragged != has_lengths(p))
    FA3_RETURN_IF_ERROR(check_layout(p, config.load.ragged));
  FA3_RETURN_IF_ERROR(check_image(p, *choice.row, config));
  FwdPlan plan = choice.plan;
  plan.functors = choice.variant.functors;
  plan = with_config(plan, config, p, device.multiprocessors);
  FA3_RETURN_IF_ERROR(check_mask_shape(plan.mask, "forward"));
  set_scale(p, plan);
  plan.order.heads = static_cast<uint32_t>(p.heads_q * p.batch);
  plan.order.longest_first = plan.need.mask != MaskKind::kFull;
  plan.order.head_group =
      plan.order.longest_first ? head_group_of(p, config.tile.q(), device.l2_bytes) : 1;
  return plan;
}

Result<FwdPlan> make_fwd_plan(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(const FwdChoice choice, choose_fwd(p, device));
  FwdConfig config = config_of(*choice.row, choice.variant);
  config.load.kv = fwd_source(p, config.tile.kv);
  for (const TensorId id : {kK, kV}) {
    const int64_t rows = p.scale_block[id].rows;
    if (config.scores.kv_scales != KvScales::kTiles || rows == 0) continue;
    while (rows % config.tile.kv != 0) config.tile.kv -= static_cast<int>(keys_unit(p));
  }
  return fwd_plan_of(choice, fitted(config, p.head_dim_qk, p.head_dim_v), p, device);
}

}  // namespace fa3::sm90
